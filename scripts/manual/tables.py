"""Tables of the reference that are not Python names: events, statuses, exit codes, the command line, configuration.

Everything is read from the code. A thing that lacks its sentence there lacks it here too, and the tests say so.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args, get_type_hints

import griffe
import msgspec

from manual.names import PROJECT, find, module_names, sentence
from treadle.budgets import Budget, Guards, Price
from treadle.cli.input.config import _NOT_FOR_PROJECTS, KEYS, WORKER_LIMIT, Layer, Profile, Redaction
from treadle.cli.input.parser import full_parser
from treadle.events import AnyEvent
from treadle.providers.vendors import VENDORS
from treadle.stops import EXIT_IN_DOUBT, EXIT_NOT_STORED, EXIT_SESSION_HELD, EXIT_USAGE, Status, StopReason, exit_code
from treadle.tools import CallStatus, Effect

__all__ = ["command_line", "configuration", "events", "statuses"]

Row = Sequence[str]


def _table(heads: Row, rows: Iterable[Row]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    """Return a text that holds no border of a cell: within code a bar is no border."""
    return re.sub(r"(`[^`]*`)|\|", lambda match: match[1] or r"\|", " ".join(text.split()))


def _code(text: object) -> str:
    return f"`{text}`"


def _members(kind: str) -> dict[str, str]:
    """Return the values of an enumeration with their sentences."""
    return {
        str(member.value).strip("'\""): sentence(member)
        for member in find(kind).members.values()
        if isinstance(member, griffe.Attribute) and member.name.isupper()
    }


# --- events ----------------------------------------------------------------------------------------------------------


def _fields(struct: griffe.Object) -> Iterator[Row]:
    for name, field in struct.members.items():
        if isinstance(field, griffe.Attribute) and "ClassVar" not in str(field.annotation) and name[0] != "_":
            default = "required" if field.value is None else _code(field.value)
            yield _code(name), _code(field.annotation), default, sentence(field)


_JSON_FORM = """\
## JSON

