"""What is set up here: `treadle budgets`, `permissions`, `describe` and `config`, each value with where it comes from."""

import os
import re
from collections import Counter
from decimal import Decimal
from typing import Any, get_args

import msgspec

from treadle import Budget, Session, Tool, file_tools, shell_tool
from treadle.cli.exits import UsageError
from treadle.cli.guidance import Guidance, guidance_of
from treadle.cli.input.commands import BudgetsOptions, ConfigOptions, DescribeOptions, PermissionsOptions
from treadle.cli.input.config import LIMIT_WORDS, config_schema
from treadle.cli.input.options import Mode, Options
from treadle.cli.input.places import shown_address, shown_journal, user_config
from treadle.cli.input.rules import Kind
from treadle.cli.input.saving import save_value
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal, json_line
from treadle.cli.output.text import one_line, shown_json, shown_name
from treadle.cli.running import (
    arguments_of,
    covered_by,
    make_agent,
    resumed_budget,
    ruling_of,
    unmatched_in,
)
from treadle.cli.sessions import named_session, opened
from treadle.cli.tool_sources import known_tools, load_tools
from treadle.events import CallDecided
from treadle.resolve import known_facts
from treadle.toolsets import writing_tools
from treadle.workers import Limit

__all__ = ["budgets", "config", "describe", "permissions"]


# --- The ten limits, and what a session's last run has used of them.


async def budgets(options: BudgetsOptions, terminal: Terminal) -> int:
    """Show the ten budgets."""
    settings = settings_of(options)
    if options.id is None and not options.is_last:
        return _show_budgets(settings.budget, {}, settings, options, terminal)
    async with named_session(options) as session:
        run = session.state.run
        if run is None:
            return _show_budgets(settings.budget, {}, settings, options, terminal)
        whose = "session" if run.budget is not None else "agent"
        if whose == "agent":
            terminal.say("note: the run has the limits of its program's agent, which the journal does not know")
        kept = {name: whose for name in Budget.__struct_fields__ if name not in settings.overriding}
        settings = msgspec.structs.replace(settings, origins={**settings.origins, **kept})
        return _show_budgets(resumed_budget(session, settings), _used(session), settings, options, terminal)


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


def _show_budgets(
    budget: Budget, used: dict[str, Any], settings: Settings, options: BudgetsOptions, terminal: Terminal
) -> int:
    limits = {
        name: "?" if settings.origins[name] == "agent" else _plain(limit)
        for name, limit in msgspec.structs.asdict(budget).items()
    }
    if options.as_json:
        rows = [
            {
                "name": name,
                "used": used.get(name),
                "limit": None if limit == "?" else limit,
                "origin": settings.origins[name],
            }
            for name, limit in limits.items()
        ]
        terminal.data({"session_id": options.id, "profile": settings.profile, "budgets": rows})
        return 0
    for name, limit in limits.items():
        spent = used.get(name)
        shown = "none" if limit is None else limit
        terminal.line(f"{name:<28}{'-' if spent is None else spent!s:>12} / {shown}")
    return 0


def _plain(number: Any) -> Any:
    """Money as an exact string, as reports show it; whole seconds without a point, wherever they were read."""
    if isinstance(number, Decimal):
        return format(number, "f")
    return int(number) if isinstance(number, float) and number.is_integer() else number


# --- The rules that hold, and what they make of one call. Runs no tool.


async def permissions(options: PermissionsOptions, terminal: Terminal) -> int:
    """List the rules, or show what would happen to a call."""
    terminal.hides_logs = True
    settings = settings_of(options)
    for note in settings.notes:
        terminal.say(f"note: {note}")
    if options.shows_modes:
        return await _show_modes(settings, options, terminal)
    if options.name is None:
        return await _list_rules(settings, options, terminal)
    return await _try_call(settings, options.name, options, terminal)


