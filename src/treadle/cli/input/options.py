"""Options: how a command declares what it takes, and what several commands take alike. Reads no command line.

A command is a struct, in `commands`: of its fields are made the parser, the help, the page of the reference, and the value that the
command gets.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from treadle import Budget, ConfigurationError
from treadle.messages import ErrorForm, TextCalls

__all__ = [
    "LISTING",
    "LONGEST_SECONDS",
    "OUTPUT",
    "PLACES",
    "RULES",
    "Argument",
    "Declared",
    "Flag",
    "Mode",
    "OnApproval",
    "OnLimit",
    "Options",
    "Parser",
    "RunningOptions",
    "Sandbox",
    "StoreOption",
    "as_other",
    "number_reader",
    "read_count",
    "read_instant",
    "read_port",
    "read_seconds",
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


# --- Declaring: what the annotation of a field says of it.


class Parser(Protocol):
    """argparse's parser, or a group of one."""

    def add_argument(self, *names: str, **given: Any) -> Any: ...  # Any: argparse's own keywords


class Declared(Protocol):
    """How a field is given on the command line."""

    @property
    def names(self) -> Sequence[str]:
        """The names of its flags; none for an argument."""
        ...

    def add(self, parser: Parser, field: str, kind: Any, *, is_required: bool) -> None:  # Any: a type
        """Add what the field needs to a parser."""
        ...


class Flag:
    """A flag: its names and the word for its value, such as `-a --attach FILE`, and its help.

    Its type says the rest: a `bool` takes no value, a tuple may be given several times, a `Literal` has its words.
    """

    def __init__(
        self,
        usage: str,
        says: str,
        read: Callable[[str], Any] | None = None,
        action: type[argparse.Action] | None = None,
    ) -> None:
        words = usage.split()
        self.names = [word for word in words if word.startswith("-")]
        self._metavar = None if words[-1] in self.names else words[-1]
        self._says, self._read, self._action = says, read, action

    def add(self, parser: Parser, field: str, kind: Any, *, is_required: bool) -> None:  # Any: a type
        """Add it to a parser."""
        if kind is bool:
            parser.add_argument(*self.names, dest=field, action="store_true", help=self._says)
            return
        action = self._action or ("append" if get_origin(kind) is tuple else "store")
        given = {"dest": field, "action": action, "type": self._read, "metavar": self._metavar, "help": self._says}
        parser.add_argument(*self.names, **given, **_choices(kind))


class Argument:
    """An argument without a flag: the word for it, and its help. A tuple takes all that follow; a field with a default may be left out."""

    names = ()

    def __init__(self, usage: str, says: str, read: Callable[[str], Any] | None = None) -> None:
        self._usage, self._says, self._read = usage, says, read

    def add(self, parser: Parser, field: str, kind: Any, *, is_required: bool) -> None:  # Any: a type
        """Add it to a parser."""
        given: dict[str, Any] = {"help": self._says, "type": self._read, **(_choices(kind) or {"metavar": self._usage})}
        if get_origin(kind) is tuple:
            given["nargs"] = "*"
        elif not is_required:
            given |= {"nargs": "?", "default": None}
        parser.add_argument(field, **given)


def _choices(kind: Any) -> dict[str, Any]:  # Any: a type
    """Return the words that a type allows, alone, in a tuple, or besides None."""
    found = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return {"choices": found[0]} if found else {}


class Limits:
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

    @property
    def names(self) -> list[str]:
        return [name for field in Budget.__struct_fields__ for name in self._names_of(field)]

    def _names_of(self, field: str) -> list[str]:
        return ["--" + field.replace("_", "-"), *(["--max-turns"] if field == "max_model_turns" else [])]

    def add(self, parser: Parser, field: str, kind: Any, *, is_required: bool) -> None:  # Any: a type
        """Add the flags to a parser."""
        for name in Budget.__struct_fields__:
            names = self._names_of(name)
            says = f"limit on {self._LIMITED[name]}; none: no limit"
            parser.add_argument(*names, dest=name, action=_StoreLimit, type=_limit, metavar="N", help=says)


def _limit(text: str) -> int | Decimal | None:
    if text.lower() == "none":
        return None
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?\d{0,18}\.\d{1,18}", text, re.ASCII):
        return Decimal(text)
    raise argparse.ArgumentTypeError(f"a limit is a number such as 20, or none for no limit; got {text!r:.60}")


class _StoreLimit(argparse.Action):
    """Collects the budgets in one mapping. Money stays exact, seconds are binary like the clock's."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        is_seconds = self.dest == "max_wall_time_seconds" and isinstance(values, Decimal)
        limit: dict[str, Any] = {self.dest: float(values) if is_seconds else values}
        try:
            Budget(**limit)
        except ConfigurationError as exc:
            parser.error(f"{option_string}: {str(exc).replace('None', 'none')}")
        namespace.limits = {**vars(namespace).get("limits", {}), **limit}


class StoreOption(argparse.Action):
    """Collects options of the form NAME=VALUE in one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, sign, text = values.partition("=")
        if not sign or not name.strip():
            parser.error(f"{option_string} takes NAME=VALUE, such as temperature=0; got {values!r:.80}")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest, None) or {}), name.strip(): value})


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


