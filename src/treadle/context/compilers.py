"""Context: from stored messages to what the model sees. Compilers, and wrappers around them.

The store is never changed, and a call stays with its result: all of them work on whole exchanges.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias, cast

from treadle.context.shortening import MEDIA_CHARS
from treadle.errors import ConfigurationError, shown
from treadle.fields import checked, explained
from treadle.messages import Media, Message, Part, Result, Text, Thinking, ToolCall, user_message
from treadle.ports import Compiler, RequestNeed, RequestView, SessionView
from treadle.tools import Tool

__all__ = [
    "CurrentTrace",
    "Injected",
    "Redacted",
    "Sections",
    "WholeHistory",
    "Window",
    "compiler_for",
    "exchanges_of",
    "instructions_with_guidance",
]

_parts = attrgetter("parts")

Compiled: TypeAlias = Sequence[Message] | Awaitable[Sequence[Message]]
"""What a compiler returns: messages, or a coroutine of them."""


def _then(compiled: Compiled, change: Callable[[Sequence[Message]], Sequence[Message]]) -> Compiled:
    """Change what another compiler returns, once it is there."""
    if not inspect.isawaitable(compiled):
        return change(compiled)

    async def later() -> Sequence[Message]:
        return change(await compiled)

    return later()


class WholeHistory:
    """Every message as it was stored (`history="all"`). Append-only, so that providers can cache the prefix."""

    @explained
    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return all messages except empty ones, which providers refuse."""
        has_empty = getattr(session, "has_empty_messages", None)
        if has_empty is None:  # a view of somebody else's
            has_empty = session.state.has_empty_messages
        return tuple(filter(_parts, session.messages)) if has_empty else session.messages


class CurrentTrace:
    """The whole conversation, with calls and results of the current run only (`history="current"`)."""

    @explained
    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return earlier tasks and answers without their calls and results, then everything of the current run."""
        run = session.state.run
        begins = run.first_message if run is not None else 0
        before = (message for message in session.messages[:begins] if message.role != "tool" and not message.calls)
        return tuple(message for message in (*before, *session.messages[begins:]) if message.parts)


class Sections:
    """Named sections in a fixed order, such as summary, buffer, messages.

    Example:
        Sections({"summary": lambda session: [user_message(notes)], "messages": WholeHistory().compile},
                 order=("summary", "messages"))

    Raises:
        ConfigurationError: The order names a section that does not exist.
    """

    @checked
    def __init__(
        self,
        sections: Mapping[str, Callable[[SessionView], Sequence[Message]]],
        *,
        order: Sequence[str] = ("summary", "buffer", "messages"),
    ) -> None:
        if not isinstance(sections, Mapping):
            raise ConfigurationError(f"Sections must be functions by name; got {shown(sections)}.")
        chosen = [name for name in order if name in sections]
        if unknown := set(sections) - set(order):
            raise ConfigurationError(f"Sections {sorted(unknown)} are not in the order {list(order)}.")
        self._sections = [sections[name] for name in chosen]

    @explained
    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return the messages of the sections in their order."""
        return tuple(message for section in self._sections for message in section(session))


class Window:
    """The last whole exchanges that fit into a number of tokens; the first message and the run's own task always stay.

    A model with a smaller known window gets fewer. Each refusal of a request as too long halves the room.

    Args:
        tokens: Room for the messages, at four characters a token (1,500 tokens a picture) unless `count` says otherwise.
        count: Returns the tokens of one message.
    """

    @checked
    def __init__(self, compiler: Compiler, *, tokens: int, count: Callable[[Message], int] | None = None) -> None:
        if type(tokens) is not int or tokens < 1:
            raise ConfigurationError(f"Window tokens must be a whole number of at least 1; got {shown(tokens)}.")
        self._compiler = compiler
        self._tokens = tokens
        self._count = count or estimated_tokens

    @explained
    def compile(self, session: SessionView) -> Compiled:
        """Return what always stays and as many of the last exchanges as fit; the very last one in any case."""
        return _then(self._compiler.compile(_request_view(session)), lambda messages: self._fitting(messages, session))

    def _fitting(self, messages: Sequence[Message], session: SessionView) -> Sequence[Message]:
        exchanges = exchanges_of(messages)
        task = _task_of(session)
        kept = {index for index, exchange in enumerate(exchanges) if index == 0 or exchange[0] is task}
        room = self._room(session) - sum(self._size(exchanges[index]) for index in kept)
        for index in reversed(range(len(exchanges))):
            if index in kept:
                continue
            room -= self._size(exchanges[index])
            if room < 0 and index < len(exchanges) - 1:
                break
            kept.add(index)
        return tuple(message for index in sorted(kept) for message in exchanges[index])

    def _room(self, session: SessionView) -> int:
        need = getattr(session, "need", None)
        if not isinstance(need, RequestNeed):
            return self._tokens
        most = self._tokens if need.window is None else min(self._tokens, need.window - need.fixed_tokens)
        return most >> need.overflows

    def _size(self, exchange: Sequence[Message]) -> int:
        return sum(map(self._count, exchange))


