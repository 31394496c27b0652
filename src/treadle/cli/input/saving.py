"""Saving: one value into the person's configuration file, with all else of the file kept as it is. Chooses no value."""

import json
import re
import secrets
import tomllib
from pathlib import Path
from typing import Any

from treadle.cli.exits import UsageError
from treadle.cli.files import write_whole
from treadle.cli.input.config import read_layer

__all__ = ["save_value"]

_PART = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*\[")


def save_value(path: Path, key: str, given: str) -> Any:
    """Set a key of a configuration file, and return the value.

    Args:
        path: The file; it is made where there is none.
        key: The name, with those of its tables before it: `budget.max_total_cost`.
        given: The value as TOML, such as `20`, `true` or `["read"]`; else it is a text.

    Raises:
        UsageError: The key or the value is invalid, or the file cannot be changed. It is as it was then.
    """
    parts = key.split(".")
    if not all(map(_PART.fullmatch, parts)):
        raise UsageError(f"{key[:80]!r} is not a key of the configuration. Write it as budget.max_total_cost.")
    text, written = _text_of(path), _as_toml(given)
    new = _with(text, parts[:-1], parts[-1], written)
    value = tomllib.loads(f"value = {written}")["value"]
    _check(text, new, parts, value, path)
    _write(path, new)
    return value


def _as_toml(given: str) -> str:
    """Return a value as it stands in the file."""
    try:
        tomllib.loads(f"value = {given}")
    except tomllib.TOMLDecodeError:
        return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")
    return given.strip()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"The configuration {path} cannot be read: {exc}.") from exc


def _with(text: str, table: list[str], name: str, written: str) -> str:
    """Return the text with one line changed or added."""
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    if table:
        wanted = re.compile(rf"\s*\[\s*{re.escape('.'.join(table))}\s*\]")
        begin = next((number for number in headers if wanted.match(lines[number])), None)
        if begin is None:
            return "\n".join([*lines, *([""] if lines else []), f"[{'.'.join(table)}]", f"{name} = {written}", ""])
        first = begin + 1
    else:
        first = 0
    end = next((number for number in headers if number >= first), len(lines))
    line = f"{name} = {written}"
    for number in range(first, end):
        if re.match(rf"\s*{re.escape(name)}\s*=", lines[number]):
            return "\n".join([*lines[:number], line, *lines[number + 1 :], ""])
    while end > first and not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], line, *lines[end:], ""])


def _check(before: str, after: str, parts: list[str], value: Any, path: Path) -> None:
    """Refuse a change that changes more, such as one within a text of several lines, or that the file may not say."""
    try:
        wanted: Any = tomllib.loads(before)
        inner = wanted
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
        inner[parts[-1]] = value
        is_same = tomllib.loads(after) == wanted
    except (tomllib.TOMLDecodeError, AttributeError, TypeError):
        is_same = False
    if not is_same:
        raise UsageError(f"{'.'.join(parts)} cannot be set in {path} line by line. Change the file in an editor.")
    probe = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        _write(probe, after)
        read_layer(probe, "person")
    except UsageError as exc:
        raise UsageError(str(exc).replace(str(probe), str(path))) from exc
    finally:
        probe.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Write a file, for the person alone where it is new."""
    write_whole(path, text.encode(), cannot=f"The configuration {path} cannot be written: {{}}.", keeps_mode=True)
