"""Options: the commands and flags, and what a person gave of them. Reads the command line only; acts on nothing."""

import argparse
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.input.flags import (
    LONGEST_SECONDS,
    Flags,
    Mode,
    OnApproval,
    OnLimit,
    Sandbox,
    add_config,
    add_id,
    add_journal,
    add_json,
    add_limits,
    add_listing,
    add_output,
    add_places,
    add_profile,
    add_rules,
    add_running,
    add_tools_flag,
    count,
    instant,
    number_reader,
    parted,
    port,
    seconds,
    whole_reader,
)
from treadle.cli.input.near import hint_for, instead_of_command, instead_of_option

__all__ = [
    "ACTIONS",
    "APPROVAL_SECONDS",
    "COMMANDS",
    "FORMS",
    "LONGEST_SECONDS",
    "Mode",
    "OnApproval",
    "OnLimit",
    "Options",
    "Sandbox",
    "add_acp",
    "add_actions",
    "add_answer",
    "add_approve",
    "add_chat",
    "add_completion",
    "add_config_command",
    "add_doctor",
    "add_filters",
    "add_goal",
    "add_mcp",
    "add_models",
    "add_permissions",
    "add_program",
    "add_resolve",
    "add_resume",
    "add_run",
    "add_submit",
    "add_tools",
    "add_trust",
    "add_worker",
    "add_workers",
    "flags_of",
    "help_text",
    "parse",
    "split_program",
]


# --- What `treadle mcp` takes. Reads nothing and acts on nothing.


def split_program(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return our own arguments, and those of the program that follows `--`; None for a command that takes no program."""
    words = list(arguments)
    if words[:1] != ["mcp"]:
        return words, None
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def add_program(given: Sequence[str], unknown: Sequence[str], program: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the program or address, and the arguments that are unknown. An address may stand after the flags."""
    flags = [one for one in unknown if one.startswith("-")]
    return [*given, *([] if flags else unknown), *program], flags


def add_mcp(parser: Flags) -> None:
    """Add what is done with which server."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("list", "add", "remove", "approve", "revoke", "test", "serve"),
        help="list servers (the default), change them, test one and list its tools, or serve an agent to an MCP client",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", default=None, metavar="NAME", help="the server's name")
    parser.add_argument(
        "command_line",
        nargs="*",
        metavar="COMMAND",
        help="with add: the server's address, or -- and its command with arguments",
    )
    parser.flag(
        "-e", "--env", dest="variables", action="append", metavar="NAME=VALUE",
        help="with add: an environment variable of the program; ${NAME} copies it from your environment; repeatable",
    )  # fmt: skip
    parser.flag(
        "--header", dest="headers", action="append", metavar="NAME:VALUE",
        help="with add: a header to send with each request; repeatable",
    )  # fmt: skip
    parser.flag(
        "--scope",
        dest="place",
        choices=("user", "project"),
        help="which file: your own (user), or the folder's .mcp.json (project)",
    )
    parser.flag(
        "--offer",
        choices=("agent", "tools", "both"),
        help="with serve: offer an agent that takes tasks (the default), the tools of --tools themselves, or both",
    )
    parser.flag("--description", metavar="TEXT", help="with serve: what the agent is for; the client's model reads it")
    parser.flag(
        "--http", dest="http_port", type=port, metavar="PORT",
        help="with serve: serve over HTTP on this port of this machine (0: any free port); clients need the token of TREADLE_MCP_TOKEN",
    )  # fmt: skip
    parser.flag(
        "--no-token", dest="has_no_token", action="store_true",
        help="with serve --http: accept every program on this machine, without a token",
    )  # fmt: skip
    parser.flag("--by", metavar="NAME", help="with serve: who answers approvals, for the record (default: your login)")
    add_running(parser)


def add_acp(parser: Flags) -> None:
    """Add how the agent of an editor is set up."""
    parser.flag("--by", metavar="NAME", help="name to record for answers to permission requests (default: your login)")
    add_running(parser)


# --- What `treadle approve`, `answer` and `resolve` take: what a person says of a call. Reads nothing and acts on
# nothing.


def add_approve(parser: Flags) -> None:
    """Add what an answer to a request for approval is."""
    add_id(parser, "the approval, as `treadle approvals` lists it", "the newest approval")
    parser.flag("--deny", dest="is_denied", action="store_true", help="deny the call")
    parser.flag(
        "--scope", choices=("once", "session", "rule"),
        help="what to allow: only this call (once, the default), or calls that match the suggested rules, in this session or in this folder (rule)",
    )  # fmt: skip
    parser.flag("--arguments", metavar="JSON", help="run the call with these arguments instead: one JSON object")
    parser.flag("--reason", metavar="TEXT", help="the reason; the model reads it")
    parser.flag("--by", metavar="NAME", help="name to record for the answer (default: your login)")
    add_listing(parser)


def add_answer(parser: Flags) -> None:
    """Add the answer to a question."""
    parser.add_argument("id", nargs="?", metavar="ID", help="the session, or a prefix of its id")
    parser.add_argument("task", nargs="?", metavar="ANSWER", help="the answer: text, or a JSON object for a form")
    parser.flag("--by", metavar="NAME", help="name to record for the answer (default: your login)")
    add_listing(parser)


def add_resolve(parser: Flags) -> None:
    """Add what is said of a call in doubt."""
    add_id(parser, "the call or its key, as `treadle doubts` lists it", "the newest call in doubt")
    parser.flag("--done", metavar="JSON", help="the call succeeded with this result, as JSON; null for none")
    parser.flag("--not-done", dest="is_not_done", action="store_true", help="the call did not happen; it may run again")
    parser.flag(
        "--unknown", dest="is_unknown", action="store_true", help="the outcome stays unknown; stop listing the call"
    )
    parser.flag("--session", metavar="ID", help="the session, if the id is in doubt in more than one")
    parser.flag("--reason", metavar="TEXT", help="how you know; recorded with the outcome")
    parser.flag("--by", metavar="NAME", help="name to record for the decision (default: your login)")
    add_listing(parser)


# --- What the commands take that show or change what is set up on this machine. Reads nothing and acts on nothing.


def add_config_command(parser: Flags) -> None:
    """Add what of the configuration is shown."""
    parser.add_argument(
        "action",
        nargs="?",
        default=None,
        choices=("show", "schema"),
        help="show: every value and where it comes from; schema: the JSON Schema of the file",
    )
    parser.flag(
        "--origin", dest="shows_origin", action="store_true", help="show where each value comes from (always on)"
    )
    add_running(parser)


def add_trust(parser: Flags) -> None:
    """Add a folder to approve or revoke."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("list", "approve", "revoke"), help="what to do (default: list)"
    )
    parser.add_argument("name", nargs="?", default=None, metavar="FOLDER", help="the folder (default: this one)")
    add_json(parser)


