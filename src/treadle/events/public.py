"""Public events: what of a run a browser may see. Made of events, and of nothing that was not chosen for people.

A traceback, the message of an error, arguments, rules and the whole of a result stay behind unless they are asked for.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.events.base import PublicEvent
from treadle.events.calls import (
    ApprovalAnswered,
    ApprovalRequested,
    ToolFinished,
    ToolInput,
    ToolProgress,
    ToolStarted,
    ToolSuspended,
)
from treadle.events.codec import AnyEvent
from treadle.events.models import ModelDelta, ModelFailed, ModelFinished, ModelStarted
from treadle.events.runs import MessageAdded, RunFinished, RunPaused, RunResumed, RunStarted
from treadle.fields import checked
from treadle.messages import Message, Thinking, ToolCall, Usage
from treadle.stops import StopReason
from treadle.tools import JsonObject

__all__ = [
    "AnyPublicEvent",
    "PublicAnswer",
    "PublicCall",
    "PublicEnd",
    "PublicEvent",
    "PublicMessage",
    "PublicProgress",
    "PublicQuestion",
    "PublicReasoning",
    "PublicResult",
    "PublicStart",
    "PublicText",
    "PublicUsage",
    "Revealed",
    "Unshown",
    "public_events",
]

Revealed: TypeAlias = Literal["reasoning", "arguments", "results", "rules"]
"""What is shown only where it is asked for."""


class PublicStart(PublicEvent, frozen=True, kw_only=True, tag="start"):
    """A run begins, or continues."""

    is_resumed: bool = False
    """Whether it continues a run that had paused, stopped or broken off."""


class PublicMessage(PublicEvent, frozen=True, kw_only=True, tag="message"):
    """A message of a person, or one that was imported with an earlier conversation."""

    role: Literal["user", "assistant"] = "user"
    """Who speaks."""
    text: str = ""
    """Its text."""


class PublicText(PublicEvent, frozen=True, kw_only=True, tag="text"):
    """A piece of the text that the model writes."""

    message_id: str = ""
    """The message that it belongs to. All pieces of one message have the same."""
    text: str = ""
    """The piece."""
    offset: int = 0
    """Characters of the message that come before it. A client that connects again may be sent a message from its beginning."""


class PublicReasoning(PublicEvent, frozen=True, kw_only=True, tag="reasoning"):
    """A piece of the model's reasoning."""

    message_id: str = ""
    """The message that it precedes."""
    text: str = ""
    """The piece."""
    offset: int = 0
    """Characters of the reasoning that come before it."""


class PublicCall(PublicEvent, frozen=True, kw_only=True, tag="call"):
    """The model calls a tool."""

    message_id: str = ""
    """The message that the call is a part of."""
    call_id: str = ""
    """Id of the call."""
    tool: str = ""
    """Name of the tool."""
    arguments: str | None = None
    """The raw text of its arguments; None unless they are shown."""


class PublicProgress(PublicEvent, frozen=True, kw_only=True, tag="progress"):
    """How far a running call is, in the tool's words for people."""

    call_id: str = ""
    """Id of the call."""
    text: str = ""
    """What the tool reports."""
    done: float | None = None
    """How much is done, in the tool's own unit."""
    total: float | None = None
    """How much there is in all."""


class PublicResult(PublicEvent, frozen=True, kw_only=True, tag="result"):
    """A call has ended."""

    call_id: str = ""
    """Id of the call."""
    tool: str = ""
    """Name of the tool."""
    status: str = ""
    """`ok`, `denied`, `failed`, `timeout`, or another status of a result."""
    text: str = ""
    """What the tool shows people of it (`ToolOutput.display`); empty without that, and for a call that is not `ok`."""
    content: str | None = None
    """What the model reads; None unless results are shown."""


class PublicQuestion(PublicEvent, frozen=True, kw_only=True, tag="question"):
    """The run waits for a person: for consent to a call (`session.answer`), or for an input (`session.input`)."""

    id: str = ""
    """What the answer names: the id of the approval, or of the call that waits for an input."""
    kind: Literal["approval", "input"] = "approval"
    """What is asked for."""
    call_id: str = ""
    """Id of the call that waits."""
    tool: str = ""
    """Name of the tool."""
    text: str = ""
    """The question of a tool that waits for an input. Of an approval, where arguments are shown, what is true after the call."""
    expires_at: float | None = None
    """When it can no longer be answered, in seconds since 1970; None for no such time."""
    arguments: JsonObject | None = None
    """What the call would be made with; None unless arguments are shown."""
    rule: str = ""
    """The rule that asks, and its reason; empty unless rules are shown."""


