"""Keeping: the processes that a session has started in the background, by their folders. Judges no command and knows no model.

Each process has a keeper of its own (`sandboxes/keeper.py`), which ends it when its time is over, whatever happens to this process. So a process
is found again by whoever opens the session's folder next.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from treadle.errors import Rejected
from treadle.sandboxes import keeper, own
from treadle.sandboxes.keeper import started_at
from treadle.sandboxes.processes import Lineage, is_over
from treadle.tools import Detached
from treadle.toolsets.files.root import refusal, shown

__all__ = ["Kept", "Processes", "state_folder"]

_KEEPER = str(Path(keeper.__file__).resolve())
_MAX_OUTPUT_BYTES = 50_000_000
_START_SECONDS = 30.0
_WRITE_SECONDS = 5.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.02
_FORGOTTEN_SECONDS = 7 * 24 * 3600.0
_MAX_PROCESSES = 1000
_SIGNALS: Mapping[int, str] = {signal.SIGXCPU: "cpu_seconds", signal.SIGXFSZ: "max_file_bytes"}
_LINE_BYTES = 2000
_MAX_LINE_CHARS = 40_000


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A process as it is now."""

    id: str
    command: str
    status: Literal["running", "exited", "timed_out", "over_limit", "killed", "lost"]
    """`timed_out`: its time was over. `over_limit`: its files took more of the disk than its sandbox allows. `lost`: the machine or its
    keeper ended under it."""
    exit_code: int | None = None
    """Of one that has ended by itself; negative: the signal."""
    limits: tuple[str, ...] = ()
    """Those of its sandbox that it has reached, such as `memory_bytes`."""
    seconds_left: float = 0.0
    keep: bool = False
    """Whether it may outlive the task that has started it."""
    last_line: str = ""
    """What it wrote last, where that was asked for."""


class _State(msgspec.Struct, kw_only=True):
    status: Literal["running", "exited", "timed_out", "over_limit", "killed", "lost"]
    pid: int
    keeper: int
    began: float
    pid_started: str = ""
    keeper_started: str = ""
    exit_code: int | None = None
    limits: list[str] = []
    left_out_bytes: int = 0


class _Plan(msgspec.Struct, kw_only=True):
    arguments: list[str]
    cwd: str
    seconds: float
    command: str
    keep: bool = False
    max_bytes: int = _MAX_OUTPUT_BYTES
    groups: list[str] = []
    handed: list[int] = []
    disk_folders: list[str] = []
    closed_names: list[str] = []
    disk_bytes: int | None = None
    mark: str = ""
    """By which all that it has started is found where its keeper is no more."""


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return where processes are kept where nobody names a folder: with the rest of the person's state."""
    return own.state_folder(environment) / "processes"