def _task_of(session: SessionView) -> Message | None:
    """Return the message that the run under way began with: without it, the model would not know what it is doing."""
    run, messages = session.state.run, session.messages
    return messages[run.first_message] if run is not None and run.first_message < len(messages) else None


class Injected:
    """A text before the last user message, such as what a search found for it.

    Args:
        find: A function of the session that returns the text to add, or None.
    """

    @checked
    def __init__(self, compiler: Compiler, find: Callable[[SessionView], str | None]) -> None:
        self._compiler = compiler
        self._find = find

    @explained
    def compile(self, session: SessionView) -> Compiled:
        """Return the messages with the found text before the last user message; calls stay with their results."""
        return _then(
            self._compiler.compile(_request_view(session)), lambda messages: self._with_text(messages, session)
        )

    def _with_text(self, found: Sequence[Message], session: SessionView) -> Sequence[Message]:
        messages = tuple(found)
        text = self._find(session)
        places = [index for index, message in enumerate(messages) if message.role == "user"]
        if not text or not places:
            return messages
        return (*messages[: places[-1]], user_message(text), *messages[places[-1] :])


class Redacted:
    """Every message as a function returns it. The function may change parts, never roles or ids."""

    @checked
    def __init__(self, compiler: Compiler, redact: Callable[[Message], Message]) -> None:
        self._compiler = compiler
        self._redact = redact

    @explained
    def compile(self, session: SessionView) -> Compiled:
        """Return the redacted messages."""
        compiled = self._compiler.compile(_request_view(session))
        return _then(compiled, lambda messages: tuple(map(self._redact, messages)))


def _request_view(session: SessionView) -> RequestView:
    """Return what a compiler inside another is given: the same. A view of somebody else's may lack the need of a request."""
    return cast("RequestView", session)


def compiler_for(history: str) -> Compiler:
    """Return the compiler by its word in `Agent(history=...)`.

    Raises:
        ConfigurationError: The word is neither `all` nor `current`.
    """
    match history:
        case "all":
            return WholeHistory()
        case "current":
            return CurrentTrace()
        case _:
            raise ConfigurationError(f"history is 'all' or 'current'; got {shown(history)}.")


def estimated_tokens(message: Message) -> int:
    """Return about how many tokens a message takes: four characters each, and a fixed number for what is not text."""
    return sum(map(_chars, message.parts)) // 4 + 1


def _chars(part: Part) -> int:
    match part:
        case Text(text=text) | Thinking(text=text) | ToolCall(arguments=text):
            return len(text)
        case Result(content=content, media=media):
            return len(content) + sum(map(_chars, media))
        case Media(media_type=kind, base64=str(content)) if kind.startswith("text/"):
            return len(content)
        case Media():
            return MEDIA_CHARS
        case _:
            return 0


def exchanges_of(messages: Iterable[Message]) -> list[list[Message]]:
    """Cut messages where that parts no call from its result."""
    exchanges: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and exchanges:
            exchanges[-1].append(message)
        else:
            exchanges.append([message])
    return exchanges


def instructions_with_guidance(
    instructions: str | None, tools: Iterable[Tool], *, unavailable: Sequence[str] = ()
) -> str | None:
    """Return the instructions with the longer advice of each tool behind them, under the tool's name.

    Args:
        unavailable: Names of the toolsets whose tools are missing: the model would look for them.
    """
    advice = [f"## {tool.name}\n{tool.guidance}" for tool in tools if tool.guidance]
    if unavailable:
        advice.append(f"These toolsets are unavailable now, and their tools are missing: {', '.join(unavailable)}.")
    parts = [instructions] if instructions else []
    return "\n\n".join(parts + advice) or None
