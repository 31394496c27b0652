"""The redactor: takes secrets out of text and JSON that people or programs read. Changes nothing that is executed."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from treadle.errors import ConfigurationError, shown
from treadle.fields import checked, explained
from treadle.redaction.forms import (
    HARMLESS,
    PLAIN,
    Marker,
    careful_mark,
    hidden,
    hidden_in_pieces,
    mark,
    settled_length,
    sized,
)
from treadle.redaction.known_values import KNOWN, MARK, remember
from treadle.redaction.names import is_secret_name, known

__all__ = ["Redactor"]

_MAX_PATTERN_CHARS = 200


class Redactor:
    """Takes the secrets out of text and JSON values.

    Example:
        Redactor(patterns=["acme-*"]).text("key acme-4711 and password=hunter2")  # key [redacted] and password=[redacted]

    Args:
        patterns: Forms of one's own: literal text with `*` for any number of letters, digits and `_-./+=~`.
        is_on: Whether forms and fields are looked for. Values in use (`remember`) are hidden anyway.

    Raises:
        ConfigurationError: A pattern is invalid.
    """

    @checked
    def __init__(self, *, patterns: Sequence[str] = (), is_on: bool = True) -> None:
        if not isinstance(patterns, Iterable) or isinstance(patterns, str | bytes):
            raise ConfigurationError(f"Redactor patterns must be a list of strings; got {shown(patterns)}.")
        own = "|".join(map(_own, patterns))
        self._own = re.compile(own) if own else None
        self._is_on = is_on

    @classmethod
    @checked
    def for_environment(
        cls, environment: Mapping[str, str], *, patterns: Sequence[str] = (), is_on: bool = True
    ) -> "Redactor":
        """Return a redactor for a program with this environment, whose secrets are hidden from now on: see `remember`.

        Args:
            environment: Variables of the process, such as `os.environ`; the values of secret ones are hidden.
            patterns: Secrets of your own: literal texts with at most one `*` each.
            is_on: Whether well-known forms and fields are hidden too; else only the values of the environment.

        Raises:
            ConfigurationError: A pattern is invalid.
        """
        remember(known(environment))
        return cls(patterns=patterns, is_on=is_on)

    @explained
    def text(self, text: str) -> str:
        """Return a text with `[redacted]` in place of each secret."""
        return self._hidden(text, mark)

    @checked
    def pieces(self, text: str) -> Iterator[str]:
        """Return a text in pieces, with `[redacted]` in place of each secret. For one that takes long to be joined."""
        text = self._without_own(text)
        return hidden_in_pieces(text, mark) if self._is_on else iter((text,))

    @explained
    def consent(self, text: str) -> str:
        """Return a text for a person who decides on it: only what cannot act is hidden, and its length is shown.

        A value that holds a blank or a character of command lines is shown even if its field is called `password`:
        otherwise a call could hide what it does behind such a name.
        """
        return self._hidden(text, careful_mark)

    @explained
    def settled(self, text: str) -> int:
        """Return how much of the beginning of a growing text can be redacted already: what follows may be half a secret."""
        return settled_length(text)

    def value(self, value: Any) -> Any:  # Any: JSON
        """Return a JSON value without secrets: in its texts, its keys, and its fields by name."""
        return self._value(value, cache(self.text))  # names of fields, and ids, recur

    def consented(self, value: Any) -> Any:  # Any: JSON
        """Return a JSON value as `consent` returns a text."""
        return self._value(value, self.consent)

    def _value(self, value: Any, hide: Any) -> Any:
        match value:
            case str():
                return hide(value)
            case dict():
                return {
                    hide(key) if isinstance(key, str) else key: self._field(key, item, hide)
                    for key, item in value.items()
                }
            case list() | tuple():
                return [self._value(item, hide) for item in value]
            case _:
                return value

    def _field(self, name: Any, value: Any, hide: Any) -> Any:
        if not self._is_on or not isinstance(name, str) or not is_secret_name(name):
            return self._value(value, hide)
        if isinstance(value, str):
            is_shown = not value or HARMLESS.match(value) or (hide == self.consent and not PLAIN.fullmatch(value))
            return hide(value) if is_shown else (sized(value) if hide == self.consent else MARK)
        if isinstance(value, list):
            return [self._field(name, item, hide) for item in value]
        return self._value(value, hide)

    def _hidden(self, text: str, marker: Marker) -> str:
        text = self._without_own(text)
        return hidden(text, marker) if self._is_on else text

    def _without_own(self, text: str) -> str:
        text = KNOWN.hide(text)
        return text if self._own is None or not self._is_on else self._own.sub(MARK, text)


def _own(pattern: str) -> str:
    if not isinstance(pattern, str) or not 0 < len(pattern) <= _MAX_PATTERN_CHARS or pattern.count("*") > 1:
        raise ConfigurationError(
            f"A redaction pattern is literal text with at most one `*`, such as 'acme-*'; got {shown(pattern)}."
        )
    before, star, behind = pattern.partition("*")
    if len(before) < 2:
        raise ConfigurationError(
            f"A redaction pattern begins with at least 2 literal characters; got {shown(pattern)}."
        )
    return re.escape(before) + (r"[\w./+=~-]{0,512}" if star else "") + re.escape(behind)
