"""`treadle budgets`: the ten limits, where they come from, and what a session's last run has used of them."""

import asyncio
from decimal import Decimal
from typing import Any

import msgspec

from treadle import Budget, Session
from treadle.cli.input.options import Options
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import resumed_budget
from treadle.cli.sessions import named, opened, opened_session

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Show the ten budgets."""
    settings = settings_of(options)
    if options.id is None and not options.is_last:
        return _show(settings.budget, {}, settings, options, terminal)
    return asyncio.run(_of_session(settings, options, terminal))


async def _of_session(settings: Settings, options: Options, terminal: Terminal) -> int:
    async with opened(settings.journal, must_exist=True) as journal, opened_session(journal, named(options)) as session:
        settings = _with_own_limits(session, settings)
        return _show(settings.budget, _used(session), settings, options, terminal)


def _with_own_limits(session: Session, settings: Settings) -> Settings:
    """Return the settings as `resume` would use them: a run keeps the limits that it was started with."""
    run = session.state.run
    if run is None or run.budget is None:
        return settings
    kept = {name: "session" for name in Budget.__struct_fields__ if name not in settings.overriding}
    budget = resumed_budget(session, settings)
    return msgspec.structs.replace(settings, budget=budget, origins={**settings.origins, **kept})


def _used(session: Session) -> dict[str, Any]:
    run = session.state.run
    if run is None:
        return {}
    spent = run.spent
    return {
        "max_model_turns": spent.model_turns,
        "max_tool_calls": spent.tool_calls,
        "max_wall_time_seconds": round(spent.wall_seconds, 3),
        "max_input_tokens": spent.usage.input_tokens,
        "max_output_tokens": spent.usage.output_tokens,
        "max_total_cost": _plain(spent.cost),
    }


def _show(budget: Budget, used: dict[str, Any], settings: Settings, options: Options, terminal: Terminal) -> int:
    limits = msgspec.structs.asdict(budget)
    if options.as_json:
        rows = [
            {"name": name, "used": used.get(name), "limit": _plain(limit), "origin": settings.origins[name]}
            for name, limit in limits.items()
        ]
        terminal.data({"session_id": options.id, "profile": settings.profile, "budgets": rows})
        return 0
    for name, limit in limits.items():
        spent = used.get(name)
        shown = "none" if limit is None else _plain(limit)
        terminal.line(f"{name:<28}{'-' if spent is None else spent!s:>12} / {shown}")
    return 0


def _plain(number: Any) -> Any:
    """Money as an exact string, as reports show it; whole seconds without a point, wherever they were read."""
    if isinstance(number, Decimal):
        return format(number, "f")
    return int(number) if isinstance(number, float) and number.is_integer() else number
