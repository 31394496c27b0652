"""Inspect: an agent as an Inspect agent, whose model is Inspect's, and tools as Inspect tools. Scores no answer: Inspect's scorers do."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import jsonref
import msgspec
from anyio import CancelScope
from inspect_ai.agent import Agent as InspectAgent
from inspect_ai.agent import AgentState
from inspect_ai.agent import agent as inspect_agent
from inspect_ai.event import ToolEvent
from inspect_ai.log import transcript
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    get_model,
    messages_to_openai,
)
from inspect_ai.model import Model as InspectsModel
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import TaskState
from inspect_ai.tool import Tool as InspectTool
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import (
    ToolCallError,
    ToolChoice,
    ToolDef,
    ToolError,
    ToolFunction,
    ToolInfo,
    ToolParams,
)
from inspect_ai.util import store
from pydantic import TypeAdapter

from treadle import Agent, ConfigurationError, Message, RunResult, Tool, ToolCall, allow, open_session
from treadle.errors import ContextOverflow, ModelRejected
from treadle.events import AnyEvent, MessageAdded, ModelFinished, ModelStarted, ToolFinished, ToolStarted, event_object
from treadle.fields import checked
from treadle.messages import Finish, Media, Opaque, Part, Result, Text, Thinking, Usage
from treadle.ports import CallReady, Journal, ModelEnd, ModelPart, ModelRequest, ToolSpec
from treadle.resolve import import_messages
from treadle.testing import Check, Observed, ScriptedCall, ScriptedModel, observe, text

__all__ = ["agent", "exact", "tools"]

_OBSERVED = "treadle"
"""Where a sample's store has what its sessions have done."""
_SHOWN_BY_INSPECT = (ModelStarted, ModelFinished, MessageAdded, ToolStarted, ToolFinished)
"""Events that Inspect has in a form of its own: a model event or a tool event."""


@checked
def agent(
    agent: Agent[Any, Any],
    *,
    deps: Any = None,  # Any: the application's own object
    journal: str | Journal = "memory:",
) -> InspectAgent:
    """Return an agent as an Inspect agent: a solver, a tool or a party of a handoff. Each sample is a session of its own.

    Inspect's model takes the place of the agent's: that of `inspect eval --model`, with its limits, retries, cache and log. The agent's tools,
    policy, budget and guards apply. The transcript has each call as a tool event, and other events as infos of the source `treadle`.
    A call that needs a person's consent pauses the run, and nobody answers in an eval: give the agent a policy that decides.

    Example:
        @task
        def shop() -> Task:
            return Task(dataset=samples, solver=treadle.integrations.inspect.agent(my_agent), scorer=includes())

    Args:
        agent: Who acts.
        deps: As for `agent.run`.
        journal: Where the sessions are stored, such as `evals.db`.
    """

    @inspect_agent(name=agent.name or "treadle")
    def made() -> InspectAgent:
        async def execute(state: AgentState) -> AgentState:
            return await _carry_out(agent, state, deps, journal)

        return execute

    return made()


@checked
def tools(*tools: Tool) -> list[InspectTool]:
    """Return tools as Inspect tools. Each call is checked, bounded, timed and retried by its effect, as in a run, and allowed.

    Example:
        Task(dataset=samples, solver=[use_tools(treadle.integrations.inspect.tools(search, pay)), generate()], scorer=includes())

    Args:
        tools: Tools made by `@tool` or `Tool(...)` that need no `deps`.
    """
    return [_tool(one) for one in tools]


@scorer(metrics={"*": [mean()]}, name="exact")
@checked
def exact(*checks: Check) -> Scorer:
    """Return a scorer of exact checks: what the sessions of a sample have done, with a value of 1 or 0 for each check.

    Example:
        Task(dataset=samples, solver=agent(my_agent), scorer=[includes(), exact(never_called("refund"), no_doubt())])
    """

    async def score(state: TaskState, target: Target) -> Score:
        recorded = state.store.get(_OBSERVED)
        if not recorded:
            raise ConfigurationError(
                "exact() reads what treadle.integrations.inspect.agent(...) records: use that as the solver."
            )
        seen = sum((msgspec.convert(one, Observed) for one in recorded), Observed())
        found = {check.name: check(seen) for check in checks}
        return Score(
            value={name: int(one.is_met) for name, one in found.items()},
            explanation="\n".join(f"{name}: {one.reason}" for name, one in found.items()),
        )

    return score


# --- one sample


