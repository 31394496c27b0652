"""Sweeping: which commands take away, move, change or unpack into a folder with all that is in it, and which folders they name."""

from collections.abc import Sequence

from treadle.shell.parsed import Invocation
from treadle.shell.programs import program_name

__all__ = ["checked_out", "swept"]

_RECURSIVE = {"rm": "rR", "chmod": "R", "chown": "R", "chgrp": "R", "setfacl": "R", "cp": "rRa", "scp": "r"}
"""Programs that reach into folders with one of these options."""
_RECURSIVELY = ("--recursive", "--archive")
_ALWAYS = frozenset({"mv", "srm", "rimraf", "trash", "trash-put"})
_UNPACKING = frozenset(
    "tar bsdtar gtar unzip cpio pax afio 7z 7za 7zz unrar unar patch gpatch jar ar uudecode unsquashfs cabextract rsync rclone".split()
)
"""Programs that write files whose names stand in their input alone."""
_TAR, _SEVEN, _PATCH = ("-C", "--directory", "--cd"), ("-o",), ("-d", "--directory")
_INTO = {"tar": _TAR, "bsdtar": _TAR, "gtar": _TAR, "7z": _SEVEN, "7za": _SEVEN, "7zz": _SEVEN, "unzip": ("-d",)} | {
    "patch": _PATCH,
    "gpatch": _PATCH,
    "cpio": ("-D", "--directory"),
}
"""How the options begin that name the folder which they write into."""
_LISTING = {
    "tar": "tcrud",
    "bsdtar": "tcru",
    "gtar": "tcrud",
    "unzip": "ltvpZ",
    "cpio": "ot",
    "jar": "tc",
    "ar": "tprqds",
}
"""Letters of the options with which they unpack nothing."""
_TAKING_THE_REST = {
    **dict.fromkeys(("tar", "gtar", "bsdtar", "jar"), "fCbILNFVXKTgH"),
    "unzip": "Pd",
    "cpio": "CDEFHIMOR",
}
"""Letters behind which the rest of a word is a value: `tar -ft` does not list."""
_PATHS_BEHIND_DASHES = frozenset("checkout restore reset stash".split())
"""Subcommands of git that write only what they name behind a `--`. To others it is a commit, or another repository."""
_PLAIN_BEFORE_DASHES = frozenset(
    "push -f --force -q --quiet -p --patch --staged -S -W --worktree --ours --theirs -u -k -a".split()
)
_COPYING = frozenset({"rsync", "rclone"})
"""Programs of these that name the folder which they write into among their words."""
_NAMED_ELSEWHERE = {
    **dict.fromkeys(("gzip", "gunzip", "pigz", "unpigz", "xz", "unxz", "zstd", "unzstd"), ("-N", "--name", "-r", "--recursive")),
    "curl": ("-J", "--remote-header-name"), "wget": ("-r", "-m", "-p", "-x", "--recursive", "--mirror", "--page-requisites", "--content-disposition", "--trust-server-names"),
}  # fmt: skip
"""Options with which a program writes files whose names stand in its input, or in what a server answers."""
_FROM_TEXT = frozenset("apply am fast-import init clone".split())
"""Subcommands of git that write files, and its settings, as a file, a template or another repository says."""
_NAMING = frozenset({"clean", "mv", "rm"})
"""Subcommands of git that take away or move what they name, folders as a whole."""
_FROM_COMMITS = frozenset(
    "checkout switch restore reset stash pull merge rebase cherry-pick revert worktree submodule read-tree checkout-index bisect sparse-checkout".split()
)
_OTHER_STORES = frozenset({"hg", "svn", "jj", "bzr", "fossil", "quilt"})
_UPDATING = frozenset(
    "update up checkout co switch revert pull merge import patch unshelve restore rebase new edit push pop clone".split()
)
"""Subcommands of others that write files whose names stand in their history."""
_LOOKING = {"stash": ("list", "show", "drop", "clear", "create", "store"), "worktree": ("list", "prune", "lock", "unlock", "repair"),
    "submodule": ("status", "summary"), "bisect": ("log", "view", "visualize", "terms"), "sparse-checkout": ("list",)}  # fmt: skip
"""What such a subcommand does without writing files."""


def swept(one: Invocation) -> tuple[str, ...]:
    """Return what a command may take away or change as a whole, as it names it; the folder it is in where it names none."""
    name = program_name(one.program)
    if name == "git":
        return _by_text(one)
    if _has_option(one, _NAMED_ELSEWHERE.get(name, ())):
        return (".",)
    if name in _UNPACKING:
        return () if _only_lists(one, name) else _unpacked_into(one, name)
    named = [word for word in one.arguments if not word.startswith("-")]
    if name == "fd" and _has_option(one, ("-x", "-X", "--exec", "--exec-batch")):
        return (*named, ".")
    is_deleting = name == "find" and "-delete" in one.arguments
    if not (name in _ALWAYS or _goes_deep(one, _RECURSIVE.get(name, "")) or is_deleting):
        return ()
    return tuple(named) or (".",)


