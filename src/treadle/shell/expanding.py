"""Expanding: which words of a line the shell makes into others, and which of those a command may write. Expands nothing itself.

A rule that names a file looks for its name in the line. A word such as `l$(:)/config`, `$X` or `l*/config` has no name until the shell
has expanded it, so each is noted here: with its patterns, where only files can say what it becomes, else as unknown.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.shell.parsed import Doubt
from treadle.shell.programs import INTERPRETERS, OPAQUE, PROGRAMS, SHELLS, TEXT_PROGRAMS, program_name

__all__ = ["Expanded", "expanded_words"]

_MAX_DEPTH = 3
"""How deep texts within texts (`sh -c '...'`) are looked into."""
_MAX_SPELLINGS = 64
_SHOWN_CHARACTERS = 80
_NEVER_WRITE = frozenset(
    name for name, one in PROGRAMS.items() if one.reads_only and not one.risky and name != "cd"
) | frozenset("egrep fgrep grep diff du wc test".split())
"""Programs that write no file, whatever they are given."""
_TEXTS = frozenset("-m --message --title --body".split())
"""Options of `git` and `gh` whose value is a text for people."""
_WITHOUT_VALUE = frozenset(
    "-a -q -s -v -n --all --quiet --signoff --no-verify --no-edit --amend --allow-empty --draft --fill".split()
)
"""Options behind which these surely are options, and not values."""
_NO_WORDS = frozenset(
    "variable_assignment file_redirect herestring_redirect file_descriptor > >> < &> &>> >| >& <& <> &>|".split()
)
_NUMBERS = re.compile(r"\$[?#$!]")
_WRITING = re.compile(r">")
_STARTING = re.compile(r"system|popen|exec|spawn|subprocess|run|call|shell|`|%x|qx", re.IGNORECASE)
"""How programs in interpreters start others."""
_QUOTED = re.compile(r"(?s)[\"'`].*?[\"'`]")
_CARRIED = SHELLS | OPAQUE | {"eval"}
"""Programs that carry out texts: what is quoted for them is read as a line."""
_MATCHING_OTHERWISE = (b"shopt", b"GLOBIGNORE", b"setopt")
"""What changes which names a pattern matches."""
_READING_INPUT = frozenset({"xargs", "parallel"})
_REASON = "The shell expands this word before a command that may write to it, so the file is unknown."


class Expanded(msgspec.Struct, frozen=True):
    """The words of a line that are not literal, and may name what is written."""

    patterns: tuple[str, ...] = ()
    """Those that only match names of files, as patterns: `l*/config`. What is literal in them is escaped, as `glob.escape` does."""
    unknown: tuple[Doubt, ...] = ()
    """Those that may become anything."""


def expanded_words(root: Any, content: bytes, parse: Any) -> Expanded:  # Any: tree-sitter's own types
    """Return the words of a line that are expanded, and may name what is written.

    Args:
        root: The parsed line.
        content: The bytes that it was parsed from.
        parse: Parses a text within it.
    """
    finder = _Finder(parse)
    finder.look(root, content, depth=0, is_carried=False)
    patterns, unknown = tuple(dict.fromkeys(finder.patterns)), tuple(finder.unknown)
    if patterns and any(word in content for word in _MATCHING_OTHERWISE):
        return Expanded((), (*unknown, *(Doubt(reason=_REASON, text=one[:_SHOWN_CHARACTERS]) for one in patterns)))
    return Expanded(patterns, unknown)


class _Finder:
    def __init__(self, parse: Any) -> None:
        self.patterns: list[str] = []
        self.unknown: list[Doubt] = []
        self._parse = parse

    def look(self, root: Any, content: bytes, *, depth: int, is_carried: bool) -> None:
        """Look at each command, redirection and text of a tree, at every depth of it."""
        if root.has_error or depth > _MAX_DEPTH:
            self._cannot_say(content.decode())
            return
        nodes = list(_all(root))
        carried = is_carried or any(one.type == "command" and _carries(one, content) for one in nodes)
        for node in nodes:
            match node.type:
                case "command":
                    self._command(node, content, is_carried=carried)
                case "file_redirect":
                    self._redirection(node, content)
                case "raw_string" | "string" | "heredoc_body" if carried:
                    self._text_within(node, content, depth=depth)

    def _command(self, node: Any, content: bytes, *, is_carried: bool) -> None:
        words = _words_of(node, content)
        if not words:
            return
        name = program_name(_plain(words[0]))
        if name in _NEVER_WRITE or (name == "printf" and not _is_expanded("".join(words[1:2]))):
            if is_carried:
                self._words(words)
            return
        if _reads_its_input(name, words) or _starts_expanded(name, words):
            self._cannot_say(" ".join(words))
        self._words(_without_texts(name, words))

    def _redirection(self, node: Any, content: bytes) -> None:
        signs = "".join(child.type for child in node.children if not child.is_named)
        if _WRITING.search(signs):
            self._words(_words_of(node, content))

    def _text_within(self, node: Any, content: bytes, *, depth: int) -> None:
        text = _text(node, content)
        within = text if node.type == "heredoc_body" else _plain(text)
        if set(within) & set(" \t\n$`*?[{~\\"):
            encoded = within.encode()
            self.look(self._parse(encoded).root_node, encoded, depth=depth + 1, is_carried=True)

    def _words(self, words: list[str]) -> None:
        for word in words:
            if not _is_expanded(word):
                continue
            found = _patterns(word)
            if found is None:
                self._cannot_say(word)
            else:
                self.patterns += found

    def _cannot_say(self, text: str) -> None:
        self.unknown.append(Doubt(reason=_REASON, text=text[:_SHOWN_CHARACTERS]))


def _all(root: Any) -> Iterator[Any]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def _words_of(node: Any, content: bytes) -> list[str]:
    """Return the words of a command or redirection as written. Parts without a blank between them are one word, whatever the grammar says."""
    spans: list[list[int]] = []
    for child in node.children:
        if child.type in _NO_WORDS:
            continue
        if spans and spans[-1][1] == child.start_byte:
            spans[-1][1] = child.end_byte
        else:
            spans.append([child.start_byte, child.end_byte])
    return [content[start:end].decode() for start, end in spans]


def _text(node: Any, content: bytes) -> str:
    return content[node.start_byte : node.end_byte].decode()


def _plain(word: str) -> str:
    """Return a word without its quotes, roughly: enough for the name of a program, or for a text that is looked at as a line."""
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1]
    if len(word) > 1 and word[0] == word[-1] == '"':
        return re.sub(r'\\([$`"\\])', r"\1", word[1:-1])
    return re.sub(r"['\"\\]", "", word)


def _carries(node: Any, content: bytes) -> bool:
    return any(program_name(_plain(word)) in _CARRIED for word in _words_of(node, content))


def _reads_its_input(name: str, words: list[str]) -> bool:
    """Whether a program takes what it does from its input, which nothing in the line says."""
    if name in _READING_INPUT:
        started = next((word for word in words[1:] if re.match(r"[\w./]*[A-Za-z]", word)), "")
        return program_name(started) not in _NEVER_WRITE
    return name in SHELLS and all(word.startswith("-") for word in words[1:])


def _starts_expanded(name: str, words: list[str]) -> bool:
    """Whether a program in an argument starts others with a text that a shell would expand: `os.system("touch $X")`."""
    return (
        name in INTERPRETERS - SHELLS - TEXT_PROGRAMS
        and any(_STARTING.search(word) for word in words)
        and any(set(word) & set("$`") or any(map(_is_expanded, _QUOTED.findall(word[1:-1]))) for word in words)
    )


def _without_texts(name: str, words: list[str]) -> list[str]:
    if name not in ("git", "gh"):
        return words
    found = []
    for word, last, before in zip(words, ["", *words], ["", "", *words], strict=False):
        is_option = last in _TEXTS and (not before.startswith("-") or before in _WITHOUT_VALUE)
        if not (is_option and word[:1] == word[-1:] == '"'):
            found.append(word)
    return found


def _is_expanded(word: str) -> bool:
    return bool(set(word) & set("$`*?[{~")) or "<(" in word or ">(" in word


def _patterns(word: str) -> list[str] | None:
    """Return what a word matches, as patterns; None where it may become anything. Nothing for one that is literal after all."""
    pieces = _pieces(word)
    if pieces is None:
        return None
    spellings = _braced(pieces)
    if spellings is None:
        return None
    return [_joined(one) for one in spellings]


_Pieces = list[tuple[str, bool]]
"""The characters of a word, each with whether it is literal: quoted or escaped."""


def _pieces(word: str) -> _Pieces | None:
    found: _Pieces = []
    quote, at = "", 0
    if _NUMBERS.fullmatch(word.strip('"')):
        return []
    while at < len(word):
        one = word[at]
        at += 1
        if quote == "'":
            quote = "" if one == "'" else quote
            if quote:
                found.append((one, True))
        elif one in "$`" or (one in "<>" and not quote):
            return None
        elif one == "\\":
            found.append((word[at : at + 1], True))
            at += 1
        elif one == quote:
            quote = ""
        elif one in "'\"" and not quote:
            quote = one
        else:
            found.append((one, bool(quote)))
    is_home = found[:1] == [("~", False)] and found[1:2] not in ([], [("/", False)])
    return None if quote or is_home else found


def _braced(pieces: _Pieces) -> list[_Pieces] | None:
    """Return what braces make of a word: `{a,b}c` is `ac` and `bc`. None for too many, and for a row such as `{1..3}`."""
    start = next((at for at, one in enumerate(pieces) if one == ("{", False)), None)
    if start is None:
        return [pieces]
    parts, begun, depth = [], start + 1, 0
    for at in range(start, len(pieces)):
        character, is_literal = pieces[at]
        if is_literal:
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0 or (depth == 1 and character == ","):
            parts.append(pieces[begun:at])
            begun = at + 1
        if depth == 0:
            break
    if depth or len(parts) < 2:
        return None
    found: list[_Pieces] = []
    for part in parts:
        rest = _braced([*pieces[:start], *part, *pieces[begun:]])
        if rest is None or len(found) + len(rest) > _MAX_SPELLINGS:
            return None
        found += rest
    return found


def _joined(pieces: _Pieces) -> str:
    """Return a pattern. A set of characters counts as any text up to the end of its name: two readers may differ on what is in it."""
    found, is_in_set = "", False
    for character, is_literal in pieces:
        if character == "/":
            is_in_set = False
        elif is_in_set:
            continue
        elif character == "[" and not is_literal:
            character, is_literal, is_in_set = "*", False, True  # noqa: PLW2901 - what stands for the set
        found += f"[{character}]" if is_literal and character in "*?[" else character
    return found
