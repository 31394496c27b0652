"""Sweeping: which commands take away, move, change or unpack into a folder with all that is in it, and which folders they name."""

from treadle.shell.parsed import Invocation
from treadle.shell.programs import program_name

__all__ = ["swept"]

_RECURSIVE = {"rm": "rR", "chmod": "R", "chown": "R", "chgrp": "R", "setfacl": "R", "cp": "rRa", "scp": "r"}
"""Programs that reach into folders with one of these options."""
_WORDS = {"find": ("-delete",), "fd": ("-x", "-X", "--exec"), "rsync": ("--del",), "git": ("clean",)}
"""Programs that take files away where an argument begins so."""
_ALWAYS = frozenset({"mv", "srm", "rimraf", "trash", "trash-put"})
_UNPACKING = frozenset(
    {"tar", "bsdtar", "gtar", "unzip", "cpio", "pax", "7z", "7za", "7zz", "unrar", "patch", "gpatch"}
)
"""Programs that write files whose names stand in their input alone."""
_TAR, _SEVEN, _PATCH = ("-C", "--directory", "--cd"), ("-o",), ("-d", "--directory")
_INTO = {"tar": _TAR, "bsdtar": _TAR, "gtar": _TAR, "7z": _SEVEN, "7za": _SEVEN, "7zz": _SEVEN, "unzip": ("-d",)} | {
    "patch": _PATCH,
    "gpatch": _PATCH,
    "cpio": ("-D", "--directory"),
}
"""How the options begin that name the folder which they write into."""
_LISTING = {"tar": "tcrud", "bsdtar": "tcru", "gtar": "tcrud", "unzip": "ltvpZ", "cpio": "ot"}
"""Letters of the options with which they unpack nothing."""


def swept(one: Invocation) -> tuple[str, ...]:
    """Return what a command may take away or change as a whole, as it names it; the folder it is in where it names none."""
    name = program_name(one.program)
    if name in _UNPACKING:
        return () if _only_lists(one, name) else _unpacked_into(one, _INTO.get(name, ()))
    if not (name in _ALWAYS or _goes_deep(one, _RECURSIVE.get(name, "")) or _has_word(one, _WORDS.get(name, ()))):
        return ()
    named = [word for word in one.arguments if not word.startswith("-") and word != "clean"]
    return tuple(named) or (".",)


def _only_lists(one: Invocation, name: str) -> bool:
    """Whether it surely lists or packs: its first options say so, and none of them unpacks."""
    letters = _LISTING.get(name, "")
    first = one.arguments[0] if one.arguments else ""
    if first.startswith("--") or not letters:
        return first in ("--list", "--create", "--help", "--version")
    return bool(set(first) & set(letters)) and not (set(first) & {"x", "i"}) and "--extract" not in one.arguments


def _unpacked_into(one: Invocation, options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folder that files are unpacked into; the one it is in where no option names another."""
    named = []
    for option, value in zip(one.arguments, (*one.arguments[1:], ""), strict=True):
        begun = next((name for name in options if option.startswith(name)), None)
        if begun is not None:
            named.append(option[len(begun) :].lstrip("=") or value)
    return tuple(named) or (".",)


def _goes_deep(one: Invocation, letters: str) -> bool:
    return bool(letters) and any(
        "--recursive".startswith(word) and len(word) > len("--")
        if word.startswith("--")
        else bool(set(word[1:]) & set(letters))
        for word in one.arguments
        if word.startswith("-")
    )


def _has_word(one: Invocation, beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in one.arguments) if beginnings else False
