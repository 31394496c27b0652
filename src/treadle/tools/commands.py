"""Commands: a program to run, how it ended, and who runs it. What a tool hands to a sandbox. Values and one port."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from treadle.fields import Documented

__all__ = ["Command", "Place", "ProcessResult", "Runner", "ShellLine"]


class Command(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A program with its arguments. No shell reads them.

    Example:
        Command(arguments=("git", "log", "-1"), cwd="/repository")
    """

    arguments: tuple[str, ...]
    """The program and its arguments."""
    cwd: str | None = None
    """The folder it runs in; None for the runner's own."""
    env: Mapping[str, str] | None = None
    """Its whole environment; None for a clean one."""
    stdin: bytes | None = None
    """What it reads; None for nothing."""
    timeout: float | None = None
    """Seconds after which it is ended, with what it has written so far; None for no limit of its own."""


class ProcessResult(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How a program ended. An exit code that is not 0 is a result, not an error."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: str
    """What the program wrote to its standard output."""
    stderr: str
    """What it wrote to its standard error."""
    is_shortened: bool = False
    """Whether more was written than is kept here: the middle is left out then."""
    timed_out: bool = False
    """Whether it was ended because its time was over."""


class Place(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a path really stands for, links resolved."""

    path: str
    """From `/`."""
    relative: str | None
    """Relative to the root folder; None where it lies outside of it."""
    is_folder: bool = False
    """Whether it is a folder now."""


class ShellLine(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A line of shell that a call would run, for the rules that judge it."""

    text: str
    """What a shell is given."""
    look: Callable[[str], Place]
    """Says what a path in the line stands for, relative to the folder in which the line starts."""
    look_from_root: Callable[[str], Place]
    """Says what a path in a rule stands for, relative to the root folder."""


class Runner(Protocol):
    """Runs programs somewhere else than in this process as it is: in a sandbox, in a container, on another machine."""

    @property
    def name(self) -> str:
        """What it is, for people and records, such as `bubblewrap`."""
        ...

    async def run(self, command: Command) -> ProcessResult:
        """Run a program to its end. Being cancelled ends the program and all that it has started.

        Raises:
            OSError: The program cannot be run there. It is never run anywhere else instead.
        """
        ...
