"""Arguments: from a call's raw text to a JSON object, strictly. Repairs nothing and knows no schema."""

import json
import math
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from types import MemberDescriptorType
from typing import Any, Protocol, TypeAlias

import jiter
import msgspec

from treadle.errors import InvalidArguments
from treadle.tools import JsonObject
from treadle.validation.schema import bounded, row, shape

__all__ = [
    "SLICE",
    "Amounts",
    "Holding",
    "Keep",
    "NotData",
    "NotJson",
    "Writing",
    "has_own_dump",
    "is_field_stored",
    "is_model",
    "is_stored",
    "parse_arguments",
    "values_of_model",
]

_SNIPPET_CHARS = 60
_MAX_VALUES = 100_000
"""Values in one call's arguments. A model that may write 128,000 tokens cannot write as many."""
_MARK = "<HERE>"

# Strings are matched as wholes first, so that what they hold is not taken for brackets or numbers. One without an end reaches to the
# end of the text: else it would be tried again from each quote in it.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
_BRACKET = re.compile(rf"{_STRING}|([\[{{])|([\]}}])", re.DOTALL)
_NUMBER = re.compile(rf"{_STRING}|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.DOTALL | re.ASCII)
_LARGE_EXPONENT = re.compile(r"[0-9][eE]\+?[0-9][0-9]")
_MANY_DIGITS = re.compile(r"(?<![0-9])[0-9]{290}")
_MAX_DIGITS = 4300
"""What jiter takes, and the limit of Python's own conversion."""
_DIGITS_AT_ONCE = 4000


class NotJson(Exception):
    """Raised for arguments that are not strict JSON. `str()` names the place and the repair.

    Args:
        reason: What is wrong.
        repair: What to do, as a sentence.
        text: The whole raw text.
        at: Index of the offending character.
    """

    def __init__(self, reason: str, repair: str, text: str, at: int) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        self.snippet = _snippet(text, at)
        super().__init__(f"{reason} at line {self.line}, column {self.column}: {self.snippet} {repair}")


def parse_arguments(text: str, *, max_chars: int = 1_000_000, max_depth: int = 64) -> JsonObject:
    """Return the arguments of a call. No text at all means none: servers send "" for a call without arguments.

    Example:
        parse_arguments('{"name": "Frodo"}')

    Raises:
        NotJson: The text is not strict JSON, or too long or too deep to be looked at.
        InvalidArguments: It is JSON, but no object.
    """
    if len(text) > max_chars:
        reason = f"too long: {len(text)} characters, where {max_chars} are allowed,"
        raise NotJson(reason, "Send less, or in several calls.", text, max_chars)
    if len(text) > _MAX_VALUES and text.count(",") > _MAX_VALUES:
        reason = f"too large: more than {_MAX_VALUES} values"
        raise NotJson(reason, "Send fewer, or in several calls.", text, len(text))
    if not text or text.isspace():
        return {}
    value = _parsed(text)
    if text.count("{") + text.count("[") > max_depth:
        _refuse_depth(text, max_depth)
    if _LARGE_EXPONENT.search(text) or (len(text) > 290 and _MANY_DIGITS.search(text)):
        _refuse_overflow(text)
    if not isinstance(value, dict):
        details = [row("", "object", bounded(value))]
        raise InvalidArguments(
            f"expected one JSON object with the arguments by parameter name; got {shape(value)}.", details
        )
    return value


def _parsed(text: str) -> Any:  # Any: JSON of strangers
    try:
        return _strict(text, text)
    except NotJson as error:
        if error.reason != _TOO_LARGE[0]:
            raise
    # jiter refuses integers beyond its digits. So it checks a text of the same length without them, and Python reads them.
    _strict(_NUMBER.sub(_as_fraction, text), text)
    return json.loads(text, parse_int=_integer)


def _as_fraction(match: re.Match[str]) -> str:
    number = match[1] or ""
    digits = number.removeprefix("-")
    if len(digits) < _MAX_DIGITS or not digits.isdigit() or digits.startswith("0"):
        return match[0]
    return number[: -len(digits)] + "0." + "0" * (len(digits) - 2)


def _integer(digits: str) -> int:
    """Convert any number of digits: halves are short enough for Python's limit, and quick to put together."""
    if digits.startswith("-"):
        return -_integer(digits[1:])
    if len(digits) <= _DIGITS_AT_ONCE:
        return int(digits)
    low = len(digits) // 2
    shift: int = 10**low
    return _integer(digits[:-low]) * shift + _integer(digits[-low:])


def _strict(text: str, original: str) -> Any:  # Any: JSON of strangers
    """Parse. Errors show the original, which has the same characters but for digits."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise NotJson(*_SURROGATE, original, error.start) from None
    try:
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError as error:
        message, _, place = str(error).rpartition(" at line ")
        line, _, column = place.partition(" column ")
        at = len(text) if message.startswith("EOF") else _index(raw, int(line), int(column))
        raise NotJson(*_diagnosis(message, original, at), original, at) from None


def _index(raw: bytes, line: int, column: int) -> int:
    """Return the character that jiter means: it counts bytes, from 1."""
    start = 0
    for _ in range(line - 1):
        start = raw.index(b"\n", start) + 1
    return len(raw[: max(start + column - 1, 0)].decode(errors="ignore"))


def _refuse_depth(text: str, max_depth: int) -> None:
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += (found[1] is not None) - (found[2] is not None)
        if depth > max_depth:
            raise NotJson(_too_deep(max_depth), _FLATTEN, text, found.start())


def _refuse_overflow(text: str) -> None:
    """Find numbers beyond what a float holds: jiter makes them infinite, even with the option that refuses infinity."""
    for found in _NUMBER.finditer(text):
        number = found[1]
        if number is not None and not number.removeprefix("-").isdigit() and math.isinf(float(number)):
            raise NotJson(*_TOO_LARGE, text, found.start())


# --- what to tell the model ------------------------------------------------------------------------------------------

_TOO_LARGE = ("a number too large for a float", "Send a finite number, or a string.")
_FLATTEN = "Flatten the arguments."
_SURROGATE = ("half of a surrogate pair, which is not text,", "Send the whole character, or leave it out.")
_QUOTES = "Use plain double quotes around keys and strings."


def _too_deep(max_depth: int) -> str:
    return f"nested deeper than {max_depth} levels"


def _diagnosis(message: str, text: str, at: int) -> tuple[str, str]:
    """Return the reason and the repair: first by what stands there, then by the parser's own words."""
    return _by_text(text, at) or _by_message(message)


# What stands at the place: a pattern, the reason, the repair.
_SIGHTS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"nan|inf|(?<=n)an\b", re.IGNORECASE),
        "NaN or Infinity, which JSON does not have,",
        "Send a finite number, null, or a string.",
    ),
    (re.compile(r"True|False|None"), "a Python literal", "Write true, false or null."),
    (re.compile(r"```"), "a code fence", "Send the bare JSON object."),
    (re.compile(r"[\u201c-\u201f\u00ab\u00bb\uff02]"), "a typographic quote", _QUOTES),
    (re.compile(r"['`\u2018-\u201b]"), "a single quote", _QUOTES),
    (re.compile(r"//|/\*|#"), "a comment, which JSON does not have,", "Leave it out."),
)


