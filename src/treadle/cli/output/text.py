"""Text of strangers made fit for a terminal: what is invisible is escaped, long things are shortened. Prints nothing."""

import re
import time
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import pairwise

import msgspec

from treadle.events import AnyEvent, ChildStarted

__all__ = [
    "Family",
    "columns",
    "counted",
    "decoded",
    "escaped_json",
    "for_terminal",
    "indented",
    "is_sentence",
    "one_line",
    "one_record",
    "printable",
    "shown_call",
    "shown_json",
    "shown_name",
    "shown_resolution",
    "shown_span",
    "shown_time",
    "whole_call",
    "wrapped",
]

# What no eye sees, and what a terminal obeys or turns around: C1 controls, fillers, joiners, marks of direction,
# variation selectors, tags. Surrogates, which no encoding can carry.
_INVISIBLE = (
    "\x7f-\x9f\u00ad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ud800-\udfff\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_STRANGE_BLANKS = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001faff"
)
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_JOINING = "\u0600-\u08ff\u0900-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\ufb50-\ufdff\ufe70-\ufefc"
"""Scripts whose letters change with an invisible joiner: Arabic, Syriac, those of India and of its neighbours."""
_SELECTORS = "\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_MEANT = "|".join(
    (
        f"(?<=[{_EMOJI}])[\ufe0e\ufe0f](?![{_SELECTORS}])",
        "(?<=[0-9#*])\ufe0f(?=\u20e3)",
        f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])",
        "(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f",
        f"(?<=[{_JOINING}])[\u200c\u200d](?![A-Za-z0-9\u200b-\u200f])",
        f"(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe02\U000e0100-\U000e01ef](?![{_SELECTORS}])",
        f"(?<=[\u1820-\u18aa])[\u180b-\u180f](?![{_SELECTORS}])",
    )
)
"""Invisible characters that make up the one before or after them, as writing has them: in emoji, keycaps, flags and letters."""
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f{_INVISIBLE}]")  # tab and line feed stay
_UNSAFE_IN_LINE = re.compile(f"[\x00-\x1f{_INVISIBLE}{_STRANGE_BLANKS}]")
_UNSAFE_IN_JSON = re.compile(f"[{_INVISIBLE}{_STRANGE_BLANKS}]")
_BLANKS = re.compile(r"\s+")
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.:/-]*", re.ASCII)
_RECORD = re.compile(r"[\w-]*\s?[:\]]", re.ASCII)
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uff01-\uffef"
_WORD = re.compile(rf"\s+|[{_WIDE}]|[^\s{_WIDE}]+")
# A command in grave accents, and one after a colon: who copies it needs it in one piece.
_WHOLE = re.compile(rf"[^\s`]{{0,40}}`[^`]+`[^\s`]{{0,40}}|(?<=: )treadle(?: [\w./:=@-]+)+|{_WORD.pattern}")
_CLUSTER = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}|.)"
    "(?:[\u0300-\u036f\u200c\u20d0-\u20ff\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef]|\u200d.?)*",
    re.DOTALL,
)
"""What is in one place: a letter with its marks, an emoji of several."""
_FLAG_LETTERS = {chr(one) for one in range(0x1F1E6, 0x1F200)}
_COLUMN = re.compile(r"(?:^|(?<=\S) ) +(?=\S)")
_MIN_WIDTH = 12
_SMALL = 30
_MAX_VALUE = 60
_MAX_NAME = 60
_MAX_COMPACT = 120


def printable(text: str) -> str:
    r"""Return a text that a terminal shows and does not obey. Tabs and line feeds stay.

    Example:
        >>> printable("red: \x1b[31m")
        'red: \\x1b[31m'
    """
    return _escaped(text.replace("\r\n", "\n"), _UNSAFE)


def one_record(text: str) -> str:
    """Return a text as one line that cannot end early: a line feed in it is shown as `\\n`."""
    return _escaped(text, _UNSAFE_IN_LINE)


def _escaped(text: str, unsafe: re.Pattern[str]) -> str:
    return _but_meant(unsafe).sub(_escape, text) if unsafe.search(text) else text


