"""Names: which of many rules that forbid or ask mean a thing, by its names. Finds them without looking at each; decides nothing."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from treadle.permissions.globs import covering_globs, fits, folders_of, forms_of, heads_of, reaches
from treadle.tools import FileNames, NameWatch, Subject

__all__ = ["Linked", "NameIndex"]

_LITERAL = re.compile(r"[^*?\[]*")
_REST = re.compile(r"\[.*", re.DOTALL)
_SIGNS = re.compile(r"[*?]")
_MAX_KEPT = 4096

_Folders: TypeAlias = tuple[frozenset[str], bool]


class Linked:
    """Which rules name links, found out once in each decision.

    Args:
        moment: What was looked at in this decision already.
    """

    def __init__(self, moment: dict[str, Any]) -> None:
        self._moment = moment
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}

    def of(self, names: "NameIndex", among: FileNames) -> tuple[int, ...]:
        key = (id(names), id(among))
        if key not in self._found:
            self._found[key] = names.through_links(among, self._moment)
        return self._found[key]


class NameIndex:
    """The globs of rules that forbid or ask, by how they begin and by what stands in them.

    Args:
        globs: Of each rule, by its place among the rules.
    """

    def __init__(self, globs: Mapping[int, str]) -> None:
        self._globs = {at: covering_globs(glob) for at, glob in globs.items()}
        begin: dict[str, set[int]] = {}
        loose: dict[str, set[int]] = {}
        for at, forms in self._globs.items():
            for form in forms:
                start = _LITERAL.match(form)[0]  # type: ignore[index]  # it matches any text
                begin.setdefault(start, set()).add(at)
                if not start:
                    part = max(_SIGNS.split(_REST.sub("", form)), key=len)
                    loose.setdefault(part, set()).add(at)
        self._loose = tuple((part, tuple(places)) for part, places in loose.items())
        self._begin = {start: tuple(places) for start, places in begin.items() if start}
        self._starts = sorted(self._begin)
        self._longest = max(map(len, self._starts), default=0)
        self._heads: dict[str, list[int]] = {}
        for at, glob in globs.items():
            for head in heads_of(glob):
                self._heads.setdefault(head, []).append(at)
        self._folders = _searched(globs.values())
        self._below: dict[_Folders, tuple[int, ...]] = {}
        self._watches: WeakKeyDictionary[FileNames, NameWatch] = WeakKeyDictionary()

    def meaning(self, subject: Subject | None, written: str, linked: "Linked") -> Collection[int] | None:
        """Return the places of the rules that may mean a thing; None where each rule must be looked at by itself.

        Args:
            subject: What it is; None where its tool does not say.
            written: The argument as the model wrote it.
            linked: What was found in this decision already.
        """
        found = self._named(forms_of(subject, written))
        if subject is None:
            return found
        if subject.extent != "itself":
            found.update(self._reached(folders_of(subject), is_deep=subject.extent == "tree"))
        if subject.resolve is not None:
            if subject.among is None:
                return None
            found.update(linked.of(self, subject.among))
        return found

    def twins(self, subject: Subject) -> Iterable[str] | None:
        """Return other names of the same file, or of the files that a search reaches, as far as rules may mean them.

        None where too many files had to be searched.
        """
        if subject.among is None or not self._globs:
            return ()
        path = next((name for name in reversed(subject.names) if name.startswith("/")), None)
        if path is None:
            return ()
        place = f"{path}/{subject.below}" if subject.below else path
        return self._watch(subject.among).twins(place, subject.extent)

    def through_links(self, among: FileNames, moment: dict[str, Any]) -> tuple[int, ...]:
        """Return the rules whose names lead through a link now."""
        return tuple(at for name in self._watch(among).linked(moment) for at in self._heads.get(name, ()))

    def _watch(self, among: FileNames) -> NameWatch:
        known = self._watches.get(among)
        if known is None:
            known = self._watches[among] = among.watch(tuple(self._heads), self._folders)
        return known

    def _named(self, forms: frozenset[str]) -> set[int]:
        found: set[int] = set()
        for form in forms:
            for end in range(1, min(len(form), self._longest) + 1):
                found.update(self._begin.get(form[:end], ()))
        text = "\n".join(forms)
        for part, places in self._loose:
            if part in text:
                found.update(places)
        return {at for at in found if any(fits(form, glob) for glob in self._globs[at] for form in forms)}

    def _reached(self, folders: frozenset[str], *, is_deep: bool) -> tuple[int, ...]:
        """Return the rules that mean something below a folder."""
        known = self._below.get((folders, is_deep))
        if known is None:
            places = {at for folder in folders for at in self._near(folder)}
            known = tuple(
                at
                for at in sorted(places)
                if any(reaches(glob, folder, is_deep=is_deep) for folder in folders for glob in self._globs[at])
            )
            if len(self._below) >= _MAX_KEPT:
                self._below.clear()
            self._below[folders, is_deep] = known
        return known

    def _near(self, folder: str) -> set[int]:
        if folder in (".", "/", ""):
            return set(self._globs)
        prefix = f"{folder}/"
        found = {at for _, places in self._loose for at in places}
        for end in range(1, min(len(prefix), self._longest) + 1):
            found.update(self._begin.get(prefix[:end], ()))
        for start in self._starts[bisect_left(self._starts, prefix) :]:
            if not start.startswith(prefix):
                break
            found.update(self._begin[start])
        return found


def _searched(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the folders in which a file may have another name that a rule means: where the names of each rule begin that has a wildcard."""
    found: set[str] = set()
    for glob in globs:
        wild = glob.strip().rstrip("/")
        plain = _LITERAL.match(wild)[0]  # type: ignore[index]  # as above
        found.add(plain.rpartition("/")[0] if plain != wild else wild)
    return () if not found else ("",) if "" in found else tuple(sorted(found))
