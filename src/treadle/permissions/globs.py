"""Globs: when the glob of a rule means a name, as text alone. Knows no call and no file."""

import fnmatch
import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from treadle.tools import Subject

__all__ = [
    "cleaned",
    "covering_globs",
    "fits",
    "folded",
    "folders_of",
    "forms_of",
    "heads_of",
    "lexical",
    "reaches",
    "resolved_globs",
]


@lru_cache(maxsize=16_384)
def _compiled(glob: str) -> "re.Pattern[str]":
    return re.compile(fnmatch.translate(glob))


def fits(name: str, glob: str) -> bool:
    """Whether a name fits a glob. `fnmatch` remembers 256 globs only, and compiling one takes longer than a decision may."""
    return _compiled(glob).match(name) is not None


@lru_cache(maxsize=16_384)
def covering_globs(glob: str) -> frozenset[str]:
    """Return a rule's glob in all the forms that a rule that forbids has, folded."""
    forms = {glob, *(one for start in (glob, glob.removeprefix("**/")) for one in _covering(start))}
    return frozenset(folded(one) for form in forms for one in _shortened(form))


def _shortened(glob: str) -> list[str]:
    """Return a glob, and what it is where each `/**/` may stand for a single slash: `a/**/b` means `a/b`, too."""
    first, *rest = _ANY_FOLDERS.sub("/**/", glob).split("/**/")
    found = [first]
    for at, part in enumerate(rest):
        between = ("/**/", "/") if at < _MOST_SHORTENED else ("*",)
        found = [f"{one}{sign}{part}" for one in found for sign in between]
    return found


_ANY_FOLDERS = re.compile(r"/(?:\*\*/)+")
_MOST_SHORTENED = 4
"""Places in one glob. What comes behind them is taken for more than it says."""


def lexical(text: str) -> str:
    """Return a path without `.`, `..`, doubled and trailing slashes, as far as the text alone can tell."""
    plain = posixpath.normpath(text) if text else ""
    return plain[1:] if plain.startswith("//") else plain


@lru_cache(maxsize=16_384)
def cleaned(glob: str) -> str:
    """Return a rule's glob as canonical names are written: neither `./` nor `//`, and no slash at the end."""
    while glob.startswith("./"):
        glob = glob[2:]
    return re.sub("/{2,}", "/", glob).rstrip("/") or glob


@lru_cache(maxsize=16_384)
def _covering(glob: str) -> tuple[str, ...]:
    """Return the globs of a denial as canonical names are written: a folder's name means the folder and all below it.

    With a slash at its end it means what is below it alone.
    """
    plain = glob.strip()
    whole = lexical(cleaned(plain))
    if not plain.strip("/"):
        return (whole,)
    return (f"{whole}/*",) if plain.endswith("/") else (whole, f"{whole}/*")


@lru_cache(maxsize=16_384)
def heads_of(glob: str) -> tuple[str, ...]:
    """Return the names of a glob up to its first wildcard, in each of its spellings. One of them may be a link."""
    found = (_LITERAL_HEAD.match(start) for start in _starts(glob))
    return tuple(dict.fromkeys(head[0] for head in found if head is not None))


def resolved_globs(glob: str, resolve: Callable[[str], Sequence[str]]) -> set[str]:
    """Return a glob with the names up to its first wildcard resolved: a rule may name a link, and the call what it points to."""
    real = (one for start in _starts(glob) for one in _resolved(start, resolve))
    return {folded(one) for start in real for form in _covering(start) for one in _shortened(form)}


def _starts(glob: str) -> tuple[str, str]:
    """Return a glob as written and in its plain spelling. A slash at its end stays: it means what is below a folder, not the folder."""
    plain = glob.strip()
    return plain, cleaned(plain) + ("/" if plain.endswith("/") else "")


def _resolved(glob: str, resolve: Callable[[str], Sequence[str]]) -> list[str]:
    head = _LITERAL_HEAD.match(glob)
    if head is None:
        return []
    wild = glob[head.end() :]
    try:
        names = resolve(head[0])
    except Exception:  # noqa: BLE001 - the author's function; a rule that cannot be resolved stands as it is written
        return []
    escaped = [_WILDCARD.sub(r"[\g<0>]", name) for name in names]
    return [f"{name}/{wild}" if wild else name for name in escaped]


_LITERAL_HEAD = re.compile(r"[^*?\[]+?(?=/[^/]*[*?\[]|/*$)")
"""The names of a path glob before the first one that has a wildcard."""
_WILDCARD = re.compile(r"[*?\[]")


def folded(text: str) -> str:
    """Return a name so that spellings which some file systems take for one are one: case, and composed characters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


@lru_cache(maxsize=16_384)
def reaches(glob: str, folder: str, *, is_deep: bool) -> bool:
    """Whether some path below a folder fits the glob: whether the glob can continue once the folder's name is read.

    Args:
        is_deep: Whether the path may lie deeper than the folder's own children.
    """
    prefix = "" if folder in (".", "/", "") else f"{folder}/"
    if folder == "." and glob.startswith("/"):
        return False  # the folder's other name, from `/`, decides
    parts = _GLOB_PARTS.findall(glob)
    places = _past_stars(parts, {0})
    for char in prefix:
        ahead = {at + 1 for at in places if at < len(parts) and parts[at] != "*" and fits(char, parts[at])}
        places = _past_stars(parts, ahead | {at for at in places if at < len(parts) and parts[at] == "*"})
    return any(at < len(parts) and (is_deep or "/" not in parts[at:]) for at in places)


_GLOB_PARTS = re.compile(r"\[!?[^\]]+\]|.", re.DOTALL)


def _past_stars(parts: Sequence[str], places: set[int]) -> set[int]:
    """Add the places behind each star, which may stand for nothing."""
    reached = set(places)
    for place in sorted(places):
        while place < len(parts) and parts[place] == "*":
            place += 1  # noqa: PLW2901 - walks on from here
            reached.add(place)
    return reached


def forms_of(subject: Subject | None, written: str) -> frozenset[str]:
    """Return the names that rules that forbid are compared with, folded: the canonical ones, and the argument as it is written.

    Args:
        subject: What it is; None where its tool does not say.
    """
    names = (written,) if subject is None else subject.names
    return frozenset(folded(one) for one in (lexical(written), *names))


def folders_of(subject: Subject) -> frozenset[str]:
    """Return the names of the folder below which a call may reach something, folded."""
    return frozenset(folded(posixpath.normpath(posixpath.join(name, subject.below))) for name in subject.names)
