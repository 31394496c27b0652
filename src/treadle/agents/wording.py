"""Wording: what a model could misunderstand of a tool's name, description and parameters. Gives advice, refuses nothing."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from treadle.tools import Tool

__all__ = ["advice_on"]

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PLAIN_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_VAGUE = frozenset({"do", "tool", "function", "run", "execute", "handle", "process", "test", "foo", "helper"})
_LONGEST_DESCRIPTION = 10_000
_DEEPEST = 20
_SAYS_TYPE = ("type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf")


def advice_on(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield where and what to improve in what the model reads of a tool."""
    yield from _on_name(tool)
    yield from _on_description(tool)
    for path, schema in _parameters(tool.parameters, "", 0):
        if not str(schema.get("description") or "").strip():
            yield f"parameter `{path}`", "It has no description. Say what it means, with an example of a value."
        if not _PLAIN_PARAMETER.fullmatch(path.rpartition(".")[2]):
            yield (
                f"parameter `{path}`",
                "Anthropic accepts only names of 1 to 64 letters, digits, `_`, `.` and `-`. Rename it.",
            )
        if not any(word in schema for word in _SAYS_TYPE):
            yield f"parameter `{path}`", "It has no type, so a model may pass any JSON value. Give its schema a `type`."
    if tool.output_schema is None and any(example.has_result for example in tool.recorded):
        yield (
            "output_schema",
            "It has recorded results and no `output_schema`, so no change of their shape is ever found. Declare it.",
        )


def _on_name(tool: Tool) -> Iterator[tuple[str, str]]:
    if not _PLAIN_NAME.fullmatch(tool.name):
        yield (
            "name",
            "Most vendors accept only names of 1 to 64 letters, digits, `_` and `-`, so the model sees a changed name. Choose a name of that form.",
        )
    elif tool.name.casefold() in _VAGUE:
        yield "name", "It does not say what the tool does. Name the act and its object, such as `find_customer`."


def _on_description(tool: Tool) -> Iterator[tuple[str, str]]:
    words = tool.description.strip()
    if not words:
        yield (
            "description",
            "It has no description, so the model cannot tell when to use it. Say what it does, and when to use it.",
        )
    elif _folded(words) == _folded(tool.name):
        yield "description", "It repeats the name. Say what the tool does, what it returns, and when to use it."
    elif len(words) > _LONGEST_DESCRIPTION:
        yield (
            "description",
            f"It has {len(words):,} characters, which every request pays for. Move what is rarely needed to `guidance`, or shorten it.",
        )


def _folded(words: str) -> str:
    return re.sub(r"[\W_]+", "", words).casefold()


def _parameters(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every parameter, those of objects and of lists of objects too."""
    properties = schema.get("properties")
    if depth > _DEEPEST or not isinstance(properties, dict):
        return
    for name, one in properties.items():
        if not isinstance(one, dict):
            continue
        place = f"{path}{name}"
        yield place, one
        yield from _parameters(one, f"{place}.", depth + 1)
        items = one.get("items")
        if isinstance(items, dict):
            yield from _parameters(items, f"{place}[].", depth + 1)
