"""The `shell` tool: one line of shell in one folder, judged before by what it would start. Decides nothing itself."""

import fnmatch
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from treadle.concurrency import Threads
from treadle.errors import InvalidArguments
from treadle.fields import checked
from treadle.sandboxes.confinement import lifted_folder
from treadle.sandboxes.outside import programs_of_git, repository_of, started_instead, steps_of
from treadle.sandboxes.private import private_places
from treadle.sandboxes.processes import Ends, clean_environment, run_process
from treadle.shell.border import border_of
from treadle.shell.judging import analyse, reads_only
from treadle.shell.programs import program_name
from treadle.tools import (
    Command,
    Detached,
    Detaching,
    JsonObject,
    Lifting,
    Need,
    Place,
    ProcessResult,
    Refusal,
    Review,
    Runner,
    ShellLine,
    Tool,
    ToolContext,
    ToolOutput,
    parse_needs,
)
from treadle.tools.tool import closed_schema
from treadle.toolsets.files.root import ERROR_SCHEMA, Root, refusal, shown
from treadle.toolsets.shell.keeping import Processes

__all__ = ["names_matching", "refusal_hint", "shell_tool"]


# --- Wildcards: which names a pattern of the shell matches in a folder, by a bounded look. Opens no file.

_MAX_LOOKED_AT = 5000
"""Names that are looked at for one pattern."""
_WILD = frozenset("*?[")


def names_matching(folder: str, pattern: str) -> Sequence[str] | None:
    """Return the names that a pattern may become, and the pattern's own text, which it stays where nothing matches.

    None where there are too many names to look at. Hidden names count only where the pattern begins with a dot, as for the shell.

    Args:
        folder: Where the line starts.
        pattern: As `glob.glob` reads it. `~` is the home folder.
    """
    room = [_MAX_LOOKED_AT]
    expanded = os.path.expanduser(pattern)  # noqa: PTH111 - a pattern is not a path
    found = list(_matching(folder, "/" if expanded.startswith("/") else "", expanded.lstrip("/").split("/"), room))
    return [*found, _literal(expanded)] if room[0] > 0 else None


def _matching(folder: str, before: str, parts: Sequence[str], room: list[int]) -> Iterator[str]:
    if not parts or room[0] <= 0:
        yield before
        return
    first, rest = parts[0], parts[1:]
    if not _WILD & set(first):
        yield from _matching(folder, f"{before}{first}/" if rest else f"{before}{first}", rest, room)
        return
    for name in _names(os.path.join(folder, before), room):  # noqa: PTH118 - one of many names
        if fnmatch.fnmatchcase(name, first) and (not name.startswith(".") or first.startswith(".")):
            yield from _matching(folder, f"{before}{name}/" if rest else f"{before}{name}", rest, room)


def _names(place: str, room: list[int]) -> Iterator[str]:
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                room[0] -= 1
                if room[0] <= 0:
                    return
                yield entry.name
    except (OSError, ValueError):  # not a folder, or nobody's to read: the pattern matches nothing there
        return


def _literal(pattern: str) -> str:
    return pattern.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")


# --- Refused: what a command failed at because it is confined, in one sentence with what lifts just that.

_HOST = re.compile(r"(?:host(?: name)?:?|resolve|to) ['\"]?((?:[\w-]+\.)+[\w-]+|localhost)\b", re.IGNORECASE)
_WHAT = {"network": "the network", "read": "reading", "write": "writing", "other": "something that it needs"}
_LIMITS = {
    "disk": "more room on the disk", "memory": "more memory", "processes": "more processes", "time": "more processor time",
}  # fmt: skip


def refusal_hint(sandbox: Runner, result: ProcessResult, root: str) -> str:
    """Return the sentence for the model about what a sandbox refused, with the `needs` that would lift it.

    Args:
        sandbox: What has run the command.
        result: How the command ended.
        root: The folder of the tool, from `/`.
    """
    told = " and ".join(
        f"{_WHAT[one.kind]} {one.target}".strip() if one.kind in _WHAT else _LIMITS[one.kind]
        for one in result.refused[:2]
    )
    found = (_need_for(one, root) for one in result.refused if one.kind in _WHAT or "Sanitizer" in one.line)
    needs = [_readable(need) for need in dict.fromkeys(found) if need]
    if isinstance(sandbox, Lifting):
        needs = list(dict.fromkeys(sandbox.lifts(one).text for one in parse_needs(needs)))
    is_failed = result.exit_code != 0 or result.timed_out
    sentence = f"{'The command failed because the' if is_failed else 'The'} sandbox {sandbox.name} refuses {told}"
    sentence = _readable(sentence)
    if not needs:
        return f"{sentence}."
    return f"{sentence}; if the task needs it, call again with `needs`: {json.dumps(needs)} and a `reason`, and a person may be asked."


