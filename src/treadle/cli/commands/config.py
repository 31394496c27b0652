"""`treadle config show`: every value that holds, and where it comes from."""

from typing import Any

import msgspec

from treadle import Limit
from treadle.cli.guidance import Guidance, guidance_of
from treadle.cli.input.options import Options
from treadle.cli.input.places import shown_address, shown_journal
from treadle.cli.input.settings import Settings, config_schema, settings_of
from treadle.cli.input.worker_limits import LIMIT_WORDS
from treadle.cli.output.terminal import Terminal, json_line

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Show the configuration as it holds for these flags."""
    if options.action == "schema":
        terminal.data(config_schema())
        return 0
    settings = settings_of(options)
    guidance = guidance_of(settings)
    values = {**_values(settings), "instructions": [one.path for one in guidance.instructions.files]}
    values["skills"] = [one.name for one in guidance.skills]
    origins = {**settings.origins, **_origins(guidance)}
    for note in (*settings.notes, *guidance.notes):
        terminal.say(f"note: {note}")
    if options.as_json:
        terminal.data({name: {"value": value, "origin": origins[name]} for name, value in values.items()})
        return 0
    for name, value in values.items():
        terminal.line(f"{name:<28} {json_line(value).rstrip():<24} ({origins[name]})")
    return 0


def _values(settings: Settings) -> dict[str, Any]:
    return {
        "model": settings.model,
        "base_url": None if settings.base_url is None else shown_address(settings.base_url),
        **{f"model_options.{name}": value for name, value in settings.model_options.items()},
        "system": settings.system,
        "mode": settings.mode,
        "sandbox": settings.sandbox,
        "journal": shown_journal(settings.journal),
        **msgspec.structs.asdict(settings.budget),
        **{f"guards.{name}": value for name, value in msgspec.structs.asdict(settings.guards).items()},
        "price": settings.price,
        "facts": _facts(settings),
        "on_limit": settings.on_limit,
        "on_approval": settings.on_approval,
        "approval_seconds": settings.approval_seconds,
        "notify": settings.notify,
        "notify_after_seconds": settings.notify_after_seconds,
        "allow": settings.texts("allow"),
        "ask": settings.texts("ask"),
        "deny": settings.texts("deny"),
        **{f"workers.limits.{one.name}": _limit(one) for one in settings.worker_limits},
        "redaction.enabled": settings.redaction.enabled,
        "redaction.patterns": settings.redaction.patterns,
        "tools": [source.text for source in settings.tools] or ["grep", "glob", "read", "list"],
    }


def _limit(limit: Limit) -> dict[str, Any]:
    """Return what is said of a limit, in the words of the file."""
    said = {word: getattr(limit, field) for word, field in LIMIT_WORDS.items()}
    return {word: value for word, value in said.items() if value}


def _origins(guidance: Guidance) -> dict[str, str]:
    """Say where instruction files and skills come from, and whether anybody has approved them."""
    how = "approved" if guidance.is_trusted else "not approved: treadle trust approve"
    has_strange = bool(guidance.instructions.files) or len(guidance.own) < len(guidance.skills)
    theirs = f"folder, {how}" if has_strange else "default"
    own = ["your own"] * bool(guidance.own) + [theirs] * (len(guidance.own) < len(guidance.skills))
    return {
        "instructions": theirs if guidance.instructions.files else "default",
        "skills": " and ".join(own) or "default",
    }


def _facts(settings: Settings) -> dict[str, Any] | None:
    if settings.facts is None:
        return None
    said = {name: getattr(settings.facts, name) for name in settings.facts.__struct_fields__}
    return {name: sorted(one) if name == "inputs" else one for name, one in said.items() if one is not None}
