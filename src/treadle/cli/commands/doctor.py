"""`treadle doctor`: look at this machine and say, line by line, what is well and what to do.

It changes nothing, but that a journal in a database gets its tables.
"""

import asyncio
import os
import platform
import shlex
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec

from treadle import Agent, TreadleError, file_tools, resolve_model
from treadle.cli.input.commands import DoctorOptions
from treadle.cli.input.places import journal_file, shown_address
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.model_servers import find_models
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import for_terminal, one_line
from treadle.cli.running import confinement_of, unmatched_in
from treadle.cli.sessions import opened
from treadle.errors import SandboxUnavailable
from treadle.resolve import local_servers
from treadle.sandboxes import Confinement, Landlock, find_sandbox
from treadle.tools import Command

__all__ = ["doctor"]

_KEYS = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    *("AWS_BEARER_TOKEN_BEDROCK", "AZURE_API_KEY", "VERTEX_API_KEY"),
)
_MAX_MODELS = 8
"""Models of one server that are named."""


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    level: Literal["ok", "warn", "fail"]
    message: str
    """What was found, and what to do about it where it is not well."""


def doctor(options: DoctorOptions, terminal: Terminal) -> int:
    """Check this machine; 1 where something fails, else 0."""
    terminal.hides_logs = True
    checks = list(_checks(options))
    if options.as_json:
        terminal.data({"checks": checks, "next": _next(checks)})
    else:
        for check in checks:
            terminal.line(f"{check.level:<4}  {check.name:<11} {for_terminal(check.message)}")
        terminal.line(f"next: {_next(checks)}")
    return 1 if any(check.level == "fail" for check in checks) else 0


def _checks(options: DoctorOptions) -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Check("treadle", "ok", version("treadle"))
    yield _platform()
    yield _sqlite()
    is_chosen = False  # whether a model is, with all that it needs
    confinement = None
    try:
        settings = settings_of(options)
    except TreadleError as exc:
        yield Check("config", "fail", str(exc))
    else:
        yield Check("config", "ok", "no errors in the configuration files")
        for note in settings.notes:
            yield Check("config", "warn", note)
        yield from _rules(settings)
        confinement = confinement_of(settings)
        yield _attempted("journal", lambda: _journal(settings.journal))
        model = _attempted("model", lambda: _model(settings))
        yield model
        is_chosen = model.level == "ok"
    keys = _keys(is_chosen=is_chosen)
    yield keys
    yield from _local_servers(is_needed=not is_chosen and keys.level != "ok")
    yield _sandbox(confinement)
    yield _attempted("self-check", _self_check)


def _next(checks: Sequence[Check]) -> str:
    """Return the one next thing to do: what fails is fixed first, then a model is chosen, then something is tried."""
    failed = next((check for check in checks if check.level == "fail"), None)
    if failed is not None:
        return f"fix {failed.name}: {failed.message}"
    named = {check.name: check for check in checks}
    if named["model"].level != "ok":
        served = next((check for check in checks if check.level == "ok" and ": -m " in check.message), None)
        if served is not None:
            return f"treadle chat -m {served.message.rpartition(': -m ')[2]}"
        if named["keys"].level == "ok":
            return "choose a model of the vendor whose key is set (`treadle models` lists them), then: treadle chat -m NAME"
        return "treadle demo, which needs no key; then set a vendor's key or start a local model server"
    return "treadle, in your project folder"


