"""Known values: the secrets that this process uses itself, hidden wherever they occur in a text, in stored bytes or in an event."""

import re
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import Any, AnyStr
from urllib.parse import quote

import msgspec

from treadle.events import (
    AnyEvent,
    ContextCompacted,
    ContractViolated,
    DecisionRejected,
    ModelDelta,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    RunFinished,
    ToolAttemptFailed,
    ToolFinished,
    ToolLate,
    ToolProgress,
)

__all__ = ["KNOWN", "MARK", "KnownValues", "remember", "scrubbed", "without_known"]

MARK = "[redacted]"
"""What stands where a secret stood."""

_MIN_KNOWN_CHARS = 8
"""A shorter value is an ordinary word too often to be hidden wherever it occurs."""
_MAX_KNOWN = 1000
_FEW = 64
_SLICE_BYTES = 128 * 1024


class KnownValues:
    """The secrets in use, as one pattern that is compiled again when one is added."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self.needles: tuple[bytes, ...] = ()
        """The values as JSON writes them, without quotes."""
        self._longest_first: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def add(self, values: Iterable[str]) -> None:
        fresh = {form for value in values for form in _forms(value.strip())} - self._values.keys()
        if not fresh:
            return
        with self._lock:
            self._values.update(dict.fromkeys(fresh))
            while len(self._values) > _MAX_KNOWN:
                del self._values[next(iter(self._values))]
            self._longest_first = tuple(sorted(self._values, key=len, reverse=True))
            self.needles = tuple(map(_as_json, self._longest_first))
            self._pattern = re.compile("|".join(map(re.escape, self._longest_first)))

    @property
    def values(self) -> Collection[str]:
        return self._values.keys()

    def is_in(self, text: str) -> bool:
        """Whether one of them is in a text: for few values quicker than the pattern is."""
        values = self._longest_first
        if not values or len(text) < len(values[-1]):  # most pieces of a stream
            return False
        if len(values) > _FEW:
            return self._pattern is not None and self._pattern.search(text) is not None
        if len(text) > _SLICE_BYTES:
            return any(_holds(text, value) for value in values)
        for value in values:  # noqa: SIM110 - any() takes twice as long, for each piece of a stream
            if value in text:
                return True
        return False

    def is_encoded_in(self, encoded: bytes) -> bool:
        """Whether one of them is in JSON."""
        for needle in self.needles:  # noqa: SIM110 - as above, for each event
            if needle in encoded:
                return True
        return False

    def hide(self, text: str) -> str:
        if self._pattern is None or not self.is_in(text):
            return text
        if len(text) > _SLICE_BYTES and len(self._values) <= _FEW:  # a pattern takes long for megabytes
            held = [value for value in self._longest_first if _holds(text, value)]
            pattern = re.compile("|".join(map(re.escape, held)))
            return "".join(_replaced_in(text, pattern, MARK, longest=len(held[0])))
        return self._pattern.sub(MARK, text)


KNOWN = KnownValues()


def remember(values: Iterable[str]) -> None:
    """Hide these values from now on in everything that this process records as text, shows or logs.

    Args:
        values: Keys, tokens and passwords in use. Values of fewer than 8 characters are ignored.
    """
    KNOWN.add(values)


def without_known(content: bytes) -> Iterator[bytes]:
    """Yield stored bytes, in pieces, without the values that were given to `remember`. Take them in turns: no piece takes long."""
    held: dict[bytes, None] = {}
    secrets = [value.encode("utf-8", "replace") for value in sorted(KNOWN.values, key=len, reverse=True)]
    for start in range(0, len(content), _SLICE_BYTES):
        held |= dict.fromkeys(secret for secret in secrets if _begins_in(content, secret, start))
        yield b""
    if held:
        longest_first = sorted(held, key=len, reverse=True)
        pattern = re.compile(b"|".join(map(re.escape, longest_first)))
        yield from _replaced_in(content, pattern, MARK.encode(), longest=len(longest_first[0]))
    else:
        yield content


def _begins_in(content: AnyStr, secret: AnyStr, start: int) -> bool:
    return content.find(secret, start, start + _SLICE_BYTES + len(secret) - 1) >= 0


def _holds(text: str, secret: str) -> bool:
    """Whether a long text holds a secret. Looked for in slices: one search of megabytes holds up all threads of the process."""
    return any(_begins_in(text, secret, start) for start in range(0, len(text), _SLICE_BYTES))


def _replaced_in(content: AnyStr, pattern: re.Pattern[AnyStr], mark: AnyStr, *, longest: int) -> Iterator[AnyStr]:
    """Yield the content in pieces, with the mark in place of each secret.

    Args:
        longest: Length of the longest secret.
    """
    at = 0
    while at < len(content):
        # A secret that begins in this slice belongs to it, also where it ends behind it.
        end, begun = at + _SLICE_BYTES, at
        pieces: list[AnyStr] = []
        while (found := pattern.search(content, begun, end + longest - 1)) and found.start() < end:
            pieces += (content[begun : found.start()], mark)
            begun = found.end()
        end = max(end, begun)
        pieces.append(content[begun:end])
        yield content[:0].join(pieces)
        at = end


def _as_json(value: str) -> bytes:
    return msgspec.json.encode(value.encode("utf-8", "replace").decode())[1:-1]


def _forms(value: str) -> Iterable[str]:
    """A secret as it is, and as it is written in an address."""
    if len(value) >= _MIN_KNOWN_CHARS and value != MARK:
        yield value
        if (encoded := quote(value, safe="")) != value:
            yield encoded


# --- events

_encoder = msgspec.json.Encoder()


_ECHOING = frozenset(
    {
        ContextCompacted,
        ModelDelta,
        ModelFinished,
        ModelFailed,
        ModelDiscarded,
        DecisionRejected,
        RunFinished,
        ToolAttemptFailed,
        ToolFinished,
        ToolLate,
        ToolProgress,
        ContractViolated,
    }
)


def scrubbed(event: AnyEvent) -> AnyEvent:
    """Return an event as it is recorded and published: without the secrets that this process uses.

    A server may echo the key that it was sent, and a tool may print its environment. Arguments stay exact, because they are
    executed; so does thinking with a signature, because its server checks it.
    """
    if not KNOWN.needles or type(event) not in _ECHOING:
        return event
    if type(event) is ModelDelta and event.call is None:
        is_clean = not KNOWN.is_in(event.text or event.thinking) and not (event.text and KNOWN.is_in(event.thinking))
    else:
        is_clean = not KNOWN.is_encoded_in(_encoder.encode(event))
    if is_clean:
        return event
    return msgspec.convert(_without(msgspec.to_builtins(event)), type(event))


def _without(value: Any) -> Any:  # Any: JSON
    match value:
        case str():
            return KNOWN.hide(value)
        case {"arguments": str()} | {"signature": str()}:
            return value
        case dict():
            return {key: _without(item) for key, item in value.items()}
        case list() | tuple():
            return [_without(item) for item in value]
        case _:
            return value
