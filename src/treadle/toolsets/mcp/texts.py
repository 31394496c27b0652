"""Texts of a server made fit for a model and a person: names that every dialect takes, nothing invisible, nothing endless."""

import hashlib
import json
import re
import unicodedata
from typing import Any

__all__ = ["fit_schema", "plain_name", "shortened", "tool_name", "visible"]

_LONGEST_NAME = 64
"""Characters of a tool's name that every provider takes."""
_LONGEST_DESCRIPTION = 1_000
"""Characters of a description inside a schema."""
_LARGEST_SCHEMA = 100_000
"""Characters of a schema as JSON. A larger one cannot be cut without changing what it means."""
_PLAIN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANKS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u2d7f\u3164\uffa0\ufffc\U00016fe4\U0001d159"
)
_ANNOTATIONS = frozenset({"description", "title", "$comment"})


def tool_name(server: str, tool: str) -> str:
    """Return the name by which the model knows a tool: `mcp__server__tool`, in characters and a length that every dialect takes."""
    name = plain_name(f"mcp__{server}__{tool}")
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


def plain_name(name: str) -> str:
    """Return a name in characters that every provider takes."""
    return _PLAIN_NAME.sub("_", name)


def visible(text: str) -> str:
    """Return a text in which every character shows: an invisible one is written as `<U+200B>`. Line ends and tabs stay."""
    plain = text.replace("\r\n", "\n")
    return plain if plain.isascii() and plain.isprintable() else "".join(map(_shown, plain))


def _shown(char: str) -> str:
    if char in "\n\t" or (char.isascii() and char.isprintable()):
        return char
    number = ord(char)
    is_selector = 0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF
    hides = is_selector or char in _BLANKS or unicodedata.category(char) in _INVISIBLE
    return f"<U+{number:04X}>" if hides else char


def shortened(text: str, limit: int) -> str:
    """Return a text of at most so many characters; one that was cut says so."""
    mark = " [cut]"
    return text if len(text) <= limit else text[: limit - len(mark)] + mark


def fit_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a server's schema with visible and short descriptions. What it enforces is unchanged.

    Raises:
        ValueError: It is larger than 100,000 characters, too deep, or has a field whose name does not show.
    """
    try:
        fit: dict[str, Any] = _fit(schema, is_names=False)
        size = len(json.dumps(fit))
    except RecursionError:
        raise ValueError("its schema is nested too deeply") from None
    if size > _LARGEST_SCHEMA:
        raise ValueError(f"its schema has {size:,} characters as JSON, and at most {_LARGEST_SCHEMA:,} are taken")
    return fit


def _fit(value: Any, *, is_names: bool) -> Any:  # Any: a schema of strangers
    """Args: is_names: Whether the keys of this object are names of fields, so that `description` is one of them."""
    if isinstance(value, list):
        return [_fit(item, is_names=False) for item in value]
    if not isinstance(value, dict):
        return value
    fit = {}
    for key, item in value.items():
        if visible(key) != key:
            raise ValueError(f"its schema names {visible(key)[:100]!r}, which has invisible characters")
        if key in _ANNOTATIONS and isinstance(item, str) and not is_names:
            fit[key] = shortened(visible(item), _LONGEST_DESCRIPTION)
        else:
            fit[key] = _fit(item, is_names=not is_names and key in {"properties", "$defs", "definitions"})
    return fit
