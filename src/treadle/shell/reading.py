"""Read one line of shell into its simple commands and redirections, by tree-sitter's grammar of bash. Judges no program.

The reader accepts a closed list of forms and literal words. A tree without an error proves nothing (`coproc rm x` has none), so
whatever is not on the list is a doubt, and so is each byte that no accepted node covers. See `faults.md`, attacks on the shell.
"""

import posixpath
import re
import shlex
import unicodedata
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from treadle.shell.programs import INTERPRETERS, OPAQUE, PROGRAMS, SHELLS, TEXT_PROGRAMS, program_name

__all__ = [
    "MAX_CHARACTERS",
    "MAX_COMMANDS",
    "Doubt",
    "Expanded",
    "Invocation",
    "Line",
    "Redirection",
    "Touched",
    "expanded_words",
    "leads_up",
    "read",
]


# --- The parts of a command line: what it starts, where it redirects, what it touches, and what nobody can say. Parses
# nothing.


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


# --- Expanding: which words of a line the shell makes into others, and which of those a command may write. Expands
# nothing itself.

_MAX_EXPANSION_DEPTH = 3
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
        if root.has_error or depth > _MAX_EXPANSION_DEPTH:
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


# --- Read one line of shell into its simple commands and redirections, by tree-sitter's grammar of bash. Judges no
# program.

MAX_CHARACTERS = 10_000
"""A longer line is not parsed: it is asked about."""
MAX_COMMANDS = 50
"""A line of more simple commands is asked about."""
_MAX_DEPTH = 20
_MAX_FOLDERS = 8

_JOINED = re.compile(r"(^|[^ \t])\\\n")
"""A line that is continued elsewhere than behind a blank: the shell joins the parts, and the grammar does not."""
_SEPARATORS = frozenset({";", "&&", "||", "|", "|&", "\n", "(", ")", "{", "}", "!", ";\n"})
_GROUPS = frozenset({"program", "list", "pipeline", "subshell", "compound_statement", "negated_command"})
_WHOLE = frozenset({"string", "raw_string", "heredoc_body", "comment"})
_OPERATORS = frozenset({">", ">>", "<", "&>", "&>>", ">|"})
_DESCRIPTORS = frozenset({">&", "<&"})
_SPECIAL = frozenset("*?[]{}$`'\"<>|&;()")
_RESERVED = frozenset(
    "if then else elif fi for while until do done case esac in select function time coproc { } ! [ [[ ]] ] (( ))".split()
)
_GOING = frozenset({"cd", "pushd"})
"""Commands that change the folder of those after them. `popd` goes back to one of these folders."""
_NO_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})

_CONNECTIONS = ("/dev/tcp/", "/dev/udp/")
"""How the names begin that bash itself takes for servers."""

_NUMBER_BEFORE = re.compile(rb"(?:^|[\s;|&()])[0-9]+\Z")
"""A number that bash takes for a redirection's, and the grammar for a word: `0<x`."""
_LONGEST_NUMBER = 20
_ADJACENT = "Two words without a space between them are not analysed."
_DISAGREEMENT = "This word can be read in more than one way."
_MISSING = (
    "Commands cannot be analysed: the packages tree-sitter and tree-sitter-bash are not installed. "
    "Install Treadle with its extra `shell`."
)


def read(source: str) -> Line:
    """Read a line of shell.

    Never raises for the text: whatever cannot be read is a doubt of the line. Work is bounded by the line's length.

    Args:
        source: What would be given to `bash -c`.
    """
    problem = _unreadable(source)
    if problem is not None:
        return _unread(source, problem)
    parser = _parser()
    if parser is None:
        return _unread(source, _MISSING)
    root = parser.parse(source.encode()).root_node
    reader = _Reader(source)
    reader.look_for_gaps(root)
    gaps = tuple(reader.doubts)
    reader.statement(root, depth=0)
    expanded = expanded_words(root, source.encode(), parser.parse)
    unclear = (one for one in reader.doubts if one.reason in (_DISAGREEMENT, _ADJACENT))
    return Line(
        source=source,
        invocations=tuple(reader.invocations),
        redirections=tuple(reader.redirections),
        doubts=tuple(reader.doubts),
        patterns=expanded.patterns,
        unknown=(*gaps, *unclear, *expanded.unknown),
    )


