"""Typed: a type or a schema as the form of a model's answer, described in JSON Schema and read strictly. Asks no model."""

import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

import msgspec

from treadle.errors import ConfigurationError, InvalidArguments, shown
from treadle.tools import JsonObject
from treadle.validation.arguments import NotJson, parse_arguments
from treadle.validation.schema import Row, Schema, bounded, resolved, row

__all__ = ["Reading", "Typed"]

_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(?P<inside>.*?)\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_WRAPPER = "value"
_MAX_TOLD = 10


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What came of reading a text."""

    data: Any = None  # Any: a JSON value of the form that was asked for
    violations: tuple[Row, ...] = ()
    message: str = ""
    """All violations in one paragraph for the model."""


class Typed:
    """The form of an answer.

    Example:
        Typed(list[str], where="output of the agent").read('{"value": ["a"]}').data

    Args:
        kind: A JSON Schema, or a type: a msgspec Struct, a pydantic model, a dataclass, or any other that pydantic knows.
        where: What it belongs to, for messages to the programmer.

    Raises:
        ConfigurationError: JSON Schema cannot describe it.
    """

    def __init__(self, kind: Any, *, where: str) -> None:
        schema, self._convert = _contract(kind, where)
        schema = _opened(schema)
        self._is_wrapped = schema.get("type") != "object"
        self.schema: JsonObject = _wrapped(schema) if self._is_wrapped else schema
        """JSON Schema of an object. Providers take no other root, so that a list or a number is in one's `value`."""
        self._gate = Schema(self.schema, where=where)

    def read(self, text: str) -> Reading:
        """Read an answer: one JSON object, perhaps in a code fence, and nothing else."""
        fenced = _FENCED.fullmatch(text)
        raw = fenced["inside"] if fenced is not None else text
        if not raw.strip():
            return _unfit("It is empty.", [row("", "one JSON object", None)])
        try:
            data = parse_arguments(raw)
        except NotJson as error:
            return _unfit(f"It is not JSON: {error}", [row("", "one JSON object", bounded(raw))])
        except InvalidArguments:
            return _unfit("It is not a JSON object.", [row("", "one JSON object", bounded(raw))])
        return self.check(data)

    def check(self, data: JsonObject) -> Reading:
        """Check an object that has been read already."""
        if rows := self._gate.check_result(data):
            return _unfit(_sentences(rows), rows)
        inner = data[_WRAPPER] if self._is_wrapped else data
        try:
            self._convert(inner)
        except (ValueError, msgspec.ValidationError) as error:  # a validator of the type, which no schema can say
            problem = str(error).split("\nFor further", 1)[0][:1000]
            return _unfit(problem, [row("", problem, None)])
        return Reading(data=inner)

    def value(self, data: Any) -> Any:  # Any: the type is the caller's
        """Return the data of a reading as a value of the type."""
        return self._convert(data)


def _contract(kind: Any, where: str) -> tuple[JsonObject, Callable[[Any], Any]]:
    if isinstance(kind, dict):
        return kind, lambda value: value
    try:
        if _is_struct(kind):
            return msgspec.json.schema(kind), lambda value: msgspec.convert(value, kind)
        return _by_pydantic(kind)
    except Exception as error:
        # pydantic and msgspec raise a dozen classes for what they cannot describe; the type is the programmer's.
        problem = str(error).split("\n", 1)[0]
        raise ConfigurationError(
            f"The {where} cannot be described in JSON Schema: {shown(kind, 100)}: {problem}"
        ) from error


def _is_struct(kind: Any) -> bool:
    """Whether a Struct is in it, such as in `list[Town]`: pydantic knows none."""
    return any(map(_is_struct, get_args(kind))) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def _by_pydantic(kind: Any) -> tuple[JsonObject, Callable[[Any], Any]]:
    import pydantic  # noqa: PLC0415 - loads when a type asks for it

    from treadle.validation.given import GivenSchema  # noqa: PLC0415 - as above

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    return adapter.json_schema(schema_generator=GivenSchema), lambda value: adapter.validate_json(
        msgspec.json.encode(value)
    )


def _opened(schema: JsonObject) -> JsonObject:
    """Replace a root that only refers to a definition by that definition."""
    if "$ref" not in schema:
        return schema
    definitions: JsonObject = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {**resolved(schema, schema), **definitions}


def _wrapped(schema: JsonObject) -> JsonObject:
    inner = {key: part for key, part in schema.items() if key not in ("$defs", "definitions", "$schema")}
    outer = {key: part for key, part in schema.items() if key in ("$defs", "definitions", "$schema")}
    properties = {_WRAPPER: inner}
    return {
        "type": "object",
        "properties": properties,
        "required": [_WRAPPER],
        "additionalProperties": False,
        **outer,
    }


def _unfit(message: str, rows: Sequence[Row]) -> Reading:
    return Reading(violations=tuple(rows), message=message)


def _sentences(rows: Sequence[Row]) -> str:
    phrases = [
        f"`{found['field'] or 'the answer'}`: {found['constraint']}{_got(found['value'])}."
        for found in rows[:_MAX_TOLD]
    ]
    more = [f"{len(rows) - _MAX_TOLD} more are wrong."] if len(rows) > _MAX_TOLD else []
    return " ".join([*phrases, *more])


def _got(value: Any) -> str:
    return "" if value is None else f"; got {shown(value)}"
