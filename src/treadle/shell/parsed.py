"""The parts of a command line: what it starts, where it redirects, what it touches, and what nobody can say. Parses nothing."""

from typing import Literal

import msgspec

__all__ = ["Doubt", "Invocation", "Line", "Redirection", "Touched"]


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command line cannot be analysed. A line with a doubt is asked about, whatever a rule allows."""

    reason: str
    """One sentence, for the person who is asked."""
    text: str
    """The part of the line that it is about, as written."""

    @property
    def shown(self) -> str:
        """The reason, and the part of the line."""
        return f"{self.reason.removesuffix('.')}: {self.text}" if self.text else self.reason


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command: a program with its arguments, quotes and escapes removed."""

    words: tuple[str, ...]
    """The program and its arguments. Never empty."""
    text: str
    """The part of the line that says so, as written."""
    risks: tuple[str, ...] = ()
    """Why only a rule that names this very command can allow it: it starts others, runs a program of its own, or has an option that
    writes. One sentence each."""
    via: tuple[str, ...] = ()
    """The programs that start this one, outermost first: `("sudo", "env")`. Empty for one that the line starts itself."""
    folders: tuple[str, ...] = (".",)
    """Where it may be started, relative to where the line is: more than one after a `cd` that may have failed."""

    @property
    def program(self) -> str:
        """The first word, as written: `git`, `./tool`, `/bin/rm`."""
        return self.words[0]

    @property
    def arguments(self) -> tuple[str, ...]:
        """All words but the first."""
        return self.words[1:]


class Redirection(msgspec.Struct, frozen=True, kw_only=True):
    """One redirection to or from a file. One between descriptors (`2>&1`) is not listed."""

    operator: str
    """As written: `>`, `>>`, `<`, `&>`."""
    target: str
    """The file, quotes removed."""
    text: str
    """The part of the line that says so, as written."""
    folders: tuple[str, ...] = (".",)
    """The folders that the target may be relative to."""

    @property
    def writes(self) -> bool:
        """Whether it creates or changes the file."""
        return ">" in self.operator


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a command line names and may read or write."""

    path: str
    """The path, relative to where the line is started, or absolute. Not resolved: links are for whoever opens it."""
    access: Literal["read", "write"]
    """`write` also where nobody knows better: a program that is not known may write whatever it is given."""
    text: str
    """The argument or redirection that names it, as written."""
    extent: Literal["itself", "children", "tree"] = "tree"
    """How much below it is reached, where it is a folder."""
    follows: bool = False
    """Whether the links below it may be followed, too."""
    from_root: bool = False
    """Whether the path is relative to the root folder, wherever the line starts."""
    is_program: bool = False
    """Whether it is the program that is started, which a rule on commands names: it may lie outside of the root folder."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one command line says: every simple command, redirection and path in it, and every doubt."""

    source: str
    """The line as it was given."""
    invocations: tuple[Invocation, ...] = ()
    """Every simple command, in the order of the line; one that another starts (`sudo rm`) follows it, with `via`."""
    redirections: tuple[Redirection, ...] = ()
    """Every redirection to or from a file."""
    touched: tuple[Touched, ...] = ()
    """Every path that an argument or a redirection may name."""
    doubts: tuple[Doubt, ...] = ()
    """What could not be analysed, in the order in which it was found. Empty: the line starts what `invocations` lists, and no more."""

    possible: tuple[Invocation, ...] = ()
    """What programs that are not known may start: each tail of their words, and each text among them."""
    hidden: tuple[Doubt, ...] = ()
    """Which commands may start others that `invocations` does not list: a shell that reads its input, `eval`, `xargs`, inline programs."""
    patterns: tuple[str, ...] = ()
    """Words that become names of files by wildcards or braces, of commands that may write: `l*/config`."""
    unknown: tuple[Doubt, ...] = ()
    """Words that may become anything once the shell expands them, of commands that may write: `$X`, `l$(:)/config`."""

    @property
    def is_decided(self) -> bool:
        """Whether `invocations` lists all that the line starts: a rule that forbids and finds nothing there has nothing to forbid."""
        return not self.doubts and not self.hidden

    @property
    def is_understood(self) -> bool:
        """Whether rules may judge the line: nothing in it is in doubt."""
        return not self.doubts
