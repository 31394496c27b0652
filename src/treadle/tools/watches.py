"""Watches: what a folder of files says of the names in rules, kept true cheaply. Ports only: `toolsets/files` implements them."""

from collections.abc import Collection, Sequence
from typing import Any, Literal, Protocol

__all__ = ["FileNames", "NameWatch"]


class NameWatch(Protocol):
    """What is known of the names that a set of rules has. It is asked before every decision, and must be true each time."""

    def linked(self, moment: dict[str, Any] | None = None) -> Collection[str]:  # Any: the watch's own
        """Return the names that lead through a link, or of which nobody can say. All others are what they are spelled as.

        Args:
            moment: What was looked at in this decision already, by its path, and is looked at once; None for nothing.
        """
        ...

    def twins(self, path: str, extent: Literal["itself", "children", "tree"] = "itself") -> Collection[str] | None:
        """Return the other names of a file, where it has several (hard links) and one of them is among those of the rules.

        None where there are too many files to search.

        Args:
            path: From `/`, links resolved.
            extent: How much below it the call may reach: each file there may have other names.
        """
        ...


class FileNames(Protocol):
    """A folder of files to which names in rules are relative."""

    def watch(self, names: Sequence[str], folders: Sequence[str]) -> NameWatch:
        """Return what is known of the names that rules have.

        Args:
            names: Paths that rules name, relative to the folder or from `/`.
            folders: Those in which a file may have another name to which a rule applies; "" for the folder itself.
        """
        ...

    def all_names(self, path: str, extent: Literal["itself", "children", "tree"] = "itself") -> Collection[str] | None:
        """Return the names in this folder, relative to it, of the files with several (hard links) that a call reaches.

        None where there are too many files to search.

        Args:
            path: From `/`, links resolved.
            extent: How much below it the call may reach.
        """
        ...

    def home_names(
        self, path: str | None, extent: Literal["itself", "children", "tree"] = "itself"
    ) -> Collection[str] | None:
        """Return the protected files of the person's home, outside of this folder, that a call reaches by other names (hard links).

        None where there are too many files to search.

        Args:
            path: From `/`, links resolved; None for the folder itself.
            extent: How much below it the call may reach.
        """
        ...

    def obeyed_files(self, paths: Sequence[str] = ()) -> Sequence[str]:
        """Return the files that say what Treadle itself may do, and those that git is configured to run or read when it is asked for the state
        of a repository here: from `/`, as they are named and with links resolved. They need not exist.

        Args:
            paths: From `/`: what a call writes. The repositories in which it lies count, beside that of the folder itself.
        """
        ...
