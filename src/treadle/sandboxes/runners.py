"""The sandboxes: bubblewrap, and Landlock with a filter of system calls. Each runs a command confined, or not at all."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from treadle.errors import SandboxUnavailable, check_kind
from treadle.fields import checked
from treadle.sandboxes import groups, launcher
from treadle.sandboxes.closing import ClosedNames
from treadle.sandboxes.confinement import Confinement, outermost
from treadle.sandboxes.filtering import call_filter, closed_for_age
from treadle.sandboxes.keeper import DiskUse, limits_reached
from treadle.sandboxes.processes import clean_environment, run_until
from treadle.sandboxes.refusing import Places, refusals
from treadle.sandboxes.room import Room
from treadle.sandboxes.starting import FAILED, FILTER, MARKS, started, with_filter
from treadle.sandboxes.twins import home_twins, linked_files, names_below
from treadle.tools import Command, Detached, ProcessResult, Runner

__all__ = ["Bubblewrap", "Landlock", "find_sandbox"]

_TMP, _HOME = "/tmp", "/tmp/home"  # noqa: S108 - the program's own, which nobody else sees
_SHARED = "/dev/shm"  # noqa: S108 - as above
_HANDED_DOWN = ("LANG", "LANGUAGE", "TERM", "TZ")
_NAMESPACES = shlex.split(
    "--die-with-parent --new-session --unshare-user --uid 1000 --gid 1000 --unshare-pid --unshare-ipc --unshare-uts "
    "--unshare-cgroup-try --hostname sandbox --cap-drop ALL"
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What is started for a confined command: the launcher with its plan, the sandbox's own program, the command."""

    limits: dict[str, int]
    program: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    places: Places
    """What is open to it."""
    plan: dict[str, object] = {}
    """What the launcher has to do beside the limits."""


class _Confined:
    """What both sandboxes share: limits, control groups, the launcher, and what happens to its failures."""

    name = ""

    def __init__(self, confinement: Confinement | None) -> None:
        check_kind("confinement", confinement, (Confinement, type(None)), "a Confinement, or None")
        self.confinement = confinement or Confinement()
        self._places = Places.of(self.confinement)
        self._led_to = self.confinement.roots()

    def _places_now(self) -> Places:
        """Return what is open now: protected files may have come, but no folder leads elsewhere, as one does that a command replaced by a link."""
        for name, path in self.confinement.roots().items():
            if self._led_to[name] != path:
                raise OSError(f"{name} leads elsewhere now, to {path}: it is open to no command.")
        return Places.of(self.confinement)

    async def run(self, command: Command) -> ProcessResult:
        """Run a command confined, to its end. Being cancelled ends it and all that it has started.

        Raises:
            OSError: It cannot be run confined. It was not run at all then.
        """
        launch, about = self.launch(command), self.confinement
        before = launch.places.identities()
        room = None if about.disk_bytes is None else Room(DiskUse(self._places.writable, about.disk_bytes))
        names = ClosedNames(launch.places.writable, launch.places.names, launch.places.repositories)
        with names as closed, self._groups() as joined:
            result = await run_until(
                None if room is None else room.wait_used_up,
                _arguments(launch, joined),
                stdin=command.stdin,
                cwd=launch.cwd,
                env=launch.env,
                timeout=command.timeout,
                max_bytes=about.max_output_bytes,
                on_output=command.on_output,
                on_exit=partial(groups.end_all, joined.values()),
            )
            counted = limits_reached([*joined.values()])
        if room is not None and room.is_used_up:
            counted["disk"] = "disk_bytes"
            result = msgspec.structs.replace(result, timed_out=False)
        _raise_for(result.exit_code, result.stderr)
        now = launch.places.identities()
        found = refusals(
            result,
            launch.places,
            cwd=_folder(command, self._places),
            about=about,
            counted=counted,
            moved=closed.moved,
            replaced=[path for path, identity in before.items() if now.get(path) != identity],
        )
        return msgspec.structs.replace(result, refused=found) if found else result

    def detached(self, command: Command) -> Detached:
        """Return a command as it runs confined, for a process that outlives a call. Its control groups stay until they are empty.

        Raises:
            OSError: It cannot be confined.
        """
        launch, about = self.launch(command), self.confinement
        joined = groups.lasting_group(max_processes=about.max_processes, memory_bytes=about.memory_bytes)
        self._check_groups(joined)
        return Detached(
            arguments=tuple(_arguments(launch, joined)),
            cwd=launch.cwd,
            env=launch.env,
            groups=tuple(joined.values()),
            disk_folders=self._places.writable,
            closed_names=launch.places.names,
            disk_bytes=None if about.disk_bytes is None else int(about.disk_bytes),
        )

    def launch(self, command: Command) -> Launch:
        """Return what is started for a command."""
        raise NotImplementedError

    def problem(self) -> str | None:
        """Say why this sandbox cannot run even `true` here; None if it can. Takes some 50 ms."""
        try:
            launch = self.launch(Command(arguments=("true",)))
            with self._groups() as joined:
                done = subprocess.run(  # noqa: S603 - our own arguments
                    _arguments(launch, joined),
                    cwd=launch.cwd,
                    env=launch.env,
                    capture_output=True,
                    text=True,
                    timeout=10,
                    check=False,
                )
            _raise_for(done.returncode, done.stderr)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return None if done.returncode == 0 else f"`true` ended with status {done.returncode}."

    @contextmanager
    def _groups(self) -> Iterator[dict[str, str]]:
        about = self.confinement
        with groups.group(max_processes=about.max_processes, memory_bytes=about.memory_bytes) as joined:
            self._check_groups(joined)
            yield joined

    def _check_groups(self, joined: Mapping[str, str]) -> None:
        if self.confinement.max_processes is not None and os.geteuid() == 0 and "pids" not in joined:
            raise OSError(
                "The number of processes cannot be limited: for root it takes a control group, and none can be made here. "
                "Run as another user, or pass Confinement(max_processes=None)."
            )


