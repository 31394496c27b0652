"""Hiding: whether a command may start others that its words do not name. A rule that forbids and finds nothing in it has proven nothing.

Closed in the direction that is safe: a form that is not known to name what it starts hides it.
"""

import re
from collections.abc import Callable, Sequence

from treadle.shell.parsed import Invocation
from treadle.shell.programs import INTERPRETERS, OPAQUE, READABLE_SHELLS, RUNNING_OPTIONS, SHELLS, TEXT_PROGRAMS

__all__ = ["hides"]

_INLINE = frozenset(
    "-c -e -E -p -r -x -i -m -S -s --eval --print --exec --execute --command --run --source --expression".split()
)
"""Options of interpreters with which a text is carried out, or more is read than the words say."""
_MODULES = frozenset({"-m"})
_HARMLESS_SED = re.compile(r"([0-9$,]*[pdq]|/[^/\\]*/[pd]|s([/|#,])[^\\]*?\2[^\\]*?\2[gIip0-9]*)( *; *|$)")
_HARMLESS_AWK = re.compile(r"[^|&`]*")
_AWK_STARTS = ("system", "getline", "@", "print >", "printf >", "-f")


def hides(one: Invocation, name: str, is_decided: Callable[[str], bool]) -> str | None:
    """Return why a command may start others than its words name; None where it surely does not.

    Args:
        name: The plain name of its program.
        is_decided: Whether a line of shell is understood, and hides nothing.
    """
    for look in (_hides_as_shell, _hides_as_program, _hides_in_options):
        if (reason := look(one, name, is_decided)) is not None:
            return reason
    return None


def _hides_as_shell(one: Invocation, name: str, is_decided: Callable[[str], bool]) -> str | None:
    if name in SHELLS:
        text = _shell_text(one.arguments) if name in READABLE_SHELLS else None
    elif name == "eval":
        text = " ".join(one.arguments) or ":"
    else:
        return None
    return None if text is not None and is_decided(text) else f"`{name}` carries out a text that cannot be read here."


def _hides_as_program(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    if name in OPAQUE:
        return f"`{name}` starts what its input, its settings or its joined words say."
    if name in TEXT_PROGRAMS:
        return _hides_in_text(one, name)
    if name in INTERPRETERS and name not in SHELLS and _has_program(one.arguments):
        return f"`{name}` carries out a program that is not read here."
    return None


def _hides_in_options(one: Invocation, name: str, _: Callable[[str], bool]) -> str | None:
    if name == "env" and any(argument.startswith(("-S", "--s")) for argument in one.arguments):
        return "`env -S` takes a text apart."
    if name in ("git", "hg", "svn") and any(one.startswith(("-c", "-O")) for one in one.arguments[:4]):
        return f"`{name} -c` changes which programs it starts."
    option = next((one for one in one.arguments if _starts_program(one)), None)
    return None if option is None else f"`{option}` starts another program."


def _shell_text(arguments: Sequence[str]) -> str | None:
    """Return the text behind `-c`; None where a shell reads anything else: a script, its input, start files."""
    takes_text = False
    for argument in arguments:
        if argument.startswith("--") and argument not in ("--norc", "--noprofile", "--posix"):
            return None
        if argument.startswith(("-", "+")) and not argument.startswith("--"):
            if set(argument[1:]) - set(
                "ceuxfnaTvC"
            ):  # `-l` and `-i` read start files, `-s` the input, `-o` takes a value
                return None
            takes_text = takes_text or "c" in argument
        elif not argument.startswith("--"):
            return argument if takes_text else None
    return None


def _has_program(arguments: Sequence[str]) -> bool:
    """Whether an interpreter is given its program in its arguments, or by its input. One that is named as a file or a module is not hidden."""
    for argument in arguments:
        if argument in _MODULES:
            return False
        if argument == "-" or (argument.startswith("-") and any(_is_inline(argument, one) for one in _INLINE)):
            return True
        if not argument.startswith("-"):
            return False
    return not set(arguments) & {"--version", "-V", "-v", "--help", "-h"}


def _is_inline(argument: str, option: str) -> bool:
    if option.startswith("--"):
        return argument.partition("=")[0] == option
    return not argument.startswith("--") and option[1] in argument[1:]


def _hides_in_text(one: Invocation, name: str) -> str | None:
    """Look at the small programs of `sed` and `awk`: plain ones start nothing."""
    scripts = [argument for argument in one.arguments if not argument.startswith("-")][:1]
    options = [argument for argument in one.arguments if argument.startswith("-")]
    if name in ("sed", "gsed"):
        is_plain = all(set(option[1:]) <= set("nrEiuzs") for option in options)
        if is_plain and scripts and re.fullmatch(f"(?:{_HARMLESS_SED.pattern})+", scripts[0]):
            return None
    else:
        is_plain = all(option.startswith("-F") for option in options)
        text = scripts[0] if scripts else "|"
        if is_plain and _HARMLESS_AWK.fullmatch(text) and not any(word in text for word in _AWK_STARTS):
            return None
    return f"`{name}` carries out a program that may start others."


def _starts_program(argument: str) -> bool:
    name = argument.partition("=")[0]
    return name in RUNNING_OPTIONS or (
        len(name) > len("--x") and name.startswith("--") and any(option.startswith(name) for option in RUNNING_OPTIONS)
    )
