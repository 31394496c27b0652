"""Words of a line of shell, for the search of the files that it starts: expanded as far as that is known. Runs nothing.

It reads what an honest author writes, to find files; hostile lines may hide files from it.
"""

import glob
import re
from collections.abc import Iterator, Mapping

import msgspec

__all__ = ["UNKNOWN", "Word", "commands_in"]

UNKNOWN = "\ufffc"
"""Stands for text that is known only once the line runs."""
_HERE = re.compile(r"\s*(?:pwd(?:\s+-[LP])?|git rev-parse --show-toplevel)\s*(?:2>\s*/dev/null)?\s*")
_TILDE = re.compile(r"[+-]?(?=/)")
"""What follows a `~` that is a folder: `~+` is the one where the line is."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?::?[-=]([^{}]*))?")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NAMING = frozenset({"read", "for", "select", "mapfile", "readarray", "getopts"})
"""Words after which variables get values that nobody knows before."""
_SETTING = frozenset({".", "source", "eval"})
_OTHERS = ""
"""The key of variables that have no value here: they are empty, until a line sets variables that are not named in it."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word, without its quotes."""

    text: str
    """With its variables replaced; `UNKNOWN` where a value is not known."""
    pattern: str = ""
    """As a glob, where the shell would look for files; else empty."""


class _Reader:
    """Reads one line.

    Args:
        variables: Those that are set when it starts. Those that it sets are added.
    """

    def __init__(self, line: str, variables: dict[str, str]) -> None:
        self._line, self._at = line, 0
        self._variables = variables
        self.inner: list[str] = []
        """Lines within it: of `$(...)`."""

    def commands(self) -> Iterator[list[Word]]:
        found: list[Word] = []
        while self._at < len(self._line):
            sign = self._line[self._at]
            if sign in ";|&()\n":
                self._at += 1
                if found:
                    yield found
                found = []
            elif sign in "<> \t\r":
                self._at += 1
            elif sign == "#":
                end = self._line.find("\n", self._at)
                self._at = len(self._line) if end < 0 else end
            else:
                found.append(self._word())
                self._note(found)
        if found:
            yield found

    def _note(self, words: list[Word]) -> None:
        """Remember what a word sets."""
        text = words[-1].text
        if words[0].text in _SETTING:
            self._variables[_OTHERS] = UNKNOWN
        if words[0].text in _NAMING or any(one.text in _NAMING for one in words[:-1]):
            if _NAME.fullmatch(text):
                self._variables[text] = UNKNOWN
        elif (set_here := _ASSIGNMENT.fullmatch(text)) is not None:
            self._variables[set_here[1]] = set_here[2]

    def _word(self) -> Word:
        text, pattern, is_glob = "", "", False
        while self._at < len(self._line) and self._line[self._at] not in " \t\r\n;|&()<>":
            sign = self._line[self._at]
            piece, is_open = self._piece(sign)
            text += piece
            pattern += piece if is_open else glob.escape(piece)
            is_glob = is_glob or (is_open and piece in "*?[{")
        if self._line[self._at : self._at + 1] == ")" and self._line.count(")") > self._line.count("("):
            is_glob = False  # a pattern of `case`
        return Word(text=text, pattern=pattern if is_glob else "")

    def _piece(self, sign: str) -> tuple[str, bool]:
        """Return the next piece of a word, and whether its signs have a meaning for the shell."""
        self._at += 1
        if sign == "'":
            return self._until("'"), False
        if sign == '"':
            return self._quoted(), False
        if sign == "\\":
            self._at += 1
            return self._line[self._at - 1 : self._at].replace("\n", ""), False
        if sign in "$`":
            return self._expanded(sign), False
        if sign == "~" and (place := _TILDE.match(self._line, self._at)) is not None:
            self._at = place.end()
            return "." if place[0] else self._variables.get("HOME", UNKNOWN), False
        return sign, True

    def _until(self, end: str) -> str:
        at = self._line.find(end, self._at)
        at = len(self._line) if at < 0 else at
        text, self._at = self._line[self._at : at], at + 1
        return text

    def _quoted(self) -> str:
        text = ""
        while self._at < len(self._line) and (sign := self._line[self._at]) != '"':
            self._at += 1
            if sign == "\\" and self._line[self._at : self._at + 1] in tuple('$`"\\\n'):
                text += self._line[self._at].replace("\n", "")
                self._at += 1
            else:
                text += self._expanded(sign) if sign in "$`" else sign
        self._at += 1
        return text

    def _expanded(self, sign: str) -> str:
        """Return the value of what a `$` or a backtick begins, which has been read."""
        following = self._line[self._at : self._at + 1]
        if sign == "`":
            return self._substituted(self._until("`"))
        if following in ("(", "{"):
            self._at += 1
            return self._substituted(self._within("(", ")")) if following == "(" else self._braced()
        if (name := _NAME.match(self._line, self._at)) is not None:
            self._at = name.end()
            return self._value(name[0])
        if following and following in "0123456789@*#?$!-":
            self._at += 1
            return UNKNOWN
        return sign

    def _braced(self) -> str:
        braced = _BRACED.fullmatch(self._within("{", "}"))
        if braced is None:
            return UNKNOWN
        default = next(_Reader(f'"{braced[2] or ""}"', self._variables).commands())[0].text
        return self._value(braced[1]) or default

    def _within(self, start: str, end: str) -> str:
        depth, begin = 1, self._at
        while self._at < len(self._line) and depth:
            depth += {start: 1, end: -1}.get(self._line[self._at], 0)
            self._at += 1
        return self._line[begin : self._at - 1 if not depth else self._at]

    def _substituted(self, line: str) -> str:
        if _HERE.fullmatch(line):
            return "."
        self.inner.append(line)
        return UNKNOWN

    def _value(self, name: str) -> str:
        return "." if name in ("PWD", "OLDPWD") else self._variables.get(name, self._variables.get(_OTHERS, ""))


def commands_in(line: str, environment: Mapping[str, str]) -> Iterator[list[Word]]:
    """Yield the simple commands of a line, and those of the lines within it, by their words.

    `$PWD` and `$(pwd)` are `.`: a line may go to another folder.
    """
    variables = dict(environment)
    left = [line]
    for _ in range(_MOST_LINES):
        if not left:
            return
        reader = _Reader(left.pop(), variables)
        yield from reader.commands()
        left += reader.inner


_MOST_LINES = 50
