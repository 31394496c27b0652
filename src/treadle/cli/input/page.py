"""Page: the values of one TOML file, each read as what it must be, and the line to blame where it is not. Knows no setting."""

import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from treadle import ConfigurationError
from treadle.cli.exits import UsageError
from treadle.cli.input.near import hint_for
from treadle.cli.input.options import LONGEST_SECONDS

__all__ = ["Page"]

_INSTEAD = {
    "api_key": "Keys are never in a file: set the vendor's variable, such as OPENAI_API_KEY.",
    "permissions": "Write `allow`, `ask` and `deny` at the top of the file, outside any table.",
}
"""What people write in files of other programs, and what they do here."""


class Page:
    """A file, for messages that say where in it something is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()

    def fail(self, problem: str, where: tuple[str, ...], key: str) -> NoReturn:
        line = self._line_of(where, key)
        raise UsageError(f"{self.path}{f', line {line}' if line else ''}: {problem}")

    def check_names(
        self, values: Mapping[str, Any], known: Collection[str], where: tuple[str, ...], *, noun: str = "key"
    ) -> None:
        for name in values:
            if name not in known:
                hint = _INSTEAD.get(name) or hint_for(name, known).strip()
                self.fail(f"unknown {noun} {name!r}.{hint and ' '}{hint} Known: {', '.join(known)}.", where, name)

    def attempt(self, kind: Callable[..., object], values: dict[str, Any], where: tuple[str, ...], key: str) -> None:
        try:
            kind(**values)
        except ConfigurationError as exc:
            self.fail(str(exc).replace("None", '"none"'), where, key)

    def text(self, values: Mapping[str, Any], name: str, where: tuple[str, ...] = ()) -> str | None:
        value = values.get(name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.fail(f"{name!r} must be a string; got {value!r:.60}.", where, name)
        return value

    def texts(self, values: Mapping[str, Any], name: str, where: tuple[str, ...] = ()) -> tuple[str, ...] | None:
        value = values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.fail(f'{name!r} must be a list of strings, such as ["grep"]; got {value!r:.60}.', where, name)
        return tuple(value)

    def word(self, values: Mapping[str, Any], name: str, known: Collection[str], where: tuple[str, ...]) -> Any:
        """Return one of the known words: Any, because each name has its own Literal."""
        value = values.get(name)
        if value is not None and value not in known:
            self.fail(f"{name!r} must be one of {', '.join(known)}; got {value!r:.60}.", where, name)
        return value

    def seconds(self, values: Mapping[str, Any], name: str) -> float | None:
        value = values.get(name)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        is_finite = is_number and Decimal(value or 0).is_finite()  # a comparison with NaN raises
        if value is not None and not (is_finite and 0 < value <= LONGEST_SECONDS):
            self.fail(f"{name!r} must be a number of seconds above 0, at most 100 years; got {value!r:.60}.", (), name)
        return None if value is None else float(value)

    def table(self, values: Mapping[str, Any], name: str, where: tuple[str, ...]) -> dict[str, Any]:
        value = values.get(name, {})
        if not isinstance(value, dict):
            self.fail(f"{name!r} must be a table: write [{'.'.join((*where, name))}]; got {value!r:.60}.", where, name)
        return value

    def _line_of(self, where: tuple[str, ...], key: str) -> int | None:
        """Find a key by reading headers and assignments; good enough to point at, and silent where it is not sure."""
        here: tuple[str, ...] = ()
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]+", line):
                here = tuple(part.strip(" \"'") for part in header[1].split("."))
                if here[: len(where) + 1] == (*where, key):
                    return number
            elif (said := re.match(r"\s*([^=#\[\]]+?)\s*=", line)) is not None:
                path = (*here, *(part.strip(" \"'") for part in said[1].split(".")))
                if path[: len(where) + 1] == (*where, key):
                    return number
        return None
