"""`treadle sessions list`, `watch` and `check`: what each session has used, what happens in one, and whether the list is true."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from treadle import StopReason, open_session
from treadle.cli.exits import exit_code
from treadle.cli.input.commands import CheckOptions, ListOptions, WatchOptions
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import folder_of, is_same_folder
from treadle.cli.output.progress import Progress
from treadle.cli.output.screens import LiveScreen, write_answer
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, for_terminal, one_line, shown_time
from treadle.cli.sessions import UNREADABLE, find_session, is_there, named, opened, stranded_in, stranded_line
from treadle.cli.tool_sources import load_agents
from treadle.events import RunFinished, TaskSubmitted, TaskWithdrawn, event_object
from treadle.ports import Journal, SessionFilter, SessionInfo
from treadle.resolve.archives import check_sessions
from treadle.sessions import Explanation
from treadle.workers import follow

__all__ = ["check", "list_sessions", "watch"]

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
        # `state` is for programs that read the name before.
        info |= {"status": self.info.status, "state": self.info.run_status}
        return {**info, **figures, "cost": cost, "fault": self.fault or None, "stranded": self.stranded or None}


async def list_sessions(options: ListOptions, terminal: Terminal) -> int:
    """List the sessions, the last changed first."""
    path = settings_of(options).journal
    rows: list[_Row] = []
    more = 0
    limit = options.limit if options.limit is not None or options.as_json else _SHOWN
    async with opened(path, is_read=True) as journal:
        after = "" if options.after is None else (await find_session(journal, options.after)).cursor
        infos = await journal.sessions(_filter(options, after))
        looked = infos if "stranded" in options.states else infos[:limit]
        ids = [info.id for info in looked if info.run_status in _OPEN]
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


def _has_wanted_state(row: _Row, options: ListOptions) -> bool:
    """Whether a session is in doubt, or stranded, where that was asked for: only its events, and the workers, say so."""
    wanted = {"in-doubt", "stranded"} & set(options.states)
    return not wanted or bool("in-doubt" in wanted and row.in_doubt) or bool("stranded" in wanted and row.stranded)


def _is_filtered(options: ListOptions) -> bool:
    chosen = (options.match, options.limit, options.tenant, options.parent, options.since, options.after)
    return bool(options.states) or any(one is not None for one in chosen)


def _filter(options: ListOptions, after: str) -> SessionFilter:
    states = set(options.states) - {"in-doubt", "stranded"}
    return SessionFilter(
        statuses=tuple(sorted(states)),
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
    flags = f"  {row.in_doubt} IN DOUBT" if row.in_doubt else ""
    flags += f"  {row.approvals} waiting" if row.approvals else ""
    flags += f"  STRANDED: {one_line(row.stranded, 2000)}" if row.stranded else ""
    flags += f"  CANNOT BE READ: {one_line(row.fault)}" if row.fault else ""
    where = f"  in {one_line(row.folder, 200)}" if row.folder else ""
    cost = "" if not row.cost else f"  {row.cost:f}"
    return f"{info.id:<{width}}  {info.status:<9}  {shown_time(info.updated_at)}{cost}{flags}  {one_line(info.task, 80)}{where}"


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


# --- Following one.


async def watch(options: WatchOptions, terminal: Terminal) -> int:
    """Show the events of a session as they are stored; on a terminal, what the model says while it says it."""
    progress, code = Progress(terminal), 0
    screen = LiveScreen(terminal) if terminal.is_live and not options.as_json else None
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id = (await find_session(journal, named(options))).id
        async for event in follow(journal, session_id, after=options.after, live=screen is not None):
            if screen is not None:
                screen.on_event(event)
            if options.as_json:
                terminal.data(event_object(event))
            else:
                progress.on_event(event)
            match event:
                case TaskSubmitted() if not options.as_json:
                    terminal.progress(f"{session_id} is waiting for a worker that has the agent {event.agent}")
                case TaskWithdrawn() if not options.as_json:
                    terminal.say(f"The task of {session_id} was cancelled before its run started.")
                case RunFinished():
                    code = exit_code(StopReason(event.reason))
                    if not options.as_json:
                        _show_end(event, screen, terminal)
    return code


def _show_end(event: RunFinished, screen: LiveScreen | None, terminal: Terminal) -> None:
    if screen is not None:
        screen.conclude({"text": event.text, "output": event.output})
    else:
        write_answer(event.text, terminal)
    if not event.completed:
        terminal.say(f"treadle: {event.status} ({event.reason}): {for_terminal(event.message)}")


# --- Checking.


async def check(options: CheckOptions, terminal: Terminal) -> int:
    """Compare each session's line in the list, and what is listed as due, with its events. Exit code 1 where one differs."""
    if options.agents:
        return await _preview(options, terminal)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        faults = await check_sessions(journal)
        count = len(await journal.sessions())
    if options.as_json:
        terminal.data(faults)
    for fault in () if options.as_json else faults:
        terminal.line(f"{fault.session_id}  {fault.what}: {one_line(fault.message, 500)}")
    if not options.as_json:
        found = "the list matches the events" if not faults else f"{counted(len(faults), 'difference')} found"
        terminal.say(f"{counted(count, 'session')} checked: {found}.")
    return 1 if faults else 0


async def _preview(options: CheckOptions, terminal: Terminal) -> int:
    """List the open sessions that workers with these agents could not continue. Exit code 1 where there is one."""
    settings = settings_of(options)
    agents = load_agents(options.agents, Path(settings.root))
    async with opened(settings.journal, must_exist=True) as journal:
        stranded = await stranded_in(journal, options, agents=agents)
    if options.as_json:
        terminal.data(stranded)
        return 1 if stranded else 0
    for one in stranded:
        terminal.line(stranded_line(one))
    terminal.say(f"With these agents, {counted(len(stranded), 'open session')} could not continue.")
    return 1 if stranded else 0