`encode_event(event)` gives the JSON form, and `decode_event(data)` reads it. The object has `type`, the event's name, and the
fields below; a field that has its default is left out. `treadle run --stream-json` and `treadle sessions export` write the same
form.
"""


def events() -> str:
    """Return the page of events: what all have, then each by its name."""
    heads = ("Field", "Type", "Default", "Meaning")
    base = find("treadle.events.Event")
    parts = [
        "# Events\n\nEvery event is a frozen struct of `treadle.events`. [Events](../know/events.md) says when each is recorded.\n",
        _JSON_FORM,
        f"## Event {{#treadle.events.Event}}\n\n{sentence(base)}\n\n{_table(heads, _fields(base))}",
    ]
    kinds = {kind.__name__: kind for kind in get_args(AnyEvent)}
    for name in sorted(kinds, key=lambda name: str(kinds[name].__struct_config__.tag)):
        one, kind = find(f"treadle.events.{name}"), kinds[name]
        live = " Live: shown to subscribers, not journaled." if kind.is_live else ""
        rows = list(_fields(one))
        fields = _table(heads, rows) if rows else "No fields of its own.\n"
        tag = kind.__struct_config__.tag
        parts.append(f"## {tag} {{#treadle.events.{name}}}\n\n`{name}`. {sentence(one)}{live}\n\n{fields}")
    others = [name for name in module_names("treadle.events") if name.rpartition(".")[2] not in {*kinds, "Event"}]
    parts.append(
        "## Functions and types\n\n"
        + "\n".join(f"::: {name}\n    options:\n      heading_level: 3\n" for name in others)
    )
    return "\n".join(parts)


# --- statuses --------------------------------------------------------------------------------------------------------

_CODES = {
    0: "The run completed; a command did what it was asked.",
    1: "The run failed, or its answer could not be used.",
    10: "A budget ended the run.",
    11: "The run is paused: a person is asked, or an input is awaited.",
    12: "A policy or a person ended the task.",
    13: "A guard ended the run: repeated calls, failures or invalid calls.",
    14: "The model or its vendor refused the task.",
    15: "A tool that the task needs is not available.",
    EXIT_USAGE: "The command line or the configuration is wrong. Nothing was run.",
    EXIT_SESSION_HELD: "Another process runs the session.",
    EXIT_IN_DOUBT: "The run completed, and the outcome of a call is unknown: `treadle doubts` lists it.",
    EXIT_NOT_STORED: "The run ended, and its journal could not store everything.",
    130: "Cancelled by Ctrl+C (SIGINT).",
    143: "Cancelled by SIGTERM.",
}


def statuses() -> str:
    """Return the page of statuses: of calls, runs and sessions, effects, stop reasons and exit codes."""
    reasons = [
        (_code(reason), _code(reason.status), "yes" if reason.is_completed else "no", str(exit_code(reason)), text)
        for reason in StopReason
        for text in [_members("treadle.StopReason")[reason.value]]
    ]
    known = {exit_code(reason) for reason in StopReason}
    known |= {EXIT_USAGE, EXIT_SESSION_HELD, EXIT_IN_DOUBT, EXIT_NOT_STORED}
    if missing := known - _CODES.keys():
        raise LookupError(f"Exit codes without a sentence in scripts/manual/tables.py: {missing}.")
    plain = ("Value", "Meaning")
    return "\n".join(
        [
            "# Statuses and exit codes\n",
            "## Why a run ended\n\n`result.reason`, and `reason` in the report.\n",
            _table(("Reason", "Status", "Completed", "Exit code", "Meaning"), reasons),
            "## Status of a run\n\n`result.status`.\n",
            _table(plain, [(_code(one), _members("treadle.stops.Status")[one.value]) for one in Status]),
            "## Status of a call\n\n`ToolResult.status`, and `status` in what the model reads.\n",
            _table(plain, [(_code(one), _members("treadle.tools.CallStatus")[one.value]) for one in CallStatus]),
            "## Effects\n",
            _table(plain, [(_code(one), _members("treadle.Effect")[one.value]) for one in Effect]),
            "## Exit codes\n\nOf every command. `treadle.stops.exit_code(reason)` gives the code of a reason.\n",
            _table(("Code", "Meaning"), [(str(code), _CODES[code]) for code in sorted(_CODES)]),
        ]
    )


# --- the command line ------------------------------------------------------------------------------------------------


def command_line() -> str:
    """Return the page of commands, from the parser that the program itself uses."""
    parser = full_parser()
    parts = [f"# Commands\n\n{parser.description} [Command line](../use/cli.md) explains how to use it.\n"]
    parts.append("```text\n" + "treadle COMMAND [options]\ntreadle COMMAND --help\n" + "```\n")
    for name, command in _subparsers(parser):
        parts += _command(f"treadle {name}", command, 2)
    return "\n".join(parts)


def _subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _command(name: str, parser: argparse.ArgumentParser, level: int) -> list[str]:
    rows = [row for action in parser._actions if (row := _option(action)) is not None]
    parts = [f"{'#' * level} {name}\n\n{parser.description}\n"]
    parts += [_table(("Argument or option", "Meaning"), rows)] if rows else []
    for below, each in _subparsers(parser):
        parts += _command(f"{name} {below}", each, level + 1)
    return parts


def _option(action: argparse.Action) -> Row | None:
    if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
        return None
    value = str(action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest))
    takes = action.nargs != 0
    names = [f"{name} {value}" if takes else name for name in action.option_strings] or [value]
    return ", ".join(map(_code, names)), str(action.help or "")


# --- configuration ---------------------------------------------------------------------------------------------------

_VARIABLES = {
    "TREADLE_MODEL": "The model, where no `--model` is given.",
    "TREADLE_JOURNAL": "The journal, where no `--journal` is given: a file or `postgresql://...`.",
    "TREADLE_HOME": "One directory for all state and configuration.",
    "TREADLE_MANAGED": "A file of an organisation's rules, beside `/etc/treadle/managed.toml`.",
    "TREADLE_CONFIG": "Set to the file of `--config` for the programs that are started, which protect it too. It selects no configuration.",
    "TREADLE_DEBUG": "`1` shows tracebacks and all logs.",
    "TREADLE_CALL": "Set for the programs that are started, on Linux: by it is found what one leaves running.",
}


def configuration() -> str:
    """Return the page of keys and variables."""
    _check_variables()
    heads = ("Key", "Type", "Default", "Meaning")
    hints = get_type_hints(Layer)
    top = [
        (_code(name), _kind(hints[name]), key.says, "no" if name in _NOT_FOR_PROJECTS else "yes")
        for name, key in KEYS.items()
    ]
    profile = [
        (_code(one.name), _kind(hints[one.name]), _code("none"), KEYS[one.name].says)
        for one in msgspec.structs.fields(Profile)
    ]
    parts = [
        "# Configuration keys\n\nThe files are TOML. [Configuration](../use/configuration.md) says where they are and which value holds.\n",
        "## Top level\n\n" + _table((*heads[:2], "Meaning", "In a project's file"), top),
        "## [budget]\n\n" + _table(heads, _struct("treadle.budgets.Budget", Budget)),
        "## [guards]\n\n" + _table(heads, _struct("treadle.budgets.Guards", Guards)),
        "## [price]\n\nMoney per million tokens.\n\n" + _table(heads, _struct("treadle.budgets.Price", Price)),
        "## [profiles.NAME]\n\n" + _table(heads, profile),
        "## [redaction]\n\n" + _table(heads, _struct("treadle.cli.input.config.Redaction", Redaction)),
        "## [workers.limits.NAME]\n\n" + _table((*heads[:2], "Meaning"), _worker_limits()),
        "## Environment variables\n\n" + _table(("Variable", "Meaning"), _variables()),
    ]
    return "\n".join(parts)


def _worker_limits() -> Iterator[Row]:
    for name, key in WORKER_LIMIT.items():
        values = " or ".join(map(_code, key.schema.get("enum", ())))
        yield _code(name), values or str(key.schema["type"]), key.says


def _struct(name: str, kind: type[msgspec.Struct]) -> Iterator[Row]:
    struct, hints = find(name), get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        default = (
            "required"
            if field.required
            else "none"
            if field.default in (None, msgspec.NODEFAULT)
            else str(field.default)
        )
        yield _code(field.name), _kind(hints[field.name]), _code(default), sentence(struct.members[field.name])


def _kind(hint: Any) -> str:
    """Return a type in the words of TOML."""
    text = str(hint)
    simple = {"bool": "boolean", "int": "integer", "float": "number", "Decimal": "number", "str": "string"}
    if choices := re.findall(r"Literal\[([^\]]*)\]", text):
        return " or ".join(_code(choice.strip().strip("'")) for choice in choices[0].split(","))
    if re.match(r"(dict|collections\.abc\.Mapping|treadle|<class 'treadle)", text):
        return "table"
    if text.startswith(("tuple", "list", "frozenset")):
        return "list of strings"
    return next((word for name, word in simple.items() if name in text), "table")


def _variables() -> Iterator[Row]:
    yield from ((_code(name), meaning) for name, meaning in _VARIABLES.items())
    meanings: dict[str, list[str]] = {}
    for name, vendor in VENDORS.items():
        for variable, what in (
            (vendor.key_variable, "The key of"),
            (vendor.other_key_variable, "Another name of the key of"),
            (vendor.address_variable, "The address of"),
        ):
            if variable:
                meanings.setdefault(f"{variable}\n{what}", []).append(f"`{name}:`")
    for key, vendors in meanings.items():
        variable, what = key.split("\n")
        yield _code(variable), f"{what} {', '.join(vendors)}."


def _check_variables() -> None:
    used = {
        name
        for path in (PROJECT / "src").rglob("*.py")
        for name in re.findall(r"\bTREADLE_[A-Z]+\b", path.read_text(encoding="utf-8"))
    }
    if used != set(_VARIABLES):
        raise LookupError(f"Variables to describe in scripts/manual/tables.py: {sorted(used ^ set(_VARIABLES))}.")