_DONE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("a file of the folder is read (README.md)", "read", {"path": "README.md"}),
    ("a command that only reads (git log)", "shell", {"command": "git log"}),
    ("a file of the folder is edited (notes.txt)", "write", {"path": "notes.txt", "content": ""}),
    ("a command that runs code of the folder (make test)", "shell", {"command": "make test"}),
    ("a command that writes the git history (git commit)", "shell", {"command": "git commit -m x"}),
    ("a command that reaches a host (curl example.com)", "shell", {"command": "curl example.com"}),
    ("a command that leaves the sandbox (docker ps)", "shell", {"command": "docker ps"}),
    (
        "a folder outside is written (needs: write /opt/x)",
        "shell",
        {"command": "make", "needs": ["write /opt/x"], "reason": "x"},
    ),
    ("a protected file is written (.envrc)", "write", {"path": ".envrc", "content": ""}),
)
"""What may be done, each with a call that does it."""
_OUTCOMES = {"allow": "runs", "sandbox": "runs", "ask": "asks", "deny": "no"}


async def _show_modes(settings: Settings, options: Options, terminal: Terminal) -> int:
    """Try each call in each mode, with the rules and the sandbox that hold here."""
    modes: tuple[Mode, ...] = ("plan", "ask", "accept-edits", "auto", "bypass")
    tools = {
        one.name: one for one in (*writing_tools(settings.root), *file_tools(settings.root), shell_tool(settings.root))
    }
    rows: list[tuple[str, dict[str, str]]] = []
    for what, tool, arguments in _DONE:
        rulings = {
            mode: await ruling_of(tools[tool], arguments, msgspec.structs.replace(settings, mode=mode))
            for mode in modes
        }
        rows.append((what, {mode: _OUTCOMES.get(one.decision, one.decision) for mode, one in rulings.items()}))
    if options.as_json:
        terminal.data([{"what": what, **found} for what, found in rows])
        return 0
    terminal.line(f"{'':<52}{''.join(f'{mode:<14}' for mode in modes)}".rstrip())
    for what, found in rows:
        terminal.line(f"{what:<52}{''.join(f'{one:<14}' for one in found.values())}".rstrip())
    return 0


async def _list_rules(settings: Settings, options: Options, terminal: Terminal) -> int:
    idle, answered = unmatched_in(settings), await _answered(settings)
    if options.as_json:
        terminal.data(
            [
                {
                    "kind": one.kind,
                    "rule": one.text,
                    "scope": one.scope,
                    "origin": one.origin,
                    "covers": covered_by(one.text),
                    "answered": answered[f"{one.kind} {one.text}"],
                    "unmatched": next(
                        (each.message for each in idle if (each.kind, each.rule) == (one.kind, one.text)), None
                    ),
                }
                for one in settings.rules
            ]
        )
        return 0
    for one in settings.rules:
        said = f"answered {answered[f'{one.kind} {one.text}']:,}x"
        terminal.line(
            f"{one.kind:<6} {one_line(one.text, 200):<36} {one.scope:<8} ({one_line(one.origin, 300)})  {said}"
        )
    for each in idle:
        terminal.line(f"warning: {one_line(each.message, 500)}")
    if not settings.rules:
        terminal.say("No rules apply here: reads run, and every other call needs approval.")
    return 0


async def _answered(settings: Settings) -> Counter[str]:
    """Count the calls that each rule has decided, in the sessions that changed last."""
    found: Counter[str] = Counter()
    async with opened(settings.journal, is_read=True) as journal:
        for info in (await journal.sessions())[:_LOOKED_AT]:
            events = [one for one in await journal.read(info.id) if isinstance(one, CallDecided)]
            for kind, rules in (one.rule.partition(" ")[::2] for one in events):
                found.update(f"{kind} {rule}" for rule in {*_RULES_TOGETHER.split(rules), rules})
    return found


_LOOKED_AT = 500
"""Sessions whose decisions are counted."""
_RULES_TOGETHER = re.compile(r", (?=[\w*-]+\()")
"""What is between the rules that have allowed a line together."""


