"""The toolset of a shell whose commands may run in the background: start, read by lines, write, end. Decides nothing itself."""

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from treadle.concurrency import Threads
from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.ports import SessionView, ToolsetContext
from treadle.tools import JsonObject, Tool, ToolContext
from treadle.tools.tool import closed_schema
from treadle.toolsets.files.root import ERROR_SCHEMA, Root
from treadle.toolsets.shell.keeping import Kept, Processes, state_folder
from treadle.toolsets.shell.tool import shell_tool

__all__ = ["ShellTools"]

_MAX_LINES = 1000
_MAX_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05
_PROCESS: JsonObject = {"type": "string", "minLength": 2, "maxLength": 10, "description": "Its id, such as p1."}
_STATUS: JsonObject = {
    "process": {"type": "string"},
    "status": {"enum": ["running", "exited", "timed_out", "over_limit", "killed", "lost"]},
    "exit_code": {"type": ["integer", "null"]},
    "seconds_left": {"type": "number"},
    "limits": {"type": "array", "items": {"type": "string"}},
}

_threads = Threads()


class ShellTools:
    """A toolset: `shell`, whose commands may run in the background, and the tools that read, write and end those.

    A process in the background has a lifetime, which a keeper of its own ends: also after a crash of this program. What it writes is kept on
    disk. A run that ends, ends the processes of its session, but those that were started with `keep`; one that pauses ends none.
    A session that continues after a restart finds its processes again.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=[*file_tools("."), ShellTools(".")])

    Args:
        root: The folder in which the first command starts.
        state: Where output and state of the processes are kept; None for the `processes` folder of the person's state.

    Raises:
        ConfigurationError: The folder does not exist.
    """

    name = "shell"

    def __init__(self, root: str | Path, *, state: str | Path | None = None) -> None:
        if state is not None and not isinstance(state, str | Path):
            raise ConfigurationError(f"ShellTools(state=) takes a folder; got {shown(state)}.")
        self._root = Root(root)
        self._state = None if state is None else Path(state).absolute()

    @asynccontextmanager
    @checked
    async def open(self, ctx: ToolsetContext) -> AsyncIterator["_Open"]:
        """Find the session's processes, and end those that may not outlive the run when it ends."""
        session = ctx.session
        processes = self._of(session.id)
        await _threads.submit(processes.sweep)
        try:
            yield _Open(_tools(self._root, processes))
        finally:
            run = session.state.run
            if run is None or run.status not in ("running", "paused"):  # none: opened for many runs, of other sessions
                await _threads.submit(processes.end_task)

    @property
    def known_tools(self) -> tuple[Tool, ...]:
        """Its tools as every session has them, to be looked at and not to be called: no session has these."""
        return _tools(self._root, self._of(""))

    @checked
    async def processes(self, session_id: str) -> list[Kept]:
        """Return the background processes of a session, the oldest first, each with the last line that it has written. For a person who looks.

        Example:
            running = [one for one in await shell.processes(session.id) if one.status == "running"]
        """
        processes = self._of(session_id)

        def look() -> list[Kept]:
            found = processes.all()
            return [msgspec.structs.replace(one, last_line=processes.last_line(one.id)) for one in found]

        kept: list[Kept] = await _threads.submit(look)
        return kept

    def _of(self, session_id: str) -> Processes:
        # By the root folder too: the journals of two projects may have sessions of the same name.
        return Processes(self._state or state_folder(os.environ), f"{self._root.path}\0{session_id}")


class _Open:
    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._tools = tools

    def tools(self, session: SessionView) -> Sequence[Tool]:
        """Return the same tools for each request."""
        return self._tools


def _tools(root: Root, processes: Processes) -> tuple[Tool, ...]:
    return (
        shell_tool(root.path, processes=processes),
        _lister(processes),
        _reader(processes),
        _writer(processes),
        _killer(processes),
    )


def _lister(processes: Processes) -> Tool:
    return Tool(
        name="list_processes",
        description="List the background processes of this session: id, command, status, and how long each may run.",
        parameters=closed_schema([]),
        output_schema=_listing(),
        effect="read",
        polling=True,
        run=partial(_list, processes),
    )