def _by_text(text: str, at: int) -> tuple[str, str] | None:
    return next(((reason, repair) for sight, reason, repair in _SIGHTS if sight.match(text, at)), None)


_SAYINGS: tuple[tuple[str, str, str], ...] = (
    ("trailing comma", "trailing comma", "Remove the comma."),
    ("EOF", "the text ends too early", "Send the complete JSON object again."),
    ("recursion limit", "nested too deeply", _FLATTEN),
    ("control character", "an unescaped control character in a string", r"Escape it, such as \n or \t."),
    ("invalid unicode", *_SURROGATE),
    ("lone leading surrogate", *_SURROGATE),
    ("unexpected end of hex escape", *_SURROGATE),
    ("invalid escape", "an escape that JSON does not have", r"Write a backslash as \\."),
    ("key must be a string", "a key without double quotes", _QUOTES),
    ("trailing characters", "more text after the end of the JSON value", "Send exactly one JSON object."),
    ("number out of range", *_TOO_LARGE),
    ("invalid number", "a number that is not JSON", "Write it with digits, such as 0.5 or -2."),
)


def _by_message(message: str) -> tuple[str, str]:
    if message.startswith("Detected duplicate key"):
        key = message.removeprefix("Detected ")
        return key if len(key) <= _SNIPPET_CHARS else f'{key[:_SNIPPET_CHARS]}..."', "Send each key once."
    for start, reason, repair in _SAYINGS:
        if message.startswith(start):
            return reason, repair
    return message, "Send one strict JSON object."