def checked_out(one: Invocation) -> tuple[str, ...]:
    """Return the folders in which a command writes files whose names stand in a history alone: `git checkout .`, `git pull`, `hg update`.

    What lies in `.git` is git's own, and not among these files.
    """
    name = program_name(one.program)
    words = [word for word in one.arguments if not word.startswith("-")]
    if name in _OTHER_STORES:
        return (".",) if _UPDATING & set(words[:1]) else ()
    at = next((at for at, word in enumerate(one.arguments) if word in _FROM_COMMITS), None)
    if name != "git" or at is None:
        return ()
    subcommand, rest = one.arguments[at], one.arguments[at + 1 :]
    operands = [word for word in rest if not word.startswith("-")]
    if operands[:1] and operands[0] in _LOOKING.get(subcommand, ()):
        return ()
    if subcommand == "reset" and not _begins(rest, ("--h", "--k", "--me")):
        return ()
    if "--" in rest and subcommand in _PATHS_BEHIND_DASHES:
        end = rest.index("--")
        before = rest[end - 1] if end else ""
        is_end = not before.startswith("-") or "=" in before or before in _PLAIN_BEFORE_DASHES
        return (tuple(rest[end + 1 :]) if is_end else ()) or (".",)
    return tuple(operands) or (".",) if subcommand == "restore" else (".",)


def _by_text(one: Invocation) -> tuple[str, ...]:
    """Return the folder in which git takes files away, or writes what a text, a template or another repository names."""
    at = next((at for at, word in enumerate(one.arguments) if word in {*_FROM_TEXT, *_NAMING}), None)
    if at is None:
        return ()
    subcommand, rest = one.arguments[at], one.arguments[at + 1 :]
    if subcommand == "init":
        return (".",) if _begins(rest, ("--t", "--se")) else ()
    if subcommand == "clone":
        return (".",) if _begins(rest, ("--t", "--c", "--up", "--se")) or _has_letter(rest, "cu") else ()
    if subcommand == "apply" and any(word in ("--check", "--stat", "--numstat", "--summary") for word in rest):
        return ()
    if subcommand == "rm" and not _has_letter(rest, "r") and not any(set(word) & set("*?[:") for word in rest):
        return ()
    named = [word for word in rest if not word.startswith("-")] if subcommand in _NAMING else []
    return tuple(named) or (".",)


def _begins(words: Sequence[str], beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in words)


def _has_letter(words: Sequence[str], letters: str) -> bool:
    return any(word.startswith("-") and not word.startswith("--") and bool(set(word) & set(letters)) for word in words)


def _has_option(one: Invocation, wanted: tuple[str, ...]) -> bool:
    """Whether one of these options is given: a short one also among others, a long one also cut short."""
    letters = {option[1] for option in wanted if not option.startswith("--")}
    return any(
        any(option.startswith(word.partition("=")[0]) for option in wanted if option.startswith("--"))
        if word.startswith("--")
        else word.startswith("-") and bool(letters & set(word[1:]))
        for word in one.arguments
        if word != "--"
    )


def _only_lists(one: Invocation, name: str) -> bool:
    """Whether it surely lists or packs: its first options say so, and none of them unpacks."""
    letters = _LISTING.get(name, "")
    first = one.arguments[0] if one.arguments else ""
    if first.startswith("--") or not letters:
        return first in ("--list", "--create", "--help", "--version")
    end = next((at for at, sign in enumerate(first) if sign in _TAKING_THE_REST.get(name, "")), len(first))
    return bool(set(first[:end]) & set(letters)) and not (set(first) & {"x", "i"}) and "--extract" not in one.arguments


def _unpacked_into(one: Invocation, name: str) -> tuple[str, ...]:
    """Return the folder that files are unpacked into; the one it is in where no option names another."""
    words = [word for word in one.arguments if not word.startswith("-")]
    if name in _COPYING:
        return tuple(words) or (".",)
    options = _INTO.get(name, ())
    named = []
    for option, value in zip(one.arguments, (*one.arguments[1:], ""), strict=False):
        begun = next((name for name in options if option.startswith(name)), None)
        if begun is not None:
            named.append(option[len(begun) :].lstrip("=") or value)
    return tuple(named) or (".",)


def _goes_deep(one: Invocation, letters: str) -> bool:
    return bool(letters) and any(
        any(option.startswith(word) for option in _RECURSIVELY) and len(word) > len("--")
        if word.startswith("--")
        else bool(set(word[1:]) & set(letters))
        for word in one.arguments
        if word.startswith("-")
    )
