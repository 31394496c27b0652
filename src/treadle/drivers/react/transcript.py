"""Transcript: stored messages as a ReAct model reads them: Thought, Action, Observation. Pure: the store never changes."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from treadle.messages import Message, Part, Result, Text, Thinking, ToolCall

__all__ = ["Transcript", "action", "observed"]


_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_MARKS = re.compile(rf"(?<=[{_BREAKS}])(?=[^\S{_BREAKS}]*(?:Observation|Action|Thought)\s*:)", re.IGNORECASE)
"""Beginnings of lines, but the first, that look like ours."""


class Transcript:
    """The rendered messages of one run. Each is rendered once, so that adapters may encode each once too."""

    def __init__(self) -> None:
        # Both messages are kept: an id names an object only as long as that lives. Those no longer sent are let go.
        self._rendered: dict[int, tuple[Message, Message]] = {}

    def of(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return the messages without calls and results. The same ones give the same, so that prefixes stay stable."""
        before, self._rendered = self._rendered, {}
        return tuple(self._one(message, before) for message in messages)

    def _one(self, message: Message, before: dict[int, tuple[Message, Message]]) -> Message:
        known = before.get(id(message)) or self._rendered.get(id(message)) or (message, observed(message))
        self._rendered[id(message)] = known
        return known[1]


def observed(message: Message) -> Message:
    """Return one message as a ReAct model reads it."""
    match message.role:
        case "assistant" if message.calls:
            return msgspec.structs.replace(message, parts=(*_signed(message), Text(_thought(message))))
        case "assistant":
            kept = tuple(part for part in message.parts if not isinstance(part, Thinking) or _is_signed(part))
            return message if kept == message.parts else msgspec.structs.replace(message, parts=kept)
        case "tool":
            return Message(role="user", parts=tuple(_observations(message.results)))
        case _:
            return message


def action(call: ToolCall) -> str:
    """Return the line in which a call is shown."""
    return f'Action: {{"tool": {msgspec.json.encode(call.name).decode()}, "args": {call.arguments or "{}"}}}'


def _thought(message: Message) -> str:
    lines = [f"Thought: {_quoted(message.text)}"] if message.text else []
    return "\n".join([*lines, *(action(call) for call in message.calls)])


def _observations(results: Iterable[Result]) -> Iterator[Part]:
    shown = [f"Observation: {'ERROR - ' if result.is_error else ''}{_quoted(result.content)}" for result in results]
    yield Text("\n".join(shown))
    for result in results:
        yield from result.media


def _quoted(text: str) -> str:
    """Mark the lines of a text that look like ours: what a tool returns must not forge another observation."""
    return _MARKS.sub("> ", text)


def _signed(message: Message) -> Iterator[Part]:
    return (part for part in message.parts if isinstance(part, Thinking) and _is_signed(part))


def _is_signed(part: Thinking) -> bool:
    """Whether its provider wants it back. A thought of a decision is ours, and described in text where it belongs."""
    return part.signature is not None or part.payload is not None