def _reader(processes: Processes) -> Tool:
    return Tool(
        name="read_process",
        description=(
            "Read the output of a background process by lines; standard output and standard error are merged.\nOutput: `output`, "
            "`next_offset` to continue from, and `status`: running, exited (with `exit_code`), timed_out, over_limit "
            "(its files took too much of the disk), killed or lost. `limits` names the sandbox limits that it reached. With `wait`, the call waits for new lines or the end. An unfinished last line is shown, and returned again by the next call."
        ),
        parameters=closed_schema(
            ["process"],
            process=_PROCESS,
            offset={"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
            limit={
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_LINES,
                "default": 200,
                "description": "Maximum number of lines to return.",
            },
            wait={
                "type": "number",
                "minimum": 0,
                "maximum": _MAX_WAIT_SECONDS,
                "default": 0,
                "description": "Seconds to wait if there is nothing new.",
            },
        ),
        output_schema=closed_schema(
            ["process", "status", "output", "count", "next_offset"],
            **_STATUS,
            output={"type": "string"},
            count={"type": "integer", "minimum": 0},
            next_offset={"type": "integer", "minimum": 1},
            has_more={"const": True},
        ),
        error_schema=ERROR_SCHEMA,
        effect="read",
        polling=True,
        run=partial(_read, processes),
        examples=({"process": "p1"}, {"process": "p1", "offset": 120, "wait": 10}),
    )


def _writer(processes: Processes) -> Tool:
    return Tool(
        name="write_process",
        description="Write text to the standard input of a background process. Include the line break if it reads lines.",
        parameters=closed_schema(
            ["process", "text"],
            process=_PROCESS,
            text={"type": "string", "maxLength": 100_000, "description": "The text, such as yes\\n."},
            end_of_input={
                "type": "boolean",
                "default": False,
                "description": "Close the standard input after this text.",
            },
        ),
        output_schema=_one(),
        error_schema=ERROR_SCHEMA,
        effect="unsafe",
        run=partial(_write, processes),
        examples=({"process": "p1", "text": "yes\n"},),
    )


def _killer(processes: Processes) -> Tool:
    return Tool(
        name="kill_process",
        description="End a background process and every process that it started.",
        parameters=closed_schema(["process"], process=_PROCESS),
        output_schema=_one(),
        error_schema=ERROR_SCHEMA,
        effect="idempotent",
        permission="allow",
        run=partial(_kill, processes),
        examples=({"process": "p1"},),
    )


def _one(**more: JsonObject) -> JsonObject:
    return closed_schema(["process", "status", *more], **_STATUS, **more)


def _listing() -> JsonObject:
    return closed_schema(["processes"], processes={"type": "array", "items": _one(command={"type": "string"})})


def _status_of(kept: Kept) -> JsonObject:
    found: JsonObject = {"process": kept.id, "status": kept.status}
    if kept.status == "running":
        found["seconds_left"] = kept.seconds_left
    if kept.status == "exited":
        found["exit_code"] = kept.exit_code
    if kept.limits:
        found["limits"] = list(kept.limits)
    return found


def _list(processes: Processes, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    return {"processes": [{**_status_of(one), "command": one.command[:200]} for one in processes.all()]}


def _read(processes: Processes, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    process, offset, limit = arguments["process"], arguments.get("offset", 1), arguments.get("limit", 200)
    end = time.monotonic() + arguments.get("wait", 0)
    size = processes.size(process)
    while True:
        kept = processes.find(process)
        lines, following, has_more = processes.read(process, offset=offset, limit=limit)
        is_new = following > offset or (bool(lines) and processes.size(process) > size)
        if is_new or kept.status != "running" or time.monotonic() >= end or ctx.cancelled:
            break
        time.sleep(_POLL_SECONDS)  # in a thread of its own
    found: JsonObject = {**_status_of(kept), "output": "\n".join(lines), "count": len(lines), "next_offset": following}
    return {**found, "has_more": True} if has_more else found


def _write(processes: Processes, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    process = arguments["process"]
    processes.write(process, arguments["text"].encode(), ends_input=arguments.get("end_of_input", False))
    return _status_of(processes.find(process))


def _kill(processes: Processes, arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    return _status_of(processes.kill(arguments["process"]))