def add_models(parser: Flags) -> None:
    """Add which models are listed."""
    parser.add_argument("name", nargs="?", default=None, metavar="NAME", help="a model or a vendor (default: all)")
    parser.flag("--offered", dest="offered", action="store_true", help="ask the vendor's server for its models")
    parser.flag("--base-url", dest="base_url", metavar="URL", help="with --offered: the server's address")
    add_json(parser)


def add_doctor(parser: Flags) -> None:
    """Add where the doctor looks."""
    add_places(parser)
    add_json(parser)


def add_completion(parser: Flags) -> None:
    """Add the shell."""
    parser.add_argument(
        "action", choices=("bash", "zsh", "fish", "words"), help="the shell; `words` is used by the completion scripts"
    )
    parser.add_argument("task", nargs="?", metavar="LINE", help="with `words`: the line to complete")
    add_config(parser)
    add_journal(parser)


# --- What the commands that begin or resume a run take beside what all runs take. Reads nothing and acts on nothing.


def add_run(parser: Flags) -> None:
    """Add a task."""
    parser.add_argument(
        "task", nargs="?", help="the task; - reads it from standard input; piped input is appended to it"
    )
    parser.flag("--session", dest="id", metavar="ID", help="continue this session, or create it if it does not exist")
    _add_task_flags(parser)
    parser.flag(
        "--single-turn", dest="is_single_turn", action="store_true",
        help="allow tool calls in one response only: the next response must be the answer",
    )  # fmt: skip
    add_running(parser)


def add_goal(parser: Flags) -> None:
    """Add a goal."""
    parser.add_argument("task", nargs="?", metavar="FILE", help="the goal, as TOML")
    parser.flag("--session", dest="id", metavar="ID", help="the session to work in (default: derived from the goal)")
    add_running(parser)


def add_chat(parser: Flags) -> None:
    """Add a conversation."""
    parser.add_argument("task", nargs="?", help="the first message")
    parser.flag("--session", dest="id", metavar="ID", help="continue this session, or create it if it does not exist")
    _add_task_flags(parser)
    _add_acceptance(parser)
    add_running(parser)