def _make_private(folder: Path) -> None:
    """Make a folder and those above it for the person alone, whatever the umask."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


class Processes:
    """The background processes of one session.

    Args:
        folder: Where those of all sessions are kept.
    """

    def __init__(self, folder: Path, session_id: str) -> None:
        self._base = folder
        self._folder = folder / hashlib.sha256(session_id.encode()).hexdigest()[:24]

    def start(
        self,
        launch: Detached,
        *,
        command: str,
        seconds: float,
        keep: bool,
    ) -> Kept:
        """Start a program, and return once it runs.

        Raises:
            Rejected: It cannot be started, or there are too many.
        """
        _make_private(self._folder)
        place, lineage = self._new_place(), Lineage()
        env = lineage.marked(launch.env)
        plan = _Plan(
            mark=lineage.mark,
            arguments=list(launch.arguments),
            cwd=launch.cwd,
            seconds=seconds,
            command=command,
            keep=keep,
            groups=list(launch.groups),
            handed=list(launch.handed),
            disk_folders=list(launch.disk_folders),
            closed_names=list(launch.closed_names),
            disk_bytes=launch.disk_bytes,
        )
        os.mkfifo(place / "input", 0o600)
        _private(place / "output", b"")
        _private(place / "plan.json", msgspec.json.encode(plan))
        for number, content in launch.handed.items():
            _private(place / f"handed-{number}", content)
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                lineage.starting([sys.executable, "-I", "-S", _KEEPER, str(place)], env, None),
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=_START_SECONDS,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            shutil.rmtree(place, ignore_errors=True)
            raise refusal(f"The process cannot be started: {error}", "cannot_start") from error
        if done.returncode:
            shutil.rmtree(place, ignore_errors=True)
            raise refusal(f"The process cannot be started: {done.stderr.strip()[:300]}", "cannot_start")
        return self.find(place.name)

    def all(self) -> list[Kept]:
        """Return those of this session, the oldest first."""
        names = [one.name for one in self._folder.glob("p*") if one.name[1:].isdigit()] if self._folder.is_dir() else []
        found = []
        for name in sorted(names, key=lambda one: int(one[1:])):
            with contextlib.suppress(Rejected):
                found.append(self.find(name))
        return found

    def find(self, process: str) -> Kept:
        """Return one by its id.

        Raises:
            Rejected: There is none.
        """
        place = self._place(process)
        plan, state = _plan(place), self._state(place)
        if plan is None or state is None:
            raise self._unknown(process)
        left = max(0.0, state.began + plan.seconds - time.time()) if state.status == "running" else 0.0
        return Kept(
            id=process,
            command=plan.command,
            status=state.status,
            exit_code=state.exit_code,
            limits=_limits(plan, state),
            seconds_left=round(left, 1),
            keep=plan.keep,
        )

    def read(self, process: str, *, offset: int, limit: int) -> tuple[list[str], int, bool]:
        """Return lines of what it has written, the number of the next one to read, and whether there is more now.

        A last line that has no end yet is returned, and read again next time.
        """
        is_running = self.find(process).status == "running"
        found: list[str] = []
        number, chars = 0, 0
        with (self._place(process) / "output").open("rb") as file:
            while line := file.readline(1 << 20):
                number += 1
                if number < offset:
                    continue
                if len(found) >= limit or chars > _MAX_LINE_CHARS:
                    return found, number, True
                text = line[:_LINE_BYTES].rstrip(b"\r\n").decode("utf-8", "replace")
                found.append(text)
                chars += len(text)
                if not line.endswith(b"\n") and is_running:
                    return found, number, False
        return found, max(number + 1, offset), False

    def last_line(self, process: str) -> str:
        """Return the last line that it has written, of a long one the end; nothing for one that has written nothing."""
        try:
            with (self._place(process) / "output").open("rb") as file:
                file.seek(max(0, self.size(process) - _LINE_BYTES))
                lines = file.read(2 * _LINE_BYTES).decode("utf-8", "replace").rstrip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def size(self, process: str) -> int:
        """Return the bytes that it has written so far."""
        try:
            return (self._place(process) / "output").stat().st_size
        except OSError:
            return 0

    def write(self, process: str, content: bytes, *, ends_input: bool) -> None:
        """Hand a text to its standard input.

        Raises:
            Rejected: It has ended, or does not read what it is given.
        """
        state = self._running(process)
        try:
            pipe = os.open(self._place(process) / "input", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            raise refusal(f"The process {process} has closed its input.", "input_closed") from error
        try:
            _write_all(pipe, content, process)
        finally:
            os.close(pipe)
        if ends_input:
            _signal(state, signal.SIGUSR1)

    def kill(self, process: str) -> Kept:
        """End one with all that it has started, and return it as it is then."""
        place = self._place(process)
        state = self._state(place)
        if state is not None and state.status == "running":
            _signal(state, signal.SIGTERM)
            end = time.monotonic() + _END_SECONDS
            while time.monotonic() < end and (now := self._state(place)) is not None and now.status == "running":
                time.sleep(_POLL_SECONDS)
            _end_rest(self._state(place), place)
        return self.find(process)

    def end_task(self) -> None:
        """End those that may not outlive their task. Never raises."""
        for one in self.all():
            if one.status == "running" and not one.keep:
                with contextlib.suppress(Rejected, OSError):
                    self.kill(one.id)

    def sweep(self) -> None:
        """Remove what is left of processes that ended a week ago, of any session. Never raises."""
        with contextlib.suppress(OSError):
            for place in islice(self._base.glob("*/p*"), 10 * _MAX_PROCESSES):
                state = _read_state(place)
                is_old = time.time() - place.stat().st_mtime > _FORGOTTEN_SECONDS
                if is_old and (state is None or (now := self._state(place, state)) is None or now.status != "running"):
                    shutil.rmtree(place, ignore_errors=True)

    # --- one folder

    def _new_place(self) -> Path:
        number = max((int(one.name[1:]) for one in self._folder.glob("p*") if one.name[1:].isdigit()), default=0)
        for _ in range(_MAX_PROCESSES):
            number += 1
            with contextlib.suppress(FileExistsError):
                place = self._folder / f"p{number}"
                place.mkdir(mode=0o700)
                return place
        raise refusal(
            f"There are {_MAX_PROCESSES:,} background processes already. Kill those that you no longer need, then start this one.",
            "too_many",
        )

    def _place(self, process: str) -> Path:
        if not (process[:1] == "p" and process[1:].isascii() and process[1:].isdigit() and len(process) < 10):
            raise self._unknown(process)
        return self._folder / process

    def _unknown(self, process: str) -> Rejected:
        known = ", ".join(sorted(one.name for one in self._folder.glob("p*"))) if self._folder.is_dir() else ""
        return refusal(
            f"There is no process {shown(process)}. {f'There are {known}.' if known else 'None was started.'}",
            "not_found",
        )

    def _running(self, process: str) -> _State:
        state = self._state(self._place(process))
        if state is None:
            raise self._unknown(process)
        if state.status != "running":
            raise refusal(f"The process {process} has ended: {state.status}.", "has_ended")
        return state

    def _state(self, place: Path, known: _State | None = None) -> _State | None:
        """Return the state of a process. One whose keeper is no more is lost, and what is left of it is ended."""
        state = known or _read_state(place)
        if state is None or state.status != "running" or _is_alive(state.keeper, state.keeper_started):
            return state
        state = _read_state(place) or state  # it may have ended between our two looks
        if state.status == "running":
            if _is_alive(state.pid, state.pid_started):
                with contextlib.suppress(OSError):
                    os.killpg(state.pid, signal.SIGKILL)
            _end_rest(state, place)
            state = msgspec.structs.replace(state, status="lost")
        return state


def _limits(plan: _Plan, state: _State) -> tuple[str, ...]:
    """Return the limits of its sandbox that a process has reached; by some of them it was ended with a signal."""
    code = state.exit_code or 0
    by_signal = _SIGNALS.get(-code if code < 0 else code - 128) if plan.disk_folders or plan.groups else None
    return (*state.limits, *([by_signal] if by_signal else []))


def _is_alive(pid: int, started: str) -> bool:
    """Whether a number still means the process that it was given to."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return (not started or started_at(pid) == started) and not is_over(pid)