async def _carry_out(agent: Agent[Any, Any], state: AgentState, deps: Any, journal: str | Journal) -> AgentState:
    system = [one for one in state.messages if isinstance(one, ChatMessageSystem)]
    said = [one for one in state.messages if not isinstance(one, ChatMessageSystem)]
    if not said or not isinstance(task := said[-1], ChatMessageUser):
        raise ConfigurationError("The last message of a sample's input must be a user's: it is the agent's task.")
    model = _InspectModel(get_model(), system)
    async with open_session(journal) as session:
        await import_messages(session, await messages_to_openai(list(said[:-1])))
        first = len(session.messages)
        run = agent.stream(Message(role="user", parts=_parts(task.content)), session=session, deps=deps, model=model)
        run.subscribe(_Transcript().show, children=True)
        try:
            result = await run.finish()
        finally:
            with CancelScope(shield=True):  # a time limit of Inspect cancels, and what was done until then is scored
                seen = await observe(session)
            store().set(_OBSERVED, [*store().get(_OBSERVED, []), msgspec.to_builtins(seen)])
            state.messages.extend(one for message in session.messages[first + 1 :] for one in _to_inspect(message))
            state.output = model.last or state.output
    if model.failure is not None:
        raise model.failure  # a limit, or what its provider raised: Inspect knows what that means for the sample
    state.output = _output(result, model)
    return state


def _output(result: RunResult[Any], model: "_InspectModel") -> ModelOutput:
    answer = result.text if result.stop.output is None else msgspec.json.encode(result.stop.output).decode()
    if model.last is not None and model.last.completion == answer:
        return model.last
    return ModelOutput.from_content(model.name, answer)


class _Transcript:
    """Shows the events of a run in the transcript of the sample."""

    def __init__(self) -> None:
        self._started: dict[str, ToolStarted] = {}
        self._proposed: dict[str, ToolCall] = {}

    def show(self, event: AnyEvent) -> None:
        call_id = event.call_id or ""
        if isinstance(event, ModelFinished):
            self._proposed |= {call.id: call for call in event.message.calls}
        elif isinstance(event, ToolStarted):
            self._started[call_id] = event
        elif isinstance(event, ToolFinished):
            self._show_call(event, self._started.pop(call_id, None), self._proposed.pop(call_id, None))
        if not event.is_live and not isinstance(event, _SHOWN_BY_INSPECT):
            transcript().info(event_object(event), source="treadle")

    def _show_call(self, finished: ToolFinished, started: ToolStarted | None, proposed: ToolCall | None) -> None:
        result = finished.result
        shown = ToolEvent(
            id=result.call_id,
            function=result.name,
            arguments={} if proposed is None else _arguments(proposed.arguments),
            result=result.content,
            error=_error(result.content) if result.is_error else None,
            timestamp=datetime.fromtimestamp(finished.at if started is None else started.at, UTC),
            completed=datetime.fromtimestamp(finished.at, UTC),
            metadata={"status": result.status.value, "attempts": result.attempts},
        )
        transcript()._event(shown)  # noqa: SLF001 - Inspect has no public way to record a call of a tool that is not its own


# --- Inspect's model as ours


