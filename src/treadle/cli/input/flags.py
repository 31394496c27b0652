"""Flags that several commands take: how a run is carried out, places, output. Reads nothing and acts on nothing."""

import argparse
import json
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

from treadle import Budget, ConfigurationError

__all__ = [
    "LONGEST_SECONDS",
    "Flags",
    "Mode",
    "OnApproval",
    "OnLimit",
    "Sandbox",
    "add_config",
    "add_id",
    "add_journal",
    "add_json",
    "add_limits",
    "add_listing",
    "add_output",
    "add_places",
    "add_profile",
    "add_rules",
    "add_running",
    "add_tools_flag",
    "count",
    "instant",
    "limit_reader",
    "names_file",
    "number_reader",
    "parted",
    "port",
    "seconds",
    "whole_reader",
]


# --- Readers: what flags take, from text to values. Each raises argparse's own error.

LONGEST_SECONDS = 100 * 366 * 86400.0
"""The longest time that a person may be given to answer: 100 years."""


def instant(text: str) -> float:
    """Read an instant; without a time zone it is the machine's."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"write a time such as 2026-11-30T18:00 or 2026-11-30T17:00:00Z; got {text!r:.60}"
        ) from None


def seconds(text: str) -> float:
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


count = whole_reader(0, 10**18, "a whole number")
"""Reads a whole number from 0."""
port = whole_reader(0, 65535, "a port is a number from 0 (any free one) to 65535")
"""Reads the number of a port."""


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


def _limit_of(text: str) -> int | Decimal | None:
    if text.lower() == "none":
        return None
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?\d{0,18}\.\d{1,18}", text, re.ASCII):
        return Decimal(text)
    raise argparse.ArgumentTypeError(f"a limit is a number such as 20, or none for no limit; got {text!r:.60}")


def limit_reader(name: str) -> Any:
    """Return the reader of one budget's value: money stays exact, seconds are binary like the clock's."""

    def read(text: str) -> int | float | Decimal | None:
        value = _limit_of(text)
        return float(value) if name == "max_wall_time_seconds" and isinstance(value, Decimal) else value

    return read


def names_file(source: str) -> bool:
    """Whether a source of tools is a file or folder: Python, or definitions of subagents."""
    return "/" in source or source.endswith((".py", ".md", ".yaml", ".yml", ".json"))


def parted(source: str) -> list[str]:
    """Return the parts of a list of tools that names files too, such as `read,agents/`; a list of built-in names stays one part."""
    parts = source.split(",")
    if len(parts) == 1 or Path(source).exists() or not any(map(names_file, parts)):
        return [source]
    names = ",".join(part for part in parts if not names_file(part))
    return [*([names] if names else []), *(part for part in parts if names_file(part))]


# --- Flags that several commands take: how a run is carried out, places, output. Reads nothing and acts on nothing.

Mode: TypeAlias = Literal["plan", "ask", "accept-edits", "deny-unlisted", "bypass"]
Sandbox: TypeAlias = Literal["on", "network", "off"]
OnLimit: TypeAlias = Literal["summarize", "report"]
OnApproval: TypeAlias = Literal["pause", "deny", "fail"]


_LIMITED = {
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
"""What each budget limits, for the help."""


class Flags(Protocol):
    """A parser of ours: argparse's, with flags that are remembered."""

    def flag(self, *names: str, **options: Any) -> None: ...

    def add_argument(self, *names: str, **options: Any) -> Any: ...

    def heading(self, title: str) -> None: ...


def add_running(parser: Flags) -> None:
    """Add how a run is carried out: model, tools, permissions, budgets, journal, output."""
    parser.heading("model")
    parser.flag(
        "-m",
        "--model",
        metavar="NAME",
        help="the model, such as openai-chat:gpt-5-mini, demo or script:FILE (default: TREADLE_MODEL)",
    )
    parser.flag("--base-url", metavar="URL", help="base URL of the provider, such as http://127.0.0.1:8080/v1")
    _add_model_flags(parser)
    parser.heading("tools and permissions")
    add_tools_flag(parser)
    add_rules(parser)
    parser.flag(
        "--on-approval",
        choices=get_args(OnApproval),
        help="what to do when a call needs approval: pause the run (default), deny the call, or fail the run",
    )
    parser.flag(
        "--approval-seconds", type=seconds, metavar="N",
        help="seconds until a request for approval expires (default: 604800, 7 days)",
    )  # fmt: skip
    parser.heading("limits")
    parser.flag(
        "--on-limit",
        choices=get_args(OnLimit),
        help="at a turn or call limit: ask for a summary (summarize, the default) or stop at once (report)",
    )
    parser.flag(
        "--deadline", type=instant, metavar="TIME", help="time at which the run must end, such as 2026-11-30T18:00"
    )
    add_limits(parser)
    parser.heading("journal and configuration")
    add_places(parser)
    parser.heading("output")
    add_output(parser)