def add_resume(parser: Flags) -> None:
    """Add which run is resumed."""
    parser.add_argument("id", nargs="?", metavar="ID", help="the session")
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    _add_acceptance(parser)
    add_running(parser)


def _add_acceptance(parser: Flags) -> None:
    change = "continue a run that a program's own agent started, without that agent"
    parser.flag("--accept-change", dest="accepts_change", action="store_true", help=change)


def _add_task_flags(parser: Flags) -> None:
    """Add what belongs to one task."""
    parser.flag(
        "-a", "--attach", dest="attached", action="append", metavar="FILE",
        help="attach a file to the task: text, image, PDF or audio; repeatable",
    )  # fmt: skip
    parser.flag(
        "-c",
        "--continue",
        "--last",
        dest="is_last",
        action="store_true",
        help="continue the most recently changed session of this folder",
    )


# --- What the commands take that show tools, and the rules for them. Reads nothing and acts on nothing.


def add_tools(parser: Flags) -> None:
    """Add whether tools are checked, and where they are."""
    _add_checking(parser)
    add_tools_flag(parser)
    add_profile(parser)
    add_config(parser)
    add_json(parser)


def add_permissions(parser: Flags) -> None:
    """Add a call that the rules are tried on."""
    parser.add_argument(
        "name", nargs="?", default=None, metavar="TOOL", help="show what would happen to a call of this tool"
    )
    parser.add_argument(
        "task",
        nargs="?",
        default=None,
        metavar="ARGUMENTS",
        help="arguments as one JSON object, or the value of the first parameter",
    )
    add_rules(parser)
    add_tools_flag(parser)
    add_profile(parser)
    add_config(parser)
    add_json(parser)


def _add_checking(parser: Flags) -> None:
    """Add whether the tools are checked, and against what."""
    parser.add_argument(
        "action", nargs="?", default=None, choices=("check",), help="check: check every tool against its contract"
    )
    parser.flag(
        "--examples", dest="recorded", action="append", metavar="FILE",
        help="recorded calls to check against the contracts, as JSON lines of tool, arguments and result; repeatable",
    )  # fmt: skip
    parser.flag(
        "--run", dest="runs_again", action="store_true",
        help="rerun the examples that are marked as deterministic, and compare the results",
    )  # fmt: skip


# --- What `treadle worker`, `submit` and `workers` take. Reads nothing and acts on nothing.

_COUNT = whole_reader(1, 99999, "a number from 1 to 99999")
_PRIORITY = whole_reader(-999_999_999, 999_999_999, "a priority is a whole number such as 5")


def add_worker(parser: Flags) -> None:
    """Add what a worker is and which agents it has."""
    parser.flag(
        "--agents", action="append", metavar="WHAT",
        help="agents to run: FILE.py or module:attr with agents, or functions that make them, by name; repeatable "
        "(default: one agent named `default`, with the model, tools and rules given here)",
    )  # fmt: skip
    parser.flag(
        "--name", metavar="NAME", help="the worker's name, unique in its journal (default: machine and process)"
    )
    parser.flag("--concurrency", type=_COUNT, metavar="N", help="how many sessions to run in parallel (default: 4)")
    parser.flag(
        "--tenant", dest="tenants", action="append", metavar="NAME", help="take only tasks of this tenant; repeatable"
    )
    parser.flag(
        "--accept-change", dest="accepts_change", action="store_true",
        help="continue runs whose agent has changed since they began, with the agent as it is now",
    )  # fmt: skip
    parser.flag(
        "--limit", dest="worker_limits", action="append", metavar="WORDS",
        help='a limit shared by all workers that use its name: "NAME sessions=20 requests=500 tokens=200000 each=tenant", requests and tokens '
        "per minute; tenants=A,B, agents= and models= restrict what it applies to; repeatable",
    )  # fmt: skip
    parser.flag(
        "--drain-seconds", type=number_reader("seconds are a number such as 30"), metavar="N",
        help="seconds that runs may take to finish after SIGTERM or Ctrl-C, before other workers take them over (default: 30)",
    )  # fmt: skip
    parser.flag(
        "--queue", choices=("journal", "pgqueuer"),
        help="what distributes the sessions: the journal itself, or pgqueuer in its PostgreSQL (default: journal)",
    )  # fmt: skip
    parser.flag(
        "--health", dest="health_port", type=port, metavar="PORT",
        help="serve /live, /health and /metrics on this port of 127.0.0.1 (0: any free port)",
    )  # fmt: skip
    parser.flag(
        "--log-format", choices=("text", "json"),
        help="format of the log on standard error: text, or one JSON object per line (default: text)",
    )  # fmt: skip
    add_running(parser)