class Bubblewrap(_Confined):
    """Runs commands in namespaces of their own, made by the program `bwrap`: own processes, network, `/tmp`, and view of the files.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=tools, sandbox=Bubblewrap(Confinement(writable=("build",))))

    Args:
        confinement: What the commands may reach and use up; None for no writable folder and no network.

    Raises:
        SandboxUnavailable: `bwrap` is not installed.
        ConfigurationError: A folder of the confinement does not exist.
    """

    name = "bubblewrap"

    def __init__(self, confinement: Confinement | None = None) -> None:
        super().__init__(confinement)
        # Not one that a command has put into a writable folder of our PATH, such as that of a project's Python.
        folders = [one for one in os.get_exec_path() if one.startswith("/") and not self._places.takes(one)]
        program = shutil.which("bwrap", path=os.pathsep.join(folders))
        if program is None:
            raise SandboxUnavailable("The program bwrap is not installed. Install the package bubblewrap.")
        self._program = program
        self._options = _bwrap_options(program)

    @checked
    def launch(self, command: Command) -> Launch:
        """Return what is started for a command."""
        about, places = self.confinement, self._places_now()
        others = _other_names(places) if about.protected else {}
        masked = [name for name, is_of_the_home in others.items() if is_of_the_home]
        kept = [*outermost(places.kept), *(name for name in others if name not in masked)]
        found = [self._program, *_NAMESPACES, "--seccomp", str(FILTER)]
        found += self._options
        found += ["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"] if about.network else ["--unshare-net"]
        for place in outermost(places.readable, within=places.writable):
            found += _bound(place)
        size = f"--size {about.temporary_bytes} --tmpfs"
        # Settings of the kernel stand in /proc, and root's number is root's for them in every namespace.
        found += shlex.split(
            f"--proc /proc --remount-ro /proc --dev /dev {size} {_SHARED} --remount-ro /dev {size} {_TMP} --dir {_HOME}"
        )
        for place in outermost(places.writable):
            found += ["--bind", place, place]
        for place in _ways(
            places
        ):  # a folder on which something is mounted cannot be moved away, with what is protected in it
            found += ["--bind", place, place]
        for place in kept:
            found += ["--ro-bind", place, place]
        for place in masked:  # the program could read a key by this name
            found += ["--ro-bind", "/dev/null", place]
        found += ["--remount-ro", "/"]  # the folders in between are its own, and nothing put there would last
        found += ["--chdir", _folder(command, places), "--clearenv"]
        for name, value in _environment(command, places, home=_HOME, temporary=_TMP).items():
            found += ["--setenv", name, value]
        program = (*found, "--", *command.arguments)
        return Launch(
            limits=_limits(about),
            program=with_filter(program, call_filter("namespaces", has_network=about.network)),
            cwd="/",
            env={"PATH": os.defpath},
            places=msgspec.structs.replace(places, protected=tuple(kept), own=(), hidden=tuple(masked)),
        )


class Landlock(_Confined):
    """Runs commands under Landlock, which closes files, and a filter of system calls, which closes the network and ways around.

    It needs no program and no namespace, only a kernel with Landlock (Linux 5.13 or newer). It hides less than bubblewrap: the program
    runs as the same user, and has no `/tmp` of its own: its `TMPDIR` and `HOME` are the first writable folder.

    Args:
        confinement: What the commands may reach and use up; None for no writable folder and no network.

    Raises:
        SandboxUnavailable: The kernel has no Landlock, or it cannot hold what was asked for.
        ConfigurationError: A folder of the confinement does not exist.
    """

    name = "landlock"

    @staticmethod
    def closed_for_age() -> tuple[str, ...]:
        """Return what programs cannot do because this kernel's Landlock is older than Linux 6.12: a filter closes it for all of them."""
        return closed_for_age(launcher.landlock_abi())

    def __init__(self, confinement: Confinement | None = None) -> None:
        super().__init__(confinement)
        if sys.platform != "linux" or not launcher.landlock_abi():
            raise SandboxUnavailable(
                "This system has no Landlock: it needs Linux 5.13 or newer, with Landlock enabled."
            )
        if self._places.kept:
            raise SandboxUnavailable(_unprotected(self._places))

    @checked
    def launch(self, command: Command) -> Launch:
        """Return what is started for a command."""
        about, places = self.confinement, self._places_now()
        if places.kept:  # it came after the sandbox was made
            raise OSError(_unprotected(places))
        if about.protected and (names := _other_names(places)):
            raise OSError(
                f"Landlock cannot keep {next(iter(names))} read-only, which is another name (hard link) of a protected file."
            )
        readable = [
            *outermost(places.readable, within=places.writable),
            *(["/etc/resolv.conf"] if about.network else []),
        ]
        calls = call_filter("files", has_network=about.network, landlock_abi=launcher.landlock_abi())
        landlock = {
            "readable": readable,
            "writable": places.writable,
            "devices": _DEVICES,
            "network": about.network,
            "filter": calls,
        }
        home = places.writable[0] if places.writable else "/"
        return Launch(
            plan={"landlock": landlock},
            limits=_limits(about),
            program=command.arguments,
            cwd=_folder(command, places),
            env=_environment(command, places, home=home, temporary=home),
            places=places,
        )