def _attempted(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (TreadleError, OSError) as exc:
        return Check(name, "fail", str(exc))


def _rules(settings: Settings) -> Iterator[Check]:
    """Say which rules match nothing: somebody relies on them."""
    try:
        found = unmatched_in(settings)
    except TreadleError as exc:
        yield Check("tools", "fail", str(exc))
        return
    for one in found:
        yield Check("rules", "warn", one_line(one.message, 500))


def _platform() -> Check:
    match sys.platform:
        case "linux":
            return Check("platform", "ok", f"Linux {platform.release()}")
        case "darwin":
            text = "macOS: everything but the sandbox; calls that need one are denied"
            return Check("platform", "warn", text)
        case other:
            return Check("platform", "fail", f"{other} is not supported yet: use Linux or macOS")


def _sqlite() -> Check:
    if sqlite3.sqlite_version_info >= (3, 37):
        return Check("sqlite", "ok", sqlite3.sqlite_version)
    text = f"{sqlite3.sqlite_version} is too old for the journal (3.37): use a newer Python or system"
    return Check("sqlite", "fail", text)


def _journal(path: str) -> Check:
    """Open the journal where there is one; else see whether one could be made."""
    if path == "memory:":
        return Check("journal", "warn", "memory: stores nothing: sessions are lost when the program ends")
    file = journal_file(path)
    if file is None or file.exists():
        return Check("journal", "ok", f"{asyncio.run(_open(path))} opens")
    place = file.absolute()
    folder = next(folder for folder in place.parents if folder.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Check("journal", "ok", f"{place} will be created by the first run")
    text = f"{place} cannot be created: {folder} is not writable. Name another with --journal or TREADLE_JOURNAL"
    return Check("journal", "fail", text)


async def _open(path: str) -> str:
    """Return the journal's place, without secrets, once it has been read."""
    async with opened(path) as journal:
        await journal.sessions()
        return journal.location


def _model(settings: Settings) -> Check:
    if settings.model is None:
        text = (
            "no default model: name one with -m, TREADLE_MODEL or `model` in your configuration (-m demo always works)"
        )
        return Check("model", "warn", text)
    resolve_model(settings.model, base_url=settings.base_url)
    return Check("model", "ok", f"{settings.model} ({settings.origins['model']})")


def _keys(*, is_chosen: bool) -> Check:
    """Names only: a key's value is shown nowhere. The model that is chosen has the key that it needs."""
    found = [name for name in _KEYS if os.environ.get(name)]
    if found:
        return Check("keys", "ok", f"set: {', '.join(found)}")
    if is_chosen:
        return Check("keys", "ok", "none is set, and the model needs none of them")
    text = f"no API key is set: a vendor's model needs one, such as {_KEYS[0]}; a local server and `demo` need none"
    return Check("keys", "warn", text)


def _local_servers(*, is_needed: bool) -> Iterator[Check]:
    """Say which model servers answer on this machine, and how to use them."""
    servers = local_servers()
    found = asyncio.run(find_models(servers))
    for name, models in found.items():
        place = one_line(shown_address(servers[name]))  # a proxy's password may stand before the host
        if models:
            text = f"{place} serves {_some(models)}: -m {name}:{one_line(models[0])}"
            yield Check(name, "ok", text)
        else:
            yield Check(name, "warn", f"{place} answers, but serves no model: load one there")
    if not found:
        text = f"none of {', '.join(servers)} answers: start one to work without a key, or give its address with --base-url"
        yield Check(name="servers", level="warn" if is_needed else "ok", message=text)


def _some(models: Sequence[str]) -> str:
    more = len(models) - _MAX_MODELS
    return ", ".join(map(one_line, models[:_MAX_MODELS])) + (f" and {more} more" if more > 0 else "")


_PROBE = """
: > file && echo writes
{{ : > .git/config; }} 2>/dev/null || echo keeps .git
{{ : > {outside}; }} 2>/dev/null
test -r /etc/passwd && test -x /usr/bin/env && echo reads
test -z "$(cat ~/.ssh/id_* ~/.aws/credentials ~/.bash_history ~/.netrc 2>/dev/null)" && echo hides
{{ exec 3<>/dev/tcp/127.0.0.1/{port}; }} 2>/dev/null || echo no network
"""
_HOLDS = {
    "writes": "writes its folder",
    "keeps .git": "keeps .git",
    "keeps the home": "writes nothing outside",
    "reads": "reads your files",
    "hides": "but no private ones",
    "no network": "has no network",
}
"""What each line of the probe says of a command."""


def _sandbox(confinement: Confinement | None) -> Check:
    """Run a command in the best sandbox of this machine, and say what it gets; and an empty one in the folder of `-C`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        (folder / ".git").mkdir()
        (folder / ".git/config").write_text("[core]\n", encoding="utf-8")
        (folder / "file").touch()
        try:
            found = find_sandbox(Confinement(writable=(str(folder),)))
            problem = None if confinement is None else type(found)(confinement).problem()
            with socket.create_server(("127.0.0.1", 0)) as listener:
                outside = Path.home() / f".treadle-doctor-{os.getpid()}"
                script = _PROBE.format(outside=shlex.quote(str(outside)), port=listener.getsockname()[1])
                begun = time.monotonic()
                done = asyncio.run(found.run(Command(arguments=("/bin/bash", "-c", script), cwd=str(folder))))
        except (SandboxUnavailable, OSError) as exc:
            return Check("sandbox", "warn", str(exc))
    said = done.stdout.splitlines()
    if not outside.exists():  # a home in the temporary folder can be written there: it is the command's own
        said.append("keeps the home")
    outside.unlink(missing_ok=True)
    if missing := [text for line, text in _HOLDS.items() if line not in said]:
        message = (
            f"{found.name} does not hold what it promises: that a command {', '.join(missing)}. {done.stderr[-200:]}"
        )
        return Check("sandbox", "fail", message.strip())
    if problem:
        message = f"{found.name} works on this machine, but no command can be confined in this folder: {problem}"
        return Check("sandbox", "fail", message)
    seconds = time.monotonic() - begun
    text = f"{found.name}: a command {', '.join(_HOLDS.values())}; six checks took {1000 * seconds:.0f} ms"
    if isinstance(found, Landlock):
        text += ". It makes no new file at the top of a folder with a repository, `git` and single hosts are not lifted, and it may change the mode, group and times of your files elsewhere: install bubblewrap for these"
        if closed := found.closed_for_age():
            text += f". This kernel is old: its programs do not {', '.join(closed)}"
    return Check("sandbox", "ok", text)


def _self_check() -> Check:
    """Carry out one small run with the demo model."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "note.txt").write_text("an error here\n", encoding="utf-8")
        result = asyncio.run(Agent("demo", tools=file_tools(folder)).run("Search for error in every file"))
    if result.completed and result.tool_calls:
        return Check("self-check", "ok", f"a demo run made {len(result.tool_calls)} tool calls and answered")
    return Check("self-check", "fail", f"a demo run ended as {result.reason}: {result.message}")
