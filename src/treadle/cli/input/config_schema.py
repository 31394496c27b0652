"""The schema of configuration files, as JSON Schema, for editors and checks. Made of the same types that read them."""

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import msgspec

from treadle import Budget, Guards, ModelFacts, Price
from treadle.cli.input.config import KEYS, Profile
from treadle.cli.input.options import OnApproval, OnLimit

__all__ = ["config_schema"]

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_NONE = {"const": "none", "description": "no limit"}
_MONEY = {"type": "number", "minimum": 0}


def config_schema() -> dict[str, Any]:
    """Return the schema of `config.toml`."""
    budget = _table(_limits(Budget))
    known: Mapping[str, Any] = {
        "model": _TEXT | {"description": "The model, such as openai-chat:gpt-5-mini."},
        "base_url": _TEXT | {"description": "The provider's address."},
        "on_limit": {"enum": list(get_args(OnLimit))},
        "on_approval": {"enum": list(get_args(OnApproval))},
        "approval_seconds": {"type": "number", "exclusiveMinimum": 0},
        "budget": budget,
        "guards": _table(_limits(Guards)),
        "price": _table(dict.fromkeys(Price.__struct_fields__, _MONEY), required=["input", "output"]),
        "facts": _table(_facts()),
        "tools": _TEXTS | {"description": "Built-in tools by name, Python files, or module:attribute."},
        "allow": _TEXTS | {"description": "Rules of calls that are allowed."},
        "deny": _TEXTS | {"description": "Rules of calls that are denied; a denial wins."},
        "profiles": {"type": "object", "additionalProperties": _table(_profile(budget))},
        "redaction": _table({"enabled": {"type": "boolean"}, "patterns": _TEXTS}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Treadle (config.toml)",
        **_table({name: known.get(name, {}) for name in KEYS}),
    }


def _table(fields: Mapping[str, Any], *, required: list[str] | None = None) -> dict[str, Any]:
    needs = {"required": required} if required else {}
    return {"type": "object", "properties": dict(fields), "additionalProperties": False, **needs}


def _limits(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the fields of budgets or guards: whole numbers or numbers, or the word `none`."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        hint = str(hints[field.name])
        default = {} if field.default is msgspec.NODEFAULT else {"default": _plain(field.default)}
        if "tuple" in hint:
            fields[field.name] = _TEXTS | default
            continue
        number = "number" if "float" in hint or "Decimal" in hint else "integer"
        fields[field.name] = {"anyOf": [{"type": number, "minimum": 0}, _NONE], **default}
    return fields


def _plain(value: Any) -> Any:
    return "none" if value is None else list(value) if isinstance(value, tuple) else value


def _facts() -> dict[str, Any]:
    hints = get_type_hints(ModelFacts)
    kinds: dict[str, Any] = {}
    for name in ModelFacts.__struct_fields__:
        if name == "price":
            continue
        hint = str(hints[name])
        kinds[name] = (
            {"type": "boolean"}
            if "bool" in hint
            else {"type": "integer", "minimum": 1}
            if "int" in hint
            else {"type": "array", "items": {"enum": ["text", "image", "pdf", "audio", "video"]}}
        )
    return kinds


def _profile(budget: dict[str, Any]) -> dict[str, Any]:
    known = {"budget": budget, "on_limit": {"enum": list(get_args(OnLimit))}}
    return {name: known.get(name, {}) for name in Profile.__struct_fields__}