def _end_rest(state: _State | None, place: Path) -> None:
    """End what a keeper that has ended, or does not answer, has left running."""
    plan = _plan(place)
    if state is not None and state.status == "running" and plan is not None and plan.mark:
        Lineage(plan.mark).end()


def _signal(state: _State, number: signal.Signals) -> None:
    if _is_alive(state.keeper, state.keeper_started):
        with contextlib.suppress(OSError):
            os.kill(state.keeper, number)


def _write_all(pipe: int, content: bytes, process: str) -> None:
    view, end = memoryview(content), time.monotonic() + _WRITE_SECONDS
    while view:
        try:
            view = view[os.write(pipe, view) :]
        except BlockingIOError:
            if time.monotonic() > end:
                words = f"The process {process} does not read its input: {len(content) - len(view)} of {len(content)} bytes were taken."
                raise refusal(words, "input_full") from None
            time.sleep(_POLL_SECONDS)
        except BrokenPipeError as error:
            raise refusal(f"The process {process} has closed its input.", "input_closed") from error


def _read_state(place: Path) -> _State | None:
    try:
        return msgspec.convert(json.loads((place / "state.json").read_bytes()), _State)
    except (OSError, ValueError, msgspec.ValidationError):
        return None


def _plan(place: Path) -> _Plan | None:
    try:
        return msgspec.json.decode((place / "plan.json").read_bytes(), type=_Plan)
    except (OSError, msgspec.MsgspecError):
        return None


def _private(place: Path, content: bytes) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
