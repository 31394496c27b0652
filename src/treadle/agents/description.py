"""Description: an agent as one JSON object: model, tools, rules, limits, hooks, as they were built. Runs nothing, asks nobody."""

import dataclasses
import functools
import types
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from treadle.engine.spec import AgentSpec
from treadle.ports import HasCapabilities, HasFacts, Model
from treadle.redaction import Redactor
from treadle.tooling.toolbox import Toolbox

__all__ = ["description_of"]

_DEPTH = 12
"""Policies may hold policies. Below so many levels only the class of an object is named."""
_DERIVED = {"fingerprint", "index", "policies_above"}
"""Fields that are made from the others, or belong to one run."""


def description_of(about: AgentSpec, model: Model) -> dict[str, Any]:
    """Return everything that an agent was built from: equal agents have equal descriptions, in every process.

    A function or an object of a program's own is described by its module and name. Secrets are redacted, and a model's key, headers
    and address are left out.
    """
    parts = {"model": _model(model), **_fields(about, 0)}
    parts["output"] = None if about.output is None else about.output.schema
    parts["tools"] = parts.pop("toolbox")
    parts["parallel_hint"] = about.toolbox.has_hints
    return Redactor().value({name: parts[name] for name in sorted(parts)})  # type: ignore[no-any-return]  # an object stays one


def _model(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "class": _name(type(model)),
        "price": _described(model.price, 1),
        "facts": _described(model.facts, 1) if isinstance(model, HasFacts) else None,
        "capabilities": _described(model.capabilities, 1) if isinstance(model, HasCapabilities) else [],
    }


def _fields(value: Any, depth: int) -> dict[str, Any]:
    names = (
        value.__struct_fields__
        if isinstance(value, msgspec.Struct)
        else [one.name for one in dataclasses.fields(value)]
    )
    return {name: _described(getattr(value, name), depth + 1) for name in names if name not in _DERIVED}


def _described(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if depth < _DEPTH:
        return _opened(value, depth)
    return _name(value if callable(value) else type(value))


def _opened(value: Any, depth: int) -> Any:
    """What is inside of a value: its items, or its public fields with its class."""
    if isinstance(value, Mapping):
        return {str(key): _described(one, depth + 1) for key, one in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((_described(one, depth + 1) for one in value), key=str)
    if isinstance(value, list | tuple):
        return [_described(one, depth + 1) for one in value]
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return {"class": _name(type(value)), **_fields(value, depth)}
    if isinstance(value, Toolbox):
        return [_fields(tool, depth) for tool in value]
    return _name(value)


def _name(value: Any) -> str:
    """Return where a class, a function or an object's class is defined. An address in memory tells nobody anything."""
    if isinstance(value, functools.partial):
        return _name(value.func)
    if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        value = type(value)
    return f"{value.__module__}.{value.__qualname__}"
