"""Values: JSON that a person gives on the command line. Reads no file."""

import json
from typing import Any, NoReturn

from treadle.cli.exits import UsageError

__all__ = ["json_value"]


def json_value(option: str, text: str) -> Any:  # Any: JSON
    """Return the value that an option gives as JSON.

    Raises:
        UsageError: It is not JSON, or an object in it has one key twice: nobody could tell which value is meant.
    """
    try:
        value = json.loads(text, object_pairs_hook=_each_key_once, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"{option} must be JSON: {exc}. Got {text[:80]!r}.") from exc
    return value


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        found[key] = value
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON value")
