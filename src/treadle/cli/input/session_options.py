"""What `treadle sessions` takes: one parser an action. Reads nothing and acts on nothing."""

import argparse
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from treadle.cli.input.flags import Flags, add_listing
from treadle.cli.input.readers import count, number_reader

__all__ = ["ACTIONS", "FORMS", "add_actions", "add_filters"]

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
        _FILLERS[name](parser)
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


_FILLERS: dict[str, Callable[[Any], None]] = {
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
