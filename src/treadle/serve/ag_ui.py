"""AG-UI: a session and its runs for a client that speaks the Agent User Interaction Protocol. Knows no web framework."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    CustomEvent,
    FunctionCall,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)
from ag_ui.encoder import EventEncoder

from treadle import Agent, ConfigurationError, Run, Session, SessionHeld
from treadle import Message as Said
from treadle.errors import ApprovalExpired, RunHandedOver, UnknownApproval, UnknownInput
from treadle.events import (
    AnyPublicEvent,
    PublicAnswer,
    PublicCall,
    PublicEnd,
    PublicMessage,
    PublicProgress,
    PublicQuestion,
    PublicReasoning,
    PublicResult,
    PublicText,
    PublicUsage,
    Revealed,
    public_events,
)

__all__ = ["serve_ag_ui"]

_EXPECTED = (ApprovalExpired, RunHandedOver, SessionHeld, UnknownApproval, UnknownInput)
"""What a client may cause, or a server that ends: the client reads it, and nobody else needs to."""
_ANSWER = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}, "editedArgs": {"type": "object"}},
    "required": ["approved"],
}
"""What answers a request for consent."""


async def serve_ag_ui(
    agent: Agent[Any, Any],
    session: Session,
    body: bytes | str,
    *,
    deps: Any = None,  # Any: the application's own object
    by: str = "person",
    show: Collection[Revealed] = (),
    state: Callable[[Session], Any] | None = None,
    on_run: Callable[[Run[Any]], None] | None = None,
) -> AsyncIterator[bytes]:
    """Carry out one AG-UI request in a session, and yield its events as server-sent events.

    A request with a new user message begins a run, one with `resume` answers the questions of a paused run and continues it. One with
    neither continues what broke off. A client without messages is sent the conversation first. Closing the iterator cancels the run.

    Example:
        @app.post("/agent")
        async def answer(request: Request) -> StreamingResponse:
            return StreamingResponse(serve(await request.body()), media_type="text/event-stream")

    Args:
        agent: Who acts.
        session: The conversation: open the one that belongs to the person who is signed in. The thread's id is a name, not a proof.
        body: The request's body, a `RunAgentInput`.
        deps: As for `agent.run`.
        by: Who answers questions, for the record.
        show: What the client sees besides: see `public_events`.
        state: Returns the JSON value of the state snapshots, which are sent at the start and the end of a run; None for none.
        on_run: Called with the run before it begins, such as to hand it over at the end of the process.

    Raises:
        ConfigurationError: The body is not a `RunAgentInput`, or `show` has an unknown word.
        Exception: What the run raised, such as JournalError, after the client has read that the run ended.
    """
    given = _parsed(body)
    encode = EventEncoder().encode
    exchange = _Exchange(agent, session, given, deps=deps, by=by, show=show)
    async for event in exchange.events(state, on_run):
        yield encode(event).encode()


def _parsed(body: bytes | str) -> RunAgentInput:
    try:
        return RunAgentInput.model_validate_json(body)
    except pydantic.ValidationError as error:
        places = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        raise ConfigurationError(f"The body is not a RunAgentInput of AG-UI: {places}.") from error


class _Exchange:
    """One request, and the run that it begins or continues."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        session: Session,
        given: RunAgentInput,
        *,
        deps: Any,
        by: str,
        show: Collection[Revealed],
    ) -> None:
        self._agent = agent
        self._session = session
        self._given = given
        self._deps = deps
        self._by = by
        self._show = show
        self._thread = _Thread(given)

    async def events(
        self, state: Callable[[Session], Any] | None, on_run: Callable[[Run[Any]], None] | None
    ) -> AsyncIterator[BaseEvent]:
        """Yield the events of the exchange, the end of its run last."""
        thread, history = self._thread, [one async for one in public_events(self._session.events(), show=self._show)]
        thread.recall(history)
        yield RunStartedEvent(thread_id=self._given.thread_id, run_id=self._given.run_id)
        if not self._given.messages and history:
            yield MessagesSnapshotEvent(messages=_messages(history))
        if state is not None:
            yield StateSnapshotEvent(snapshot=state(self._session))
        failure: Exception | None = None
        try:
            async for event in self._run(on_run):
                for one in thread.events(event):
                    yield one
        except Exception as error:  # noqa: BLE001 - whatever it is, the client reads first that the run has ended
            thread.failed(error)
            failure = None if isinstance(error, _EXPECTED) else error
        for one in thread.close():
            yield one
        if state is not None:
            yield StateSnapshotEvent(snapshot=state(self._session))
        yield thread.end()
        if failure is not None:
            raise failure

    async def _run(self, on_run: Callable[[Run[Any]], None] | None) -> AsyncIterator[AnyPublicEvent]:
        run = await self._begun()
        if run is not None:
            if on_run is not None:
                on_run(run)
            async with run:
                async for event in public_events(run, show=self._show):
                    yield event

    async def _begun(self) -> Run[Any] | None:
        """Return the run that the request begins or continues; None where there is nothing to do."""
        given, session = self._given, self._session
        for entry in given.resume or ():
            await _answer(session, entry, self._thread.questions.get(entry.interrupt_id), self._by)
        last = given.messages[-1] if given.messages else None
        if not given.resume and isinstance(last, UserMessage):
            return self._agent.stream(_task(last), session=session, deps=self._deps)
        if given.resume or session.state.run_status == "running":
            return self._agent.stream_resume(session, deps=self._deps)
        return None


