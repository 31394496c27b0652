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
    "list": "list all sessions, the last changed first",
    "show": "show the messages and calls of one session",
    "explain": "say what was tried, changed, approved and failed, why it stopped, and what a rerun does",
    "watch": "see a session at work, in whichever process, until its run has ended",
    "fork": "make a session that shares the past of another",
    "mark": "give the end of a session a name",
    "rewind": "continue from an earlier point; effects are not undone",
    "export": "write a whole session: as lines of JSON, or as a page to read",
    "move": "close a session here and continue it in another journal",
    "import": "bring an exported session into the journal",
    "suspend": "prevent runs in a session until it is activated",
    "activate": "allow runs in a suspended session again",
    "rm": "delete sessions",
    "check": "compare the list of sessions, and what is listed as due, with the events",
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
    parser.flag("--all", dest="shows_deleted", action="store_true", help="list deleted sessions too")
    parser.flag(
        "--state", dest="states", action="append", metavar="STATE", choices=_STATES,
        help=f"only sessions in this state: {', '.join(_STATES)}; repeatable",
    )  # fmt: skip
    parser.flag("--match", metavar="TEXT", help="only sessions whose id or task contains this text")
    parser.flag(
        "--tenant", metavar="NAME", help="only sessions of this tenant (`tenant` of their metadata); '' for none"
    )
    parser.flag("--parent", metavar="ID", help="only forks of this session, and sessions that carry out its calls")
    parser.flag(
        "--since", type=_instant, metavar="TIME",
        help="only sessions changed since: 2026-11-30, 2026-11-30T18:00, or an age such as 90m, 12h or 7d",
    )  # fmt: skip
    parser.flag("--limit", type=count, metavar="N", help="at most N sessions, the last changed first")
    parser.flag("--after", dest="after_session", metavar="ID", help="only sessions that follow this one in the list")
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
)


def _add_one(parser: Flags) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="the session, or the beginning of its id")
    parser.flag("--last", dest="is_last", action="store_true", help="the session that changed last")


def _add_shown(parser: Flags) -> None:
    _add_one(parser)
    _add_pager(parser)


def _add_pager(parser: Flags) -> None:
    parser.flag(
        "--no-pager", dest="is_unpaged", action="store_true",
        help="do not show a long text in PAGER, which happens at a terminal only",
    )  # fmt: skip


def _add_watch(parser: Flags) -> None:
    _add_one(parser)
    parser.flag("--after", type=count, metavar="N", help="only what comes after event N")


def _add_change(parser: Flags) -> None:
    _add_one(parser)
    parser.flag("--reason", metavar="TEXT", help="why, for the record")
    parser.flag("--by", metavar="NAME", help="who decided it, for the record (default: your login)")


def _add_fork(parser: Flags) -> None:
    _add_one(parser)
    parser.flag("--at", type=_point, metavar="POINT", help="the last event to share, or a mark (default: the end)")
    parser.flag("--step", type=count, metavar="N", help="share everything up to the results of step N")
    parser.flag("--message", type=count, metavar="N", help="share the first N messages")
    parser.flag("--id", dest="new_id", metavar="NEW", help="the new session's id (default: generated)")


def _add_mark(parser: Flags) -> None:
    _add_one(parser)
    parser.add_argument("name", metavar="NAME", help="the point's name")


def _add_rewind(parser: Flags) -> None:
    _add_one(parser)
    parser.add_argument(
        "at", type=_point, metavar="POINT", help="a mark, or the number of the last event that the model still sees"
    )


def _add_export(parser: Flags) -> None:
    _add_one(parser)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a new file (default: standard output)")
    parser.flag(
        "--format", dest="form", choices=FORMS,
        help="json: lines that `import` reads; md, html: a page to read (default: by FILE's name, else json)",
    )  # fmt: skip
    parser.flag(
        "--exact", dest="is_exact", action="store_true", help="keep secrets, for a session that continues elsewhere"
    )


def _add_move(parser: Flags) -> None:
    _add_one(parser)
    parser.flag(
        "--to",
        dest="target",
        metavar="JOURNAL",
        help="the journal to continue in; the session is imported there at once",
    )
    parser.flag(
        "--file", dest="file", metavar="FILE", help="or a new file, for `treadle sessions import` on another machine"
    )
    parser.flag("--reason", metavar="TEXT", help="why, for the record")
    parser.flag("--by", metavar="NAME", help="who decided it, for the record (default: your login)")


def _add_import(parser: Flags) -> None:
    parser.add_argument("file", metavar="FILE", help="what `export` wrote; - for standard input")
    parser.flag("--id", dest="new_id", metavar="NEW", help="another id for the session")
    parser.flag(
        "--take-open", dest="takes_open", action="store_true",
        help="activate it although a call of it may still run: its source is closed",
    )  # fmt: skip


def _add_rm(parser: Flags) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="the sessions, or the beginnings of their ids")
    parser.flag("--last", dest="is_last", action="store_true", help="the session that changed last")
    parser.flag(
        "--older-than",
        dest="older_than_days",
        type=number_reader("a number of days such as 30"),
        metavar="DAYS",
        help="all sessions unchanged for so many days",
    )
    parser.flag(
        "--even-open", dest="is_open_too", action="store_true",
        help="with --older-than: also sessions in which something waits for a person, or is in doubt",
    )  # fmt: skip
    parser.flag(
        "--purge",
        dest="is_purged",
        action="store_true",
        help="remove their events too; only a record of the deletion stays",
    )


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
    "check": lambda _: None,
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