class PublicAnswer(PublicEvent, frozen=True, kw_only=True, tag="answer"):
    """A question has been answered."""

    id: str = ""
    """The question's id."""
    answer: Literal["allow", "deny", "input"] = "input"
    """`allow` or `deny`; `input` for an input."""


class PublicUsage(PublicEvent, frozen=True, kw_only=True, tag="usage"):
    """What one response of the model has used."""

    input_tokens: int = 0
    """Prompt tokens."""
    output_tokens: int = 0
    """Completion tokens."""


class PublicEnd(PublicEvent, frozen=True, kw_only=True, tag="end"):
    """The run has ended, or pauses for a person."""

    status: str = ""
    """`completed`, `stopped`, `failed` or `paused`."""
    reason: str = ""
    """The stop reason, such as `completed` or `approval_required`."""
    next_step: str = ""
    """What a person can do next, in one sentence."""
    text: str = ""
    """The answer; empty for a run that has not completed."""
    output: Any = None
    """The structured answer of a completed run. A JSON value."""


AnyPublicEvent: TypeAlias = (
    PublicStart
    | PublicMessage
    | PublicText
    | PublicReasoning
    | PublicCall
    | PublicProgress
    | PublicResult
    | PublicQuestion
    | PublicAnswer
    | PublicUsage
    | PublicEnd
)
"""Every public event."""


@checked
async def public_events(
    events: AsyncIterable[AnyEvent], *, show: Collection[Revealed] = ()
) -> AsyncGenerator[AnyPublicEvent]:
    """Yield what of a run's events a browser may see: texts, names of calls, what tools show people, progress, questions, usage, the end.

    Without `show`, no arguments, results, rules or reasoning. Never a traceback, an exception's message, or what a server said of
    an error. What the model writes is shown as it is.

    Example:
        async for event in public_events(run):
            await response.write(encode_sse(event))

    Args:
        events: A run of `agent.stream`, `follow(journal, session_id, live=True)`, or events of `session.events()`.
        show: What else to show: `reasoning`, `arguments`, `results` (what the model reads of a call that is `ok`), `rules`.

    Raises:
        ConfigurationError: `show` has another word.
    """
    view = _View(frozenset(show))
    try:
        async for event in events:
            made = list(view.of(event))
            for one in made[:-1]:  # only the last one says that a client has all of the event
                yield msgspec.structs.replace(one, seq=0)
            for one in made[-1:]:
                yield one
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


