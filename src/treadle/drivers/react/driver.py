"""The ReAct driver: the model writes each step as a JSON decision, so that any model that writes JSON can use tools.

It proposes the same calls as the native driver, and executes none: budgets, policies and guards are the pipeline's.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import msgspec

from treadle.drivers.react.decisions import DecisionForm, DecisionUnfit, OutputMode, ReActDecision, check_decision
from treadle.drivers.react.prompt import REWORD, note, react_instructions, rejection
from treadle.drivers.react.transcript import Transcript
from treadle.errors import ConfigurationError, IncompleteStream, ModelError, ModelResponseInvalid, shown
from treadle.fields import checked
from treadle.messages import Finish, Message, Part, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import (
    DecisionFailure,
    Executor,
    Model,
    ModelEnd,
    ModelPart,
    ModelRequest,
    RequestFailed,
    ResponseSetAside,
    TextDelta,
    ThinkingDelta,
)
from treadle.tools import Tool
from treadle.validation.characters import is_damaged, joined

__all__ = ["BoundReActDriver", "ReActDecision", "ReActDriver"]

_MAX_KEPT_CHARS = 4000
"""Characters of an unreadable decision that stay in the transcript."""


_DAMAGED = "Your answer arrived with broken characters, so nothing in it was carried out. Write it again."


class ReActDriver:
    """Reasoning and acting in words: thought, type, tool, args, answer.

    Example:
        Agent("ollama:gemma3", tools=[search], driver=ReActDriver(output="json_schema"))

    Args:
        output: `json`: the model answers with one JSON object. `json_schema`: the provider is held to the decision's schema.
            `text`: the object may stand among other words.
        max_retries: How often the model is told what was wrong with its decision, and asked again, in one step.
        final_via_inference: Whether one more request, over the whole conversation, words the final answer; a model to ask
            that one instead.
        decision: A decision type of your own (a msgspec Struct, a pydantic model, a JSON Schema), with `read`.
        read: Turns a value of that type into a ReActDecision.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

    @checked
    def __init__(
        self,
        *,
        output: OutputMode = "json",
        max_retries: int = 2,
        final_via_inference: bool | Model = False,
        decision: Any = None,  # Any: a type, or a JSON Schema
        read: Callable[[Any], ReActDecision] | None = None,
    ) -> None:
        if output not in ("json", "json_schema", "text"):
            raise ConfigurationError(f"output is 'json', 'json_schema' or 'text'; got {shown(output)}.")
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ConfigurationError(f"max_retries is a whole number of 0 or more; got {shown(max_retries)}.")
        self._form = DecisionForm(output, kind=decision, read=read)
        self._is_own = decision is not None
        self._max_retries = max_retries
        self._final = final_via_inference

    @checked
    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> "BoundReActDriver":
        """Return the driver of one run."""
        final = model if self._final is True else self._final or None
        return BoundReActDriver(model, self._form, is_own=self._is_own, max_retries=self._max_retries, final=final)


