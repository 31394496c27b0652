"""Values: JSON and texts that a person gives on the command line, or in a file that they name there."""

import json
from pathlib import Path
from typing import Any, NoReturn

from treadle.cli.exits import UsageError
from treadle.cli.files import content_of
from treadle.cli.input.trust import Held

__all__ = ["instructions_of", "json_object", "json_value", "schema_of"]

_MAX_BYTES = 10_000_000


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


def json_object(what: str, content: bytes) -> dict[str, Any]:
    """Return the JSON object of a file whose content was read before.

    Raises:
        UsageError: It is not one.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"{what} cannot be read: {exc}.") from exc
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be one JSON object; got {value!r:.60}.")
    return value


def instructions_of(given: str, trusted: Held) -> str:
    """Return instructions as they were given: a text, or `@` and the file that holds it.

    Args:
        trusted: What the folder's own files held when they were found to be trusted.

    Raises:
        UsageError: The file cannot be read, or the text is empty.
    """
    text = given
    if given.startswith("@"):
        content = trusted.content_of(Path(given[1:]))
        text = _text_of("--system", given[1:], _content_of("--system", given[1:]) if content is None else content)
    if not text.strip():
        raise UsageError("--system is empty: pass the instructions, or @FILE.")
    return text


def schema_of(file: str) -> Any:  # Any: JSON
    """Return the JSON Schema in a file.

    Raises:
        UsageError: The file cannot be read, or does not hold a JSON object.
    """
    schema = json_value(f"--schema {file}", _text_of("--schema", file, _content_of("--schema", file)))
    if not isinstance(schema, dict):
        raise UsageError(f"--schema {file} must hold one JSON object.")
    return schema


def _content_of(option: str, file: str) -> bytes:
    place = f"{option}: the file {file}"
    large = f"{place} is larger than {_MAX_BYTES:,} bytes."
    return content_of(file, _MAX_BYTES, cannot=f"{place} cannot be read: {{}}.", large=large)


def _text_of(option: str, file: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(f"{option}: the file {file} is not UTF-8 text (byte {exc.start}).") from exc


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        found[key] = value
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON value")