def _unprotected(places: Places) -> str:
    return (
        f"Landlock cannot keep {places.kept[0]} read-only in a writable folder. Install the package bubblewrap, "
        "make another folder writable, or pass Confinement(protected=())."
    )


def find_sandbox(confinement: Confinement | None = None) -> Runner:
    """Return the best sandbox of this machine: bubblewrap, else Landlock. What it returns has run a program, which takes some 50 ms.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=tools, sandbox=find_sandbox(Confinement(writable=(".",))))

    Args:
        confinement: What the commands may reach and use up; None for no writable folder and no network.

    Raises:
        SandboxUnavailable: There is none. The message says what is missing for each.
        ConfigurationError: A folder of the confinement does not exist.
    """
    problems: list[str] = []
    for kind in (Bubblewrap, Landlock):
        try:
            sandbox = kind(confinement)
            problem = sandbox.problem()
        except SandboxUnavailable as error:
            problem = str(error)
        else:
            if problem is None:
                return sandbox
        problems.append(f"{kind.name}: {problem}")
    raise SandboxUnavailable(f"A sandbox is required but unavailable. {' '.join(problems)}")


def _bwrap_options(program: str) -> list[str]:
    """Return the options that only newer versions have."""
    try:
        help_text = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10, check=False).stdout  # noqa: S603 - a fixed program
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"The program {program} does not start: {error}.") from error
    return ["--disable-userns"] if "--disable-userns" in help_text else []


def _bound(place: str) -> list[str]:
    """Show a place as it is: a link as a link, so that `/bin` leads to `/usr/bin` inside too."""
    return (
        ["--symlink", str(Path(place).readlink()), place] if Path(place).is_symlink() else ["--ro-bind", place, place]
    )


def _ways(places: Places) -> list[str]:
    """Return the folders between the writable ones and what is protected in them, the outer ones first."""
    found = {
        str(way)
        for place in places.kept
        for folder in places.writable
        for way in Path(place).parents
        if way.is_relative_to(folder) and str(way) != folder
    }
    return sorted(found)


def _other_names(places: Places) -> dict[str, bool]:
    """Return the other names (hard links), in the writable folders, of what is protected, and whether it is so in the person's home."""
    of_the_home = home_twins()
    found = names_below(places.writable, {**linked_files(places.protected), **of_the_home}, but=places.protected)
    return {name: found[name] in of_the_home.values() for name in sorted(found)}


def _folder(command: Command, places: Places) -> str:
    if command.cwd is not None:
        return os.path.realpath(command.cwd)
    return places.writable[0] if places.writable else "/"


def _environment(command: Command, places: Places, *, home: str, temporary: str) -> dict[str, str]:
    if command.env is not None:
        return dict(command.env)
    own = {
        name: value
        for name, value in clean_environment().items()
        if name in _HANDED_DOWN or name.startswith(("LC_", "TRACE"))
    }
    path = clean_environment()["PATH"].split(os.pathsep)
    return {"PATH": os.pathsep.join(one for one in path if places.hold(one)), **own, "HOME": home, "TMPDIR": temporary}


def _limits(about: Confinement) -> dict[str, int]:
    limits = {"CPU": about.cpu_seconds, "AS": about.memory_bytes, "FSIZE": about.max_file_bytes}
    if os.geteuid() != 0:
        # Does not bind root: a control group does. It counts all that the user runs, a desktop's hundreds of threads too.
        limits["NPROC"] = None if about.max_processes is None else about.max_processes + groups.threads_of_user()
    return {name: max(1, int(value)) for name, value in limits.items() if value is not None}


def _arguments(launch: Launch, joined: dict[str, str]) -> list[str]:
    return started(launch.plan, launch.program, launch.limits, list(joined.values()))


def _raise_for(exit_code: int, stderr: str) -> None:
    """Raise for a command that was not started, because it could not be confined."""
    if exit_code in (1, FAILED) and stderr.startswith(MARKS):
        raise OSError(stderr.removeprefix(MARKS[0]).strip())
    if exit_code == 1 and stderr.startswith("bwrap: ") and "execvp" not in stderr:
        raise OSError(stderr.strip())
