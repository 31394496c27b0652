"""Options: how a command declares what it takes, and what several commands take alike. Reads no command line.

A command is a struct, in `commands`: of its fields are made the parser, the help, the page of the reference, and the value that the
command gets.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from treadle import Budget, ConfigurationError
from treadle.messages import ErrorForm, TextCalls

__all__ = [
    "LISTING",
    "LONGEST_SECONDS",
    "OUTPUT",
    "PLACES",
    "RULES",
    "Declared",
    "Mode",
    "OnApproval",
    "OnLimit",
    "Options",
    "Parser",
    "RunningOptions",
    "Sandbox",
    "argument",
    "as_other",
    "flag",
    "number_reader",
    "read_count",
    "read_instant",
    "read_named",
    "read_port",
    "read_seconds",
    "read_text",
    "repeated",
    "switch",
    "ungrouped",
    "whole_reader",
]

Mode: TypeAlias = Literal["plan", "ask", "accept-edits", "auto", "deny-unlisted", "bypass"]
Sandbox: TypeAlias = Literal["auto", "on", "network", "off"]
OnLimit: TypeAlias = Literal["summarize", "report"]
OnApproval: TypeAlias = Literal["pause", "deny", "fail"]


# --- Readers: what flags take, from text to values. Each raises argparse's own error.

LONGEST_SECONDS = 100 * 366 * 86400.0
"""The longest time that a person may be given to answer: 100 years."""


def read_instant(text: str) -> float:
    """Read an instant; without a time zone it is the machine's."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"write a time such as 2026-11-30T18:00 or 2026-11-30T17:00:00Z; got {text!r:.60}"
        ) from None


def read_seconds(text: str) -> float:
    """Read a time that a person may be given to answer."""
    if re.fullmatch(r"\d{1,10}(\.\d{1,6})?", text, re.ASCII) and 0 < float(text) <= LONGEST_SECONDS:
        return float(text)
    raise argparse.ArgumentTypeError(f"seconds are a number above 0, at most 100 years; got {text!r:.60}")


def whole_reader(least: int, most: int, what: str) -> Callable[[str], int]:
    """Return the reader of a whole number between two.

    Args:
        what: What is written, for the error message.
    """

    def read(text: str) -> int:
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{what}; got {text!r:.60}")

    return read


def read_text(text: str) -> str:
    """Read a text that is recorded: what the terminal could not encode is replaced."""
    return text.encode("utf-8", "replace").decode()


read_count = whole_reader(0, 10**18, "a whole number")
read_port = whole_reader(0, 65535, "a port is a number from 0 (any free one) to 65535")


def number_reader(what: str) -> Callable[[str], float]:
    """Return the reader of a number from 0, with up to six decimals.

    Args:
        what: What is written, with an example, for the error message.
    """

    def read(text: str) -> float:
        if re.fullmatch(r"\d{1,7}(\.\d{1,6})?", text, re.ASCII):
            return float(text)
        raise argparse.ArgumentTypeError(f"{what}; got {text!r:.60}")

    return read


def read_named(text: str) -> tuple[str, Any]:  # Any: JSON
    """Read NAME=VALUE, whose value is JSON or plain text."""
    name, sign, said = text.partition("=")
    if not sign or not name.strip():
        raise argparse.ArgumentTypeError(f"it takes NAME=VALUE, such as temperature=0; got {text!r:.80}")
    try:
        return name.strip(), json.loads(said)
    except (ValueError, RecursionError):
        return name.strip(), said


def _limit_reader(name: str) -> Callable[[str], tuple[str, int | float | Decimal | None]]:
    """Return the reader of a budget, which gives its name too. Money stays exact, seconds are binary like the clock's."""

    def read(text: str) -> tuple[str, int | float | Decimal | None]:
        limit: Any = None
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
            limit = int(text)
        elif re.fullmatch(r"-?\d{0,18}\.\d{1,18}", text, re.ASCII):
            limit = float(text) if name == "max_wall_time_seconds" else Decimal(text)
        elif text.lower() != "none":
            rule = "a limit is a number such as 20, or none for no limit"
            raise argparse.ArgumentTypeError(f"{rule}; got {text!r:.60}")
        try:
            Budget(**{name: limit})
        except ConfigurationError as exc:
            raise argparse.ArgumentTypeError(str(exc).replace("None", "none")) from exc
        return name, limit

    return read