def add_submit(parser: Flags) -> None:
    """Add what a task is and when it begins."""
    parser.add_argument("task", nargs="?", help="the task; - reads it from standard input")
    parser.flag("--agent", metavar="NAME", help="the agent to run it with (default: `default`)")
    parser.flag("--tenant", metavar="NAME", help="the tenant it belongs to; tenants take turns")
    parser.flag(
        "--priority", type=_PRIORITY, metavar="N", help="among one tenant's tasks, higher starts first (default: 0)"
    )
    parser.flag(
        "--at", dest="begins_at", type=instant, metavar="TIME", help="earliest time to start, such as 2026-11-30T18:00"
    )
    parser.flag("--key", metavar="KEY", help="idempotency key: submitting the same key twice creates one session")
    parser.flag("--by", metavar="NAME", help="name to record for the submission (default: your login)")
    parser.flag("--wait", dest="is_waiting", action="store_true", help="wait until it ends, and print the answer")
    add_listing(parser)


def add_workers(parser: Flags) -> None:
    """Add what chooses the workers of a list."""
    parser.flag("--all", dest="shows_deleted", action="store_true", help="include workers whose process has ended")
    add_listing(parser)


# --- What `treadle sessions` takes: one parser an action. Reads nothing and acts on nothing.

ACTIONS = {
    "list": "list sessions, most recently changed first",
    "show": "show the messages and calls of one session",
    "explain": "report what was tried, changed, approved and failed, why it stopped, and what a rerun would do",
    "watch": "follow a session live, in whichever process it runs, until its run ends",
    "fork": "create a session that shares the history of another",
    "mark": "name the current end of a session",
    "rewind": "go back to an earlier point of the conversation; effects are not undone",
    "export": "write a session to a file, as lines of JSON or as a readable page",
    "move": "close a session here and continue it in another journal",
    "import": "import an exported session into the journal",
    "suspend": "block new runs in a session until it is activated",
    "activate": "allow runs in a suspended session again",
    "rm": "delete sessions",
    "check": "check that the list of sessions agrees with their events, or which sessions a deploy would strand",
}

FORMS = ("json", "md", "html")
"""In which a session is exported."""


def add_actions(actions: "argparse._SubParsersAction[Any]") -> None:
    """Add the actions of `treadle sessions`."""
    for name, says in ACTIONS.items():
        parser = actions.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        _SESSION_FILLERS[name](parser)
        add_listing(parser)


def add_filters(parser: Flags) -> None:
    """Add what chooses the sessions of a list."""
    parser.flag("--all", dest="shows_deleted", action="store_true", help="include deleted sessions")
    parser.flag(
        "--state", dest="states", action="append", metavar="STATE", choices=_STATES,
        help=f"only sessions in this state: {', '.join(_STATES)}; repeatable",
    )  # fmt: skip
    parser.flag("--match", metavar="TEXT", help="only sessions whose id or task contains this text")
    parser.flag(
        "--tenant",
        metavar="NAME",
        help="only sessions of this tenant (`tenant` in their metadata); '' for sessions without one",
    )
    parser.flag("--parent", metavar="ID", help="only forks of this session, and the sessions of its subagents")
    parser.flag(
        "--since", type=_instant, metavar="TIME",
        help="only sessions changed since: 2026-11-30, 2026-11-30T18:00, or an age such as 90m, 12h or 7d",
    )  # fmt: skip
    parser.flag("--limit", type=count, metavar="N", help="at most N sessions, most recently changed first")
    parser.flag("--after", dest="after_session", metavar="ID", help="only sessions listed after this one")
    _add_pager(parser)


_STATES = (
    "active",
    "queued",
    "running",
    "paused",
    "stopped",
    "completed",
    "failed",
    "suspended",
    "deleted",
    "in-doubt",
    "stranded",
)


def _add_one(parser: Flags) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="the session, or a prefix of its id")
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")


def _add_shown(parser: Flags) -> None:
    _add_one(parser)
    _add_pager(parser)


def _add_pager(parser: Flags) -> None:
    parser.flag(
        "--no-pager", dest="is_unpaged", action="store_true",
        help="do not page long output through PAGER",
    )  # fmt: skip


def _add_watch(parser: Flags) -> None:
    _add_one(parser)
    parser.flag("--after", type=count, metavar="N", help="only events after event N")


def _add_change(parser: Flags) -> None:
    _add_one(parser)
    parser.flag("--reason", metavar="TEXT", help="reason to record")
    parser.flag("--by", metavar="NAME", help="name to record for the decision (default: your login)")


