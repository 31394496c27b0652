"""Prompts: what a command of a person or a project becomes when it is sent, and the lines of shell that they run themselves. Sends nothing."""

import asyncio
import os
import re
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from treadle.cli.guidance import OwnCommand

__all__ = ["INIT", "REVIEW", "filled_in", "run_line"]

INIT = """Look at this folder, then write its AGENTS.md: what somebody who is new here must know to work in it. Say what the project is, the \
commands that build, test and check it, where things are, and the conventions that the code alone does not show. Write only what you have \
seen in its files, in at most 60 lines. If there is an AGENTS.md, correct and complete it instead of replacing it.
"""
REVIEW = """Review {what}. Read what the changed lines depend on before you judge them. Report faults, the worst first: where it is \
(file and line), what goes wrong and in which case, and how to fix it. Leave out matters of taste. Change nothing. If you find no fault, say so.
"""

# --- Own shell: a line that a person runs with `!`, in their own shell and with their own permissions. Nobody is asked:
# they typed it.

_MAX_BYTES = 10_000_000


async def run_line(
    line: str, folder: Path, *words: str, program: str | None = None, variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a line without input; return its exit code and what it wrote, of very much the end.

    A caller that is cancelled ends it with all that it has started.

    Args:
        words: The arguments of the line, `$1` and so on.
        program: The shell; None for the person's own.
        variables: Added to those of the environment.
    """
    process = await asyncio.create_subprocess_exec(
        program or os.environ.get("SHELL") or "/bin/sh",
        "-c",
        line,
        "treadle",
        *words,
        cwd=folder,
        env={**os.environ, **(variables or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = b""
    try:
        while chunk := await process.stdout.read(65536):
            output = (output + chunk)[-_MAX_BYTES:]
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return code, output.decode("utf-8", "replace")


# --- Filling in: the arguments of a command, and what its lines of shell write.

_PLACES = re.compile(
    r"^!(?P<line>[^\s!\[`].*)$|!`(?P<inline>[^`\n]+)`|(?P<all>\$ARGUMENTS\b)|\$(?P<number>[1-9])(?!\d)", re.MULTILINE
)
_MOST_CHARS = 20_000
"""Of what one line of shell writes."""


async def filled_in(command: OwnCommand, arguments: str, folder: Path) -> tuple[str, int]:
    """Return the text of a command with its arguments, and how many lines of shell were left as they are: nobody has approved them.

    `$ARGUMENTS` is all that the person wrote behind the name, and `$1` to `$9` are its words. A line that begins with `!`, and `` !`LINE` ``
    within one, is run and replaced by what it writes. The shell gets the arguments as its own: none of them is read as shell.
    """
    try:
        words = shlex.split(arguments)
    except ValueError:  # a quote is not closed
        words = arguments.split()
    parts, end, left, takes = list[str](), 0, 0, False
    for found in _PLACES.finditer(command.text):
        parts.append(command.text[end : found.start()])
        end = found.end()
        line = found["line"] or found["inline"]
        if line is None:
            takes = True
            number = int(found["number"] or 0)
            parts.append(arguments if not number else words[number - 1] if number <= len(words) else "")
        elif command.is_approved:
            takes = takes or "$" in line
            wrote = await _written(line, folder, words, arguments)
            parts.append(f"$ {line}\n{wrote}" if found["line"] else wrote)
        else:
            left += 1
            parts.append(found[0])
    text = "".join([*parts, command.text[end:]]).strip()
    return (text if takes or not arguments else f"{text}\n\n{arguments}"), left


async def _written(line: str, folder: Path, words: list[str], arguments: str) -> str:
    code, text = await run_line(line, folder, *words, program="/bin/sh", variables={"ARGUMENTS": arguments})
    kept = text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS // 2]}\n...\n{text[-_MOST_CHARS // 2 :]}"
    return kept.rstrip("\n") + (f"\nexit code {code}" if code else "")