# --- Declaring: what a command takes, each as the value of a field.


class Parser(Protocol):
    """argparse's parser, or a group of one."""

    def add_argument(self, *names: str, **given: Any) -> Any: ...  # Any: argparse's own keywords


class Declared:
    """How a field is given on the command line.

    Args:
        usage: The names of a flag and the word for its value, such as `-a --attach FILE`; of an argument the word alone.
        says: Its help.
        default: What holds where it is left out.
        read: Returns the value of a text; of a table, a name and a value.
    """

    def __init__(
        self,
        usage: str,
        says: str,
        default: Any,  # Any: of the field's type
        read: Callable[[str], Any] | None = None,
    ) -> None:
        words = usage.split()
        self.names = [word for word in words if word.startswith("-")]
        self.default = default
        self._metavar = None if words[-1] in self.names else words[-1]
        self._says, self._read = says, read

    def add(self, parser: Parser, field: str, kind: Any) -> None:  # Any: a type
        """Add it to a parser. Its type says the rest: a tuple and a table may be given several times, a `Literal` has its words."""
        choices, origin = _choices(kind), get_origin(kind)
        given: dict[str, Any] = {"help": self._says, "type": self._read, **choices}
        if self.names and kind is bool:
            parser.add_argument(*self.names, dest=field, action="store_true", help=self._says)
            return
        if self.names:
            action = "append" if origin in (tuple, dict) else "store"
            parser.add_argument(*self.names, dest=field, action=action, metavar=self._metavar, **given)
            return
        if not choices:
            given["metavar"] = self._metavar
        if origin is tuple:
            given["nargs"] = "*"
        elif self.default is not msgspec.NODEFAULT:
            given |= {"nargs": "?", "default": None}
        parser.add_argument(field, **given)


def flag(usage: str, says: str, read: Callable[[str], Any] | None = None, *, default: Any = None) -> Any:
    """Declare a flag with a value. What is returned stands where the field's value does."""
    return Declared(usage, says, default, read)


def switch(usage: str, says: str, *, default: bool = False) -> Any:
    """Declare a flag without a value."""
    return Declared(usage, says, default)


def repeated(usage: str, says: str) -> Any:
    """Declare a flag that may be given several times."""
    return Declared(usage, says, ())


def argument(usage: str, says: str, read: Callable[[str], Any] | None = None, *, default: Any = None) -> Any:
    """Declare an argument without a flag. A tuple takes all that follow; without a default it must be given."""
    return Declared(usage, says, default, read)


def _choices(kind: Any) -> dict[str, Any]:  # Any: a type
    """Return the words that a type allows, alone, in a tuple, or besides None."""
    found = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return {"choices": found[0]} if found else {}


class _Limits(Declared):
    """The ten budgets, a flag each."""

    _LIMITED: Mapping[str, str] = {
        "max_model_turns": "model turns in a run",
        "max_tool_calls": "tool calls in a run",
        "max_parallel_tool_calls": "tool calls that run in parallel",
        "max_wall_time_seconds": "seconds that a run takes",
        "max_input_tokens": "input tokens of a run",
        "max_output_tokens": "output tokens of a run",
        "max_total_cost": "the cost of a run, in USD",
        "max_tool_result_chars": "characters of a tool result that the model sees",
        "max_retries_per_model_call": "retries of one model call",
        "max_retries_per_tool_call": "retries of one tool call",
    }

    def __init__(self) -> None:
        super().__init__("--max-turns " + " ".join(map(_flag_of, self._LIMITED)), "", {})

    def add(self, parser: Parser, field: str, kind: Any) -> None:  # Any: a type
        for name, what in self._LIMITED.items():
            names = [_flag_of(name), *(["--max-turns"] if name == "max_model_turns" else [])]
            says = f"limit on {what}; none: no limit"
            reader = _limit_reader(name)
            parser.add_argument(*names, dest=field, action="append", type=reader, metavar="N", help=says)


