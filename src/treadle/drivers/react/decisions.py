"""Decisions: what a model writes under ReAct, read strictly and checked before anything is proposed. Asks no model."""

import difflib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, InvalidArguments, shown
from treadle.fields import Documented
from treadle.ports import ToolSpec
from treadle.redaction import redacted_logger
from treadle.tools import JsonObject
from treadle.validation import NotJson, parse_arguments
from treadle.validation.typed import Typed

__all__ = ["DecisionForm", "DecisionUnfit", "OutputMode", "ReActDecision", "check_decision", "decision_schema"]

OutputMode: TypeAlias = Literal["json", "json_schema", "text"]

logger = redacted_logger(__name__)

_KINDS = ("call_tool", "final_answer")
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
    """`call_tool` or `final_answer`."""
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
        kind: A decision type of your own; None for the five fields.
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

    def schema(self, tools: Sequence[ToolSpec], answer: JsonObject | None) -> JsonObject:
        """Return the JSON Schema of a decision, as the model reads it."""
        return decision_schema(tools, answer) if self._own is None else self._own.schema

    def wire_schema(self, tools: Sequence[ToolSpec], answer: JsonObject | None) -> JsonObject | None:
        """Return the schema that the provider holds the model to, with the tools' own parameters; None for none."""
        if self.mode != "json_schema":
            return None
        schema = self.schema(tools, answer)
        if self._own is None:
            schema["properties"]["args"] = {"anyOf": [*_parameters(tools), {"type": "null"}]}
        return schema

    def extract(self, text: str) -> ReActDecision:
        """Read the decision in a model's text. Nothing is repaired: a guess might act.

        A `read` of the user's own says with a ValueError that a value cannot be used; the model is told, and asked again. Of any other
        error that it raises, the model is told the class, and the log has the rest.

        Raises:
            DecisionUnfit: There is none.
            ConfigurationError: The `read` of the user's own returned something else than a decision.
        """
        value = _object_in(text, is_in_text=self.mode == "text")
        if self._own is None or self._read is None:
            return _converted(value)
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


def decision_schema(tools: Sequence[ToolSpec], answer: JsonObject | None) -> JsonObject:
    """Return the JSON Schema of the five fields, with the names of the tools and the form of the answer in it."""
    form: JsonObject = {"type": "string"} if answer is None else dict(answer)
    definitions: JsonObject = {key: form.pop(key) for key in ("$defs", "definitions") if key in form}
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string", "description": "Why, in a sentence or two."},
            "type": {"type": "string", "enum": list(_KINDS)},
            "tool": {"enum": [*(spec.name for spec in tools), None], "description": "Of call_tool: its name."},
            "args": {"type": ["object", "null"], "description": "Of call_tool: its arguments."},
            "answer": {"anyOf": [form, {"type": "null"}], "description": "Of final_answer: the answer."},
        },
        "required": ["thought", "type", "tool", "args", "answer"],
        "additionalProperties": False,
        **definitions,
    }


def _parameters(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """Return each form of arguments once. Definitions of a tool's own have no place here: its arguments stay free."""
    forms: list[JsonObject] = []
    for spec in tools:
        schema = spec.parameters
        form: JsonObject = {"type": "object"} if "$defs" in schema or "definitions" in schema else schema
        if form not in forms:
            forms.append(form)
    return forms


def check_decision(decision: ReActDecision, tools: Sequence[ToolSpec], tool_choice: str) -> None:
    """Check what can be checked before the call goes to the pipeline, which checks the arguments themselves.

    Raises:
        DecisionUnfit: With every problem.
    """
    match decision.type:
        case "call_tool":
            problems = _problems_of_call(decision, tools, tool_choice)
        case "final_answer":
            problems = _problems_of_answer(decision, tool_choice)
        case "":  # a model that was asked to correct its answer writes the answer alone
            where = "An answer is the field `answer` of an object whose type is final_answer."
            problems = [f"`type` must be call_tool or final_answer; it is missing. {where}"]
        case other:
            problems = [f"`type` must be call_tool or final_answer; got {shown(other)}."]
    if problems:
        raise DecisionUnfit("validation", problems)


def _problems_of_call(decision: ReActDecision, tools: Sequence[ToolSpec], tool_choice: str) -> list[str]:
    if tool_choice == "none":
        return ["No more tools may be called: answer now, with `type` final_answer."]
    spec = next((spec for spec in tools if spec.name == decision.tool), None)
    if spec is None:
        return [_unknown(decision.tool, [spec.name for spec in tools])]
    problems = []
    if tool_choice not in ("auto", "required", spec.name):
        problems.append(f"`tool` must be {tool_choice} this time.")
    args = {} if decision.args is None else decision.args
    if not isinstance(args, dict):
        return [*problems, f"`args` must be a JSON object with the arguments of {spec.name} by name."]
    missing = [name for name in spec.parameters.get("required", ()) if name not in args]
    return [*problems, *(f"`args.{name}` is required by {spec.name}." for name in missing)]


def _unknown(name: str | None, known: Sequence[str]) -> str:
    if not name:
        return "`tool` is missing: name the tool to call."
    near = difflib.get_close_matches(name[:100], known, n=3)
    return f"There is no tool {shown(name, 100)}. The tools are: {', '.join(near or known)}."


def _problems_of_answer(decision: ReActDecision, tool_choice: str) -> list[str]:
    if tool_choice not in ("auto", "none"):
        wanted = "one of the tools" if tool_choice == "required" else tool_choice
        return [f"Call {wanted} first, with `type` call_tool."]
    answer = decision.answer
    is_empty = answer is None or (isinstance(answer, str) and not answer.strip())
    return ["`answer` is empty: write the answer."] if is_empty else []


# --- reading ---------------------------------------------------------------------------------------------------------


def _converted(value: JsonObject) -> ReActDecision:
    try:
        return msgspec.convert(value, ReActDecision)
    except msgspec.ValidationError as error:
        raise DecisionUnfit("extraction", [f"The decision cannot be read: {error}."]) from error


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
    """Return the first JSON object among other words, one that has a `type` before all others.

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
            if "type" in value:
                return text[at:end]
            found = found or text[at:end]
        at = text.find("{", end)
    return found or text