def _need_for(refusal: Refusal, root: str) -> str:
    path = refusal.target
    if refusal.kind == "network":
        named = [path] if path else _HOST.findall(refusal.line)
        return f"network {named[0] if named else 'HOST'}"
    if refusal.kind != "write" or not path or ".refused-" in refusal.line:
        return "" if ".refused-" in refusal.line else "unconfined"
    if "/.git/" in f"{path}/":
        return "unconfined" if any(f"/.git/{name}" in path for name in ("hooks", "config")) else "git"
    is_within = path == root or path.startswith(f"{root.rstrip('/')}/")
    folder = path if _is_folder(path) or "director" in refusal.line else str(Path(path).parent)
    return "unconfined" if is_within or folder in ("/", os.path.expanduser("~")) else f"write {folder}"  # noqa: PTH111 - a text


def _readable(text: str) -> str:
    """Return a text without the characters of a name that is not UTF-8, which no result can hold."""
    return text.encode("utf-8", "replace").decode()


def _is_folder(path: str) -> bool:
    """Whether a path is a folder that can be reached. Below a closed one (`chmod 000`), nothing can be."""
    with suppress(OSError):
        return stat.S_ISDIR(Path(path).stat().st_mode)
    return False


# --- The `shell` tool: one line of shell in one folder, judged before by what it would start. Decides nothing itself.

_threads = Threads()

FACT = "shell"
"""The fact that holds `{"folder": path}`, where the next command starts."""
_MAX_SECONDS = 600.0
_DEFAULT_SECONDS = 120.0
_MAX_OUTPUT_BYTES = 30_000
"""Bytes that the model is shown."""
_KEPT_BYTES = 5_000_000
"""Bytes of each output that are kept as an artifact."""
_LINK_OF_A_PROCESS = re.compile(r"/proc/(?:self|thread-self|\d+)(?:/task/\d+)?/(?:cwd|root|map_files|fd/(?![012]\Z))")
"""A link that leads each process elsewhere. The streams of a program are files that it was given."""
_FOLDER_CHANGERS = frozenset({"cd", "pushd", "popd"})
_PROGRESS_SECONDS = 0.2
_MAX_PROGRESS_CHARACTERS = 200

_ROLLBACK = "Unknown: a program can change anything that the person may change."
_SETTINGS = ("GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "PAGER=cat", "GIT_PAGER=cat", "TERM=dumb")
"""No program waits for a key or a password, and one that only reads takes no lock. Git is also told to take no folder for a repository because
it holds `HEAD`, `objects` and `refs`: the `config` in it, which anybody may write, would say what `git status` starts. A line that only
reads runs unasked, and starts no hook: `git describe --dirty` writes the index, for which there is one. Where a command may write the
history, hooks and programs that the configuration names are off: nobody was asked about those."""
_CHARSETS = ("LC_ALL", "LC_CTYPE", "LANG")
"""What says in which charset bash reads a line, the strongest first."""
_SCRIPT = 'trap \'{ builtin set +x; } 2>/dev/null; builtin cd -Pe . 2>/dev/null || PWD=; builtin printf "%s%s%s" "$_MARK" "$PWD" "$_MARK" >&2\' EXIT; builtin export -n _MARK; eval "$1"'
"""Carries out the line, and says at its end in which folder it is, between two marks that are new in each call: what it has started may write
behind them. It starts no process for that, which a fork bomb would not let it do. A line with `set -x` traces its own commands alone."""


_MAX_LIFETIME_SECONDS = 24 * 3600
_ABOUT_BACKGROUND = "\nFor a server or a watcher, set `background` and `lifetime`: the result has a `process` id for read_process, write_process and kill_process. The process ends with its lifetime or this task."
_BACKGROUND: JsonObject = {
    "background": {
        "type": "boolean",
        "default": False,
        "description": "Run in the background: return at once, without waiting for the command to finish. Requires `lifetime`.",
    },
    "lifetime": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": _MAX_LIFETIME_SECONDS,
        "description": "Seconds after which a background command is ended.",
    },
    "keep": {
        "type": "boolean",
        "default": False,
        "description": "Keep a background command running after this task, until its lifetime is over.",
    },
}

