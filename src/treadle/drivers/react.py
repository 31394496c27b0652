"""ReAct: tool calls in plain text, for models without calls of their own."""

import difflib
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.drivers.small import reminder, sentence_of, wanted_call
from treadle.errors import (
    ConfigurationError,
    IncompleteStream,
    InvalidArguments,
    ModelError,
    ModelResponseInvalid,
    shown,
)
from treadle.fields import Documented, checked
from treadle.messages import Finish, Message, Part, Result, Text, Thinking, ToolCall, Usage, user_message
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
    ToolSpec,
    facts_of,
)
from treadle.redaction import redacted_logger
from treadle.tools import JsonObject, Tool
from treadle.validation import NotJson, Schema, Wanted, parse_arguments, wanted_of
from treadle.validation.plain import is_damaged, joined
from treadle.validation.typed import Typed

__all__ = [
    "DecisionForm",
    "DecisionUnfit",
    "OutputMode",
    "ReActDecision",
    "ReActDriver",
    "Transcript",
    "answer_tool",
    "check_decision",
    "note",
    "observed",
    "rejection",
]


# --- Decisions: what a model writes under ReAct, read strictly and checked before anything is proposed. Asks no model.

OutputMode: TypeAlias = Literal["json", "json_schema", "text"]

logger = redacted_logger(__name__)

