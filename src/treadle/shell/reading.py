"""Read one line of shell into its simple commands and redirections, by tree-sitter's grammar of bash. Judges no program.

The reader accepts a closed list of forms and literal words. A tree without an error proves nothing (`coproc rm x` has none), so
whatever is not on the list is a doubt, and so is each byte that no accepted node covers. See `faults.md`, attacks on the shell.
"""

import posixpath
import re
import shlex
import unicodedata
from typing import Any

from treadle.shell.expanding import expanded_words
from treadle.shell.parsed import Doubt, Invocation, Line, Redirection

__all__ = ["MAX_CHARACTERS", "MAX_COMMANDS", "leads_up", "read"]

MAX_CHARACTERS = 10_000
"""A longer line is not parsed: it is asked about."""
MAX_COMMANDS = 50
"""A line of more simple commands is asked about."""
_MAX_DEPTH = 20
_MAX_FOLDERS = 8
_SHOWN_CHARACTERS = 80

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