@cache
def _but_meant(unsafe: re.Pattern[str]) -> re.Pattern[str]:
    """Return what finds unsafe characters, and in its first group those that are meant. To make it takes longer than to start without it."""
    return re.compile(f"(?={unsafe.pattern})(?:({_MEANT})|.)", re.DOTALL)


def _escape(found: re.Match[str]) -> str:
    return found[1] or found[0].encode("unicode_escape").decode("ascii")


def one_line(text: str, limit: int = 120) -> str:
    """Return the beginning of a text on one line."""
    line = _BLANKS.sub(" ", printable(text[: limit * 8])).strip()
    return line if len(line) <= limit and len(text) <= limit * 8 else f"{line[: limit - 3]}..."


def shown_name(name: str, limit: int = _MAX_NAME) -> str:
    """Return a name that somebody else chose, of a tool or a call: quoted where it is more than one plain word."""
    return name if len(name) <= limit and _PLAIN_NAME.fullmatch(name) else shown_json(name, limit)


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 session`, `2 sessions`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def columns(rows: Sequence[Sequence[str]], left: Collection[int]) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        left: Which columns begin at the left; the others, such as numbers, end at the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(cell.ljust(width) if at in left else cell.rjust(width) for at, (cell, width) in cells).rstrip()


def shown_time(at: float) -> str:
    """Return a time as a clock on this machine shows it; the number itself where no calendar has it.

    Example:
        >>> shown_time(1e300)
        'second 1e+300'
    """
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"second {at:.6g}"


def shown_span(seconds: float) -> str:
    """Return how long something took: `1.5 s`, `12 s`, `2 min 5 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def shown_resolution(outcome: str, value: object) -> str:
    """Return how a call in doubt ended, as a person said, with the result where it was done.

    Example:
        >>> shown_resolution("done", {"receipt": 7})
        'resolved as done with {"receipt": 7}'
    """
    result = f" with {shown_json(value)}" if outcome == "done" else ""
    return f"resolved as {outcome.replace('_', ' ')}{result}"


def indented(text: str, mark: str = "  | ", width: int = 0) -> str:
    """Return a text of strangers with a mark before each line, so that none can be taken for a record of ours.

    Args:
        width: Columns of the terminal, whose edge would begin a line without a mark; 0 for a file.
    """
    room = width - len(mark)
    return "\n".join(
        mark + line[start:end].rstrip() if end < len(line) else mark + line[start:]
        for line in printable(text).split("\n")
        for start, end in _lines(line, room)
    )


def is_sentence(text: str) -> bool:
    """Whether a text is one line that begins as a plain sentence does and no record of ours: neither `[done]` nor `treadle:`."""
    return "\n" not in text and text[:1].isascii() and text[:1].isalpha() and not _RECORD.match(text)


