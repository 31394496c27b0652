"""Questions: what a server asks a person in mid-call, and how a person's words become the answer that its form wants. Asks nobody."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from treadle.toolsets.mcp.texts import shortened, visible

__all__ = ["DECLINED", "Unfit", "answer_for", "question_of"]

DECLINED = object()
"""What `answer_for` returns where the person has declined."""
_DECLINING = ("decline", "declined", "cancel")
_NO = ("no", "n", "false", *_DECLINING)
_YES = ("yes", "y", "ok", "okay", "accept", "true", "done")


class Unfit(Exception):
    """An answer that does not fit the server's form; the message says why."""


def question_of(server: str, message: str, schema: dict[str, Any], url: str | None = None) -> str:
    """Return a server's question, as a person is shown it."""
    asked = f"MCP server {server!r} asks: {shortened(visible(message), 2_000)}"
    if url is not None:
        return f"{asked}\nOpen {visible(url)} if you trust it, and answer yes once you are done, or no."
    fields = _fields(schema)
    if not fields:
        return f"{asked}\nAnswer yes or no."
    shown = ", ".join(_described(name, field) for name, field in fields.items())
    form = "Answer with" if len(fields) == 1 else "Answer with a JSON object of"
    return f"{asked}\n{form} {shown}; or no."


def answer_for(given: Any, schema: dict[str, Any]) -> Any:  # Any: what a person gave, and the form's content
    """Return the content that a form wants, of what a person has answered; DECLINED where they do not want to.

    Raises:
        Unfit: The answer does not fit the form.
    """
    fields = _fields(schema)
    is_flag = [field.get("type") for field in fields.values() if isinstance(field, dict)] == ["boolean"]
    word = given.strip().lower() if isinstance(given, str) else given
    if word is None or (word in _DECLINING if is_flag else word is False or word in _NO):
        return DECLINED
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except ValueError:
            raise Unfit("the answer begins like JSON and is not valid JSON") from None
    if word in _YES and len(fields) > 1:
        given = {}  # the form as it stands, with its defaults
    if isinstance(given, dict) and (fields or not given):
        return {name: _value(name, value, fields.get(name)) for name, value in _complete(given, fields, schema).items()}
    if not fields:
        if given is True or (isinstance(given, str) and given.strip().lower() in _YES):
            return {}
        raise Unfit("the answer must be yes or no")
    if len(fields) > 1:
        raise Unfit(f"the answer must be a JSON object with {', '.join(map(visible, fields))}")
    ((name, field),) = fields.items()
    return {name: _value(name, given, field)}


def _fields(schema: dict[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    return fields if isinstance(fields, dict) else {}


def _described(name: str, field: Any) -> str:
    kind = field.get("type", "value") if isinstance(field, dict) else "value"
    choices = _choices(field)
    about = field.get("description") or field.get("title") or "" if isinstance(field, dict) else ""
    words = f": {shortened(visible(str(about)), 200)}" if about else ""
    default = _defaults({name: field})
    said = f", by default {shortened(visible(json.dumps(default[name], ensure_ascii=False)), 200)}" if default else ""
    shown = " | ".join(visible(str(one)) for one in choices) if choices else visible(str(kind))
    return f"{visible(name)} ({shown}{said}{words})"


def _choices(field: Any) -> Sequence[Any]:
    if not isinstance(field, dict):
        return ()
    listed = field.get("enum")
    if isinstance(listed, list):
        return listed
    titled = field.get("oneOf")
    return [one.get("const") for one in titled if isinstance(one, dict)] if isinstance(titled, list) else ()


def _defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a form gives its fields, but for those that do not fit them."""
    defaults = {}
    for name, field in fields.items():
        if isinstance(field, dict) and "default" in field:
            with suppress(Unfit):
                defaults[name] = _value(name, field["default"], field)
    return defaults


def _complete(given: dict[str, Any], fields: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    given = {**_defaults(fields), **given}
    unknown = [name for name in given if name not in fields]
    required = schema.get("required")
    missing = [name for name in required if name not in given] if isinstance(required, list) else []
    if unknown or missing:
        problem = f"{visible(str((unknown or missing)[0]))} is {'not asked for' if unknown else 'missing'}"
        raise Unfit(f"{problem}; the fields are {', '.join(map(visible, fields))}")
    return given


def _value(name: str, value: Any, field: Any) -> Any:
    """Return a value in the type that its field has: what a person types is text."""
    kind = field.get("type") if isinstance(field, dict) else None
    try:
        fit = _converted(value, kind)
    except ValueError:
        raise Unfit(f"{visible(name)} must be a value of type {kind}; got {visible(str(value))[:60]!r}") from None
    choices = _choices(field)
    if choices and fit not in choices:
        raise Unfit(f"{visible(name)} must be one of {', '.join(visible(str(one)) for one in choices)}")
    return fit


def _converted(value: Any, kind: Any) -> Any:
    """Raises ValueError: The value is not of that type, and no text that stands for one."""
    if isinstance(value, str) and kind in _FROM_TEXT:
        return _FROM_TEXT[kind](value.strip())
    wanted = _TYPES.get(kind, object)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind in ("integer", "number")):
        raise ValueError
    return value


def _flag(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError
    return text.lower() in _YES


_FROM_TEXT: dict[Any, Callable[[str], Any]] = {"boolean": _flag, "integer": int, "number": float}
_TYPES: dict[Any, type | tuple[type, ...]] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
}
