"""Saved rules: what a person has allowed permanently in a folder, kept in a file of theirs outside of it. Decides nothing."""

import json
import os
import tomllib
from pathlib import Path

import msgspec

from treadle.cli.exits import UsageError

__all__ = ["folder_rules", "save_rule"]


def folder_rules(path: Path, folder: Path) -> tuple[str, ...]:
    """Return the rules that a person has saved for a folder.

    Raises:
        UsageError: The file is not what `save_rule` writes.
    """
    rules = _read(path).get(str(folder.resolve()), [])
    return tuple(rules)


def save_rule(path: Path, folder: Path, rule: str) -> None:
    """Add a rule of a folder to the person's file, whole or not at all.

    Raises:
        UsageError: The file is not what this function writes, or cannot be written.
    """
    known = _read(path)
    rules = known.setdefault(str(folder.resolve()), [])
    if rule not in rules:
        rules.append(rule)
    lines = ["# Rules that were saved at a question of `treadle`, by folder. Delete a line to be asked again.\n"]
    for name, saved in known.items():
        lines.append(f"\n[{_quoted(name)}]\nallow = [\n" + "".join(f"  {_quoted(one)},\n" for one in saved) + "]\n")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{os.getpid()}")
        made.write_text("".join(lines), encoding="utf-8")
        made.chmod(0o600)
        made.replace(path)
    except OSError as exc:
        raise UsageError(f"The rule cannot be saved in {path}: {exc.strerror}.") from exc


def _read(path: Path) -> dict[str, list[str]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: msgspec.convert(table["allow"], list[str]) for name, table in tables.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as exc:
        raise UsageError(f"The saved rules {path} cannot be read: {exc}. Fix the file or move it away.") from exc


def _quoted(text: str) -> str:
    """Return a text as TOML writes it: a string of JSON is one of TOML too, but for the one character that it leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
