"""`treadle completion`: what makes bash, zsh and fish complete commands, flags, models, profiles, sessions and tools."""

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import get_args

import msgspec

from treadle import TreadleError
from treadle.cli.input.commands import COMMANDS, CompletionOptions
from treadle.cli.input.options import Mode, OnApproval, OnLimit
from treadle.cli.input.parser import ACTIONS, flags_of
from treadle.cli.input.settings import profile_names, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import opened
from treadle.resolve import known_models

__all__ = ["completion"]

_SCRIPTS = {
    "bash": """\
_treadle() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" word
    word="${line##*[[:space:]]}"
    COMPREPLY=($(treadle completion words -- "$line" 2>/dev/null))
    case "$word" in *:*) COMPREPLY=("${COMPREPLY[@]#"${word%:*}:"}") ;; esac  # bash parts words at colons
}
complete -o default -F _treadle treadle
""",
    "zsh": """\
#compdef treadle
_treadle() {
    local -a found
    found=("${(@f)$(treadle completion words -- "${BUFFER[1,CURSOR]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _treadle treadle
""",
    "fish": """\
complete -c treadle -a '(treadle completion words -- (commandline -cp | string collect) 2>/dev/null)'
""",
}
_TOOLS = ("grep", "glob", "read", "list", "write", "edit", "shell", "fetch", "background")
_CHOICES = {"--mode": get_args(Mode), "--on-limit": get_args(OnLimit), "--on-approval": get_args(OnApproval)}
_TAKES_SESSION = ("resume", "replay", "cancel", "budgets", "answer")


def completion(options: CompletionOptions, terminal: Terminal) -> int:
    """Print a script, or the words that may stand at the end of a line."""
    if options.action != "words":
        terminal.write(_SCRIPTS[options.action])
        return 0
    for word in _candidates(options.line or "", options):
        terminal.line(word)
    return 0


def _candidates(line: str, options: CompletionOptions) -> list[str]:
    try:
        typed, current = _parted(line)
    except ValueError:  # a quote that is still open
        return []
    given = typed[1:]
    options = _placed(options, given)
    name = next((word for word in given if word in COMMANDS), None)
    before = typed[-1] if typed else ""
    found: Iterable[str]
    if before in ("-m", "--model"):
        found = ["demo", *known_models()]
    elif before in _CHOICES:
        found = _CHOICES[before]
    elif before == "--profile":
        found = _profiles(options)
    elif before == "--tools":
        found = _TOOLS
    elif before == "--session" or (name in _TAKES_SESSION and not current.startswith("-")):
        found = _sessions(options)
    elif name is None:
        found = [*COMMANDS, "--help", "--help-all", "--version"]
    elif current.startswith("-"):
        found = [
            *(flag for flag in flags_of(name) if flag.startswith("--")),
            "--help",
            *(["--help-all"] if COMMANDS[name].unusual else []),
        ]
    elif name == "sessions":
        found = ACTIONS if len(given) == 1 else _sessions(options)
    else:
        found = ()
    return [word for word in found if word.startswith(current)]


def _parted(line: str) -> tuple[list[str], str]:
    """Return the words that stand in a line, and the one that is being typed, which may be empty."""
    typed = shlex.split(line)
    if not line or line[-1].isspace():
        return typed, ""
    return typed[:-1], typed[-1] if typed else ""


def _placed(options: CompletionOptions, given: Sequence[str]) -> CompletionOptions:
    """Return the options with the places that the line names, where profiles and sessions are looked for."""
    flags = {"-C": "folder", "--config": "config", "--journal": "journal"}
    named = {flags[flag]: value for flag, value in pairwise(given) if flag in flags}
    return msgspec.structs.replace(options, **named)


def _profiles(options: CompletionOptions) -> list[str]:
    try:
        return profile_names(options)
    except TreadleError:  # whoever runs the command will be told
        return []


def _sessions(options: CompletionOptions) -> list[str]:
    try:
        return asyncio.run(_ids(settings_of(options).journal))
    except TreadleError:  # whoever runs the command will be told
        return []


async def _ids(path: str) -> list[str]:
    async with opened(path, is_read=True) as journal:
        return [one.id for one in await journal.sessions() if one.status != "deleted"]