def leads_up(path: str) -> bool:
    """Whether a `..` stands behind a name, which may be a link: only the file system can say then what the path names."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ".." in parts[next((at for at, part in enumerate(parts) if part != ".."), len(parts)) :]


def _unread(source: str, problem: str) -> Line:
    doubts = (Doubt(reason=problem, text=_short(source)),)
    return Line(source=source, doubts=doubts, unknown=doubts)


def _unreadable(source: str) -> str | None:
    """Say why a text is not even parsed."""
    if not source.strip():
        return "The command is empty."
    if len(source) > MAX_CHARACTERS:
        return f"The command has {len(source):,} characters; at most {MAX_CHARACTERS:,} are analysed."
    for character in source:
        if character in "\n\t ":
            continue
        category = unicodedata.category(character)
        if category[0] in "CZ":
            return f"The command has the invisible character U+{ord(character):04X}, which the shell and a person read differently."
    if _JOINED.search(source):
        return "The command continues a word on the next line."
    return None


def _parser() -> Any | None:  # Any: tree-sitter's own type, imported on first use
    try:
        import tree_sitter  # noqa: PLC0415 - an extra, loaded when the first command is read
        import tree_sitter_bash  # noqa: PLC0415 - as above
    except ImportError:
        return None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


class _Reader:
    """Walks one tree and notes what it starts, redirects and hides."""

    def __init__(self, source: str) -> None:
        self.invocations: list[Invocation] = []
        self.redirections: list[Redirection] = []
        self.doubts: list[Doubt] = []
        self._bytes = source.encode()
        self._folders: tuple[str, ...] = (".",)
        self._heredocs = 0

    def look_for_gaps(self, root: Any) -> None:
        """Doubt each byte between two leaves that is not a blank or a continued line: the grammar has passed over it."""
        seen, waiting, last = 0, [root], ""
        while waiting:
            node = waiting.pop()
            if node.children and node.type not in _WHOLE:
                waiting.extend(reversed(node.children))
                continue
            between = self._bytes[seen : node.start_byte].replace(b"\\\n", b"")
            if between.strip(b" \t\n"):
                self._doubt("Part of the command could not be parsed.", between.decode(errors="replace"))
            seen, last = max(seen, node.end_byte), node.type
        rest = self._bytes[seen:].replace(b"\\\n", b"")
        if rest.strip(b" \t\n"):
            self._doubt(f"The part of the command after a {last} could not be parsed.", rest.decode(errors="replace"))

    def statement(self, node: Any, *, depth: int) -> None:
        """Read one statement and all that it holds."""
        if depth > _MAX_DEPTH:
            self._doubt("The command is nested too deeply to be analysed.", self._text(node))
            return
        if node.is_error or node.is_missing:
            self._doubt("The command is not valid shell, or could not be parsed.", self._text(node))
            return
        match node.type:
            case "command":
                self._command(node)
            case "redirected_statement":
                self._redirected(node, depth=depth)
            case "comment":
                pass
            case "variable_assignment" | "variable_assignments":
                self._doubt("Setting a variable can change what later commands do.", self._text(node))
            case one if one in _GROUPS:
                self._group(node, depth=depth)
            case one:
                self._doubt(f"The form {one.replace('_', ' ')!r} is not analysed.", self._text(node))

    def _group(self, node: Any, *, depth: int) -> None:
        before = self._folders
        sign = {"negated_command": "!", "compound_statement": "{"}.get(node.type)
        if sign is not None and not self._text(node).startswith((f"{sign} ", f"{sign}\t", f"{sign}\n")):
            self._doubt(f"A {sign!r} without a space after it is not analysed.", self._text(node))
        for child in node.children:
            if child.is_named:
                self.statement(child, depth=depth + 1)
            elif child.type == "&":
                self._doubt("A command in the background can keep running after the call ends.", self._text(node))
            elif child.type not in _SEPARATORS:
                self._doubt(f"The operator {child.type!r} is not analysed.", self._text(node))
        if node.type == "subshell":
            self._folders = before

    def _redirected(self, node: Any, *, depth: int) -> None:
        for child in node.children:
            match child.type:
                case "file_redirect":
                    self._redirection(child)
                case "heredoc_redirect":
                    self._heredoc(child, depth=depth)
                case "herestring_redirect":
                    self._herestring(child)
                case _:
                    self.statement(child, depth=depth + 1)

    def _command(self, node: Any) -> None:
        words: list[str] = []
        last = -1
        for child in node.children:
            if child.start_byte == last:
                self._doubt(_ADJACENT, self._text(node))
            last = child.end_byte
            if child.type == "variable_assignment":
                self._doubt("A variable set for a command can change what it runs.", self._text(child))
            elif child.type == "file_redirect":
                self._redirection(child)
            elif child.type == "herestring_redirect":
                self._herestring(child)
            else:
                named = child.children[0] if child.type == "command_name" and len(child.children) == 1 else child
                word = self._word(named)
                words.append(self._text(named) if word is None else word)
        if not words:
            return
        if len(self.invocations) == MAX_COMMANDS:
            self._doubt(f"The line has more than {MAX_COMMANDS} commands.", self._text(node))
        elif len(self.invocations) < MAX_COMMANDS:
            self._add(words, node)

    def _add(self, words: list[str], node: Any) -> None:
        text = self._text(node)
        if words[0] in _RESERVED or not words[0]:
            self._doubt(f"{words[0]!r} at the start of a command is not analysed.", text)
        self.invocations.append(Invocation(words=tuple(words), text=text, folders=self._folders))
        if words[0] in _GOING:
            self._change_folder(words[1:], text)

    def _change_folder(self, arguments: list[str], text: str) -> None:
        """Add the folder that a `cd` goes to: as its text says, and as its links lead. The old ones stay: it may fail."""
        if len(arguments) != 1 or arguments[0].startswith(("-", "+")) or not arguments[0]:
            self._doubt("The folder that this command changes to is unknown.", text)
            return
        joined = [posixpath.join(one, arguments[0]) for one in self._folders]
        found = {*self._folders, *map(posixpath.normpath, joined), *filter(leads_up, joined)}
        if len(found) > _MAX_FOLDERS:
            self._doubt("The line changes folders too often to analyse.", text)
            return
        self._folders = tuple(sorted(found))

    def _redirection(self, node: Any) -> None:
        operator, targets = "", []
        if _NUMBER_BEFORE.search(self._bytes[max(node.start_byte - _LONGEST_NUMBER, 0) : node.start_byte]):
            self._doubt(_ADJACENT, self._text(node))
        for child in node.children:
            if child.type == "file_descriptor":
                self._descriptor(child)
            elif not child.is_named:
                operator += child.type
            else:
                targets.append(child)
        if operator in _DESCRIPTORS and len(targets) == 1 and self._text(targets[0]).isdigit():
            return
        if operator not in _OPERATORS or len(targets) != 1 or node.has_error:
            self._doubt("This redirection is not analysed.", self._text(node))
            return
        target = self._word(targets[0])
        if target is not None and target.startswith(_CONNECTIONS):
            self._doubt("This redirection opens a connection of the network.", self._text(node))
        if target is not None and target not in _NO_FILES:
            self.redirections.append(
                Redirection(operator=operator, target=target, text=self._text(node), folders=self._folders)
            )

    def _descriptor(self, node: Any) -> None:
        """Doubt what the grammar takes for the number before a redirection, and bash for a word: `-o1>x`."""
        text, before = self._text(node), self._bytes[max(node.start_byte - 1, 0) : node.start_byte]
        if not (
            text.isascii() and text.isdigit() and before in (b"", b" ", b"\t", b"\n", b";", b"|", b"&", b"(", b")")
        ):
            self._doubt(_ADJACENT, text)

    def _herestring(self, node: Any) -> None:
        for child in node.children:
            if child.type == "file_descriptor":
                self._descriptor(child)
            elif child.is_named:
                self._word(child)

    def _heredoc(self, node: Any, *, depth: int) -> None:
        """Read a here-document: text that is given to a command. It ends where bash ends it, which is looked at here again."""
        self._heredocs += 1
        start = body = end = None
        for child in node.children:
            match child.type:
                case "heredoc_start":
                    start = child
                case "heredoc_body":
                    body = child
                case "heredoc_end":
                    end = child
                case "file_redirect":
                    self._redirection(child)
                case "file_descriptor":
                    self._descriptor(child)
                case "<<" | "<<-" | "&&" | "||" | "|" | ";":
                    pass
                case _:
                    self.statement(child, depth=depth + 1)
        if self._heredocs > 1 or start is None or body is None or end is None or not self._ends_so(start, body, end):
            self._doubt("This here-document is not analysed.", self._text(node))

    def _ends_so(self, start: Any, body: Any, end: Any) -> bool:
        written = self._bytes[start.start_byte : start.end_byte].decode()
        try:
            delimiter = shlex.split(written)
        except ValueError:
            return False
        if len(delimiter) != 1 or not delimiter[0].isidentifier():
            return False
        line_ends = self._bytes.find(b"\n", start.end_byte)
        lines = self._bytes[line_ends + 1 :].decode().split("\n")
        if line_ends < 0 or delimiter[0] not in lines:
            return False
        text = "".join(f"{line}\n" for line in lines[: lines.index(delimiter[0])])
        ends_at = line_ends + 1 + len(text.encode())
        is_data = written[0] in "'\"" or not set(text) & set("$`\\")
        begins_so = body.start_byte == line_ends + 1 or not text
        return is_data and begins_so and end.start_byte == ends_at and self._text(end).strip() == delimiter[0]

    def _word(self, node: Any) -> str | None:
        """Return what a word says once the shell has removed its quotes; None, with a doubt, where the shell does more than that."""
        text = self._bytes[node.start_byte : node.end_byte].decode()
        value = self._value(node)
        if value is None:
            return None
        try:
            second = shlex.split(text)
        except ValueError:
            second = []
        if second != [value]:
            self._doubt(_DISAGREEMENT, text)
            return None
        return value

    def _value(self, node: Any) -> str | None:
        text = self._bytes[node.start_byte : node.end_byte].decode()
        value: str | None = None
        match node.type:
            case "word" | "number":
                value = _unquoted(text)
            case "raw_string":
                value = text[1:-1] if len(text) > 1 and "'" not in text[1:-1] else None
            case "string":
                is_text = all(child.type in ('"', "string_content") for child in node.children)
                value = _double_quoted(text) if is_text else None
            case "concatenation":
                parts = [self._value(child) for child in node.children]
                return None if None in parts else "".join(part for part in parts if part is not None)
            case _:
                pass
        if value is None:
            self._doubt("The shell may expand this word, and the result is unknown.", text)
        return value

    def _doubt(self, reason: str, text: str) -> None:
        if len(self.doubts) < MAX_COMMANDS:
            self.doubts.append(Doubt(reason=reason, text=_short(text)))

    def _text(self, node: Any) -> str:
        return self._bytes[node.start_byte : node.end_byte].decode(errors="replace")


def _unquoted(text: str) -> str | None:
    """Remove the escapes of a word without quotes; None where the shell would expand it."""
    found: list[str] = []
    is_escaped = False
    before = ""
    for character in text:
        if is_escaped:
            is_escaped = False
            if character == "\n":
                return None
        elif character == "\\":
            is_escaped = True
            continue
        elif character in _SPECIAL or (character == "~" and before in ("", ":", "=")):
            return None
        found.append(character)
        before = character
    return None if is_escaped else "".join(found)


def _double_quoted(text: str) -> str | None:
    """Remove the quotes and escapes of a word in double quotes; None where the shell would expand it."""
    if len(text) < len('""') or text[0] != '"' or text[-1] != '"':
        return None
    found: list[str] = []
    is_escaped = False
    for character in text[1:-1]:
        if is_escaped:
            is_escaped = False
            if character == "\n":
                return None
            found.append(character if character in '$`"\\' else f"\\{character}")
        elif character == "\\":
            is_escaped = True
        elif character in '$`"':
            return None
        else:
            found.append(character)
    return None if is_escaped else "".join(found)
