"""Equivalents: changes that no test can notice, each with its reason, read from `equivalent.toml`."""

import tomllib
from pathlib import Path
from typing import Any

__all__ = ["equivalents"]

_FILE = Path(__file__).parent / "equivalent.toml"


def equivalents() -> dict[tuple[Any, ...], str]:
    """Return the key of each listed mutant with its reason."""
    listed = tomllib.loads(_FILE.read_text()).get("mutant", [])
    return {
        (one["file"], one["function"], one["before"], one["after"], one.get("nth", 1)): one["reason"] for one in listed
    }
