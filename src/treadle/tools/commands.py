"""Commands: a program to run, how it ended, and what runs it. Values and one port."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from treadle.fields import Documented, NamedOptions
from treadle.tools.watches import FileNames

__all__ = ["Command", "Detached", "Detaching", "Place", "ProcessResult", "Refusal", "Runner", "ShellLine"]


class Command(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
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
    """Its standard input; None for no input."""
    timeout: float | None = None
    """Seconds after which it is ended, keeping what it has written so far; None for no separate limit."""
    on_output: Callable[[bytes], None] | None = None
    """Called with each piece of its output as it arrives, if the runner supports that. It must not raise."""


class Refusal(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Something that a sandbox refused to a program."""

    kind: Literal["read", "write", "network", "processes", "memory", "time", "disk", "other"]
    """What was refused."""
    target: str = ""
    """The path, from `/`, or the limit; empty if unknown."""
    line: str = ""
    """The program's own message."""


class ProcessResult(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How a program ended. A non-zero exit code is a result, not an error."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: str
    """What the program wrote to its standard output."""
    stderr: str
    """What it wrote to its standard error."""
    is_shortened: bool = False
    """Whether more was written than is kept here; the middle is then left out."""
    timed_out: bool = False
    """Whether it was ended at its time limit."""
    refused: tuple[Refusal, ...] = ()
    """What its sandbox refused, as far as that is known. Empty if the sandbox was not the cause."""


class Place(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a path really stands for, links resolved."""

    path: str
    """From `/`."""
    relative: str | None
    """Relative to the root folder; None where it lies outside of it."""
    is_folder: bool = False
    """Whether it is a folder now."""
    is_unknown: bool = False
    """Whether it leads each process elsewhere, as `/proc/self/cwd` does: only the one that opens it knows where."""


class ShellLine(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A line of shell that a call would run, for the rules that judge it."""

    text: str
    """What a shell is given."""
    look: Callable[[str], Place]
    """Says what a path in the line stands for, relative to the folder in which the line starts."""
    look_from_root: Callable[[str], Place]
    """Says what a path in a rule stands for, relative to the root folder."""
    files: FileNames | None = None
    """The root folder: it knows which names in rules are links, or other names of one file."""
    expand: Callable[[str], Sequence[str] | None] | None = None
    """Returns the names that a pattern of the shell matches, relative to the folder in which the line starts; None where there are too many
    to look at. Without it, a pattern may match anything."""
    links: Callable[[str, bool], Sequence[Place] | None] | None = None
    """Returns what the links in a folder stand for, as a program finds them that follows links: of a path from `/`, and with whether it goes
    deeper than the folder itself. None where there is too much to look at. Without it, no link is looked for."""
    brought: Callable[[str, str], str] | None = None
    """Says why a program that is known to read would start something that the project brings: by its name, and the folder in which it
    starts, relative to the folder in which the line starts. Empty where it would not."""


class Detached(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A command in the form in which it runs confined, for somebody else to start."""

    arguments: tuple[str, ...]
    """The program and its arguments."""
    cwd: str
    """The folder it is started in."""
    env: Mapping[str, str]
    """Its whole environment."""
    groups: tuple[str, ...] = ()
    """Folders of the control groups that it joins: whatever is in them has to be ended with it."""
    disk_folders: tuple[str, ...] = ()
    """Folders that it may write in, from `/`."""
    closed_names: tuple[str, ...] = ()
    """Names below each of these folders that it may give to nothing: what has one is renamed while it runs."""
    disk_bytes: int | None = None
    """Bytes that its files there may take together, after which it has to be ended; None for no limit."""


class Runner(Protocol):
    """Runs programs in another place: in a sandbox, in a container, on another machine."""

    @property
    def name(self) -> str:
        """What it is, for people and records, such as `bubblewrap`."""
        ...

    async def run(self, command: Command) -> ProcessResult:
        """Run a program to its end. A cancellation ends the program and everything that it has started.

        Raises:
            OSError: The program cannot be run there. It is never run anywhere else instead.
        """
        ...


@runtime_checkable
class Detaching(Protocol):
    """A runner that can also say how a command is started confined, for processes that outlive a call."""

    def detached(self, command: Command) -> Detached:
        """Return a command as it runs confined.

        Raises:
            OSError: It cannot be confined.
        """
        ...
