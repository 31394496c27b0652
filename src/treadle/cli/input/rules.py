"""Rules: all that hold for this call of the program, each with its scope and its origin. Decides nothing."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from treadle import allow, deny
from treadle.cli.exits import UsageError
from treadle.cli.files import write_whole
from treadle.cli.input.config import Layer, read_layer
from treadle.cli.input.options import Options
from treadle.cli.input.places import managed_configs
from treadle.permissions import RuleSet

__all__ = ["Kind", "SourcedRule", "all_rules", "folder_rules", "rule_sets", "save_rule"]

Kind: TypeAlias = Literal["allow", "ask", "deny"]
Scope: TypeAlias = Literal["managed", "user", "project", "session"]
_REASON = {"managed": "A rule of your organisation denies it.", "project": "A rule of the project denies it."}


class SourcedRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, and where it comes from."""

    kind: Kind
    text: str
    scope: Scope
    origin: str
    """`flag`, or the file that holds it."""


def all_rules(
    given: Options | Layer,
    layers: Sequence[Layer],
    saved: Sequence[str],
    *,
    saved_in: Path,
    environment: Mapping[str, str],
) -> tuple[SourcedRule, ...]:
    """Return the rules of flags, files, answers and the organisation, denials first.

    Args:
        given: The flags.
        layers: The configuration files that count.
        saved: What a person has allowed permanently in this folder.
        saved_in: The file that holds it.

    Raises:
        ConfigurationError: A rule is invalid.
        UsageError: An organisation's file is invalid.
    """
    found = _of(given, "session", "flag")
    for layer in layers:
        found += _of(layer, "project" if layer.owner == "project" else "user", layer.origin)
    found += [SourcedRule(kind="allow", text=text, scope="user", origin=str(saved_in)) for text in saved]
    for path in managed_configs(environment):
        if path.exists():
            found += _of(read_layer(path, "managed"), "managed", str(path))
        elif str(path) == environment.get("TREADLE_MANAGED"):
            raise UsageError(f"TREADLE_MANAGED names {path}, which does not exist. Name a file, or unset it.")
    for one in found:
        (allow if one.kind == "allow" else deny)(one.text)  # raises for an invalid one
    return tuple(sorted(found, key=lambda rule: -get_args(Kind).index(rule.kind)))


def rule_sets(rules: Sequence[SourcedRule], *kinds: Kind) -> list[RuleSet]:
    """Return rules of some kinds as sets, one for each place that has any."""
    found: list[RuleSet] = []
    for scope, origin in dict.fromkeys((rule.scope, rule.origin) for rule in rules if rule.kind in kinds):
        own = [rule for rule in rules if (rule.scope, rule.origin) == (scope, origin) and rule.kind in kinds]
        texts = {kind: tuple(rule.text for rule in own if rule.kind == kind) for kind in get_args(Kind)}
        reason = _REASON.get(scope, "A rule of this session denies it.")
        found.append(RuleSet(scope=scope, origin="" if origin == "flag" else origin, reason=reason, **texts))
    return found


def _of(given: Options | Layer, scope: Scope, origin: str) -> list[SourcedRule]:
    texts: dict[Kind, Sequence[str]] = {"allow": given.allow, "ask": given.ask, "deny": given.deny}
    return [SourcedRule(kind=kind, text=one, scope=scope, origin=origin) for kind in texts for one in texts[kind]]


# --- Saved rules: what a person has allowed permanently in a folder, kept in a file of theirs outside of it. Decides
# nothing.


def folder_rules(path: Path, folder: Path) -> tuple[str, ...]:
    """Return the rules that a person has saved for a folder, and for all of them.

    Raises:
        UsageError: The file is not what `save_rule` writes.
    """
    known = _read(path)
    return (*known.get(str(folder.resolve()), []), *known.get(_EVERYWHERE, []))


_EVERYWHERE = "*"
"""The folder of the rules that hold in all of them."""


def save_rule(path: Path, folder: Path | None, rule: str) -> None:
    """Add a rule of a folder to the person's file, whole or not at all.

    Args:
        folder: None for a rule that holds in all folders.

    Raises:
        UsageError: The file is not what this function writes, or cannot be written.
    """
    known = _read(path)
    rules = known.setdefault(_EVERYWHERE if folder is None else str(folder.resolve()), [])
    if rule not in rules:
        rules.append(rule)
    lines = ["# Rules that were saved at a question of `treadle`, by folder. Delete a line to be asked again.\n"]
    for name, saved in known.items():
        lines.append(f"\n[{_quoted(name)}]\nallow = [\n" + "".join(f"  {_quoted(one)},\n" for one in saved) + "]\n")
    write_whole(path, "".join(lines).encode(), cannot=f"The rule cannot be saved in {path}: {{}}.")


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