class _View:
    """Turns the events of one session into public ones."""

    def __init__(self, show: frozenset[str]) -> None:
        self._show = show
        self._text = Unshown()
        self._reasoning = Unshown(_reasoning_in)
        self._calls: set[str] = set()

    def of(self, event: AnyEvent) -> Iterator[AnyPublicEvent]:
        """Return the public events of one event, which are mostly none or one."""
        origin: Any = {"session_id": event.session_id, "run_id": event.run_id, "seq": event.seq}
        match event:
            case RunStarted() | RunResumed():
                self._text, self._reasoning = Unshown(), Unshown(_reasoning_in)
                yield PublicStart(is_resumed=isinstance(event, RunResumed), **origin)
            case MessageAdded(source="task" | "steer" | "import", message=Message(role="user" | "assistant" as role)):
                if event.message.text:
                    yield PublicMessage(role=role, text=event.message.text, **origin)
            case ModelStarted() | ModelDelta() | ModelFinished():
                yield from self._of_response(event, origin)
            case ModelFailed(usage=Usage() as usage):
                yield _usage(usage, origin)
            case RunPaused():
                yield PublicEnd(status="paused", reason=event.reason, next_step=_next_step(event.reason), **origin)
            case RunFinished():
                yield _end(event, origin)
            case _:
                yield from self._of_call(event, origin)

    def _of_response(self, event: ModelStarted | ModelDelta | ModelFinished, origin: Any) -> Iterator[AnyPublicEvent]:
        if event.act is None:
            place = origin | {"message_id": f"{event.run_id}.{event.step}"}
            if "reasoning" in self._show and (piece := self._reasoning.new_in(event)):
                yield PublicReasoning(text=piece, offset=self._reasoning.length - len(piece), **place)
            if piece := self._text.new_in(event):
                yield PublicText(text=piece, offset=self._text.length - len(piece), **place)
            for call in event.message.calls if isinstance(event, ModelFinished) else ():
                yield from self._call(call.id, call.name, call, place)
        if isinstance(event, ModelFinished):
            yield _usage(event.usage, origin)

    def _of_call(self, event: AnyEvent, origin: Any) -> Iterator[AnyPublicEvent]:
        call_id = event.call_id or ""
        match event:
            case ToolStarted(early=True):
                place = origin | {"message_id": f"{event.run_id}.{event.step}"}
                yield from self._call(call_id, event.tool, event.call, place)
            case ToolProgress():
                yield PublicProgress(call_id=call_id, text=event.message, done=event.done, total=event.total, **origin)
            case ToolFinished(result=result):
                text = "" if result.is_error else result.display or ""
                content = result.content if "results" in self._show and not result.is_error else None
                status = result.status.value
                yield PublicResult(
                    call_id=call_id, tool=result.name, status=status, text=text, content=content, **origin
                )
            case ApprovalRequested():
                yield self._question(event, origin)
            case ToolSuspended(asks=asks) if asks:
                for ask in asks:
                    yield self._question(ask, origin)
            case ToolSuspended(reason="input_required", due_at=None):
                asked = event.waits_for
                yield PublicQuestion(id=call_id, kind="input", call_id=call_id, tool=event.tool, text=asked, **origin)
            case ApprovalAnswered():
                yield PublicAnswer(id=event.approval_id, answer=event.answer, **origin)
            case ToolInput():
                yield PublicAnswer(id=call_id, **origin)

    def _call(self, call_id: str, tool: str, call: ToolCall | None, place: Any) -> Iterator[PublicCall]:
        """Yield a call that was not shown yet: one that starts early is recorded before its response."""
        if call_id not in self._calls:
            self._calls.add(call_id)
            arguments = call.arguments if call is not None and "arguments" in self._show else None
            yield PublicCall(call_id=call_id, tool=tool, arguments=arguments, **place)

    def _question(self, asked: ApprovalRequested, origin: Any) -> PublicQuestion:
        return PublicQuestion(
            id=asked.approval_id,
            call_id=asked.call_id or "",
            tool=asked.tool,
            text=asked.expected_result if "arguments" in self._show else "",
            expires_at=asked.expires_at,
            arguments=asked.arguments if "arguments" in self._show else None,
            rule=": ".join(filter(None, (asked.rule, asked.reason))) if "rules" in self._show else "",
            **origin,
        )


def _usage(usage: Usage, origin: Any) -> PublicUsage:
    return PublicUsage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, **origin)


def _end(event: RunFinished, origin: Any) -> PublicEnd:
    about: dict[str, Any] = {"status": event.status, "reason": event.reason}
    if event.completed:
        return PublicEnd(text=event.text, output=event.output, **about, **origin)
    return PublicEnd(next_step=_next_step(event.reason), **about, **origin)


def _next_step(reason: str) -> str:
    return StopReason(reason).next_step if reason in set(StopReason) else ""


# --- Unshown: which part of a streamed text has not been shown yet. Values only; opens no stream.


def _text_in(part: ModelDelta | Message) -> str:
    return part.text


def _reasoning_in(part: ModelDelta | Message) -> str:
    if isinstance(part, ModelDelta):
        return part.thinking
    return "".join([one.text for one in part.parts if isinstance(one, Thinking)])


class Unshown:
    """The text of one step: what was shown of it, and what the response under way has brought so far.

    Args:
        read: Returns the text of a piece, or of a whole message.
    """

    def __init__(self, read: Callable[[ModelDelta | Message], str] = _text_in) -> None:
        self._read = read
        self._step = 0
        self._shown = ""
        self._received = ""
        self.length = 0
        """Characters that were shown of the step."""

    def new_in(self, event: ModelStarted | ModelDelta | ModelFinished) -> str:
        """Return the text of an event that was not shown before. A repeated request sends its text from the start."""
        match event:
            case ModelStarted():
                if event.step != self._step:
                    self._step, self._shown, self.length = event.step, "", 0
                self._received = ""
                return ""
            case ModelDelta():
                return self._more(self._received + self._read(event))
            case ModelFinished():  # a model that sends no pieces sends it all at once
                return "" if self._received else self._more(self._read(event.message))

    def _more(self, received: str) -> str:
        self._received = received
        if self._shown.startswith(received):
            return ""
        # What was shown cannot be taken back: a response that differs from it begins anew on a line of its own.
        new = received[len(self._shown) :] if received.startswith(self._shown) else f"\n{received}"
        self._shown = received
        self.length += len(new)
        return new