_SANDBOX_SCHEMA: JsonObject = closed_schema(
    ["name", "refused"],
    name={"type": "string"},
    refused={
        "type": "array",
        "items": closed_schema(["kind"], kind={"type": "string"}, target={"type": "string"}, line={"type": "string"}),
    },
)


_PROPERTIES: JsonObject = {
    "command": {
        "type": "string",
        "minLength": 1,
        "maxLength": 100_000,
        "description": "The bash command.",
    },
    "timeout": {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": _MAX_SECONDS,
        "default": _DEFAULT_SECONDS,
        "description": "Seconds after which the command is ended.",
    },
    "description": {
        "type": "string",
        "maxLength": 500,
        "description": "What the command does, in a few words, for the person watching.",
    },
    "needs": {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": 500},
        "maxItems": 10,
        "description": "What the command needs that the sandbox refuses: `git` (write the git history), `network HOST`, `write FOLDER` (outside the root folder), or `unconfined`. Only what is necessary; it requires `reason`, and a person may be asked.",
    },
    "reason": {
        "type": "string",
        "minLength": 1,
        "maxLength": 1000,
        "description": "Why the command needs this, for the person who is asked.",
    },
}

_OUTPUT: JsonObject = closed_schema(
    ["exit_code", "stdout", "stderr", "folder"],
    exit_code={"type": ["integer", "null"]},
    stdout={"type": "string"},
    stderr={"type": "string"},
    folder={"type": "string"},
    shortened={"const": True},
    sandbox=_SANDBOX_SCHEMA,
    process={"type": "string"},
    hint={"type": "string"},
)