class Options(msgspec.Struct, frozen=True, kw_only=True):
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
    actions: "ClassVar[tuple[type[Options], ...]]" = ()
    """What may be said after its name, each a command of its own."""

    model: Annotated[
        str | None,
        Flag(
            "-m --model NAME", "the model, such as openai-chat:gpt-5-mini, demo or script:FILE (default: TREADLE_MODEL)"
        ),
    ] = None
    base_url: Annotated[
        str | None, Flag("--base-url URL", "base URL of the provider, such as http://127.0.0.1:8080/v1")
    ] = None
    model_options: Annotated[
        dict[str, Any],
        Flag(
            "-o --option NAME=VALUE",
            "set a field of each model request, such as temperature=0; the value is JSON or plain text; repeatable",
            action=StoreOption,
        ),
    ] = {}
    text_calls: Annotated[
        TextCalls | None,
        Flag(
            "--text-calls",
            "what happens to calls that the model's server leaves in the text (default: by model and server)",
        ),
    ] = None
    error_form: Annotated[
        ErrorForm | None,
        Flag(
            "--error-form",
            "what the model reads of a tool's error: its sentence, or all fields as JSON (default: by model)",
        ),
    ] = None
    first_byte_seconds: Annotated[
        float | None,
        Flag(
            "--first-byte-seconds N",
            "how long the model may read before it answers (default: 120, or 900 for a local server)",
            read_seconds,
        ),
    ] = None
    idle_seconds: Annotated[
        float | None,
        Flag(
            "--idle-seconds N",
            "how long it may pause in its answer (default: 60, or 300 for a local server)",
            read_seconds,
        ),
    ] = None
    is_bare: Annotated[
        bool,
        Flag(
            "--bare",
            "ignore the folder's configuration, AGENTS.md and skills, all hooks, and the built-in instructions",
        ),
    ] = False
    system: Annotated[str | None, Flag("--system TEXT", "instructions for the model; @FILE reads them from a file")] = (
        None
    )
    schema: Annotated[str | None, Flag("--schema --json-schema FILE", "a JSON Schema that the answer must match")] = (
        None
    )
    tools: Annotated[
        tuple[str, ...],
        Flag(
            "--tools WHAT",
            "built-in tools (default: grep,glob,read,list; in a conversation also write,edit,shell), FILE.py, module:attr, "
            "or subagents: FILE.md or FOLDER/; repeatable",
        ),
    ] = ()
    mode: Annotated[
        Mode | None, Flag("--mode", "which calls run without asking you, in this session (default: ask)")
    ] = None
    sandbox: Annotated[
        Sandbox | None,
        Flag(
            "--sandbox",
            "auto: commands run confined where this machine can confine them (default); on: they do, or the run ends; "
            "network: they have network; off: they run as you",
        ),
    ] = None
    allow: Annotated[
        tuple[str, ...], Flag("--allow RULE", "allow these calls: TOOL or TOOL(key=glob); repeatable")
    ] = ()
    ask: Annotated[tuple[str, ...], Flag("--ask RULE", "ask before these calls; overrides --allow; repeatable")] = ()
    deny: Annotated[
        tuple[str, ...], Flag("--deny RULE", "deny these calls; overrides --allow and --ask; repeatable")
    ] = ()
    on_approval: Annotated[
        OnApproval | None,
        Flag(
            "--on-approval",
            "what to do when a call needs approval: pause the run (default), deny the call, or fail the run",
        ),
    ] = None
    approval_seconds: Annotated[
        float | None,
        Flag(
            "--approval-seconds N",
            "seconds until a request for approval expires (default: 604800, 7 days)",
            read_seconds,
        ),
    ] = None
    on_limit: Annotated[
        OnLimit | None,
        Flag(
            "--on-limit", "at a turn or call limit: ask for a summary (summarize, the default) or stop at once (report)"
        ),
    ] = None
    deadline: Annotated[
        float | None, Flag("--deadline TIME", "time at which the run must end, such as 2026-11-30T18:00", read_instant)
    ] = None
    profile: Annotated[
        str | None, Flag("--profile NAME", "use a profile from the configuration: its model, tools, rules and limits")
    ] = None
    limits: Annotated[dict[str, Any], Limits()] = {}
    """Budgets by name: int, float, Decimal or None."""
    journal: Annotated[
        str | None,
        Flag(
            "--journal PATH",
            "where sessions are stored: a file, or postgresql://... (default: TREADLE_JOURNAL, then the state folder)",
        ),
    ] = None
    folder: Annotated[
        str | None, Flag("-C DIR", "project folder: root of the file tools and of the project's configuration")
    ] = None
    config: Annotated[str | None, Flag("--config FILE", "a configuration file that overrides the others")] = None
    as_json: Annotated[bool, Flag("--json", "write JSON to standard output")] = False
    as_lines: Annotated[
        bool, Flag("--stream-json", "write each event as a line of JSON, with the report as the last line")
    ] = False
    is_quiet: Annotated[bool, Flag("-q --quiet", "show no progress on standard error")] = False
    is_verbose: Annotated[bool, Flag("-v --verbose", "also show permission decisions and retries")] = False
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