def _add_fork(parser: Flags) -> None:
    _add_one(parser)
    parser.flag(
        "--at", type=_point, metavar="POINT", help="the last shared event, by number or mark (default: the end)"
    )
    parser.flag("--step", type=count, metavar="N", help="share everything through the results of step N")
    parser.flag("--message", type=count, metavar="N", help="share the first N messages")
    parser.flag("--id", dest="new_id", metavar="NEW", help="the new session's id (default: generated)")


def _add_mark(parser: Flags) -> None:
    _add_one(parser)
    parser.add_argument("name", metavar="NAME", help="the name")


def _add_rewind(parser: Flags) -> None:
    _add_one(parser)
    parser.add_argument("at", type=_point, metavar="POINT", help="a mark, or the number of the last event to keep")


def _add_export(parser: Flags) -> None:
    _add_one(parser)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a new file (default: standard output)")
    parser.flag(
        "--format", dest="form", choices=FORMS,
        help="json: lines that `import` reads; md, html: a readable page (default: from FILE's suffix, or json)",
    )  # fmt: skip
    parser.flag(
        "--exact",
        dest="is_exact",
        action="store_true",
        help="keep secrets in the file, to continue the session elsewhere",
    )


def _add_move(parser: Flags) -> None:
    _add_one(parser)
    parser.flag(
        "--to",
        dest="target",
        metavar="JOURNAL",
        help="move the session into this journal",
    )
    parser.flag(
        "--file",
        dest="file",
        metavar="FILE",
        help="or write a new file, for `treadle sessions import` on another machine",
    )
    parser.flag("--reason", metavar="TEXT", help="reason to record")
    parser.flag("--by", metavar="NAME", help="name to record for the decision (default: your login)")


def _add_import(parser: Flags) -> None:
    parser.add_argument("file", metavar="FILE", help="an exported file; - for standard input")
    parser.flag("--id", dest="new_id", metavar="NEW", help="the imported session's id (default: its old one)")
    parser.flag(
        "--take-open", dest="takes_open", action="store_true",
        help="activate it even if one of its calls may still be running: its source is closed",
    )  # fmt: skip


def _add_rm(parser: Flags) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="the sessions, or prefixes of their ids")
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    parser.flag(
        "--older-than",
        dest="older_than_days",
        type=number_reader("a number of days such as 30"),
        metavar="DAYS",
        help="every session unchanged for this many days",
    )
    parser.flag(
        "--even-open", dest="is_open_too", action="store_true",
        help="with --older-than: include sessions with a pending approval or input, or a call in doubt",
    )  # fmt: skip
    parser.flag(
        "--purge",
        dest="is_purged",
        action="store_true",
        help="also delete their events; only a record of the deletion remains",
    )


def _add_check(parser: Flags) -> None:
    parser.flag(
        "--agents", action="append", metavar="WHAT",
        help="instead, list the open sessions that no worker could continue if it had these agents only, FILE.py or module:attr "
        "as for `treadle worker`; repeatable",
    )  # fmt: skip


_SESSION_FILLERS: dict[str, Callable[[Any], None]] = {
    "list": add_filters,
    "show": _add_shown,
    "explain": _add_shown,
    "watch": _add_watch,
    "fork": _add_fork,
    "mark": _add_mark,
    "rewind": _add_rewind,
    "export": _add_export,
    "move": _add_move,
    "import": _add_import,
    "suspend": _add_change,
    "activate": _add_change,
    "rm": _add_rm,
    "check": _add_check,
}