def _snippet(text: str, at: int) -> str:
    """Return what stands around the place on one line, as text that any encoder takes."""
    at = min(at, len(text))
    start = max(at - _SNIPPET_CHARS // 2, 0)
    before, after = text[start:at], text[at : start + _SNIPPET_CHARS]
    return _printable(before) + _MARK + _printable(after)


def _printable(piece: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in piece)


# --- Amounts: how much the conversion of one value may look at, and the error for what is not data. Converts nothing.

_MAX_CHARS = 2**28
"""Characters of the texts of one result."""
_MAX_MADE = 100_000
"""Values that are made while they are looked at, as those of a mapping that computes its items: these can continue for ever."""
_MAX_MADE_CHARS = 2**26
_MAX_REPEATED = 500_000
"""Values of lists and objects that stand in several places: thirty lists that hold each other twice are a thousand million values."""
_SLICE = 2000

_STORED_ITEMS = (dict.items, OrderedDict.items)
_STORED_PARTS = (list.__getitem__, tuple.__getitem__)
_STORED_LENGTHS = (list.__len__, tuple.__len__)


class NotData(Exception):
    """Raised for a value that is not JSON data. Its message says where and why.

    Args:
        problem: What is wrong, to be read behind the place.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._steps: list[str] = []

    def within(self, step: str) -> "NotData":
        """Note that the place lies within this part of something larger."""
        self._steps.append(step)
        return self

    def __str__(self) -> str:
        return ("$" + "".join(reversed(self._steps)))[:200] + self._problem


class Amounts:
    """What one conversion has looked at so far, compared with its limits.

    Args:
        max_values: Values in all.
    """

    __slots__ = ("_made", "_made_chars", "_made_since", "_max_values", "_met", "_new_depth", "_repeated")

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._made = 0
        self._made_chars = 0
        self._made_since: tuple[int, int] | None = None
        """The values and characters at which the outermost thing began that makes its values; None outside of such a thing."""
        self._new_depth = 0
        self._met: set[int] = set()
        """Ids of the heavy lists and objects that the value itself holds, and so stay as they are meanwhile."""
        self._repeated = 0

    def check(self, values: int, chars: int) -> None:
        """Compare the sums with the limits.

        Raises:
            NotData: The value holds too much.
        """
        if values > self._max_values:
            raise NotData(f" has more than {self._max_values} values")
        if chars > _MAX_CHARS:
            raise NotData(f" has more than {_MAX_CHARS} characters: store it, and return where it is")
        if self._made_since is None:
            return
        made, made_chars = values - self._made_since[0] + self._made, chars - self._made_since[1] + self._made_chars
        if made > _MAX_MADE or made_chars > _MAX_MADE_CHARS:
            what, limit = ("values", _MAX_MADE) if made > _MAX_MADE else ("characters", _MAX_MADE_CHARS)
            raise NotData(f" makes more than {limit} {what} while it is read: return a dict or a list of fewer")

    def enter_made(self, values: int, chars: int) -> bool:
        """Count what follows as made while it is looked at. Return whether that begins here."""
        if self._made_since is not None:
            return False
        self._made_since = (values, chars)
        return True

    def leave_made(self, values: int, chars: int) -> None:
        if self._made_since is not None:
            self._made += values - self._made_since[0]
            self._made_chars += chars - self._made_since[1]
            self._made_since = None

    def enter_new(self) -> None:
        """Look at objects that were made for this, whose ids others may have had before."""
        self._new_depth += 1

    def leave_new(self) -> None:
        self._new_depth -= 1

    def meet(self, source: object, weight: int) -> None:
        """Note a heavy list or object that the value holds.

        Raises:
            NotData: Such ones were met so often that the value is larger than anything that could be built.
        """
        if self._made_since is not None or self._new_depth:
            return
        if id(source) in self._met:
            self._repeated += weight
        self._met.add(id(source))
        if self._repeated > _MAX_REPEATED:
            raise _repeats()


def _repeats() -> NotData:
    return NotData(f" holds the same lists or objects so often that these are more than {_MAX_REPEATED} values")


def is_stored(value: object) -> bool:
    """Whether a mapping, list or tuple stores its items, and so has an end; else it may make them when it is read."""
    kind: Any = type(value)
    if kind is dict or kind is list:
        return True
    if isinstance(value, dict):
        return kind.items in _STORED_ITEMS and kind.__len__ is dict.__len__
    return isinstance(value, (list, tuple)) and kind.__getitem__ in _STORED_PARTS and kind.__len__ in _STORED_LENGTHS


def is_field_stored(value: object, name: str, item: object) -> bool:
    """Whether a field of a dataclass stores its value, and no property makes it."""
    if isinstance(getattr(type(value), name, None), MemberDescriptorType):  # one of its slots
        return True
    return getattr(value, "__dict__", {}).get(name, _NOTHING) is item


_NOTHING = object()


def is_model(value: object) -> bool:
    """Whether it is a pydantic model. When pydantic is not loaded there are none, and it is not loaded to find out."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def has_own_dump(model: Any) -> bool:
    """Whether the class of a pydantic model has a `model_dump` of its own, which may make anything."""
    return type(model).model_dump is not sys.modules["pydantic"].BaseModel.model_dump


def values_of_model(model: Any) -> Generator[int]:
    """Yield how many values a pydantic model was found to hold so far, once for each slice of the work.

    Its dump is one step that cannot be interrupted.

    Raises:
        NotData: It holds the same lists or objects so often that its dump would be larger than anything that could be built.
    """
    waiting: list[Iterator[Any]] = [iter((model,))]
    met: set[int] = set()
    counted, repeated, looked, pause_at = 0, 0, 0, _SLICE
    while waiting:
        some = list(islice(waiting[-1], _SLICE))
        if not some:
            waiting.pop()
        for value in filter(_has_parts, reversed(some)):
            inside = value.__dict__ if is_model(value) else value
            items = list(inside.values()) if isinstance(inside, dict) else list(inside)
            counted += len(items)
            if id(value) in met:
                repeated += len(items)
            met.add(id(value))
            waiting.append(iter(items))
            if repeated > _MAX_REPEATED:
                raise _repeats()
            if counted >= pause_at:
                yield counted
                pause_at = counted + _SLICE
        looked += len(some)
        if looked > 4 * _SLICE:  # most of them hold nothing: there was much to look at, and little to count
            yield counted
            looked = 0


def _has_parts(value: object) -> bool:
    """Whether a pydantic model's dump copies what it holds."""
    return isinstance(value, (set, frozenset)) or is_stored(value) or is_model(value)


# --- Large: what is kept of one list or object that is too large to be kept as values: its JSON text, and what it held
# for a while.

SLICE = 2000
"""Values between two pauses."""
Keep: TypeAlias = Callable[[tuple[Any, ...]], None]


class _Counting(Protocol):
    """A walk through a value that counts what it has seen."""

    values: int


class Holding:
    """What one list or object holds, on its way to whoever keeps it: nothing of a small one, and of a large one slice by slice."""

    __slots__ = ("_held", "_keep", "_mark", "_walk")

    def __init__(self, walk: _Counting, keep: Keep) -> None:
        self._walk = walk
        self._keep = keep
        self._mark = walk.values
        self._held: list[Any] | None = None

    def add(self, item: Any, made: Any) -> None:
        if self._held is not None:
            self._held += (item, made)
        if self._walk.values - self._mark > SLICE:
            if self._held:
                self._keep(tuple(self._held))
            self._held, self._mark = [], self._walk.values

    def add_many(self, items: Iterable[Any]) -> None:
        self._keep((*(self._held or ()), *items))
        self._held, self._mark = [], self._walk.values


class Writing:
    """The JSON text of a list or object that is too large to be kept as values, in pieces."""

    def __init__(self, brackets: bytes, *, has_names: bool = False) -> None:
        self._brackets = brackets
        self._pieces: list[bytes] = []
        self._names: set[str] | None = set() if has_names else None
        """Those of the fields that are in it, where a key could come twice."""

    def holds(self, name: str) -> bool:
        return self._names is not None and name in self._names

    def add(self, pieces: list[bytes], names: Iterable[str], *, field: str | None = None) -> None:
        """Add further items or fields.

        Args:
            field: The name of the one field whose value the pieces are.
        """
        if self._pieces:
            self._pieces.append(b",")
        if field is not None:
            self._pieces.append(msgspec.json.encode(field) + b":")
        self._pieces += pieces
        if self._names is not None:
            self._names.update(names)

    def whole(self) -> list[bytes]:
        return [self._brackets[:1], *self._pieces, self._brackets[1:]]