class _InspectModel:
    """The model of the eval. Inspect tries again by itself, so a failure is final here."""

    def __init__(self, model: InspectsModel, system: Sequence[ChatMessageSystem]) -> None:
        self._model = model
        self._system = system
        self.failure: Exception | None = None
        self.last: ModelOutput | None = None

    @property
    def name(self) -> str:
        return f"inspect:{self._model}"

    @property
    def price(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        instructions = [ChatMessageSystem(content=request.instructions)] if request.instructions else []
        history = [one for message in request.messages for one in _to_inspect(message)]
        try:
            output = await self._model.generate(
                [*instructions, *self._system, *history],
                tools=[_info(one) for one in request.tools],
                tool_choice=_choice(request.tool_choice),
                config=GenerateConfig(parallel_tool_calls=None if request.parallel_tool_calls else False),
            )
        except Exception as error:
            self.failure = error
            raise ModelRejected(f"Inspect's model failed: {type(error).__name__}.") from error
        self.last = output
        if output.stop_reason == "model_length" and not output.message.tool_calls:
            raise ContextOverflow(f"The model {self._model} says that the conversation does not fit its context.")
        parts = _parts_of(output.message)
        for part in parts:
            if isinstance(part, ToolCall):
                yield CallReady(part)
        yield ModelEnd(
            parts=parts, finish=_FINISHES[output.stop_reason], usage=_usage(output), message=output.error or ""
        )


_FINISHES: Mapping[str, Finish] = {
    "stop": Finish.STOP,
    "tool_calls": Finish.CALLS,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.REFUSED,
    "unknown": Finish.UNKNOWN,
}


def _usage(output: ModelOutput) -> Usage | None:
    if (used := output.usage) is None:
        return None
    read, written = used.input_tokens_cache_read or 0, used.input_tokens_cache_write or 0
    return Usage(
        input_tokens=used.input_tokens + read + written,
        output_tokens=used.output_tokens,
        cached_input_tokens=read,
        cache_written_tokens=written,
        reasoning_tokens=used.reasoning_tokens or 0,
    )


def _info(spec: ToolSpec) -> ToolInfo:
    return ToolInfo(name=spec.name, description=spec.description, parameters=_params(spec.parameters))


def _params(schema: Mapping[str, Any]) -> ToolParams:
    """Return a schema as Inspect has it, which knows no references."""
    return ToolParams.model_validate(jsonref.replace_refs(schema, proxies=False, lazy_load=False))


def _choice(choice: str) -> ToolChoice:
    words: dict[str, Literal["auto", "any", "none"]] = {"auto": "auto", "none": "none", "required": "any"}
    return words.get(choice) or ToolFunction(name=choice)


# --- messages, in both directions

_CONTENT: TypeAdapter[Content] = TypeAdapter(Content)
_INSPECT = "inspect"


def _parts_of(message: ChatMessageAssistant) -> tuple[Part, ...]:
    calls = (
        ToolCall(id=one.id, name=one.function, arguments=one.parse_error or msgspec.json.encode(one.arguments).decode())
        for one in message.tool_calls or ()
    )
    return (*_parts(message.content), *calls)


def _parts(content: str | Sequence[Content]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(_part(one) for one in content)


def _part(content: Content) -> Part:
    match content:
        case ContentText(internal=None, citations=None):
            return Text(content.text)
        case ContentReasoning():
            return Thinking(text=content.text, payload=content.model_dump(mode="json"))
        case ContentImage(image=image) if image.startswith("data:"):
            kind, _, encoded = image.removeprefix("data:").partition(";base64,")
            return Media(media_type=kind, base64=encoded)
        case ContentImage(image=image) if "://" in image:
            return Media(media_type="image/*", url=image)
    return Opaque(provider=_INSPECT, payload=content.model_dump(mode="json"))


def _to_inspect(message: Message) -> list[ChatMessage]:
    if message.role == "tool":
        return [
            ChatMessageTool(
                content=[ContentText(text=one.content), *map(_content, one.media)] if one.media else one.content,
                tool_call_id=one.call_id,
                function=one.name,
                error=_error(one.content) if one.is_error else None,
            )
            for one in message.results
        ]
    content = [_content(one) for one in message.parts if not isinstance(one, ToolCall | Result)]
    said: Any = content[0].text if len(content) == 1 and isinstance(content[0], ContentText) else content or ""
    if message.role == "user":
        return [ChatMessageUser(content=said)]
    return [ChatMessageAssistant(content=said, tool_calls=[_call(one) for one in message.calls] or None)]


def _content(part: Text | Thinking | Media | Opaque) -> Content:
    match part:
        case Text():
            return ContentText(text=part.text)
        case Thinking(payload=dict() as payload) | Opaque(provider="inspect", payload=payload):
            return _CONTENT.validate_python(payload)
        case Thinking():
            return ContentReasoning(reasoning=part.text, signature=part.signature)
        case Media(media_type=kind) if kind.startswith("image/"):
            return ContentImage(image=part.url or f"data:{kind};base64,{part.base64}")
    name = part.name or part.media_type if isinstance(part, Media) else part.provider
    return ContentText(text=f"[{name}: content that Inspect's model is not shown]")


def _call(call: ToolCall) -> InspectCall:
    read = _object(call.arguments)
    fault = None if read is not None else "The arguments are not a JSON object."
    return InspectCall(id=call.id, function=call.name, arguments=read or {}, parse_error=fault)


def _arguments(written: str) -> dict[str, Any]:
    """Return the arguments of a call; what is not a JSON object as the model wrote it."""
    read = _object(written)
    return {"arguments": written} if read is None else read


def _object(written: str) -> dict[str, Any] | None:
    try:
        read = msgspec.json.decode(written or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _error(content: str) -> ToolCallError:
    return ToolCallError(type="unknown", message=content)


# --- our tools as Inspect's


def _tool(tool: Tool) -> InspectTool:
    async def execute(**arguments: Any) -> str:
        result = await _called(tool, arguments)
        if result.is_error:
            raise ToolError(result.content)
        return result.content

    params = _params(tool.parameters)
    for name, param in params.properties.items():
        param.description = param.description or name  # Inspect refuses a parameter without one
    return ToolDef(execute, name=tool.name, description=tool.description or tool.name, parameters=params).as_tool()


async def _called(tool: Tool, arguments: Mapping[str, Any]) -> Result:
    """Carry out one call in a run of its own."""
    written = msgspec.json.encode(arguments).decode()
    model = ScriptedModel([ScriptedCall(name=tool.name, arguments=written), text("")])
    result = await Agent(model, tools=[tool], policy=allow("*")).run("Call the tool.")
    found = [one for message in result.messages for one in message.results]
    if not found:
        raise ToolError(result.message)  # it waits for a person, whom nobody asks in an eval
    return found[0]