@checked
def shell_tool(root: str | Path, *, processes: Processes | None = None) -> Tool:
    """Return the `shell` tool of one folder: bash, without the person's start files, keys or terminal.

    The line is parsed before it is judged: rules such as `shell(git log:*)` see each simple command, and what only reads counts as
    `read`. The folder that a command ends in is where the next one starts, as long as it lies within the root. Where a decision says
    `sandbox`, the line runs in the agent's sandbox.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=[*file_tools("."), shell_tool(".")])

    Args:
        root: The folder in which the first command starts.
        processes: Where commands may run in the background, as `ShellTools` offers it; None where they may not.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    guard = Root(root)
    more = {} if processes is None else _BACKGROUND
    return Tool(
        name="shell",
        description=(
            "Run a bash command and wait for it to finish. Use it for programs: tests, builds, git. Use read, grep and glob to look at files.\n"
            f"The next call starts in the folder where this one ends, if that is inside the root folder. No process outlives the command; there is no terminal and no input. A command that fails has a nonzero `exit_code`. Long output is shortened to its beginning and end, {_MAX_OUTPUT_BYTES:,} bytes in all; `artifact` names the whole.\nThe command may run in a sandbox. `sandbox` then lists what was refused; if the task needs it, call again with `needs` and a `reason`."
            + (_ABOUT_BACKGROUND if more else "")
        ),
        parameters=closed_schema(["command"], **_PROPERTIES, **more),
        output_schema=_OUTPUT,
        error_schema=ERROR_SCHEMA,
        effect=_effect,
        risk=_risk,
        review=_review,
        timeout=_MAX_SECONDS + 5,
        run=partial(_run, guard, processes),
        resources=partial(_resources, guard),
        sandbox="runner",
        needs=_needs,
        line=partial(_line, guard),
        validate=partial(_check, guard),
        examples=({"command": "git status --short"}, {"command": "make test", "timeout": 300}),
    )


def _effect(arguments: JsonObject) -> str:
    is_read = not arguments.get("background", False) and reads_only(analyse(arguments["command"]))
    return "read" if is_read else "unsafe"


def _resources(root: Root, arguments: JsonObject) -> JsonObject:
    """A line that only reads runs in parallel with other reads, unless one of them changes the folder in which they start."""
    line = analyse(arguments["command"])
    if arguments.get("background", False) or not reads_only(line):
        return {"*": "write"}
    is_moving = any(program_name(one.program) in _FOLDER_CHANGERS for one in line.invocations)
    return {"*": "read", f"shell:{root.path}": "write" if is_moving else "read"}


def _needs(arguments: JsonObject) -> tuple[Need, ...]:
    """Return what it asks for, and what is known of the programs of its line."""
    return (*parse_needs(arguments.get("needs", ())), *border_of(arguments["command"]))


def _check(root: Root, arguments: JsonObject) -> None:
    needs = parse_needs(arguments.get("needs", ()))
    for folder in (need.value for need in needs if need.kind == "write"):
        _check_lifted(root, folder)
    if needs and not arguments.get("reason", "").strip():
        raise InvalidArguments("`needs` requires a `reason`, which a person reads.")
    if arguments.get("background", False) and "lifetime" not in arguments:
        raise InvalidArguments("`background` requires a `lifetime` in seconds.")
    if not arguments.get("background", False) and ("lifetime" in arguments or arguments.get("keep", False)):
        raise InvalidArguments("`lifetime` and `keep` require `background`.")
    if "\0" in arguments["command"]:
        raise InvalidArguments("`command` holds a NUL character, which no shell can read.")


def _check_lifted(root: Root, value: str) -> None:
    """Refuse a folder that no consent can lift, before a person is asked about it."""
    try:
        folder = lifted_folder(value, private_places(os.environ))
    except OSError as error:
        raise InvalidArguments(str(error)) from error
    if _is_within(root, folder):
        raise InvalidArguments(
            f"`write` is for a folder outside the root folder, and {value} is in it. What is protected there needs `git`, or `unconfined`."
        )


def _risk(arguments: JsonObject) -> str:
    return "read_only" if _effect(arguments) == "read" else "process_execution"


def _review(arguments: JsonObject, _: JsonObject) -> Review:
    return Review() if _effect(arguments) == "read" else Review(rollback=_ROLLBACK)


def _line(root: Root, arguments: JsonObject, facts: JsonObject) -> ShellLine:
    return ShellLine(
        text=arguments["command"],
        look=partial(_look, root.path, _folder(root, facts)),
        look_from_root=partial(_look, root.path, root.path),
        files=root,
        expand=partial(names_matching, _folder(root, facts)),
        brought=partial(started_instead, root.path, _folder(root, facts)),
    )


def _look(root: str, folder: str, path: str) -> Place:
    """Say what a path stands for. A link on the way decides where it lies; one of a process (`/proc/self/cwd`) is followed by nobody."""
    named = os.path.normpath(Path(folder, path))
    try:
        real = os.path.realpath(Path(folder, path))
    except OSError:  # a link that nobody but its owner may read
        return Place(path=named, relative=None, is_unknown=True)
    # From Python 3.13 on, what cannot be followed is left as it is.
    is_followed = real != named or named.startswith("/proc/")
    if is_followed and (other := _by_a_process(str(Path(folder, path)))) is not None:
        return Place(path=other, relative=None, is_unknown=True)
    is_within = real == root or real.startswith(f"{root.rstrip('/')}/")
    return Place(path=real, relative=os.path.relpath(real, root) if is_within else None, is_folder=os.path.isdir(real))  # noqa: PTH112 - false for a name that is too long, where Path raises


def _by_a_process(path: str) -> str | None:
    """Return the path at which a path goes through a link that each process has for itself; None where it does not."""
    return next(("/".join((here, *rest)) for here, rest, _ in steps_of(path) if _LINK_OF_A_PROCESS.match(here)), None)


async def _run(root: Root, processes: Processes | None, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    folder = _folder(root, ctx.facts)
    if processes is not None and arguments.get("background", False):
        started: ToolOutput = await _threads.submit(partial(_in_background, root, processes, arguments, ctx, folder))
        return started
    mark = f"\x1e{secrets.token_hex(8)}:"
    settings = (f"_MARK={mark}", *_settings(arguments["command"], folder, ctx))
    command = Command(
        arguments=(
            "/usr/bin/env",
            *settings,
            "/bin/bash",
            "--norc",
            "--noprofile",
            "-c",
            _SCRIPT,
            "bash",
            arguments["command"],
        ),
        cwd=folder,
        timeout=arguments.get("timeout", _DEFAULT_SECONDS),
        on_output=_Progress(ctx),
        lifted=() if ctx.runner is None else ctx.decision.lifted,
    )
    if ctx.runner is not None:
        with _unstarted():
            result = await ctx.runner.run(command)
    else:
        result = await run_process(
            command.arguments,
            cwd=folder,
            timeout=command.timeout,
            max_bytes=_KEPT_BYTES,
            on_output=command.on_output,
        )
    return _output(root, ctx, result, mark=mark, folder=folder, seconds=command.timeout)


@contextmanager
def _unstarted() -> Iterator[None]:
    """Refuse a call whose command a runner could not start: its outcome is known."""
    try:
        yield
    except OSError as error:
        raise refusal(f"The command was not run: {error}", "sandbox_unavailable") from error


def _settings(line: str, folder: str, ctx: ToolContext) -> tuple[str, ...]:
    if ctx.runner is not None and "git" in ctx.decision.lifted:
        _check_repositories(line, folder)
        configured = programs_of_git(folder)
    else:
        configured = {"core.hooksPath": "/dev/null"} if reads_only(analyse(line)) else {}
    given = {"safe.bareRepository": "explicit", **configured}.items()
    config = [
        word
        for at, (key, value) in enumerate(given)
        for word in (f"GIT_CONFIG_KEY_{at}={key}", f"GIT_CONFIG_VALUE_{at}={value}")
    ]
    return (
        *_SETTINGS,
        f"GIT_CONFIG_COUNT={len(given)}",
        *config,
        *(f"{name}={value}" for name, value in _charset().items()),
    )


def _check_repositories(line: str, folder: str) -> None:
    """Refuse a line of which a command starts in another repository: what that one is configured to run would write the history that is lifted."""
    own = repository_of(folder)
    for one in analyse(line).invocations:
        named = [value for option, value in zip(one.words, one.words[1:], strict=False) if option == "-C"]
        given = named if program_name(one.program) == "git" else []
        places = [
            os.path.realpath(Path(folder, at, *given[:last])) for at in one.folders for last in range(len(given) + 1)
        ]
        if other := next((place for place in places if repository_of(place) != own), None):
            raise refusal(
                f"The command was not run: {shown(other)} is in another repository than the one in which the line starts. "
                "Go there with `cd` alone, and call git in the next call.",
                "sandbox_unavailable",
            )


def _charset() -> dict[str, str]:
    """Return the variable with which bash reads its line as UTF-8, where that is how it is written and the locale says otherwise.

    In GBK or Shift-JIS the last byte of a character of UTF-8 and a backslash behind it are one character, which escapes nothing.
    """
    locale = next(filter(None, map(os.environ.get, _CHARSETS)), "C")
    charset = locale.partition(".")[2].partition("@")[0].replace("-", "").lower()
    is_read_so = charset == "utf8" or locale in ("C", "POSIX")
    return {} if is_read_so or sys.getfilesystemencoding() != "utf-8" else {"LC_ALL": "C.UTF-8"}


def _in_background(
    root: Root, processes: Processes, arguments: JsonObject, ctx: ToolContext, folder: str
) -> ToolOutput:
    """Start a line and leave it to its keeper."""
    line, seconds, runner = arguments["command"], float(arguments["lifetime"]), ctx.runner
    words: tuple[str, ...] = (
        "/usr/bin/env",
        *_settings(line, folder, ctx),
        "/bin/bash",
        "--norc",
        "--noprofile",
        "-c",
        line,
    )
    launch = Detached(arguments=words, cwd=folder, env=clean_environment() | _charset())
    if runner is not None:
        if not isinstance(runner, Detaching):
            raise refusal(f"The sandbox {runner.name} cannot run a process in the background.", "sandbox_unavailable")
        with _unstarted():
            launch = runner.detached(Command(arguments=words, cwd=folder, lifted=ctx.decision.lifted))
    kept = processes.start(launch, command=line, seconds=seconds, keep=arguments.get("keep", False))
    return ToolOutput(
        data={
            "exit_code": None,
            "stdout": "",
            "stderr": "",
            "folder": os.path.relpath(folder, root.path),
            "process": kept.id,
            "hint": f"It runs in the background for at most {seconds:g} seconds. Read its output with read_process.",
        }
    )


def _folder(root: Root, facts: JsonObject) -> str:
    """Return where the command starts: where the last one ended, if that is still a folder within the root."""
    remembered = facts.get(FACT, {})
    folder = remembered.get("folder") if isinstance(remembered, dict) else None
    is_usable = isinstance(folder, str) and _is_within(root, folder) and _is_folder(folder)
    return folder if isinstance(folder, str) and is_usable else root.path


def _is_within(root: Root, folder: str) -> bool:
    real = os.path.realpath(folder)
    return real == root.path or real.startswith(f"{root.path.rstrip('/')}/")


def _next_folder(root: Root, ended_in: str | None, folder: str) -> tuple[str, str]:
    """Return where the next command starts, and what to say where that is not where this one ended."""
    if ended_in and _is_within(root, ended_in):
        return ended_in, ""
    start = folder if _is_folder(folder) else root.path
    if ended_in is None and start == folder:  # it was killed, or became another program
        return folder, ""
    how = (
        f"It ended in {shown(ended_in)}, outside the root folder" if ended_in else "The folder that it ended in is gone"
    )
    return start, f"{how}: the next command starts in {shown(start)}."


def _output(
    root: Root, ctx: ToolContext, result: ProcessResult, *, mark: str, folder: str, seconds: float | None
) -> ToolOutput:
    stderr, ended_in = _without_mark(result.stderr, mark)
    hints: list[str] = []
    if result.timed_out:
        hints.append(f"It was ended after {seconds:g} s. Give a larger `timeout`, up to {_MAX_SECONDS:g}.")
    now, hint = _next_folder(root, ended_in, folder)
    if hint:
        hints.append(hint)
    stdout, is_cut = _shortened(result.stdout)
    errors, are_cut = _shortened(stderr)
    data: JsonObject = {
        "exit_code": None if result.timed_out else result.exit_code,
        "stdout": stdout,
        "stderr": errors,
        "folder": os.path.relpath(now, root.path),
    }
    is_short = result.is_shortened or is_cut or are_cut
    if is_short:
        data["shortened"] = True
    if ctx.runner is not None and result.refused:
        data["sandbox"] = {"name": ctx.runner.name, "refused": [_described(one) for one in result.refused]}
        hints.append(refusal_hint(ctx.runner, result, root.path))
    if hints:
        data["hint"] = " ".join(hints)
    return ToolOutput(
        data=data,
        artifact=_whole(result.stdout, stderr) if is_short else None,
        facts={FACT: {"folder": now}} if now != folder else None,
    )


def _shortened(text: str) -> tuple[str, bool]:
    """Return the beginning and the end of an output, and whether something between them was left out."""
    content = text.encode()
    if len(content) <= _MAX_OUTPUT_BYTES // 2:
        return text, False
    ends = Ends(_MAX_OUTPUT_BYTES // 2)
    ends.add(content)
    return ends.text(), True


def _whole(stdout: str, stderr: str) -> bytes:
    return (f"{stdout}\n--- stderr ---\n{stderr}" if stderr else stdout).encode()


def _described(refusal: Refusal) -> JsonObject:
    words = {"kind": refusal.kind, "target": refusal.target, "line": refusal.line}
    return {name: _readable(word) for name, word in words.items() if word}


def _without_mark(stderr: str, mark: str) -> tuple[str, str | None]:
    """Part what the command wrote from the folder that we had written behind it; None where it never came to its end."""
    whole, found, rest = stderr.rpartition(mark)
    before, begun, folder = whole.rpartition(mark)
    return (before + rest, folder) if found and begun else (stderr, None)


class _Progress:
    """Shows the last line of the output to people, now and then."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._last = 0.0

    def __call__(self, piece: bytes) -> None:
        now = time.monotonic()
        if now - self._last < _PROGRESS_SECONDS:
            return
        shown, _, _ = piece.decode("utf-8", "replace").partition("\x1e")  # what comes behind it is our mark
        lines = [line for line in shown.splitlines() if line.strip()]
        if lines:
            self._last = now
            self._ctx.progress(lines[-1][:_MAX_PROGRESS_CHARACTERS])