_ANSWER = "answer"
"""The tool of an answer; another name where a tool has this one."""
_MAX_CANDIDATES = 50
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>.*?)```", re.DOTALL | re.IGNORECASE)


class ReActDecision(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One decision of the model.

    Example:
        ReActDecision(thought="I need the rate.", type="call_tool", tool="get_rate", args={"currency": "EUR"})
    """

    thought: str | None = None
    """Why, in the model's words."""
    type: str = ""
    """`call_tool` or `final_answer`. A model need not write it: an answer is the tool `answer`."""
    tool: str | None = None
    """Of `call_tool`: the tool's name."""
    args: Any = None  # Any: as the model wrote it; `check_decision` refuses all but an object
    """Of `call_tool`: the arguments."""
    answer: Any = None  # Any: text, or the JSON value of a structured answer
    """Of `final_answer`: the answer."""

    @property
    def answer_text(self) -> str:
        """The answer as text: a structured one as JSON."""
        return self.answer if isinstance(self.answer, str) else msgspec.json.encode(self.answer).decode()


class DecisionUnfit(Exception):
    """Raised for a text that holds no usable decision. `str()` is what the model is told.

    Args:
        reason: `extraction` when it cannot be read, `validation` when it cannot be accepted.
        problems: One sentence each.
    """

    def __init__(self, reason: Literal["extraction", "validation"], problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.reason: Literal["extraction", "validation"] = reason
        self.problems = tuple(problems)


class DecisionForm:
    """How a decision is written, and how it is read.

    Args:
        mode: `json`: the answer is one JSON object. `json_schema`: and the provider is held to its schema. `text`: it may
            stand among other words.
        kind: A decision type of your own; None for thought, tool and args.
        read: Turns a value of that type into a ReActDecision.
    """

    def __init__(
        self, mode: OutputMode, *, kind: Any = None, read: Callable[[Any], ReActDecision] | None = None
    ) -> None:
        if (kind is None) != (read is None):
            raise ConfigurationError(
                "A decision type of your own needs both decision= and read=: the type, and its meaning."
            )
        self.mode = mode
        self._own = None if kind is None else Typed(kind, where="decision type")
        self._read = read

    @property
    def own_schema(self) -> JsonObject | None:
        """The JSON Schema of the user's own decision type; None for ours."""
        return None if self._own is None else self._own.schema

    def wire_schema(self, request: ModelRequest, *, is_tied: bool, is_small: bool) -> JsonObject | None:
        """Return the schema that the provider holds the model to; None for none.

        Args:
            is_tied: Whether it takes a choice between whole decisions, so that each tool has its own arguments in it.
            is_small: Whether the model decides better without writing down why.
        """
        if self.mode != "json_schema":
            return None
        return self.own_schema or _decision_schema(request, is_tied=is_tied, has_thought=not is_small)

    def extract(
        self, text: str, *, answer_tool: str = _ANSWER, answer_schema: JsonObject | None = None
    ) -> ReActDecision:
        """Read the decision in a model's text. Nothing is repaired: a guess might act.

        A `read` of the user's own says with a ValueError that a value cannot be used; the model is told, and asked again. Of any other
        error that it raises, the model is told the class, and the log has the rest.

        Raises:
            DecisionUnfit: There is none.
            ConfigurationError: The `read` of the user's own returned something else than a decision.
        """
        value = _object_in(text, is_in_text=self.mode == "text")
        if self._own is None or self._read is None:
            return _converted(value, answer_tool, answer_schema)
        reading = self._own.check(value)
        if reading.violations:
            raise DecisionUnfit("extraction", [reading.message])
        try:
            found: object = self._read(self._own.value(reading.data))
        except ValueError as error:
            words = str(error) or "The decision has a value that cannot be used."
            raise DecisionUnfit("extraction", [words]) from error
        except Exception as error:
            logger.warning("The read= of a ReAct driver failed on a decision", exc_info=True)
            raise DecisionUnfit("extraction", [f"The decision cannot be used ({type(error).__name__})."]) from error
        if not isinstance(found, ReActDecision):
            raise ConfigurationError(
                f"read= of the ReAct driver must return a ReActDecision; it returned {shown(found)}."
            )
        return found


def answer_tool(tools: Sequence[ToolSpec]) -> str:
    """Return the name under which an answer is a tool: one that no tool has."""
    names, name = {spec.name for spec in tools}, _ANSWER
    while name in names:
        name = f"final_{name}"
    return name


def _decision_schema(request: ModelRequest, *, is_tied: bool, has_thought: bool) -> JsonObject:
    """Return the JSON Schema of a decision, with what may be chosen now, and the form of the answer."""
    choice, answer = request.tool_choice, dict(request.output_schema or {"type": "string"})
    definitions: JsonObject = {key: answer.pop(key) for key in ("$defs", "definitions") if key in answer}
    chosen = [spec for spec in request.tools if choice in ("auto", "required", spec.name)]
    steps = {spec.name: _arguments(spec) for spec in chosen}
    if choice in ("auto", "none"):
        steps[answer_tool(request.tools)] = _object({"answer": answer})
    begin: JsonObject = {"thought": {"type": "string"}} if has_thought else {}
    if is_tied:
        decisions = [_object({**begin, "tool": {"const": name}, "args": args}) for name, args in steps.items()]
        return {"anyOf": decisions, **definitions}
    forms = list({msgspec.json.encode(args): args for args in steps.values()}.values())
    return {**_object({**begin, "tool": {"enum": list(steps)}, "args": {"anyOf": forms}}), **definitions}


def _object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _arguments(spec: ToolSpec) -> JsonObject:
    """Return the form of a tool's arguments. Definitions of its own have no place here: its arguments stay free."""
    schema = spec.parameters
    return {"type": "object"} if "$defs" in schema or "definitions" in schema else schema


def check_decision(decision: ReActDecision, tools: Sequence[ToolSpec], tool_choice: str) -> None:
    """Check what can be checked before the call goes to the pipeline, which checks the arguments themselves.

    Raises:
        DecisionUnfit: With every problem.
    """
    match decision.type:
        case "call_tool":
            problems = _problems_of_call(decision, tools, tool_choice)
        case "final_answer":
            problems = _problems_of_answer(decision, [spec.name for spec in tools], tool_choice)
        case "":  # a model that was asked to correct its answer writes the answer alone
            problems = [f"`tool` is missing: name a tool, or {_how_to_answer(tools)}."]
        case other:
            problems = [f"`type` must be call_tool or final_answer; got {shown(other)}."]
    if problems:
        raise DecisionUnfit("validation", problems)


def _problems_of_call(decision: ReActDecision, tools: Sequence[ToolSpec], tool_choice: str) -> list[str]:
    if tool_choice == "none":
        return [f"No more tools may be called: {_how_to_answer(tools)} now."]
    spec = next((spec for spec in tools if spec.name == decision.tool), None)
    if spec is None:
        return [_unknown(decision.tool, [spec.name for spec in tools])]
    problems = []
    if tool_choice not in ("auto", "required", spec.name):
        problems.append(f"`tool` must be {tool_choice} this time.")
    args = {} if decision.args is None else decision.args
    if not isinstance(args, dict):
        return [*problems, f"`args` must be a JSON object with the arguments of {spec.name} by name."]
    if all(name in args for name in spec.parameters.get("required", ())):
        return problems
    wanted = wanted_of(args, spec.parameters)
    return [*problems, f"{wanted.said} {_asking_for(spec.name, wanted)}" if wanted.form else wanted.said]


def _asking_for(name: str, wanted: Wanted) -> str:
    """Ask for a call in the form that is wanted."""
    values = "" if wanted.is_complete else ", with the right values"
    return f'Write this{values}: {{"tool": {_json(name)}, "args": {wanted.form}}}'


def _how_to_answer(tools: Sequence[ToolSpec]) -> str:
    return f'answer with {{"tool": "{answer_tool(tools)}", "args": {{"answer": ...}}}}'


def _unknown(name: str | None, known: Sequence[str]) -> str:
    if not name:
        return "`tool` is missing: name the tool to call."
    near = difflib.get_close_matches(name[:100], known, n=3)
    return f"There is no tool {shown(name, 100)}. The tools are: {', '.join(near or known)}."


def _problems_of_answer(decision: ReActDecision, known: Sequence[str], tool_choice: str) -> list[str]:
    if decision.tool in known:  # the answer may say that the call was made
        return [f"It names the tool {decision.tool} and has an answer, so nothing was done. Do one of the two."]
    if tool_choice not in ("auto", "none"):
        wanted = "one of the tools" if tool_choice == "required" else tool_choice
        return [f"Call {wanted} first."]
    answer = decision.answer
    is_empty = answer is None or (isinstance(answer, str) and not answer.strip())
    return ["`answer` is empty: write the answer."] if is_empty else []


# --- reading ---------------------------------------------------------------------------------------------------------


def _converted(value: JsonObject, answer_name: str, answer_schema: JsonObject | None) -> ReActDecision:
    try:
        decision = msgspec.convert(value, ReActDecision)
    except msgspec.ValidationError as error:
        raise DecisionUnfit("extraction", [f"The decision cannot be read: {error}."]) from error
    name = decision.tool or value.get("name")  # `name` and `arguments`: what many models have learned to write
    args = next((value[word] for word in ("args", "arguments", "parameters") if value.get(word) is not None), None)
    if name == answer_name and decision.type != "final_answer":
        said = decision.answer if args is None else _answer_in(args, answer_schema)
        return ReActDecision(thought=decision.thought, type="final_answer", answer=said)
    if decision.type or not isinstance(name, str | None):
        return decision
    if decision.answer not in (None, ""):  # and a tool beside it is refused
        return msgspec.structs.replace(decision, type="final_answer", tool=name)
    return msgspec.structs.replace(decision, type="call_tool" if name else "", tool=name, args=args)


def _answer_in(args: Any, schema: JsonObject | None) -> Any:  # Any: as the model wrote it
    """Return the answer among the arguments of the tool `answer`: by its name, the object that is wanted itself, or the only one."""
    if not isinstance(args, dict):
        return args
    if "answer" in args:
        return args["answer"]
    if len(args) != 1:
        return args
    ((name, value),) = args.items()
    if schema is None:  # any text will do, and one field may be all of an object that would do too
        is_whole = name not in _WORDS_FOR_ANSWER and not isinstance(value, dict | list)
    else:
        is_whole = not Schema(schema, where="answer").violations(args)
    return args if is_whole else value


_WORDS_FOR_ANSWER = ("content", "final_answer", "message", "output", "response", "result", "text", "value")


def _object_in(text: str, *, is_in_text: bool) -> JsonObject:
    if not text.strip():
        raise DecisionUnfit("extraction", ["You wrote nothing. Answer with one JSON object."])
    fences = [match["inside"] for match in _FENCE.finditer(text)]
    is_one_fence = len(fences) == 1 and _FENCE.sub("", text).strip() == ""
    if is_one_fence:
        return _parsed(fences[0])
    return _parsed(_candidate(text)) if is_in_text else _parsed(text)


def _parsed(text: str) -> JsonObject:
    try:
        return parse_arguments(text)
    except NotJson as error:
        raise DecisionUnfit("extraction", [f"Your answer is not one JSON object and nothing else: {error}"]) from error
    except InvalidArguments as error:
        raise DecisionUnfit(
            "extraction", ["Your answer must be a JSON object, and is another kind of JSON."]
        ) from error


def _candidate(text: str) -> str:
    """Return the first JSON object among other words, one that names a tool or a `type` before all others.

    The first: models that write on after their decision make up what comes of it.
    """
    decoder, found = json.JSONDecoder(), ""
    at, tried = text.find("{"), 0
    while at >= 0 and tried < _MAX_CANDIDATES:
        tried, end = tried + 1, at + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            if "type" in value or "tool" in value:
                return text[at:end]
            found = found or text[at:end]
        at = text.find("{", end)
    return found or text


# --- Prompt: the words in which a ReAct driver describes tools and decisions. The same for the same tools, byte for
# byte.

_REWORD = (
    "Now write the final answer to the task in full, for the person who asked. Use all of the conversation above. "
    "Write the answer itself, not a decision."
)

_RULES = """\
# Tools

You work in steps. In each step you use one tool. These are the tools:
<tools>
{tools}
</tools>

For each step, return one JSON object with the tool's name and its arguments, and nothing else:
{form}
Its result comes back in a message that begins with "Observation:". Never write an observation yourself."""

_ANSWERING = "Answer the person, when all is done or no other tool is needed."

_OWN_RULES = """\
You work in steps. In each step write one JSON object of the schema below and nothing else.
The result of a tool comes back in a message that begins with "Observation:". Never write an observation yourself."""


def _react_instructions(request: ModelRequest, own: JsonObject | None, *, is_small: bool) -> str:
    """Return the instructions with the rules of a decision and the tools behind them."""
    tools, pieces = request.tools, [request.instructions] if request.instructions else []
    if own is None:
        form = _object({"answer": request.output_schema or {"type": "string"}})
        ending = ToolSpec(name=answer_tool(tools), description=_ANSWERING, parameters=form)
        listed = "\n".join(map(_described, (*tools, ending)))
        thought = "" if is_small else '"thought": <why>, '
        step = f'{{{thought}"tool": <tool-name>, "args": <args-json-object>}}'
        return "\n\n".join([*pieces, _RULES.replace("{tools}", listed).replace("{form}", step)])
    pieces.append(_OWN_RULES)
    if request.output_schema is not None:
        pieces.append(f"The answer is a JSON value of this schema:\n{_json(request.output_schema)}")
    pieces.append(f"JSON Schema of the object:\n{_json(own)}")
    pieces.append("Tools:\n" + "\n".join(map(_described, tools)) if tools else "There are no tools.")
    return "\n\n".join(pieces)


def note(request: ModelRequest, *, is_small: bool = False) -> str | None:
    """Return what the model is told beside the conversation: where its choice is not free, and what a small one is reminded of."""
    said: str | None = None
    match request.tool_choice:
        case "auto" if is_small:
            name = answer_tool(request.tools)
            said = f"Write the next step that it needs, or use the tool {name} if all is done."
            return reminder(request.messages, said, after_error=partial(_after_error, request)) or None
        case "auto":
            return None
        case "none" if is_small:
            said = f"Tell the person now what came of it: {_how_to_answer(request.tools)}."
        case "none":
            said = f"No tool may be called any more. With what you have so far, {_how_to_answer(request.tools)}."
        case "required":
            said = "Call one of the tools in this step."
        case name:
            said = f"Call the tool {name} in this step."
    return (reminder(request.messages, said, _written) if is_small else "") or said


def _after_error(request: ModelRequest, call: ToolCall, task: str) -> str:
    """Return what a small model reads behind an error: the call as it is wanted, or that another one is."""
    wanted, name = wanted_call(call, request.tools), answer_tool(request.tools)
    if wanted.form:
        return f"{task}\n{_asking_for(call.name, wanted)}"
    other = f"Write another call, with other arguments, or use the tool {name} if none can help."
    return f"Do not write the same call again. {task}\n{other}"


def rejection(problem: str) -> str:
    """Return what the model reads about a decision that was not accepted."""
    return f"Your decision was not accepted. Answer again with one JSON object and nothing else. {problem}"


def _described(spec: ToolSpec) -> str:
    """Describe a tool without the hint that calls may be issued in parallel: here each step has one."""
    description = _PARALLEL.sub("", spec.description).strip()
    return _json({"name": spec.name, "description": description, "parameters": spec.parameters})


_PARALLEL = re.compile(r"[^.!?\n]*\bissued in parallel\b[^.!?\n]*[.!?]")


def _json(value: JsonObject | str) -> str:
    return msgspec.json.encode(value).decode()


# --- Transcript: stored messages as a ReAct model reads them: its decisions in the form that is demanded, and observations. Pure: the
# store never changes.

_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_MARKS = re.compile(rf"(?<=[{_BREAKS}])(?=[^\S{_BREAKS}]*(?:Observation|Action|Thought)\s*:)", re.IGNORECASE)
"""Beginnings of lines, but the first, that look like ours."""


class Transcript:
    """The rendered messages of one run. Each is rendered once, so that adapters may encode each once too."""

    def __init__(self, *, has_sentences: bool = False) -> None:
        self._has_sentences = has_sentences
        # What was rendered is kept with its source: an id names an object only as long as that lives. What is no longer sent is let go.
        self._rendered: dict[tuple[int, ...], tuple[Message, ...]] = {}
        self._sources: list[Message] = []

    def of(self, messages: Iterable[Message], answer_name: str = _ANSWER) -> tuple[Message, ...]:
        """Return the messages without calls and results. The same ones give the same, so that prefixes stay stable."""
        sources = list(messages)
        before, self._rendered, self._sources = self._rendered, {}, sources
        shown: list[Message] = []
        for batch in _batches(sources):
            key = tuple(map(id, batch))
            known = before.get(key) or self._rendered.get(key)
            self._rendered[key] = known or tuple(
                observed(one, answer_name, has_sentences=self._has_sentences) for one in _single_steps(batch)
            )
            shown += self._rendered[key]
        return tuple(shown)


def _batches(messages: Sequence[Message]) -> Iterator[tuple[Message, ...]]:
    """Yield each message alone, but several calls of one response together with their results."""
    at = 0
    while at < len(messages):
        calls = messages[at].calls
        size = 2 if len(calls) > 1 and at + 1 < len(messages) and len(messages[at + 1].results) == len(calls) else 1
        yield tuple(messages[at : at + size])
        at += size


def _single_steps(batch: tuple[Message, ...]) -> Iterator[Message]:
    """Yield a batch as the steps that ReAct would have taken: one call, and its result."""
    if len(batch) == 1:
        yield batch[0]
        return
    said, results = batch
    others = [part for part in said.parts if not isinstance(part, ToolCall)]
    for number, (call, result) in enumerate(zip(said.calls, results.results, strict=True)):
        yield msgspec.structs.replace(said, parts=(*(() if number else others), call))
        yield msgspec.structs.replace(results, parts=(result,))


def observed(message: Message, answer_name: str = _ANSWER, *, has_sentences: bool = False) -> Message:
    """Return one message as a ReAct model reads it; of an error all its fields, or a sentence."""
    match message.role:
        case "assistant":
            decisions = _decisions(message, answer_name)
            return msgspec.structs.replace(message, parts=(*_signed(message), *decisions))
        case "tool":
            return Message(role="user", parts=tuple(_observations(message.results, has_sentences=has_sentences)))
        case _:
            return message


def _decisions(message: Message, answer_name: str) -> Iterator[Part]:
    """Yield what the model decided, as it is to write it. What was no decision stays as it was written."""
    text = message.text
    if any(call.name.startswith(_FAILED) for call in message.calls):
        yield Text(text or "{}")
    elif message.calls:
        thoughts = [text, *([""] * (len(message.calls) - 1))]
        yield Text("\n".join(_written(call, thought) for thought, call in zip(thoughts, message.calls, strict=True)))
    elif text:
        thought = "".join(part.text for part in message.parts if isinstance(part, Thinking) and not _is_signed(part))
        arguments = _json({"answer": text})
        yield Text(_written(ToolCall(id="", name=answer_name, arguments=arguments), thought))


def _written(call: ToolCall, thought: str = "") -> str:
    begin = f'"thought": {_json(thought)}, ' if thought else ""
    return f'{{{begin}"tool": {_json(call.name)}, "args": {call.arguments or "{}"}}}'


def _observations(results: Iterable[Result], *, has_sentences: bool) -> Iterator[Part]:
    shown = []
    for result in results:
        said = sentence_of(result) if has_sentences else result.content
        shown.append(f"Observation: {'ERROR - ' if result.is_error else ''}{_quoted(said)}")
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


# --- The ReAct driver: the model writes each step as a JSON decision, so that any model that writes JSON can use tools.

_FAILED = "decision_"
"""What the names of calls begin with that stand for a decision which was none: `DecisionFailure.code`."""
_MAX_KEPT_CHARS = 4000
"""Characters of an unreadable decision that stay in the transcript."""


_LOCAL = ("llamacpp", "lmstudio", "ollama", "vllm")
"""Servers whose grammars take a choice between whole objects. OpenAI refuses one at the top."""

_DAMAGED = "Your answer arrived with broken characters, so nothing in it was carried out. Write it again."


class ReActDriver:
    """Reasoning and acting in words: thought, tool, args.

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
        self._max_retries = max_retries
        self._final = final_via_inference

    @checked
    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> "_BoundReActDriver":
        """Return the driver of one run."""
        final = model if self._final is True else self._final or None
        return _BoundReActDriver(model, self._form, max_retries=self._max_retries, final=final)


class _BoundReActDriver:
    """The ReAct driver of one run."""

    def __init__(self, model: Model, form: DecisionForm, *, max_retries: int, final: Model | None) -> None:
        facts = facts_of(model)
        self._model = model
        self._form = form
        self._is_small = bool(facts.small)
        self._is_tied = model.name.partition(":")[0] in _LOCAL
        self._max_retries = max_retries
        self._final = final
        self._transcript = Transcript(has_sentences=facts.has_sentences)

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
        said = note(request, is_small=self._is_small)
        messages = self._transcript.of(request.messages, answer_tool(request.tools))
        return msgspec.structs.replace(
            request,
            messages=(*messages, *([user_message(said)] if said else [])),
            instructions=_react_instructions(request, self._form.own_schema, is_small=self._is_small),
            tools=(),
            tool_choice="auto",
            output_schema=self._form.wire_schema(request, is_tied=self._is_tied, is_small=self._is_small),
        )

    def _decide(self, end: ModelEnd, request: ModelRequest) -> ReActDecision:
        if end.finish is Finish.LENGTH:
            raise DecisionUnfit("extraction", ["Your answer was cut off by the output limit: write a shorter one."])
        said = joined(_text_of(end))
        if end.has_damaged_text or is_damaged(said):
            raise DecisionUnfit("extraction", [_DAMAGED])
        decision = self._form.extract(said, answer_tool=answer_tool(request.tools), answer_schema=request.output_schema)
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
            messages=(*self._transcript.of(request.messages), drafted, user_message(_REWORD)),
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
    """Refuse a final inference that does not answer, so that the draft stands. What a model refuses to say is not a failure."""
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