def _point(text: str) -> int | str:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else text


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _instant(text: str) -> float:
    """Return a time in seconds since 1970. One without a zone is of this machine."""
    if (age := re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)) is not None:
        return time.time() - int(age[1]) * _UNITS[age[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"a time such as 2026-11-30T18:00, or an age such as 90m, 12h or 7d; got {text!r:.60}"
        ) from None


# --- Options: the commands and flags, and what a person gave of them. Reads the command line only; acts on nothing.

APPROVAL_SECONDS = 7 * 86400.0
"""How long a person may take to answer where nothing else is said, as for `Agent`."""

COMMANDS = {
    "chat": "chat with a model in this terminal; `treadle` alone does the same",
    "run": "run one task",
    "goal": "work on the goal in a file until its validation passes",
    "resume": "resume a run that was paused, stopped or interrupted",
    "sessions": "list sessions; show, explain, fork, rewind, export, import or delete one",
    "approvals": "list the calls that are waiting for approval",
    "approve": "allow or deny a call that is waiting for approval",
    "answer": "answer the question that a paused run asks",
    "doubts": "list the calls whose outcome is unknown",
    "resolve": "record the outcome of a call in doubt",
    "submit": "queue a task for a worker that has its agent",
    "worker": "run submitted tasks until a signal stops it",
    "workers": "list the workers on a journal, and what each of them is running",
    "cancel": "cancel a run that is active, paused or interrupted",
    "budgets": "show the ten budgets, and how much of each a session has used",
    "permissions": "list the permission rules in effect and where each comes from, or test them on a call",
    "tools": "list the tools, or check their contracts",
    "describe": "show the agent that these options and the configuration define",
    "mcp": "list, add, remove, approve or test MCP servers; serve an agent to an MCP client",
    "acp": "serve an agent to an editor that speaks the Agent Client Protocol, such as Zed",
    "models": "list known models, or the models a server offers: context windows, limits, prices",
    "config": "show the configuration, and where each value comes from",
    "trust": "list trusted folders, or trust a folder so that its own rules and hooks apply",
    "demo": "run a demonstration from start to end: no key, no network",
    "replay": "replay a recorded session as it happened, without running anything",
    "doctor": "check this machine, and name the next step",
    "completion": "print a shell completion script for this program",
    "mock": "serve a script as a strict mock provider on this machine",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gave on the command line; None or empty for what was left out."""

    command: str
    action: str | None = None
    """The action after the command, such as `show`."""
    task: str | None = None
    id: str | None = None
    ids: list[str] = []
    """Of sessions."""
    new_id: str | None = None
    """Of a session that is to be made."""
    name: str | None = None
    """Of a mark, or a worker."""
    at: int | str | None = None
    """A point of a session: an event's number or a mark."""
    step: int | None = None
    message: int | None = None
    file: str | None = None
    target: str | None = None
    """The journal that a session is moved to."""
    takes_open: bool = False
    older_than_days: float | None = None
    is_purged: bool = False
    is_exact: bool = False
    form: str | None = None
    """In which a session is exported; None for that of the file's name."""
    is_unpaged: bool = False
    """Whether a long text goes to the terminal as it is."""
    is_open_too: bool = False
    """Whether a deletion takes also sessions in which something waits for a person."""
    shows_deleted: bool = False
    is_last: bool = False
    script: str | None = None
    port: int = 0
    record: str | None = None
    is_denied: bool = False
    scope: str = "once"
    """How far the consent to a call reaches."""
    reason: str = ""
    by: str | None = None
    """Who answers; None for the login."""
    arguments: str | None = None
    """Edited arguments of a call, as JSON."""
    done: str | None = None
    """The result of a call in doubt, as JSON."""
    is_not_done: bool = False
    is_unknown: bool = False
    session: str | None = None
    """The session that a call belongs to."""
    states: list[str] = []
    """Only sessions in one of these states."""
    match: str | None = None
    """Only sessions whose task or id holds this."""
    limit: int | None = None
    """At most so many sessions."""
    tenant: str | None = None
    """Only sessions of this tenant; empty for those of none. Of a task: whose it is."""
    parent: str | None = None
    """Only forks of this session, and sessions that carry out its calls."""
    since: float | None = None
    """Only sessions changed since, in seconds since 1970."""
    agent: str | None = None
    agents: list[str] = []
    tenants: list[str] = []
    concurrency: int = 4
    worker_limits: list[str] = []
    """Limits over all workers, each as NAME and words such as sessions=20."""
    drain_seconds: float = 30.0
    health_port: int | None = None
    log_format: str = "text"
    queue: str = "journal"
    priority: int = 0
    begins_at: float | None = None
    """Seconds since 1970."""
    key: str | None = None
    is_waiting: bool = False
    after: int = 0
    """The number of an event."""
    command_line: list[str] = []
    """Of an MCP server: its program and arguments, or its address."""
    variables: list[str] = []
    headers: list[str] = []
    place: str | None = None
    """Whose file of MCP servers: `user` or `project`."""
    offer: str = "agent"
    """What an MCP client is offered: `agent`, `tools` or `both`."""
    description: str | None = None
    """Of the agent that is offered."""
    after_session: str | None = None
    """Of a list: the last session of the page before."""
    http_port: int | None = None
    """Of this machine, where MCP clients come in over HTTP; 0 for a free one."""
    has_no_token: bool = False
    """Whether every program of this machine may come in there."""
    model: str | None = None
    base_url: str | None = None
    offered: bool = False
    """Whether a server is asked which models it offers."""
    model_options: dict[str, Any] = {}
    """Further fields of each request to the model."""
    system: str | None = None
    """Instructions for the model, or `@` and a file."""
    schema: str | None = None
    """A file with the JSON Schema of the answer."""
    is_single_turn: bool = False
    """Whether the model may call tools in one response only."""
    attached: list[str] = []
    """Files that go along with the task."""
    mode: Mode | None = None
    """How much happens without a question; None to leave the session's."""
    sandbox: Sandbox | None = None
    """Whether commands are confined."""
    journal: str | None = None
    deadline: float | None = None
    """Seconds since 1970."""
    limits: dict[str, Any] = {}
    """Budgets by name: int, float, Decimal or None."""
    on_limit: OnLimit | None = None
    on_approval: OnApproval | None = None
    approval_seconds: float | None = None
    """How long a person may take to answer."""
    accepts_change: bool = False
    """Whether a run that a program's agent began continues with the command line's agent."""
    remembered: tuple[str, ...] = ()
    """Names of the options that no one gave this time: the session remembers them."""
    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []
    tools: list[str] = []
    recorded: list[str] = []
    """Files of recorded calls."""
    runs_again: bool = False
    """Whether recorded calls are made again."""
    config: str | None = None
    profile: str | None = None
    folder: str | None = None
    shows_origin: bool = False
    """Whether the origin of each value is asked for; it is always shown."""
    as_json: bool = False
    as_lines: bool = False
    speed: float | None = None
    """How many times as fast as it happened."""
    is_bare: bool = False
    """Whether what comes with the folder, hooks, skills and built-in instructions are left out."""
    is_quiet: bool = False
    is_verbose: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line.

    Raises:
        UsageError: It cannot be understood; the message says what to write instead.
        SystemExit: Help or the version was asked for, and printed.
    """
    arguments = _with_command(arguments)
    _check_command(arguments)
    parser = _parser()
    words, program = split_program(arguments)
    namespace, unknown = parser.parse_known_args(words)
    given = vars(namespace)
    if program is not None:  # what argparse would take for more arguments of ours
        given["command_line"], unknown = add_program(given.get("command_line", []), unknown, program)
    if unknown:
        _refuse(unknown[0], str(given.get("command")))
    if given.get("tools"):
        given["tools"] = [part for source in given["tools"] for part in parted(source)]
    return Options(**given)


def help_text() -> str:
    """Return what `treadle --help` prints."""
    return _parser().format_help()


def _with_command(arguments: Sequence[str]) -> Sequence[str]:
    """Return a command line with its command: options without one begin a conversation.

    Raises:
        UsageError: They are before a command.
    """
    if not arguments or not arguments[0].startswith("-") or arguments[0] in ("-h", "--help", "--version"):
        return arguments
    talk = ["chat", *arguments]
    message = vars(_parser().parse_known_args(talk)[0]).get("task")
    if message in COMMANDS:
        _misplace(arguments[0], message)
    return talk


def _check_command(arguments: Sequence[str]) -> None:
    word = next((word for word in arguments if not word.startswith("-")), None)
    if not arguments or arguments[0].startswith("-") or word in COMMANDS:
        return
    hint = instead_of_command(str(word), ACTIONS) or hint_for(str(word), COMMANDS).strip()
    raise UsageError(f"Unknown command {word!r}.{hint and ' '}{hint} To list all: treadle --help")


def _refuse(unknown: str, command: str) -> NoReturn:
    if not unknown.startswith("-"):
        raise UsageError(
            f"Unexpected {unknown[:80]!r} after `treadle {command}`: put quotes around an argument with spaces."
        )
    flag = unknown.partition("=")[0]
    taken = _all_flags_of(command)
    known = [one for one in taken if one.startswith("--")]
    if flag in known:
        _misplace(flag, command)
    hint = instead_of_option(flag, taken) or hint_for(flag, known).strip()
    raise UsageError(f"Unknown option {flag!r}.{hint and ' '}{hint} `treadle {command} --help` lists all.")


def _misplace(flag: str, command: str) -> NoReturn:
    raise UsageError(f"Write {flag} after the command: `treadle {command} ... {flag}`.")


class _Formatter(argparse.HelpFormatter):
    """argparse's, with one word for all options in the usage: the lists below it name them."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:  # Any: argparse's own types
        arguments = [one for one in actions if not one.option_strings]
        options = argparse.Action((), "options", metavar="[OPTIONS]")
        super().add_usage(usage, [options, *arguments], [], prefix)


class _Parser(argparse.ArgumentParser):
    """argparse with one sentence instead of a usage text for a mistake, and without guessing at shortened flags."""

    def __init__(self, **options: Any) -> None:  # Any: argparse's own keywords
        ours = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS, "formatter_class": _Formatter}
        super().__init__(**{**ours, **options})
        self.flags: list[str] = []
        self._place: argparse._ActionsContainer = self

    def error(self, message: str) -> NoReturn:
        if (
            wrong := re.search(r"argument ([^:]*): invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        ) is not None:
            name = wrong[1] if wrong[1].startswith("-") else wrong[1].lower()
            known = re.findall(r"[\w-]+", wrong[3])
            raise UsageError(
                f"Invalid {name} {wrong[2]!r}.{hint_for(wrong[2], known)} Choose from {', '.join(known)}. "
                f"See `{self.prog} --help`."
            )
        raise UsageError(f"{message[:1].upper()}{message[1:].rstrip('.')}. `{self.prog} --help` says how to write it.")

    def flag(self, *names: str, **options: Any) -> None:
        """Add an option."""
        self.flags.extend(names)
        self._place.add_argument(*names, **options)

    def heading(self, title: str) -> None:
        """Show the options that follow below a heading."""
        self._place = self.add_argument_group(title)


_ParserAction = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def _parser() -> _Parser:
    parser = _Parser(
        prog="treadle",
        description="Let a language model act through tools. Every call is checked against rules, recorded, limited, and run once.",
        epilog="To list the options of a command: treadle COMMAND --help. To see a first run: treadle demo",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        prog=parser.prog, title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name in COMMANDS:
        _add_command(commands, name)
    return parser


def _add_command(commands: "_ParserAction[Any]", name: str) -> _Parser:
    says = COMMANDS[name]
    parser: _Parser = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
    _FILLERS[name](parser)
    return parser


def flags_of(command: str) -> list[str]:
    """Return the long names of a command's flags; those of `sessions` are also its actions'."""
    return [flag for flag in _all_flags_of(command) if flag.startswith("--")]


def _all_flags_of(command: str) -> list[str]:
    return _add_command(_Parser().add_subparsers(), command).flags


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and rarely asked for

        print(f"treadle {version('treadle')}")
        parser.exit()


# --- what the commands take ------------------------------------------------------------------------------------------


def _add_sessions(parser: _Parser) -> None:
    add_listing(parser)
    add_filters(parser)
    add_actions(parser.add_subparsers(prog=parser.prog, title="actions", dest="action", metavar="ACTION"))


def _add_cancel(parser: Flags) -> None:
    add_id(parser, "the session", "the most recently changed session")
    add_listing(parser)


def _add_budgets(parser: Flags) -> None:
    parser.add_argument("id", nargs="?", metavar="SESSION", help="show what the last run of this session has used")
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    add_limits(parser)
    add_places(parser)
    add_json(parser)


def _add_replay(parser: Flags) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="the session, or a file written by `treadle sessions export`"
    )
    parser.flag("--last", dest="is_last", action="store_true", help="the most recently changed session")
    parser.flag(
        "--speed",
        type=seconds,
        metavar="N",
        help="replay N times as fast (default: 1 at a terminal, otherwise all at once)",
    )
    add_listing(parser)


def _add_demo(parser: Flags) -> None:
    add_limits(parser)
    add_places(parser)
    add_output(parser)


def _add_mock(parser: Flags) -> None:
    parser.add_argument("script", metavar="SCRIPT", help="a JSON file with the model's turns")
    parser.flag("--port", type=port, metavar="N", help="the port to listen on (default 0: any free port)")
    parser.flag("--record", metavar="FILE", help="write each request to this file as a line of JSON")


_FILLERS: dict[str, Callable[[_Parser], None]] = {
    "chat": add_chat,
    "run": add_run,
    "goal": add_goal,
    "resume": add_resume,
    "sessions": _add_sessions,
    "approvals": add_listing,
    "approve": add_approve,
    "answer": add_answer,
    "doubts": add_listing,
    "resolve": add_resolve,
    "submit": add_submit,
    "worker": add_worker,
    "workers": add_workers,
    "cancel": _add_cancel,
    "budgets": _add_budgets,
    "permissions": add_permissions,
    "tools": add_tools,
    "describe": add_running,
    "mcp": add_mcp,
    "acp": add_acp,
    "models": add_models,
    "config": add_config_command,
    "replay": _add_replay,
    "trust": add_trust,
    "demo": _add_demo,
    "doctor": add_doctor,
    "completion": add_completion,
    "mock": _add_mock,
}