def _flag_of(limit: str) -> str:
    return "--" + limit.replace("_", "-")


# --- What several commands take alike.

LISTING = ("journal", "as_json")
MODEL_WORDS = ("text_calls", "error_form")
MODEL_SECONDS = ("first_byte_seconds", "idle_seconds")
PLACES = ("journal", "folder", "config")
OUTPUT = ("as_json", "as_lines", "is_quiet", "is_verbose")
RULES = ("mode", "sandbox", "allow", "ask", "deny")
_RUNNING: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "base_url", "model_options", *MODEL_WORDS, *MODEL_SECONDS, "is_bare", "system", "schema"),
    "tools and permissions": ("tools", *RULES, "on_approval", "approval_seconds"),
    "limits": ("on_limit", "deadline", "profile", "limits"),
    "journal and configuration": PLACES,
    "output": OUTPUT,
}


def ungrouped(*names: str) -> Mapping[str, tuple[str, ...]]:
    """Return names of fields that stand below no heading."""
    return {"": names}


class _Declaring(msgspec.StructMeta):
    """Makes a plain struct of a command, and keeps how its fields are given."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        declared = {field: one for field, one in namespace.items() if isinstance(one, Declared)}
        values = {field: one.default for field, one in declared.items() if one.default is not msgspec.NODEFAULT}
        others = {field: one for field, one in namespace.items() if field not in declared}
        return super().__new__(cls, name, bases, {**others, **values, "declared": declared}, **config)


class Options(msgspec.Struct, metaclass=_Declaring, frozen=True, kw_only=True):
    """What a person gave on the command line; None or empty for what was left out. The settings are made of it.

    A command has all of these fields. It takes those that `shared` names, and the fields that it adds.
    """

    command: ClassVar[str] = ""
    """Its name: one word, or two for an action of `sessions`."""
    code: ClassVar[str] = ""
    """The function that carries it out, below `treadle.cli.commands`."""
    shared: ClassVar[Mapping[str, tuple[str, ...]]] = {"": LISTING}
    """Which of these fields it takes, below the headings of its help."""
    unusual: ClassVar[frozenset[str]] = frozenset()
    """Which fields only `--help-all` shows."""
    group: ClassVar[str] = ""
    """The command under which the help of the program names it; empty for one that the help describes."""
    declared: ClassVar[Mapping[str, Declared]] = {}
    """How the fields that it adds are given."""
    actions: "ClassVar[tuple[type[Options], ...]]" = ()
    """What may be said after its name, each a command of its own."""

    model: str | None = flag(
        "-m --model NAME", "the model, such as openai-chat:gpt-5-mini, demo or script:FILE (default: TREADLE_MODEL)"
    )
    base_url: str | None = flag("--base-url URL", "base URL of the provider, such as http://127.0.0.1:8080/v1")
    model_options: dict[str, Any] = flag(
        "-o --option NAME=VALUE",
        "set a field of each model request, such as temperature=0; the value is JSON or plain text; repeatable",
        read_named,
        default={},
    )
    text_calls: TextCalls | None = flag(
        "--text-calls",
        "what happens to calls that the model's server leaves in the text (default: by model and server)",
    )
    error_form: ErrorForm | None = flag(
        "--error-form",
        "what the model reads of a tool's error: its sentence, or all fields as JSON (default: by model)",
    )
    first_byte_seconds: float | None = flag(
        "--first-byte-seconds N",
        "how long the model may read before it answers (default: 120, or 900 for a local server)",
        read_seconds,
    )
    idle_seconds: float | None = flag(
        "--idle-seconds N", "how long it may pause in its answer (default: 60, or 300 for a local server)", read_seconds
    )
    is_bare: bool = switch(
        "--bare", "ignore the folder's configuration, AGENTS.md and skills, all hooks, and the built-in instructions"
    )
    system: str | None = flag("--system TEXT", "instructions for the model; @FILE reads them from a file")
    schema: str | None = flag("--schema --json-schema FILE", "a JSON Schema that the answer must match")
    tools: tuple[str, ...] = repeated(
        "--tools WHAT",
        "built-in tools (default: grep,glob,read,list; in a conversation also write,edit,shell), FILE.py, module:attr, "
        "or subagents: FILE.md or FOLDER/; repeatable",
    )
    mode: Mode | None = flag("--mode", "which calls run without asking you, in this session (default: ask)")
    sandbox: Sandbox | None = flag(
        "--sandbox",
        "auto: commands run confined where this machine can confine them (default); on: they do, or the run ends; "
        "network: they have network; off: they run as you",
    )
    allow: tuple[str, ...] = repeated("--allow RULE", "allow these calls: TOOL or TOOL(key=glob); repeatable")
    ask: tuple[str, ...] = repeated("--ask RULE", "ask before these calls; overrides --allow; repeatable")
    deny: tuple[str, ...] = repeated("--deny RULE", "deny these calls; overrides --allow and --ask; repeatable")
    on_approval: OnApproval | None = flag(
        "--on-approval",
        "what to do when a call needs approval: pause the run (default), deny the call, or fail the run",
    )
    approval_seconds: float | None = flag(
        "--approval-seconds N", "seconds until a request for approval expires (default: 604800, 7 days)", read_seconds
    )
    on_limit: OnLimit | None = flag(
        "--on-limit", "at a turn or call limit: ask for a summary (summarize, the default) or stop at once (report)"
    )
    deadline: float | None = flag(
        "--deadline TIME", "time at which the run must end, such as 2026-11-30T18:00", read_instant
    )
    profile: str | None = flag(
        "--profile NAME", "use a profile from the configuration: its model, tools, rules and limits"
    )
    limits: dict[str, Any] = _Limits()  # type: ignore[assignment]  # its default is what the struct has
    """Budgets by name: int, float, Decimal or None."""
    journal: str | None = flag(
        "--journal PATH",
        "where sessions are stored: a file, or postgresql://... (default: TREADLE_JOURNAL, then the state folder)",
    )
    folder: str | None = flag("-C DIR", "project folder: root of the file tools and of the project's configuration")
    config: str | None = flag("--config FILE", "a configuration file that overrides the others")
    as_json: bool = switch("--json", "write JSON to standard output")
    as_lines: bool = switch("--stream-json", "write each event as a line of JSON, with the report as the last line")
    is_quiet: bool = switch("-q --quiet", "show no progress on standard error")
    is_verbose: bool = switch("-v --verbose", "also show permission decisions and retries")
    by: str | None = None
    """Who answers; None for the login. Commands that take it say what for."""
    remembered: tuple[str, ...] = ()
    """Names of the options that no one gave this time: the session remembers them."""


class RunningOptions(Options, frozen=True, kw_only=True):
    """What a command takes that makes an agent: model, tools, permissions, budgets, journal, output."""

    shared = _RUNNING
    unusual = frozenset(
        (
            *(*MODEL_WORDS, *MODEL_SECONDS),
            *("base_url", "model_options", "is_bare", "schema", "ask", "deny", "on_approval", "approval_seconds"),
            *("on_limit", "deadline", "limits", "journal", "config", "as_lines", "is_verbose", "accepts_change"),
        )
    )


_Other = TypeVar("_Other", bound=Options)


def as_other(options: Options, kind: type[_Other], **more: Any) -> _Other:  # Any: fields of the other command
    """Return what all commands share as the options of another command."""
    return kind(**{**{name: getattr(options, name) for name in Options.__struct_fields__}, **more})
