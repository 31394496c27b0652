"""Subjects: the programs that are held against the suite. Each act of a scenario is a process of its own."""

import asyncio
import contextlib
import itertools
import json
import os
import shlex
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol, Self

import msgspec

from treadle.errors import ConfigurationError

__all__ = ["About", "AdapterSubject", "CommandSubject", "Running", "Subject"]

_HOST = Path(__file__).with_name("host.py")
_READY_SECONDS = 120
"""How long an adapter may take to load: some libraries take their time."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a subject says about itself."""

    name: str
    version: str = ""
    offers: frozenset[str] = frozenset()


class Running(Protocol):
    """One process of a subject."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """Return its exit code, negative for a signal, once it has ended."""
        ...

    def kill(self) -> None:
        """Kill it, with its children."""
        ...


class Subject(Protocol):
    """A program that runs a tool loop. Use it with `async with`."""

    @property
    def about(self) -> About: ...

    @property
    def wants_service(self) -> bool:
        """Whether it finds the tools over HTTP, and not as functions."""
        ...

    async def start(self, job: Mapping[str, Any], folder: Path) -> Running:
        """Begin one job. Its standard output and error go to files `stdout` and `stderr` of the folder."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *failure: object) -> None: ...


class _Spawned:
    """A process that was started for one job."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        _kill_group(self._process.pid)


class _Forked:
    """A process that the host has forked."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self.begun.result()

    async def wait(self) -> int:
        return await asyncio.shield(self.exit)

    def kill(self) -> None:
        if not self.exit.done():
            _kill_group(self.pid)


class AdapterSubject:
    """An adapter in Python: a function of one job. `host.py` says what a job is.

    Args:
        adapter: Its name, such as `my_loop:adapter`.
        python: The Python that runs it, with its libraries (default: this one). Treadle need not be there.
        folder: Where its module is; the current folder by default.
        offers: What the loop can do (default: what the adapter says in its attribute `offers`).
    """

    wants_service = False

    def __init__(
        self,
        adapter: str,
        *,
        python: str | None = None,
        folder: Path | None = None,
        offers: frozenset[str] | None = None,
    ) -> None:
        if ":" not in adapter:
            raise ConfigurationError(f"An adapter is module:function, such as my_loop:adapter; got {adapter!r:.80}.")
        self._adapter = adapter
        self._python = python or sys.executable
        self._offers = offers
        self._folder = folder
        self._process: Process | None = None
        self._undo = contextlib.AsyncExitStack()
        self._reading: asyncio.Task[None] | None = None
        self._forked: dict[int, _Forked] = {}
        self._numbers = itertools.count(1)
        self._about = About(name=adapter)
        self._forks = True

    @property
    def about(self) -> About:
        return self._about

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as undo:
            errors = undo.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack is the context manager
            await self._load(errors)
            undo.push_async_callback(self._end)
            told = await self._told_about_itself(errors)
            self._forks = told["forks"]
            offers = frozenset(told["offers"]) if self._offers is None else self._offers
            self._about = About(name=told["name"] or self._adapter, version=told["version"], offers=offers)
            self._reading = asyncio.create_task(self._read())
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._undo.aclose()

    async def _load(self, errors: IO[bytes]) -> None:
        try:
            self._process = await self._spawn("--serve", stdin=PIPE, stdout=PIPE, stderr=errors)
        except OSError as exc:
            raise ConfigurationError(f"{self._python!r:.200} cannot be started: {exc.strerror}.") from exc

    async def _told_about_itself(self, errors: IO[bytes]) -> Any:
        """Return what the host says once it has loaded the adapter.

        Raises:
            ConfigurationError: It cannot load it, for the reason that it wrote.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            if line := await asyncio.wait_for(self._process.stdout.readline(), _READY_SECONDS):
                return json.loads(line)
        _kill_group(self._process.pid)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
        raise ConfigurationError(said.splitlines()[-1] if said else f"The adapter {self._adapter!r} did not load.")

    async def _end(self) -> None:
        """End the host, and with it all that it has forked."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def start(self, job: Mapping[str, Any], folder: Path) -> Running:
        if not self._forks:
            return await self._start_apart(job, folder)
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._numbers)
        forked = self._forked[number] = _Forked()
        asked = {"id": number, "job": job, "stdout": str(folder / "stdout"), "stderr": str(folder / "stderr")}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        await forked.begun
        return forked

    async def _start_apart(self, job: Mapping[str, Any], folder: Path) -> Running:
        written = folder / "job.json"
        written.write_text(json.dumps(job), encoding="utf-8")
        with (folder / "stdout").open("ab") as stdout, (folder / "stderr").open("ab") as stderr:
            return _Spawned(await self._spawn("--job", str(written), stdin=DEVNULL, stdout=stdout, stderr=stderr))

    async def _spawn(self, *arguments: str, **streams: Any) -> Process:
        return await asyncio.create_subprocess_exec(
            self._python, str(_HOST), self._adapter, *arguments, cwd=self._folder, start_new_session=True, **streams
        )

    async def _read(self) -> None:
        """Take what the host tells about its forks."""
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            forked = self._forked[told["id"]]
            if "pid" in told:
                forked.begun.set_result(told["pid"])
            else:
                forked.exit.set_result(told["exit"])
                del self._forked[told["id"]]
        for forked in self._forked.values():  # the host itself has ended: so has all that it forked
            for waited in (forked.begun, forked.exit):
                if not waited.done():
                    waited.set_result(-signal.SIGKILL)


class CommandSubject:
    """A program in any language. It finds its job in the file that TREADLE_CONFORMANCE_JOB names.

    Args:
        command: The command line.
        offers: What its loop can do, beside the dialects.
    """

    wants_service = True

    def __init__(self, command: str, *, offers: frozenset[str]) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise ConfigurationError(f"The command {command!r:.200} cannot be read: {exc}.") from exc
        if not self._words:
            raise ConfigurationError("The command is empty. Give one such as --command 'node my_loop.mjs'.")
        self._about = About(name=command, offers=offers)

    @property
    def about(self) -> About:
        return self._about

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        return None

    async def start(self, job: Mapping[str, Any], folder: Path) -> Running:
        written = folder / "job.json"
        written.write_text(json.dumps(job), encoding="utf-8")
        environment = {**os.environ, "TREADLE_CONFORMANCE_JOB": str(written)}
        with (folder / "stdout").open("ab") as stdout, (folder / "stderr").open("ab") as stderr:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._words, stdin=DEVNULL, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
                )
            except OSError as exc:
                raise ConfigurationError(f"{self._words[0]!r:.200} cannot be started: {exc.strerror}.") from exc
        return _Spawned(process)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