async def _try_call(settings: Settings, name: str, options: PermissionsOptions, terminal: Terminal) -> int:
    tool = _tool(settings, name, terminal)
    mode: Mode = settings.mode
    arguments = arguments_of(tool, options.arguments)
    ruling = await ruling_of(tool, arguments, settings)
    origin = next(
        (
            one.origin
            for one in settings.rules
            if one.scope == ruling.scope and ruling.rule.endswith(f"{one.kind} {one.text}")
        ),
        None,
    )
    if options.as_json:
        about = {"tool": tool.name, "arguments": arguments, "mode": mode, "decision": ruling.decision}
        terminal.data(
            {
                **about,
                "rule": ruling.rule,
                "scope": ruling.scope,
                "origin": origin,
                "reason": ruling.reason,
                "rules": list(ruling.rules),
            }
        )
        return 0
    place = f" in {origin}" if origin not in (None, "flag") else ""
    by = f": {one_line(ruling.rule, 300)} ({ruling.scope}{place})" if ruling.rule else ""
    terminal.line(f"{ruling.decision}{by}")
    if ruling.reason:
        terminal.line(f"  {one_line(ruling.reason, 500)}")
    for rule in ruling.rules:
        terminal.line(f"  --allow {shown_name(rule)} would allow it without approval: {covered_by(rule)}")
    return 0


def _tool(settings: Settings, name: str, terminal: Terminal) -> Tool:
    """Return a tool of a conversation, which has more than a run where none are named."""
    known = known_tools(settings)
    tools = {one.name: one for one in known if isinstance(one, Tool)}
    if name not in tools:
        others = " Tools of servers and other toolsets are known only in a run." if len(tools) < len(known) else ""
        raise UsageError(
            f"No tool {name!r} is available here. Available: {', '.join(sorted(tools))}. Name others with --tools.{others}"
        )
    if not settings.tools and all(one.name != name for one in load_tools(settings)):
        terminal.say(f"note: `treadle chat` has the tool {name}; `treadle run` has it only with --tools.")
    return tools[name]


# --- The agent that a call of the program would run.

_INDENT = "  "


def describe(options: DescribeOptions, terminal: Terminal) -> int:
    """Show the agent of these flags and this configuration, without a session and without a request."""
    settings = settings_of(options)
    described = make_agent(settings, settings.model, options=options).describe()
    if options.as_json:
        terminal.data(described)
        return 0
    for name, value in described.items():
        _show(name, value, "", terminal)
    return 0


def _show(name: str, value: Any, indent: str, terminal: Terminal) -> None:
    """Show one field: a line, or a line for each thing inside of it."""
    if name == "tools":
        terminal.line("tools")
        for tool in value:
            terminal.line(f"{_INDENT}{tool['name']}: {one_line(tool['description'], 80)} ({tool['effect']})")
    elif isinstance(value, dict) and value:
        terminal.line(f"{indent}{name}")
        for key, one in value.items():
            _show(key, one, indent + _INDENT, terminal)
    else:
        text = value if isinstance(value, str) else shown_json(value)
        terminal.line(f"{indent}{name}: {one_line(text, 200)}")


# --- The configuration.


def config(options: ConfigOptions, terminal: Terminal) -> int:
    """Show the configuration as it holds for these flags, or set a value of the person's file."""
    if options.action == "set":
        return _set(options, terminal)
    if options.key is not None:
        raise UsageError(f"treadle config {options.action} takes no KEY. To set a value: treadle config set KEY VALUE")
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


def _set(options: ConfigOptions, terminal: Terminal) -> int:
    if options.key is None or options.value is None:
        raise UsageError("treadle config set needs a key and a value, such as: treadle config set model openai:gpt-5")
    path = user_config(os.environ)
    if options.key == "model":
        known_facts(options.value)  # raises for a name that no vendor has
    value = save_value(path, options.key, options.value)
    terminal.line(f"{options.key} = {json_line(value).rstrip()} in {path}")
    return 0


_AS_THEY_ARE = (
    *("on_limit", "on_approval", "approval_seconds", "text_calls", "error_form", "first_byte_seconds", "idle_seconds"),
    *("notify", "notify_after_seconds"),
)


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
        **{name: getattr(settings, name) for name in _AS_THEY_ARE},
        **{kind: settings.texts(kind) for kind in get_args(Kind)},
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
