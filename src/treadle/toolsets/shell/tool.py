"""The `shell` tool: one line of shell in one folder, judged before by what it would start. Decides nothing itself."""

import os
import secrets
import time
from functools import partial
from pathlib import Path

from treadle.sandboxes.processes import run_process
from treadle.sandboxes.runners import refusals
from treadle.shell.judging import analyse, reads_only
from treadle.tools import Command, JsonObject, Place, ProcessResult, Review, ShellLine, Tool, ToolContext, ToolOutput
from treadle.toolsets.files.root import Root, shown
from treadle.toolsets.files.schemas import ERROR_SCHEMA

__all__ = ["shell_tool"]

FACT = "shell"
"""The fact that holds `{"folder": path}`, where the next command starts."""
_MAX_SECONDS = 600.0
_DEFAULT_SECONDS = 120.0
_MAX_OUTPUT_BYTES = 30_000
_PROGRESS_SECONDS = 0.2
_MAX_PROGRESS_CHARACTERS = 200

_ROLLBACK = "Unknown: a program can change anything that the person may change."
_SETTINGS = ("GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "PAGER=cat", "TERM=dumb")
"""No program waits for a key or a password, and one that only reads takes no lock."""
_SCRIPT = 'trap \'printf "%s%s" "$_MARK" "$(pwd -P)" >&2\' EXIT; eval "$1"'
"""Carries out the line, and says at its end in which folder it is. The mark is new in each call."""


def shell_tool(root: str | Path) -> Tool:
    """Return the `shell` tool of one folder: bash, without the person's start files, keys or terminal.

    The line is parsed before it is judged: rules such as `shell(git log:*)` see each simple command, and what only reads counts as
    `read`. The folder that a command ends in is where the next one starts, as long as it lies within the root. Where a decision says
    `sandbox`, the line runs in the agent's sandbox.

    Example:
        agent = Agent("openai:gpt-5-mini", tools=[*file_tools("."), shell_tool(".")])

    Args:
        root: The folder in which the first command starts.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    guard = Root(root)
    return Tool(
        name="shell",
        description=(
            "Run a line of bash and wait for its end. Use it for programs: tests, builds, git. Use read, grep and glob to look at files.\n"
            "The next call starts in the folder in which this one ends, if that is within the root folder. Nothing keeps running after "
            "the end; there is no terminal and no input. A command that fails has an `exit_code` that is not 0. Of a long output the "
            f"beginning and the end are kept, {_MAX_OUTPUT_BYTES:,} bytes in all."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 100_000,
                    "description": "The line, as bash reads it.",
                },
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": _MAX_SECONDS,
                    "default": _DEFAULT_SECONDS,
                    "description": "Seconds after which it is ended.",
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        output_schema={
            "type": "object",
            "properties": {
                "exit_code": {"type": ["integer", "null"]},
                "stdout": {"type": "string"},
                "stderr": {"type": "string"},
                "folder": {"type": "string"},
                "shortened": {"const": True},
                "hint": {"type": "string"},
            },
            "required": ["exit_code", "stdout", "stderr", "folder"],
            "additionalProperties": False,
        },
        error_schema=ERROR_SCHEMA,
        effect=_effect,
        risk=_risk,
        review=_review,
        timeout=_MAX_SECONDS + 5,
        run=partial(_run, guard),
        sandbox="runner",
        line=partial(_line, guard),
        examples=({"command": "git status --short"}, {"command": "make test", "timeout": 300}),
    )


def _effect(arguments: JsonObject) -> str:
    return "read" if reads_only(analyse(arguments["command"])) else "unsafe"


def _risk(arguments: JsonObject) -> str:
    return "read_only" if _effect(arguments) == "read" else "process_execution"


def _review(arguments: JsonObject, _: JsonObject) -> Review:
    return Review() if _effect(arguments) == "read" else Review(rollback=_ROLLBACK)


def _line(root: Root, arguments: JsonObject, facts: JsonObject) -> ShellLine:
    return ShellLine(
        text=arguments["command"],
        look=partial(_look, root.path, _folder(root, facts)),
        look_from_root=partial(_look, root.path, root.path),
    )


def _look(root: str, folder: str, path: str) -> Place:
    """Say what a path stands for. A link on the way decides where it lies."""
    real = os.path.realpath(Path(folder, path))
    is_within = real == root or real.startswith(f"{root.rstrip('/')}/")
    return Place(path=real, relative=os.path.relpath(real, root) if is_within else None, is_folder=Path(real).is_dir())


async def _run(root: Root, arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
    folder = _folder(root, ctx.facts)
    mark = f"\x1e{secrets.token_hex(8)}:"
    settings = (f"_MARK={mark}", *_SETTINGS)
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
    )
    if ctx.runner is not None:
        result = await ctx.runner.run(command)
    else:
        result = await run_process(
            command.arguments,
            cwd=folder,
            timeout=command.timeout,
            max_bytes=_MAX_OUTPUT_BYTES // 2,
            on_output=_Progress(ctx),
        )
    return _output(root, ctx, result, mark=mark, folder=folder, seconds=command.timeout)


def _folder(root: Root, facts: JsonObject) -> str:
    """Return where the command starts: where the last one ended, if that is still a folder within the root."""
    remembered = facts.get(FACT, {})
    folder = remembered.get("folder") if isinstance(remembered, dict) else None
    is_usable = isinstance(folder, str) and _is_within(root, folder) and Path(folder).is_dir()
    return folder if isinstance(folder, str) and is_usable else root.path


def _is_within(root: Root, folder: str) -> bool:
    real = os.path.realpath(folder)
    return real == root.path or real.startswith(f"{root.path.rstrip('/')}/")


def _output(
    root: Root, ctx: ToolContext, result: ProcessResult, *, mark: str, folder: str, seconds: float | None
) -> ToolOutput:
    stderr, ended_in = _without_mark(result.stderr, mark)
    hints: list[str] = []
    if result.timed_out:
        hints.append(f"It was ended after {seconds:g} seconds. Give a larger `timeout`, up to {_MAX_SECONDS:g}.")
    if ended_in is not None and not _is_within(root, ended_in):
        hints.append(
            f"It ended in {shown(ended_in)}, outside the root folder: the next command starts in {shown(folder)} again."
        )
        ended_in = None
    if ctx.runner is not None and (closed := refusals(result)):
        hints.append(f"It ran in the sandbox {ctx.runner.name}, which may have refused this: {shown(closed[0])}")
    now = ended_in or folder
    data: JsonObject = {
        "exit_code": None if result.timed_out else result.exit_code,
        "stdout": result.stdout,
        "stderr": stderr,
        "folder": os.path.relpath(now, root.path),
    }
    if result.is_shortened:
        data["shortened"] = True
    if hints:
        data["hint"] = " ".join(hints)
    return ToolOutput(data=data, facts={FACT: {"folder": now}} if now != folder else None)


def _without_mark(stderr: str, mark: str) -> tuple[str, str | None]:
    """Part what the command wrote from the folder that we had written behind it; None where it never came to its end."""
    before, found, after = stderr.rpartition(mark)
    if not found:
        return stderr, None
    folder, line_end, rest = after.partition("\n")
    return before + line_end * bool(rest) + rest, folder


class _Progress:
    """Shows the last line of the output to people, now and then."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._last = 0.0

    def __call__(self, piece: bytes) -> None:
        now = time.monotonic()
        if now - self._last < _PROGRESS_SECONDS:
            return
        lines = [line for line in piece.decode("utf-8", "replace").splitlines() if line.strip() and "\x1e" not in line]
        if lines:
            self._last = now
            self._ctx.progress(lines[-1][:_MAX_PROGRESS_CHARACTERS])
