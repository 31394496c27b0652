"""Compiling: from a JSON Schema to a validator that fetches nothing and never hangs. Explains no violation."""

from typing import Any, TypeAlias

import jsonschema_rs

from treadle.canonical import copied
from treadle.errors import ToolDefinitionError
from treadle.tools import JsonObject

__all__ = ["Validator", "compiled"]

Validator: TypeAlias = jsonschema_rs.Validator

_MAX_BACKTRACKS = 100_000


def compiled(schema: JsonObject, *, where: str) -> Validator:
    """Return the validator of a schema.

    Patterns run in linear time. One that looks around or back cannot: it may take so many steps, and then it fits nothing.

    Raises:
        ToolDefinitionError: It is not a valid schema, or refers to something outside of itself.
    """
    refused: list[str] = []
    schema = copied(schema)  # the compiler takes plain lists only, and a tool's own are read-only
    try:
        try:
            return _compile(schema, jsonschema_rs.RegexOptions(), refused)
        except jsonschema_rs.ValidationError:
            return _compile(schema, jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS), refused)
    except (ValueError, TypeError, RecursionError) as error:  # ValidationError is a ValueError
        if refused:
            reason = f"the schema refers to {refused[0]!r}, and only references within the schema (#/...) are followed"
        else:
            reason = f"it is not a valid JSON Schema: {_reason(error)}"
        raise ToolDefinitionError(f"The {where} cannot be used: {reason}.") from error


def _compile(schema: JsonObject, patterns: Any, refused: list[str]) -> Validator:  # Any: either kind of options
    def refuse(uri: str) -> Any:
        refused.append(uri)
        raise LookupError(uri)

    return jsonschema_rs.validator_for(
        schema,
        validate_formats=True,
        formats=dict(_OFFSET_OPTIONAL),
        retriever=refuse,
        mask="the value",
        pattern_options=patterns,
    )


def _reason(error: Exception) -> str:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return str(error).splitlines()[0].rstrip(".")
    place = "/".join(str(part) for part in error.instance_path)
    at = f" (at {place})" if place else ""
    return error.message.splitlines()[0].rstrip(".") + at


class _OffsetOptional:
    """A time format that may leave out its offset, as Python's and everybody's local times do; RFC 3339 wants one."""

    def __init__(self, name: str) -> None:
        self._strict = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)

    def __call__(self, text: str) -> bool:
        return self._strict.is_valid(text) or self._strict.is_valid(f"{text}Z")


_OFFSET_OPTIONAL = {name: _OffsetOptional(name) for name in ("date-time", "time")}