def add_rules(parser: Flags) -> None:
    """Add the mode, and the rules of this session."""
    parser.flag(
        "--mode", choices=get_args(Mode), help="which calls run without asking you, in this session (default: ask)"
    )
    parser.flag(
        "--sandbox", choices=get_args(Sandbox),
        help="on: commands write only inside the folder and have no network; network: they have network; off: the default",
    )  # fmt: skip
    parser.flag(
        "--allow", action="append", metavar="RULE", help="allow these calls: TOOL or TOOL(key=glob); repeatable"
    )
    parser.flag("--ask", action="append", metavar="RULE", help="ask before these calls; overrides --allow; repeatable")
    parser.flag(
        "--deny", action="append", metavar="RULE", help="deny these calls; overrides --allow and --ask; repeatable"
    )


def add_limits(parser: Flags) -> None:
    """Add the budgets."""
    add_profile(parser)
    for name in Budget.__struct_fields__:
        flags = ["--" + name.replace("_", "-")]
        flags += ["--max-turns"] if name == "max_model_turns" else []
        parser.flag(
            *flags, dest=name, action=_StoreLimit, type=limit_reader(name), metavar="N",
            help=f"limit on {_LIMITED[name]}; none: no limit",
        )  # fmt: skip


def add_profile(parser: Flags) -> None:
    """Add the profile."""
    parser.flag(
        "--profile", metavar="NAME", help="use a profile from the configuration: its model, tools, rules and limits"
    )


def add_tools_flag(parser: Flags) -> None:
    """Add which tools there are."""
    parser.flag(
        "--tools", action="append", metavar="WHAT",
        help="built-in tools (default: grep,glob,read,list; in a conversation also write,edit,shell), FILE.py, module:attr, "
        "or subagents: FILE.md or FOLDER/; repeatable",
    )  # fmt: skip


def add_places(parser: Flags) -> None:
    """Add the journal and the configuration."""
    add_journal(parser)
    add_config(parser)


def add_config(parser: Flags) -> None:
    """Add the configuration."""
    parser.flag(
        "-C",
        dest="folder",
        metavar="DIR",
        help="project folder: root of the file tools and of the project's configuration",
    )
    parser.flag("--config", metavar="FILE", help="a configuration file that overrides the others")


def add_journal(parser: Flags) -> None:
    """Add the journal."""
    parser.flag(
        "--journal", metavar="PATH",
        help="where sessions are stored: a file, or postgresql://... (default: TREADLE_JOURNAL, then the state folder)",
    )  # fmt: skip


def add_json(parser: Flags) -> None:
    """Add JSON as the form of the output."""
    parser.flag("--json", dest="as_json", action="store_true", help="write JSON to standard output")


def add_output(parser: Flags) -> None:
    """Add how much is shown of a run, and in which form."""
    add_json(parser)
    parser.flag(
        "--stream-json",
        dest="as_lines",
        action="store_true",
        help="write each event as a line of JSON, with the report as the last line",
    )
    parser.flag("-q", "--quiet", dest="is_quiet", action="store_true", help="show no progress on standard error")
    parser.flag(
        "-v", "--verbose", dest="is_verbose", action="store_true", help="also show permission decisions and retries"
    )


def add_listing(parser: Flags) -> None:
    """Add what every list takes: the journal, and JSON."""
    add_journal(parser)
    add_json(parser)


def add_id(parser: Flags, what: str, last: str) -> None:
    """Add one session or call, by its id or as the last one.

    Args:
        what: What the id names, for the help.
        last: What `--last` chooses, for the help.
    """
    parser.add_argument("id", nargs="?", metavar="ID", help=f"{what}, or a prefix of its id")
    parser.flag("--last", dest="is_last", action="store_true", help=last)


def _add_model_flags(parser: Flags) -> None:
    """Add the options of the model, its instructions, and the form of its answer."""
    parser.flag(
        "-o", "--option", dest="model_options", action=_StoreOption, metavar="NAME=VALUE",
        help="set a field of each model request, such as temperature=0; the value is JSON or plain text; repeatable",
    )  # fmt: skip
    parser.flag(
        "--bare", dest="is_bare", action="store_true",
        help="ignore the folder's configuration, AGENTS.md and skills, all hooks, and the built-in instructions",
    )  # fmt: skip
    parser.flag("--system", metavar="TEXT", help="instructions for the model; @FILE reads them from a file")
    parser.flag(
        "--schema", "--json-schema", dest="schema", metavar="FILE", help="a JSON Schema that the answer must match"
    )


class _StoreLimit(argparse.Action):
    """Collects the budgets in one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        limits = {**vars(namespace).get("limits", {}), self.dest: values}
        try:
            Budget(**{self.dest: values})
        except ConfigurationError as exc:
            parser.error(f"{option_string}: {str(exc).replace('None', 'none')}")
        namespace.limits = limits


class _StoreOption(argparse.Action):
    """Collects the options of the model in one mapping."""

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
        namespace.model_options = {**vars(namespace).get("model_options", {}), name.strip(): value}