def wrapped(record: str, width: int, used: int = 0) -> Iterator[str]:
    """Yield a record in lines of a terminal's width, broken between words. Without a width it is one line.

    A terminal breaks a long line at its edge: what it put at the beginning of a line could pass for another record. So the
    later lines have an indent, below the last column of a row. Commands and ids are not broken where they fit on a line.

    Args:
        used: Columns of the first line that are taken.
    """
    columns = [found.end() for found in _COLUMN.finditer(record, 0, width // 2)]
    indent = " " * max(columns[-1] if columns else 0, 2 if width < _SMALL else 4)
    for number, (start, end) in enumerate(_lines(record, width, len(indent), used)):
        yield (indent if number else "") + (record[start:end].rstrip() if end < len(record) else record[start:])


def _lines(text: str, width: int, indent: int = 0, used: int = 0) -> Iterator[tuple[int, int]]:
    """Return where each line of a text begins and ends that is broken between words; of a width that is too small, one line."""
    starts = _breaks(text, width, width - indent, used) if width >= _MIN_WIDTH else ()
    return pairwise([0, *starts, len(text)])


def _breaks(text: str, width: int, later: int, used: int) -> Iterator[int]:
    """Yield where the lines after the first begin.

    Args:
        later: The width of the later lines.
        used: Columns of the first line that are taken.
    """
    at, is_new = 0, used == 0
    for part in _parts(text, later):
        cells = _cells(part)
        if used + cells > width and not is_new and not part.isspace():
            yield at
            used, width, is_new = 0, later, True
        at += len(part)
        used += cells
        is_new = False


def _parts(text: str, room: int) -> Iterator[str]:
    """Yield the parts of a text between which it may be broken: commands, words and blanks; of what is too long, smaller ones."""
    for found in _WHOLE.finditer(text):
        if _cells(found[0]) <= room:
            yield found[0]
            continue
        for word in _WORD.finditer(found[0]):
            if _cells(word[0]) <= room:
                yield word[0]
            else:
                yield from (one[0] for one in _CLUSTER.finditer(word[0]))


def _cells(text: str) -> int:
    """Columns that a text takes; a tab is counted as 8."""
    if text.isascii():
        return len(text) + 7 * text.count("\t")
    return sum(_cluster_cells(found[0]) for found in _CLUSTER.finditer(text))


def _cluster_cells(cluster: str) -> int:
    """Columns of what is in one place: an emoji of several characters is as wide as one."""
    first = cluster[0]
    if "\ufe0f" in cluster or unicodedata.east_asian_width(first) in "WF":
        return 2
    if first in _FLAG_LETTERS:
        return len(cluster[:2])
    if first == "\t":
        return 8
    return 0 if unicodedata.category(first) in ("Mn", "Me", "Cf") else 1


def escaped_json(text: str) -> str:
    r"""Return JSON with everything invisible written as `\uXXXX`: equal once it is parsed, and visible before."""
    return _UNSAFE_IN_JSON.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    code = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{code[at]:02x}{code[at + 1]:02x}" for at in range(0, len(code), 2))


def _json(value: object) -> str:
    try:
        return escaped_json(msgspec.json.encode(value).decode())
    except (UnicodeEncodeError, TypeError, RecursionError):
        return one_record(repr(value))


def shown_json(value: object, limit: int = _MAX_VALUE) -> str:
    """Return a JSON value in short."""
    text = _json(value)
    if isinstance(value, str) and len(text) > limit:
        return f'{one_line(text[:-1], limit)}"'
    return one_line(text, limit)


def shown_call(name: str, arguments: object) -> str:
    """Return a call in short: `grep(pattern="error", path="src")`. A person who decides on it needs `whole_call`."""
    value = decoded(arguments)
    if isinstance(value, dict):
        inner = ", ".join(f"{shown_name(str(key), 40)}={shown_json(item)}" for key, item in list(value.items())[:8])
        inner += f", ... {len(value) - 8} more" if len(value) > 8 else ""
    else:
        inner = one_line(arguments if isinstance(arguments, str) else shown_json(arguments), _MAX_VALUE)
    return f"{shown_name(name)}({inner})"


def whole_call(name: str, arguments: object) -> list[str]:
    """Return a call as lines that hold all of it: every argument, every character, as JSON.

    A short call is one line, as `shown_call` writes it. Else each argument has its own, and a text of several lines becomes
    one JSON string a line. Nothing is left out, and nothing can pass for another argument.
    """
    value = decoded(arguments)
    title = shown_name(name, 10_000)
    if not isinstance(value, dict):
        return [f"{title}, with arguments that are not a JSON object:", f"  {_json(value)}"]
    inner = ", ".join(f"{shown_name(str(key), 10_000)}={_json(item)}" for key, item in value.items())
    if len(inner) <= _MAX_COMPACT:
        return [f"{title}({inner})"]
    lines = [f"{title}, {len(value)} {'argument' if len(value) == 1 else 'arguments'}:"]
    for key, item in value.items():
        lines += _whole_argument(shown_name(str(key), 10_000), item)
    return lines


def _whole_argument(key: str, value: object) -> list[str]:
    text = _json(value)
    if isinstance(value, str) and ("\n" in value[:-1] or len(text) > 200):
        lines = value.splitlines(keepends=True)
        size = f"{len(value):,} characters, {len(lines):,} {'line' if len(lines) == 1 else 'lines'}"
        return [f"  {key} = ({size})", *(f"    {_json(line)}" for line in lines)]
    return [f"  {key} = {text}" + (f" ({len(text):,} characters)" if len(text) > 200 else "")]


def decoded(arguments: object) -> object:
    """Return the arguments of a call, which come parsed, or as the model wrote them; what is not JSON as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments.strip() or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments


# --- Wording: the library's advice as it helps at a command line: an option or a command in place of Python. Knows no
# error.

_WORDINGS = [
    # keys and addresses
    (r" Set it, pass api_key=, or name a server of your own with base_url \(--base-url\)\.",
     " Set it, or name a server of your own with --base-url."),
    (r"\(api_key=, or (the variable that it was read from, such as )?(\w+)\)", r"(of \1\2)"),
    (r" \(api_key=\)", ""),
    (r"set api_key=, or (\w+)\.", r"set \1."),
    (r"No API key was sent: set api_key=\.", "No API key was sent: set the variable of its vendor."),
    (r"\bset base_url to where the API is\b", "set --base-url to where the API is"),
    (r"\bCheck base_url: it often ends\b", "Check --base-url: it often ends"),
    (r"(\bname and|,? or|, or|\bset) base_url\b(?=[.,])", r"\1 --base-url"),
    # what a model costs and can do
    (r" Give its price with resolve_model\([^)]*\)\), install genai-prices, leave the budget out, or accept it with Agent\([^)]*\)\.",
     " Give its price as `[price]` in your configuration, install genai-prices, or leave the limit out."),
    (r"say so with resolve_model\(\.\.\., facts=ModelFacts\(inputs=\[\.\.\.\]\)\)",
     "say so with `inputs` of `[facts]` in your configuration"),
    # sessions
    (r"\bsession\.cancel\(\) or (?=`treadle )", ""),
    (r"\bsession\.answer\('[^']+', 'allow'\) or (?=`treadle )", ""),
    (r"\bsession\.answer\('([^']+)', 'allow'\)", r"`treadle approve \1`"),
    (r"\((?:agent|session)\.\w+\([^()]*\), or (`treadle [^`]*`)\)", r"(\1)"),
    (r",? or (?:agent|session)\.\w+\([^()]*\)", ""),
    # of a failed request the message says it, and the next line how to resume
    (r" Read the message, fix the connection or the configuration, then resume\.", ""),
]  # fmt: skip
"""Phrases of the library, and what they are here. Each is so specific that no text of a model, a tool or a server has it by chance."""


def for_terminal(text: str) -> str:
    """Return a message of the library with options and commands in place of Python.

    Example:
        for_terminal("Check the model's name and base_url.")  # "Check the model's name and --base-url."
    """
    for phrase, wording in _WORDINGS:
        text = re.sub(phrase, wording, text)
    return text


# --- Families: which agent below a run an event belongs to, by the events alone. Shows nothing.


class Family:
    """The agents that carry out calls of one run, as far as its events have named them."""

    def __init__(self) -> None:
        self._paths: dict[str, tuple[str, ...]] = {}
        self._calls: dict[str, str] = {}

    def take(self, event: AnyEvent) -> None:
        """Take in an event of the run, or of an agent below it."""
        if isinstance(event, ChildStarted):
            above = event.session_id
            self._paths[event.child_id] = (*self._paths.get(above, ()), event.agent or event.tool)
            self._calls[event.child_id] = self._calls.get(above) or event.call_id or ""

    def path(self, event: AnyEvent) -> tuple[str, ...]:
        """Return the names of the agents from the run down to the one whose event it is; empty for the run's own."""
        return self._paths.get(event.session_id, ())

    def call(self, event: AnyEvent) -> str:
        """Return the id of the run's call that the event belongs to; empty for the run's own."""
        return self._calls.get(event.session_id, "")
