"""The schema of configuration files, as JSON Schema, for editors and checks. Made of the same types that read them."""

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import msgspec

from treadle import Budget, Effect, Guards, ModelFacts, Price
from treadle.cli.input.config import KEYS, NOTIFY_WORDS, SERVER_KEYS, Profile
from treadle.cli.input.options import Mode, OnApproval, OnLimit, Sandbox
from treadle.cli.input.worker_limits import EACH

__all__ = ["config_schema", "worker_limit"]

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_NONE = {"const": "none", "description": "no limit"}
_MONEY = {"type": "number", "minimum": 0}


def config_schema() -> dict[str, Any]:
    """Return the schema of `config.toml`."""
    budget = _table(_limits(Budget))
    known: Mapping[str, Any] = {
        **_common(),
        "sandbox": _sandbox(),
        "approval_seconds": {"type": "number", "exclusiveMinimum": 0},
        "notify": {
            "anyOf": [{"enum": list(NOTIFY_WORDS)}, _TEXTS | {"minItems": 1}],
            "default": "bell",
            "description": "How to notify you when a long run needs you or has ended: a word, or a program with its arguments.",
        },
        "notify_after_seconds": {"type": "number", "exclusiveMinimum": 0, "default": 10},
        "budget": budget,
        "guards": _table(_limits(Guards)),
        "profiles": {"type": "object", "additionalProperties": _table(_profile(budget))},
        "mcp": _table({"servers": {"type": "object", "additionalProperties": _server()}}),
        "workers": _table({"limits": {"type": "object", "additionalProperties": worker_limit()}}),
        "redaction": _table({"enabled": {"type": "boolean"}, "patterns": _TEXTS}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Treadle (config.toml)",
        **_table({name: known[name] for name in KEYS}),
    }


def _sandbox() -> dict[str, Any]:
    mode = _common()["sandbox"]
    read = _TEXTS | {"description": "Folders and files that commands in the sandbox may read."}
    return {"anyOf": [mode, _table({"mode": mode, "read": read})]}


def worker_limit() -> dict[str, Any]:
    """Return what can be said of a limit over all workers."""
    count = {"type": "integer", "minimum": 1}
    known = {
        "sessions": count | {"description": "How many sessions may run in parallel."},
        "requests": count | {"description": "How many model requests may start in any 60 seconds."},
        "tokens": count
        | {"description": "How many tokens the last 60 seconds may have used before the next request starts."},
        "each": {"enum": list(EACH), "description": "What gets a limit of its own; without it, all share one."},
        **{name: _TEXTS | {"description": f"Only these {name}."} for name in ("tenants", "agents", "models")},
    }
    needs = [{"required": [name]} for name in ("sessions", "requests", "tokens")]
    return {**_table(known), "anyOf": needs}


def _server() -> dict[str, Any]:
    """Return what can be said of an MCP server: a program, or an address."""
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    known: dict[str, Any] = {
        "command": _TEXT | {"description": "The program to start."},
        "args": {"type": "array", "items": {"type": "string"}},
        "env": texts | {"description": "Environment variables of the program; ${NAME} copies one of yours."},
        "cwd": _TEXT | {"description": "The folder to start it in."},
        "type": {"enum": ["stdio", "http", "streamable-http"]},
        "url": _TEXT | {"description": "The address of a server that is already running."},
        "headers": texts
        | {"description": "Headers of each request; ${NAME} copies one of your environment variables."},
        "trusted": {"type": "boolean", "description": "Whether to trust the server's hints about its tools."},
        "effects": {"type": "object", "additionalProperties": {"enum": [str(one) for one in Effect]}},
        "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Time limit of a call, in seconds."},
    }
    kinds = [{"required": ["command"]}, {"required": ["url"]}]
    return {**_table({name: known[name] for name in SERVER_KEYS}), "oneOf": kinds}


def _common() -> dict[str, Any]:
    """Return what a file and each of its profiles can say."""
    return {
        "model": _TEXT | {"description": "The model, such as openai-chat:gpt-5-mini."},
        "base_url": _TEXT | {"description": "The provider's base URL."},
        "model_options": {"type": "object", "description": "Fields of each model request, such as temperature."},
        "system": _TEXT | {"description": "Instructions for the model, or @FILE with a path relative to this file."},
        "mode": {"enum": list(get_args(Mode)), "description": "Which calls run without asking you."},
        "sandbox": {"enum": list(get_args(Sandbox)), "description": "Whether commands run in a sandbox."},
        "on_limit": {"enum": list(get_args(OnLimit)), "description": "What happens at a turn or call limit."},
        "on_approval": {
            "enum": list(get_args(OnApproval)),
            "description": "What happens to a call that needs approval.",
        },
        "price": _table(dict.fromkeys(Price.__struct_fields__, _MONEY), required=["input", "output"]),
        "facts": _table(_facts()),
        "tools": _TEXTS | {"description": "Built-in tools by name, Python files, or module:attribute."},
        "allow": _TEXTS | {"description": "Rules for calls that are allowed."},
        "ask": _TEXTS | {"description": "Rules for calls that need approval; they override `allow`."},
        "deny": _TEXTS | {"description": "Rules for calls that are denied; they override `allow` and `ask`."},
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
    known = {"budget": budget, **_common()}
    return {name: known[name] for name in Profile.__struct_fields__}
