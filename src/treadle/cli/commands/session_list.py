"""`treadle sessions`: the list, with what each session has used, what of it is in doubt, and the sums."""

from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import msgspec

from treadle import Explanation, open_session
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import folder_of, is_same_folder
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_time
from treadle.cli.sessions import UNREADABLE, find_session, is_there, opened, stranded_in
from treadle.events import SessionStatus
from treadle.ports import Journal, SessionFilter, SessionInfo

__all__ = ["list_sessions"]

_SHOWN = 50
"""Sessions that are listed for a person who sets no limit."""


_OPEN = ("paused", "queued", "running")

_LONGEST_ID = 32
"""A longer id does not move the columns of the others."""

_NOT_SHOWN = ("folder", "info", "cost", "fault", "caller", "about")


class _Row(msgspec.Struct, kw_only=True):
    """One session of the list."""

    info: SessionInfo
    runs: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """None where a model call had no price."""
    approvals: int = 0
    in_doubt: int = 0
    folder: str = ""
    """Where it works; empty for the folder of this process, or for an unknown one."""
    stranded: str = ""
    """Why no living worker can continue it; empty for a session that none has to."""
    fault: str = ""
    """Why the session cannot be read."""
    caller: str = ""
    """The session whose call it carries out, and whose own figures include these; empty for none."""
    about: Explanation | None = None
    """What it did. A fork has what it has copied too."""

    def data(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _NOT_SHOWN}
        cost = None if self.cost is None else f"{self.cost:f}"
        info = msgspec.to_builtins(self.info)
        info["state"] = self.info.phase  # its name before; programs may read it
        return {**info, **figures, "cost": cost, "fault": self.fault or None, "stranded": self.stranded or None}


async def list_sessions(options: Options, terminal: Terminal) -> int:
    """List the sessions, the last changed first."""
    path = settings_of(options).journal
    rows: list[_Row] = []
    more = 0
    limit = options.limit if options.limit is not None or options.as_json else _SHOWN
    if is_there(path):
        async with opened(path) as journal:
            after = "" if options.after_session is None else (await find_session(journal, options.after_session)).cursor
            infos = await journal.sessions(_filter(options, after))
            looked = infos if "stranded" in options.states else infos[:limit]
            ids = [info.id for info in looked if info.phase in _OPEN]
            stranded = {one.session_id: one.message for one in await stranded_in(journal, options, session_ids=ids)}
            for info in infos:
                if limit is not None and len(rows) == limit:
                    more += 1
                    continue
                row = await _read(journal, info)
                row.stranded = stranded.get(info.id, "")
                if _has_wanted_state(row, options):
                    rows.append(row)
    if options.as_json:
        terminal.data([row.data() for row in rows])
        return 0
    with terminal.paged(is_off=options.is_unpaged):
        width = min(max((len(row.info.id) for row in rows), default=0), _LONGEST_ID)
        for row in rows:
            terminal.line(_line(row, width))
    if rows:
        _tell_sums(rows, terminal)
    else:
        terminal.say("No sessions match." if is_there(path) and _is_filtered(options) else "No sessions yet.")
    if more:
        is_are = "is" if more == 1 else "are"
        following = f"--after {rows[-1].info.id} shows the sessions after that; " if rows else ""
        terminal.say(f"{more} more {is_are} not shown: {following}--limit N shows more.")
    return 0


def _has_wanted_state(row: _Row, options: Options) -> bool:
    """Whether a session is in doubt, or stranded, where that was asked for: only its events, and the workers, say so."""
    wanted = {"in-doubt", "stranded"} & set(options.states)
    return not wanted or bool("in-doubt" in wanted and row.in_doubt) or bool("stranded" in wanted and row.stranded)


def _is_filtered(options: Options) -> bool:
    chosen = (options.match, options.limit, options.tenant, options.parent, options.since, options.after_session)
    return bool(options.states) or any(one is not None for one in chosen)


def _filter(options: Options, after: str) -> SessionFilter:
    states = set(options.states) - {"in-doubt", "stranded"}
    return SessionFilter(
        phases=tuple(sorted(states)),
        statuses=tuple(status for status in get_args(SessionStatus) if status in states - {"active"}),
        without_deleted=not options.shows_deleted and "deleted" not in states,
        text=options.match or "",
        tenant=options.tenant,
        parent_id=options.parent,
        since=options.since,
        after=after,
    )


async def _read(journal: Journal, info: SessionInfo) -> _Row:
    """Add up one session. One that cannot be read stays in the list, and says so."""
    try:
        async with open_session(journal, id=info.id, on_store_failure="stop") as session:
            approvals, doubts = await session.approvals(), await session.doubts()
            about, caller, folder = await session.explain(), session.state.caller, folder_of(session)
    except UNREADABLE as exc:
        return _Row(info=info, fault=str(exc) or type(exc).__name__)
    return _Row(
        info=info,
        runs=len(about.runs),
        calls=len(about.tried),
        input_tokens=sum(run.input_tokens for run in about.runs),
        output_tokens=sum(run.output_tokens for run in about.runs),
        cost=_cost(about),
        approvals=len(approvals),
        in_doubt=len(doubts),
        caller="" if caller is None else caller.parent_id,
        about=about,
        folder="" if folder is None or is_same_folder(folder, Path()) else folder,
    )


def _cost(about: Explanation) -> Decimal | None:
    costs = [None if run.cost is None else Decimal(run.cost) for run in about.runs]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


def _line(row: _Row, width: int) -> str:
    info = row.info
    phase = info.phase if info.status in ("active", "deleted") else f"{info.phase}, {info.status}"
    flags = f"  {row.in_doubt} IN DOUBT" if row.in_doubt else ""
    flags += f"  {row.approvals} waiting" if row.approvals else ""
    flags += f"  STRANDED: {one_line(row.stranded, 2000)}" if row.stranded else ""
    flags += f"  CANNOT BE READ: {one_line(row.fault)}" if row.fault else ""
    where = f"  in {one_line(row.folder, 200)}" if row.folder else ""
    cost = "" if not row.cost else f"  {row.cost:f}"
    return (
        f"{info.id:<{width}}  {phase:<9}  {shown_time(info.updated_at)}{cost}{flags}  {one_line(info.task, 80)}{where}"
    )


def _tell_sums(rows: list[_Row], terminal: Terminal) -> None:
    """Say what all listed sessions have used together: each run counts once, whatever sessions have it in their figures."""
    listed = {row.info.id for row in rows}
    own = [row for row in rows if row.caller not in listed]
    found = [run for row in own if row.about is not None for run in row.about.runs]
    # The last of several wins: where a fork has continued a run, the one that has used most.
    runs = {run.run_id: run for run in sorted(found, key=lambda run: run.input_tokens + run.output_tokens)}
    tried = {(one.run_id, one.call_id) for row in rows if row.about is not None for one in row.about.tried}
    unknown = sum(row.cost is None for row in own)
    known = sum((Decimal(run.cost) for run in runs.values() if run.cost is not None), Decimal(0))
    cost = "cost unknown" if unknown == len(own) else f"cost {known:f}"
    if 0 < unknown < len(own):
        cost += f", without {counted(unknown, 'session')} of unknown cost"
    tokens = (
        f"{sum(run.input_tokens for run in runs.values())} + {sum(run.output_tokens for run in runs.values())} tokens"
    )
    terminal.say(f"{counted(len(rows), 'session')}, {counted(len(tried), 'call')}, {tokens}, {cost}.")
