"""Typed: a type or a schema as the form of a model's answer, described in JSON Schema and read strictly. Asks no model."""

import json
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, Union, get_args, get_origin

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.tools import JsonObject
from treadle.validation.arguments import NotJson, parse_json
from treadle.validation.corrections import form_of
from treadle.validation.schema import Row, Schema, bounded, resolved, row

__all__ = ["Reading", "Typed"]

_FENCED = re.compile(r"^[ \t]*```(?P<language>[^\n`]*)\n(?P<inside>.*?)\n?[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
"""A code fence in any language: the end of one is not taken for the beginning of the next."""
_WRAPPER = "value"
_DEFINITIONS = ("$defs", "definitions")
_MAX_TOLD = 10
_MOST_STARTS = 100
"""Brackets outside of a fence from which JSON is looked for."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What came of reading a text."""

    data: Any = None  # Any: a JSON value of the form that was asked for
    is_text: bool = False
    """Whether it is taken as free text."""
    violations: tuple[Row, ...] = ()
    message: str = ""
    """All violations in one paragraph for the model."""


class Typed:
    """The form of an answer.

    Example:
        Typed(list[str], where="output of the agent").read('{"value": ["a"]}').data

    Args:
        kind: A JSON Schema, or a type: a msgspec Struct, a pydantic model, a dataclass, any other that pydantic knows, or a union of
            such types. `str`, alone or in a union, is free text.
        where: What it belongs to, for messages to the programmer.

    Raises:
        ConfigurationError: JSON Schema cannot describe it.
    """

    def __init__(self, kind: Any, *, where: str) -> None:
        self.takes_text, structured = _parted(kind)
        """Whether an answer may be free text."""
        self._form, self._convert = _TEXT if structured is None else _contract(structured, where)
        self._form = _opened(self._form)
        self._has_structure = structured is not None
        self._is_wrapped = self._form.get("type") != "object"
        whole = _wrapped(self._form) if self._is_wrapped else self._form
        self._gate = Schema(whole, where=where)
        self.schema: JsonObject = _or_text(self._form) if self.takes_text else whole
        """JSON Schema of the answer. Providers take no other root than an object, so that a list or a number is in one's `value`."""

    @property
    def wire_schema(self) -> JsonObject | None:
        """What a provider is asked to hold the answer to; None where it may be free text."""
        return None if self.takes_text else self.schema

    @property
    def told(self) -> str:
        """What the instructions say about an answer that no provider is asked to hold to its form; empty for nothing."""
        if not (self.takes_text and self._has_structure):
            return ""
        schema = msgspec.json.encode(self._form).decode()
        return f"Answer in words, or with nothing but JSON that fits this JSON Schema: {schema}"

    @property
    def shape(self) -> str:
        """The form in a few words for a model whose answer does not have it."""
        return form_of(self._form if self.takes_text else self.schema)

    def read(self, text: str) -> Reading:
        """Read an answer: JSON alone, or in the one code fence that holds JSON; else free text, where it may be."""
        raw = _unfenced(text)
        found = self._read(raw) if self._has_structure else Reading(is_text=True)
        if not self.takes_text or not (found.violations or found.is_text):
            return found
        is_meant = raw.lstrip().startswith("{") and raw.rstrip().endswith("}") and self._may_be_object
        return found if is_meant else Reading(data=text, is_text=True)

    def _read(self, raw: str) -> Reading:
        if not raw.strip():
            return _unfit("It is empty.", [row("", "JSON", None)])
        try:
            data = parse_json(raw)
        except NotJson as error:
            words = self._as_words(raw)
            return words or _unfit(f"It is not JSON: {error}", [row("", "JSON", bounded(raw))])
        if not self._is_wrapped:
            is_object = isinstance(data, dict)
            return (
                self.check(data) if is_object else _unfit("It is not a JSON object.", [row("", "object", bounded(raw))])
            )
        found = self.check(data) if isinstance(data, dict) else None
        if found is not None and not found.violations:
            return found
        bare = self.check({_WRAPPER: data})
        if not bare.violations:
            return bare
        has_own = found is not None and (_WRAPPER in data or not self._may_be_object)
        return self._as_words(raw) or (found if has_own and found is not None else bare)

    def _as_words(self, raw: str) -> Reading | None:
        """Read a value that is text without quotation marks, as of a `Literal`; None where none of that fits."""
        if not self._is_wrapped or self.takes_text:
            return None
        found = self.check({_WRAPPER: raw.strip()})
        return None if found.violations else found

    @property
    def _may_be_object(self) -> bool:
        alternatives = (self._form, *self._form.get("anyOf", ()))
        return any(resolved(one, self._form).get("type") == "object" for one in alternatives)

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
        return data if self.takes_text and isinstance(data, str) else self._convert(data)


# --- What an answer is found in


def _unfenced(text: str) -> str:
    """Return the JSON of the one code fence that holds some, if there is no other JSON around it; else the whole text."""
    fences = [one for one in _FENCED.finditer(text) if one["language"].strip().lower() in ("", "json")]
    found = [one for one in fences if _is_json(one["inside"])]
    if len(found) != 1:
        is_whole = len(fences) == 1 and fences[0].group().strip() == text.strip()
        return fences[0]["inside"] if is_whole else text
    around = text[: found[0].start()] + text[found[0].end() :]
    return text if any(_objects_in(around)) else found[0]["inside"]


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except NotJson:
        return False
    return True


def _objects_in(text: str) -> Iterator[Any]:  # Any: JSON of strangers
    """Yield the objects and arrays that a text holds, the empty ones left out."""
    for start in [one.start() for one in re.finditer(r"[{\[]", text)][:_MOST_STARTS]:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if value:
            yield value


# --- What a type is: its schema, and what makes its values

Contract: TypeAlias = tuple[JsonObject, Callable[[Any], Any]]

_TEXT: Contract = ({"type": "string"}, lambda value: value)


def _parted(kind: Any) -> tuple[bool, Any]:
    """Return whether a type may be free text, and what else it may be; None for nothing else."""
    members = _members(kind)
    if str not in members:
        return False, kind
    others = [one for one in members if one is not str]
    return True, None if set(others) <= {type(None)} else Union[tuple(others)]  # noqa: UP007 - its members are not known here


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _contract(kind: Any, where: str) -> Contract:
    if isinstance(kind, dict):
        return kind, lambda value: value
    try:
        if _is_struct(kind):
            return msgspec.json.schema(kind), lambda value: msgspec.convert(value, kind)
        return _by_pydantic(kind)
    except Exception as error:
        # pydantic and msgspec raise a dozen classes for what they cannot describe; the type is the programmer's.
        if len(members := _members(kind)) > 1:
            return _union([_contract(one, where) for one in members], where)
        problem = str(error).split("\n", 1)[0]
        raise ConfigurationError(
            f"The {where} cannot be described in JSON Schema: {shown(kind, 100)}: {problem}"
        ) from error


def _is_struct(kind: Any) -> bool:
    """Whether a Struct is in it, such as in `list[Town]`: pydantic knows none."""
    return any(map(_is_struct, get_args(kind))) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def _by_pydantic(kind: Any) -> Contract:
    import pydantic  # noqa: PLC0415 - loads when a type asks for it

    from treadle.validation.given import GivenSchema  # noqa: PLC0415 - as above

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    return adapter.json_schema(schema_generator=GivenSchema), lambda value: adapter.validate_json(
        msgspec.json.encode(value)
    )


def _union(parts: Sequence[Contract], where: str) -> Contract:
    """Return the contract of types that neither library describes together, such as two Structs without tags."""
    definitions: JsonObject = {}
    for schema, _ in parts:
        for name, one in schema.get("$defs", {}).items():
            if definitions.setdefault(name, one) != one:
                raise ConfigurationError(f"The {where} has two types of the name {name!r}. Rename one.")
    known = [(_opened(schema), convert) for schema, convert in parts]
    gates = [(Schema(schema, where=where), schema.get("properties", {}), convert) for schema, convert in known]
    inner = [{key: one for key, one in schema.items() if key != "$defs"} for schema, _ in parts]

    def convert(value: Any) -> Any:
        """Take the type that fits and knows most of the value."""
        fields = value.keys() if isinstance(value, dict) else set()
        fitting = [(len(fields - own.keys()), made) for gate, own, made in gates if not gate.check_result(value)]
        fitting.sort(key=lambda one: one[0])
        for at, (_, made) in enumerate(fitting, 1):
            try:
                return made(value)
            except (ValueError, msgspec.ValidationError):
                if at == len(fitting):
                    raise
        raise ValueError("It fits none of the types.")

    return {"anyOf": inner, **({"$defs": definitions} if definitions else {})}, convert


def _opened(schema: JsonObject) -> JsonObject:
    """Replace a root that only refers to a definition by that definition."""
    if "$ref" not in schema:
        return schema
    definitions: JsonObject = {key: schema[key] for key in _DEFINITIONS if key in schema}
    return {**resolved(schema, schema), **definitions}


def _wrapped(schema: JsonObject) -> JsonObject:
    inner, outer = _split(schema)
    properties = {_WRAPPER: inner}
    return {
        "type": "object",
        "properties": properties,
        "required": [_WRAPPER],
        "additionalProperties": False,
        **outer,
    }


def _or_text(schema: JsonObject) -> JsonObject:
    inner, outer = _split(schema)
    return schema if inner == _TEXT[0] else {"anyOf": [inner, _TEXT[0]], **outer}


def _split(schema: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return a schema without what belongs to the root of a document, and that."""
    roots = (*_DEFINITIONS, "$schema")
    inner = {key: part for key, part in schema.items() if key not in roots}
    return inner, {key: part for key, part in schema.items() if key in roots}


# --- What is told of an answer that does not fit


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
