"""Matching: whether a text holds what a regular expression says, in a bounded share of this process. Opens no file.

Patterns run on the Rust `regex` engine (through pydantic-core, which Treadle depends on anyway): it takes time in
proportion to pattern and text, where Python's `re` can be made to backtrack for ever. The price is that look-around and
back-references are refused, as in ripgrep.

The engine holds Python's global lock while it works. A pattern whose repetitions multiply can take a second for one line, and
sixteen such searches would stop the event loop. Such a pattern runs in a process of its own, which ends with its search.
"""

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO, Self

from treadle.errors import Rejected
from treadle.sandboxes import process_guard
from treadle.toolsets.files.root import refusal, shown

__all__ = ["Matcher", "matching", "narrowed", "weight"]

Matcher = Callable[[str], bool]

_HEAVY = 300
"""Weight from which on a pattern runs in a process of its own: below, a line of 4 KiB takes about a millisecond."""
_ENDLESS = 10_000
_POLL_SECONDS = 0.05
_CLASS_WEIGHT = 10
"""A class such as `\\w` has hundreds of ranges of characters."""

_TOKEN = re.compile(
    r"(?P<class>\\[pP]\{[^}]*\}|\\[wWdDsSpP])|(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\])"
    r"|(?P<open>\()|(?P<close>\))|(?P<count>\{(?P<least>\d{0,9})(?P<comma>,?)(?P<most>\d{0,9})\})|(?P<char>.)",
    re.DOTALL,
)

_CHILD = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pydantic_core import SchemaError, SchemaValidator, core_schema
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
def texts():
    while size := read(4):
        yield read(int.from_bytes(size, "big")).decode()
try:
    matches = SchemaValidator(core_schema.str_schema(pattern=next(texts()))).isinstance_python
    write(b"1")
except SchemaError:
    write(b"0")
    sys.exit()
finally:
    sys.stdout.buffer.flush()
for text in texts():
    write(b"1" if matches(text) else b"0")
    sys.stdout.buffer.flush()
"""


def weight(pattern: str) -> int:
    """Return how much work a pattern is for one character, roughly: its length with all counted repetitions written out."""
    groups, last = [0], 0
    for found in _TOKEN.finditer(pattern):
        match found.lastgroup:
            case "open":
                groups.append(0)
                last = 0
            case "close" if len(groups) > 1:
                last = groups.pop()
                groups[-1] += last
            case "most" | "comma" | "least" | "count":
                times = int(found["most"] or found["least"] or 1)
                groups[-1] += last * (max(times, 1) - 1)
                last *= max(times, 1)
            case kind:
                last = _CLASS_WEIGHT if kind == "class" or (kind == "set" and "\\" in found[0]) else 1
                groups[-1] += last
        if max(last, groups[-1]) >= _ENDLESS:
            return _ENDLESS
    return min(sum(groups), _ENDLESS)


@contextmanager
def matching(pattern: str, *, ignore_case: bool, is_cancelled: Callable[[], bool]) -> Generator[Matcher]:
    """Give a function that says whether a text holds the pattern.

    Args:
        pattern: A regular expression.
        is_cancelled: Asked while a text is looked at. When it says yes, the function says no to everything.

    Raises:
        Rejected: The pattern is not a regular expression.
    """
    spelled = ("(?i)" if ignore_case else "") + pattern
    if weight(pattern) < _HEAVY:
        yield _compiled(spelled, pattern)
        return
    with _Process(is_cancelled) as process:
        if not process.ask(spelled) and not is_cancelled():
            _compiled(spelled, pattern)  # says what is wrong with it
        yield process.ask


def narrowed(text: str, matches: Matcher, most: int) -> tuple[int, int]:
    """Return where the part of a text that matches begins and ends: halved until it is short or the match would be lost."""
    start, end = 0, len(text)
    while end - start > most:
        half = (end - start) // 2
        windows = ((start, start + half), (start + half, end), (start + half // 2, end - half // 2))
        kept = next(((a, b) for a, b in windows if matches(text[a:b])), None)
        if kept is None:
            break
        start, end = kept
    return start, min(end, start + most)


def _compiled(spelled: str, pattern: str) -> Matcher:
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - loaded with the first search

    try:
        spelled.encode()  # the engine would take a lone surrogate for some other character
        return SchemaValidator(core_schema.str_schema(pattern=spelled)).isinstance_python
    except (SchemaError, UnicodeEncodeError) as error:
        raise refusal(f"Not a regular expression: {shown(pattern)}: {_reason(error)}", "invalid_pattern") from error


def _reason(error: Exception) -> str:
    """Return the engine's own sentence: the last line of what it says."""
    last = str(error).strip().splitlines()[-1].strip()
    return last.removeprefix("SchemaError: ").removeprefix("error: ")


class _Process:
    """A process that looks at texts for us. It is killed when the search ends, and when this process does."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self._is_cancelled = is_cancelled
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own program; the pattern goes through its standard input
                [sys.executable, "-I", "-S", "-c", _CHILD, json.dumps([path for path in sys.path if path])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        except OSError as error:
            raise refusal(f"The search could not start a process: {error.strerror}.", "unavailable") from error
        process_guard.keep(self._popen.pid)
        return self

    def __exit__(self, *_: object) -> None:
        if (popen := self._popen) is not None:
            popen.kill()
            popen.communicate()
            process_guard.leave(popen.pid)

    def ask(self, text: str) -> bool:
        """Send a text; return what the process says of it."""
        if self._is_cancelled():  # an answer may still be due: whoever has cancelled wants none
            return False
        asked, answers = self._pipes()
        data = text.encode("utf-8", "replace")
        try:
            asked.write(len(data).to_bytes(4, "big") + data)
            asked.flush()
        except OSError as error:
            raise _ended() from error
        while not self._is_cancelled():
            if select.select([answers], [], [], _POLL_SECONDS)[0]:
                answer = os.read(answers.fileno(), 1)
                if not answer:
                    raise _ended()
                return answer == b"1"
        return False

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        popen = self._popen
        if popen is None or popen.stdin is None or popen.stdout is None:
            raise _ended()
        return popen.stdin, popen.stdout


def _ended() -> Rejected:
    return refusal("The process that searched for this pattern ended. Try a simpler pattern.", "unavailable")
