"""Background: the commands that a session runs in the background: which there are, and that one has ended. Starts and ends none."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from treadle import Tool
from treadle.cli.output.text import one_line
from treadle.ports import Toolset
from treadle.toolsets import ShellTools

__all__ = ["Background", "is_started", "listed_commands"]

_LOOK_SECONDS = 1.0
"""How often is looked whether one has ended, while one runs."""


class Process(Protocol):
    """A command in the background, as it is now."""

    @property
    def id(self) -> str: ...
    @property
    def command(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def seconds_left(self) -> float: ...
    @property
    def last_line(self) -> str: ...


class Background:
    """The background commands of one session.

    Args:
        tools: Those of the conversation. Without `ShellTools` among them there are no such commands.
        tell: Shows a sentence about each command that ends.
    """

    def __init__(self, tools: Sequence[Tool | Toolset], tell: Callable[[str], None]) -> None:
        self._shell = next((one for one in tools if isinstance(one, ShellTools)), None)
        self._tell = tell
        self._ended: set[str] = set()
        """Those whose end is known."""
        self._is_watching = False

    async def of(self, session_id: str) -> Sequence[Process]:
        """Return the commands of a session, the oldest first."""
        return [] if self._shell is None else await self._shell.processes(session_id)

    async def begin(self, session_id: str) -> None:
        """Watch over the commands of a session in place of the one before. What ended earlier is not reported."""
        found = await self.of(session_id)
        self._ended = {one.id for one in found if one.status != "running"}

    async def watch(self, session_id: str) -> None:
        """Report each command that ends, until none runs."""
        if self._is_watching:
            return
        self._is_watching = True
        try:
            while self._told(await self.of(session_id)):  # noqa: ASYNC110 - it is another process that ends
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._is_watching = False

    def _told(self, found: Sequence[Process]) -> bool:
        """Report those that have ended since; return whether one still runs."""
        for one in found:
            if one.status != "running" and one.id not in self._ended:
                self._ended.add(one.id)
                self._tell(f"Background command {one.id} {ending(one)}: {one_line(one.command, 80)}")
        return any(one.status == "running" for one in found)


def ending(process: Process) -> str:
    """Say how a command stands, for the middle of a sentence."""
    match process.status:
        case "running":
            return f"runs, {process.seconds_left:.0f} s left"
        case "exited":
            return f"ended with exit code {process.exit_code}"
        case "timed_out":
            return "was ended: its time is over"
        case "over_limit":
            return "was ended: it wrote too much"
        case "lost":
            return "is gone: the machine or its keeper ended"
        case _:
            return "was ended"


def listed_commands(found: Sequence[Process]) -> list[str]:
    """Return two lines for each command: how it stands, and what it wrote last."""
    lines: list[str] = []
    for one in found:
        lines.append(f"  {one.id:<4} {ending(one)}: {one_line(one.command, 100)}")
        if one.last_line:
            lines.append(f"       {one_line(one.last_line, 200)}")
    return lines


def is_started(data: Any) -> bool:  # Any: what a tool returned
    """Whether the result of a call says that it has started a command in the background."""
    return isinstance(data, dict) and "process" in data and "hint" in data