async def _answer(session: Session, entry: ResumeEntry, question: PublicQuestion | None, by: str) -> None:
    payload = entry.payload
    is_cancelled = entry.status == "cancelled"
    if question is not None and question.kind == "input":
        await (session.cancel(by=by) if is_cancelled else session.input(question.call_id, payload, by=by))
        return
    answer = {"approved": payload} if isinstance(payload, bool) else payload if isinstance(payload, dict) else {}
    is_allowed = not is_cancelled and answer.get("approved") is True
    edited = answer.get("editedArgs") if is_allowed else None
    reason = answer.get("reason")
    await session.answer(
        entry.interrupt_id,
        "allow" if is_allowed else "deny",
        reason=reason if isinstance(reason, str) else "",
        arguments=edited if isinstance(edited, dict) else None,
        by=by,
    )


def _task(message: UserMessage) -> Said:
    """Return the message of a person, with its images and files."""
    content = message.content
    parts = [_part(one) for one in content] if not isinstance(content, str) else [{"kind": "text", "text": content}]
    return msgspec.convert({"role": "user", "parts": parts}, Said)


def _part(part: Any) -> dict[str, str]:  # Any: one of the protocol's five kinds
    if part.type == "text":
        return {"kind": "text", "text": part.text}
    source = part.source
    if source.type == "file":
        raise ConfigurationError("A file that only its provider can read cannot be given to the model. Send its bytes.")
    where = "base64" if source.type == "data" else "url"
    return {"kind": "media", "media_type": source.mime_type or f"{part.type}/*", where: source.value}


