"""Readers: what flags take, from text to values. Each raises argparse's own error."""

import argparse
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

__all__ = [
    "LONGEST_SECONDS",
    "count",
    "instant",
    "limit_reader",
    "names_file",
    "number_reader",
    "parted",
    "port",
    "seconds",
    "whole_reader",
]

LONGEST_SECONDS = 100 * 366 * 86400.0
"""The longest time that a person may be given to answer: 100 years."""


def instant(text: str) -> float:
    """Read an instant; without a time zone it is the machine's."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"write a time such as 2026-11-30T18:00 or 2026-11-30T17:00:00Z; got {text!r:.60}"
        ) from None


def seconds(text: str) -> float:
    """Read a time that a person may be given to answer."""
    if re.fullmatch(r"\d{1,10}(\.\d{1,6})?", text, re.ASCII) and 0 < float(text) <= LONGEST_SECONDS:
        return float(text)
    raise argparse.ArgumentTypeError(f"seconds are a number above 0, at most 100 years; got {text!r:.60}")


def whole_reader(least: int, most: int, what: str) -> Callable[[str], int]:
    """Return the reader of a whole number between two.

    Args:
        what: What is written, for the error message.
    """

    def read(text: str) -> int:
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{what}; got {text!r:.60}")

    return read


count = whole_reader(0, 10**18, "a whole number")
"""Reads a whole number from 0."""
port = whole_reader(0, 65535, "a port is a number from 0 (any free one) to 65535")
"""Reads the number of a port."""


def number_reader(what: str) -> Callable[[str], float]:
    """Return the reader of a number from 0, with up to six decimals.

    Args:
        what: What is written, with an example, for the error message.
    """

    def read(text: str) -> float:
        if re.fullmatch(r"\d{1,7}(\.\d{1,6})?", text, re.ASCII):
            return float(text)
        raise argparse.ArgumentTypeError(f"{what}; got {text!r:.60}")

    return read


def _limit_of(text: str) -> int | Decimal | None:
    if text.lower() == "none":
        return None
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?\d{0,18}\.\d{1,18}", text, re.ASCII):
        return Decimal(text)
    raise argparse.ArgumentTypeError(f"a limit is a number such as 20, or none for no limit; got {text!r:.60}")


def limit_reader(name: str) -> Any:
    """Return the reader of one budget's value: money stays exact, seconds are binary like the clock's."""

    def read(text: str) -> int | float | Decimal | None:
        value = _limit_of(text)
        return float(value) if name == "max_wall_time_seconds" and isinstance(value, Decimal) else value

    return read


def names_file(source: str) -> bool:
    """Whether a source of tools is a file or folder: Python, or definitions of subagents."""
    return "/" in source or source.endswith((".py", ".md", ".yaml", ".yml", ".json"))


def parted(source: str) -> list[str]:
    """Return the parts of a list of tools that names files too, such as `read,agents/`; a list of built-in names stays one part."""
    parts = source.split(",")
    if len(parts) == 1 or Path(source).exists() or not any(map(names_file, parts)):
        return [source]
    names = ",".join(part for part in parts if not names_file(part))
    return [*([names] if names else []), *(part for part in parts if names_file(part))]