class BoundReActDriver:
    """The ReAct driver of one run."""

    def __init__(
        self, model: Model, form: DecisionForm, *, is_own: bool, max_retries: int, final: Model | None
    ) -> None:
        self._model = model
        self._form = form
        self._is_own = is_own
        self._max_retries = max_retries
        self._final = final
        self._transcript = Transcript()

    async def propose(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield one decision of the model as a call or an answer; what it took to get it is reported before."""
        asked, attempt = self._asked(request), 0
        while True:
            attempt += 1
            ended: list[ModelEnd] = []
            async for part in _thoughts(self._model, asked, ended):
                yield part
            if not ended:
                return  # incomplete: the loop tries again
            end = ended[0]
            if end.finish is Finish.REFUSED or end.is_broken_off:
                yield _refused(end)
                return
            try:
                decision = self._decide(end, request)
            except DecisionUnfit as unfit:
                if attempt > self._max_retries:
                    yield _failed(end, unfit, attempt)
                    return
                yield _set_aside(end, unfit, attempt)
                correction = (
                    Message(role="assistant", parts=(Text(_text_of(end) or "{}"),)),
                    user_message(rejection(str(unfit))),
                )
                asked = msgspec.structs.replace(asked, messages=(*asked.messages, *correction))
                continue
            async for part in self._proposed(decision, end, request):
                yield part
            return

    def _asked(self, request: ModelRequest) -> ModelRequest:
        """Put tools and calls into words: nothing of them is on the wire (D12)."""
        schema = self._form.schema(request.tools, request.output_schema)
        said = note(request.tool_choice)
        instructions = react_instructions(
            request.instructions, request.tools, schema, answer=request.output_schema, is_own=self._is_own
        )
        return msgspec.structs.replace(
            request,
            messages=(*self._transcript.of(request.messages), *([user_message(said)] if said else [])),
            instructions=instructions,
            tools=(),
            tool_choice="auto",
            output_schema=self._form.wire_schema(request.tools, request.output_schema),
        )

    def _decide(self, end: ModelEnd, request: ModelRequest) -> ReActDecision:
        if end.finish is Finish.LENGTH:
            raise DecisionUnfit("extraction", ["Your answer was cut off by the output limit: write a shorter one."])
        said = joined(_text_of(end))
        if end.has_damaged_text or is_damaged(said):
            raise DecisionUnfit("extraction", [_DAMAGED])
        decision = self._form.extract(said)
        check_decision(decision, request.tools, request.tool_choice)
        return decision

    async def _proposed(
        self, decision: ReActDecision, end: ModelEnd, request: ModelRequest
    ) -> AsyncGenerator[ModelPart, None]:
        if decision.type == "call_tool":
            if decision.thought:
                yield TextDelta(decision.thought)
            yield _as_call(decision, end)
            return
        if self._final is None:
            if decision.thought:
                yield ThinkingDelta(decision.thought)
            yield TextDelta(decision.answer_text)
            yield _as_answer(decision, end)
            return
        fallback = msgspec.structs.replace(_as_answer(decision, end), usage=Usage())
        yield ResponseSetAside(reason="reworded", parts=end.parts, usage=end.usage, fallback=fallback)
        async for part in self._final_inference(self._final, decision, request, fallback):
            yield part

    async def _final_inference(
        self, model: Model, decision: ReActDecision, request: ModelRequest, draft: ModelEnd
    ) -> AsyncGenerator[ModelPart, None]:
        """Ask again, for the answer itself. Where that fails, the draft is the answer."""
        drafted = Message(role="assistant", parts=(Text(decision.answer_text),))
        asked = msgspec.structs.replace(
            request,
            messages=(*self._transcript.of(request.messages), drafted, user_message(REWORD)),
            tools=(),
            tool_choice="auto",
        )
        stream = model.stream(asked)
        is_own, has_begun, end = model is self._model, False, None
        try:
            async for part in stream:
                if isinstance(part, ModelEnd):
                    end = part
                elif isinstance(part, TextDelta | ThinkingDelta):  # and no call: it could begin early
                    has_begun = True
                    yield part
            _check_answered(end)
        except ModelError as error:
            yield RequestFailed(error=error)
            spent = error.usage or (None if has_begun else Usage())  # None: estimated, because something arrived
            yield msgspec.structs.replace(draft, usage=spent, price=None if is_own else model.price)
        else:
            assert end is not None
            yield _with_answer(end, model, decision, is_own=is_own)
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()


async def _thoughts(model: Model, request: ModelRequest, ended: list[ModelEnd]) -> AsyncGenerator[ModelPart, None]:
    """Yield what may be shown while the decision is being written, and leave the whole of it in `ended`."""
    stream = model.stream(request)
    try:
        async for part in stream:
            match part:
                case ModelEnd():
                    ended.append(part)
                case ThinkingDelta():
                    yield part
                case _:
                    pass  # pieces of JSON, which nobody wants to read
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def _text_of(end: ModelEnd) -> str:
    return "".join(part.text for part in end.parts if isinstance(part, Text))


def _reasoning(end: ModelEnd) -> tuple[Part, ...]:
    return tuple(part for part in end.parts if isinstance(part, Thinking))


def _as_call(decision: ReActDecision, end: ModelEnd) -> ModelEnd:
    arguments = msgspec.json.encode(decision.args or {}).decode()
    call = ToolCall(id="", name=decision.tool or "", arguments=arguments)
    thought = (Text(decision.thought),) if decision.thought else ()
    return msgspec.structs.replace(end, parts=(*_reasoning(end), *thought, call), finish=Finish.CALLS)


def _as_answer(decision: ReActDecision, end: ModelEnd) -> ModelEnd:
    thought = (Thinking(text=decision.thought),) if decision.thought else ()
    parts = (*_reasoning(end), *thought, Text(decision.answer_text))
    return msgspec.structs.replace(end, parts=parts, finish=Finish.STOP)


def _check_answered(end: ModelEnd | None) -> None:
    """Refuse a final inference that does not answer, so that the draft stands. What a model refuses to say is not a failure.

    Raises:
        ModelError: It broke off, was cut off by the output limit, or says nothing.
    """
    what = "The response that was to give the final answer"
    error: ModelError
    if end is None or end.is_broken_off:
        error = IncompleteStream(f"{what} broke off.")
    elif end.finish is Finish.LENGTH:
        error = ModelResponseInvalid(f"{what} was cut off by the output limit.")
    elif end.finish is not Finish.REFUSED and not _text_of(end).strip():
        error = ModelResponseInvalid(f"{what} has no text.")
    else:
        return
    error.usage = None if end is None else end.usage
    raise error


def _with_answer(end: ModelEnd, model: Model, decision: ReActDecision, *, is_own: bool) -> ModelEnd:
    """Return the answer of the final inference; another model's is priced as that model's, and only its words are kept."""
    thought = (Thinking(text=decision.thought),) if decision.thought else ()
    parts = tuple(part for part in end.parts if isinstance(part, Text) or (is_own and isinstance(part, Thinking)))
    end = msgspec.structs.replace(end, parts=(*thought, *parts))
    if is_own:
        return end
    return msgspec.structs.replace(end, origin=end.origin or model.name, price=end.price or model.price)


def _refused(end: ModelEnd) -> ModelEnd:
    return msgspec.structs.replace(end, parts=tuple(part for part in end.parts if not isinstance(part, ToolCall)))


def _set_aside(end: ModelEnd, unfit: DecisionUnfit, attempt: int) -> ResponseSetAside:
    return ResponseSetAside(reason=unfit.reason, message=str(unfit), parts=end.parts, usage=end.usage, attempt=attempt)


def _failed(end: ModelEnd, unfit: DecisionUnfit, attempts: int) -> ModelEnd:
    """Return the end of a step that found no decision: a call that stands for it, and never runs."""
    details = tuple({"problem": problem} for problem in unfit.problems)
    message = f"No usable decision after {attempts} attempts ({unfit.reason}). {unfit}"
    failure = DecisionFailure(reason=unfit.reason, message=message, details=details, attempts=attempts)
    said = _text_of(end)
    kept = said if len(said) <= _MAX_KEPT_CHARS else said[:_MAX_KEPT_CHARS] + "..."
    call = ToolCall(id="", name=failure.code, arguments="{}")
    parts: tuple[Part, ...] = (Text(kept), call) if kept.strip() else (call,)
    return msgspec.structs.replace(end, parts=parts, finish=Finish.STOP, failure=failure)