class _Thread:
    """What was sent of one run, and what must still be closed."""

    def __init__(self, given: RunAgentInput) -> None:
        self._given = given
        self._open: PublicText | PublicReasoning | None = None
        self._used = TokenUsage(input_tokens=0, output_tokens=0)
        self._end: PublicEnd | None = None
        self._failure: RunErrorEvent | None = None
        self.questions: dict[str, PublicQuestion] = {}
        """What waits for a person, by id."""

    def recall(self, history: list[AnyPublicEvent]) -> None:
        """Take in what happened before."""
        for event in history:
            self._ask(event)
            if isinstance(event, PublicEnd):
                self._end = event

    def failed(self, error: Exception) -> None:
        """End the run with an error, whose own words are not for the client."""
        is_held = isinstance(error, SessionHeld)
        message = "Another run is under way." if is_held else "The request could not be carried out."
        self._failure = RunErrorEvent(message=message, code=type(error).__name__)

    def events(self, event: AnyPublicEvent) -> Iterator[BaseEvent]:
        """Yield what one event is in the protocol."""
        self._ask(event)
        if isinstance(event, PublicText | PublicReasoning):
            yield from self._piece(event)
            return
        yield from self.close()
        match event:
            case PublicCall():
                yield ToolCallStartEvent(
                    tool_call_id=event.call_id, tool_call_name=event.tool, parent_message_id=event.message_id
                )
                yield ToolCallArgsEvent(tool_call_id=event.call_id, delta=event.arguments or "{}")
                yield ToolCallEndEvent(tool_call_id=event.call_id)
            case PublicResult():
                yield ToolCallResultEvent(
                    message_id=f"{event.call_id}.result", tool_call_id=event.call_id, content=_content(event)
                )
            case PublicProgress():
                value = {"toolCallId": event.call_id, "text": event.text, "done": event.done, "total": event.total}
                yield CustomEvent(name="progress", value=value)
            case PublicUsage():
                self._used = TokenUsage(
                    input_tokens=(self._used.input_tokens or 0) + event.input_tokens,
                    output_tokens=(self._used.output_tokens or 0) + event.output_tokens,
                )
            case PublicEnd():
                self._end = event

    def close(self) -> Iterator[BaseEvent]:
        """End the message that is open."""
        match self._open:
            case PublicText(message_id=message_id):
                yield TextMessageEndEvent(message_id=message_id)
            case PublicReasoning(message_id=message_id):
                yield ReasoningMessageEndEvent(message_id=f"{message_id}.reasoning")
                yield ReasoningEndEvent(message_id=f"{message_id}.reasoning")
        self._open = None

    def end(self) -> BaseEvent:
        """Return the last event of the run."""
        if self._failure is not None:
            return self._failure
        end = self._end or PublicEnd(status="completed")
        if end.status in ("stopped", "failed") and end.reason != "cancelled":
            return RunErrorEvent(message=end.next_step, code=end.reason, usage=[self._used])
        outcome: Any = RunFinishedSuccessOutcome()
        if end.reason == "cancelled":
            outcome = RunFinishedCancelledOutcome()
        elif end.status == "paused" and self.questions:
            outcome = RunFinishedInterruptOutcome(interrupts=[self._interrupt(one) for one in self.questions.values()])
        return RunFinishedEvent(
            thread_id=self._given.thread_id,
            run_id=self._given.run_id,
            result=end.output,
            outcome=outcome,
            usage=[self._used],
        )

    def _ask(self, event: AnyPublicEvent) -> None:
        if isinstance(event, PublicQuestion):
            self.questions[event.id] = event
        elif isinstance(event, PublicAnswer):
            self.questions.pop(event.id, None)
        elif isinstance(event, PublicResult):
            self.questions = {id_: one for id_, one in self.questions.items() if one.call_id != event.call_id}

    def _piece(self, event: PublicText | PublicReasoning) -> Iterator[BaseEvent]:
        is_new = type(self._open) is not type(event) or self._open is None or self._open.message_id != event.message_id
        if is_new:
            yield from self.close()
            self._open = event
        if isinstance(event, PublicText):
            if is_new:
                yield TextMessageStartEvent(message_id=event.message_id, role="assistant")
            yield TextMessageContentEvent(message_id=event.message_id, delta=event.text)
            return
        message_id = f"{event.message_id}.reasoning"
        if is_new:
            yield ReasoningStartEvent(message_id=message_id)
            yield ReasoningMessageStartEvent(message_id=message_id)
        yield ReasoningMessageContentEvent(message_id=message_id, delta=event.text)

    def _interrupt(self, question: PublicQuestion) -> Interrupt:
        expires_at = question.expires_at
        is_approval = question.kind == "approval"
        about = {} if question.arguments is None else {"arguments": question.arguments}
        return Interrupt(
            id=question.id,
            reason="tool_call" if is_approval else "input_required",
            message=question.text or (f"Allow {question.tool}?" if is_approval else None),
            tool_call_id=question.call_id or None,
            response_schema=_ANSWER if is_approval else None,
            expires_at=None if expires_at is None else datetime.fromtimestamp(expires_at, UTC).isoformat(),
            metadata={"tool": question.tool, **about},
        )


def _content(event: PublicResult) -> str:
    return event.content if event.content is not None else event.text or event.status


def _messages(history: list[AnyPublicEvent]) -> list[Message]:
    """Return the messages of a conversation, each once and in order."""
    spoken: dict[str, AssistantMessage] = {}
    found: list[Message] = []
    for event in history:
        match event:
            case PublicMessage(role="user"):
                found.append(UserMessage(id=f"{event.run_id}.{event.seq}", content=event.text))
            case PublicMessage():
                found.append(AssistantMessage(id=f"{event.run_id}.{event.seq}", content=event.text))
            case PublicText() | PublicCall():
                if (message := spoken.get(event.message_id)) is None:
                    message = spoken[event.message_id] = AssistantMessage(id=event.message_id)
                    found.append(message)
                if isinstance(event, PublicText):
                    message.content = (message.content or "") + event.text
                else:
                    call = FunctionCall(name=event.tool, arguments=event.arguments or "{}")
                    message.tool_calls = [*(message.tool_calls or []), ToolCall(id=event.call_id, function=call)]
            case PublicResult():
                result_id = f"{event.call_id}.result"
                found.append(ToolMessage(id=result_id, tool_call_id=event.call_id, content=_content(event)))
    return found
