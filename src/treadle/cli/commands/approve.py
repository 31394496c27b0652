"""`treadle approve`: record a person's answer. Runs nothing: `treadle resume` continues with it."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle import Session, Tool, TreadleError
from treadle.cli.commands.approvals import described
from treadle.cli.exits import UsageError
from treadle.cli.input.flags import names_file
from treadle.cli.input.options import Options
from treadle.cli.input.places import rules_file
from treadle.cli.input.rules import save_rule
from treadle.cli.input.settings import settings_of
from treadle.cli.input.values import json_value
from treadle.cli.origins import continuing, origin_in
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_name
from treadle.cli.running import covered_by, ruling_of
from treadle.cli.sessions import find_approval, named, opened, opened_session, person
from treadle.cli.tool_sources import load_tools

__all__ = ["command"]

Scope: TypeAlias = Literal["call", "session", "rule"]
_SCOPES: dict[str, Scope] = {"once": "call", "session": "session", "rule": "rule"}


def command(options: Options, terminal: Terminal) -> int:
    """Allow one call, or deny it."""
    return asyncio.run(_answer(options, terminal))


async def _answer(options: Options, terminal: Terminal) -> int:
    answer: Literal["allow", "deny"] = "deny" if options.is_denied else "allow"
    arguments = _edited(options)
    scope = _scope(options)
    by, reason = person(options), options.reason.encode("utf-8", "replace").decode()
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id, approval_id = await find_approval(journal, named(options))
        async with opened_session(journal, session_id) as session:
            waiting = {one.id: one for one in await session.approvals()}
            if scope != "call" and approval_id in waiting:
                _show_rules(waiting[approval_id].rules, terminal)
            folder = _folder(session) if scope == "rule" else None
            if arguments is not None and approval_id in waiting:
                await _check(waiting[approval_id].tool, arguments, session, options, terminal)
            await session.answer(approval_id, answer, reason=reason, arguments=arguments, by=by, scope=scope)
        approval = waiting[approval_id]
        then = await continuing(journal, approval.root_id or session_id, options)
    if folder is not None:
        for rule in approval.rules:
            save_rule(rules_file(os.environ), folder, rule)
    if options.as_json:
        terminal.data(
            {**described(approval), "answer": answer, "approved_by": by, "edited": arguments, "answer_scope": scope}
        )
    title = f"{'Allowed' if answer == 'allow' else 'Denied'} by {by}: "
    terminal.call(title, approval.tool, approval.arguments if arguments is None else arguments, then=f". {then}")
    return 0


def _scope(options: Options) -> Scope:
    if options.scope != "once" and (options.is_denied or options.arguments is not None):
        raise UsageError(f"--scope {options.scope} cannot be combined with --deny or --arguments: remove one of them.")
    return _SCOPES[options.scope]


def _show_rules(rules: Sequence[str], terminal: Terminal) -> None:
    """Say what rules cover, before they hold."""
    for rule in rules:
        terminal.say(f"rule {one_line(rule, 300)}: {covered_by(rule)}")


async def _check(name: str, arguments: dict[str, Any], session: Session, options: Options, terminal: Terminal) -> None:
    """Refuse edited arguments that the tool does not take, if it is one of ours; no file of tools is run for that.

    Raises:
        UsageError: The arguments are invalid.
    """
    origin = origin_in(session)
    sources = [str(one) for one in origin.get("tools") or []]
    tool = None
    if "tools" in origin and not any(names_file(one) or ":" in one for one in sources):
        with suppress(TreadleError):  # without its folder or its configuration, it is a tool that is not known here
            there = settings_of(msgspec.structs.replace(options, folder=origin.get("folder"), tools=sources))
            loaded = load_tools(there, may_write=True)
            tool = next((one for one in loaded if isinstance(one, Tool) and one.name == name), None)
    if tool is None:
        terminal.say("note: the arguments are checked when the run resumes: the tool is not known here.")
        return
    ruling = await ruling_of(tool, arguments, policy=None, mode="ask")
    if ruling.decision == "invalid":
        raise UsageError(f"--arguments is invalid for {shown_name(name)}: {ruling.reason}")


def _folder(session: Session) -> Path:
    """Return the folder of a session's run: a rule that is kept holds there."""
    run = session.state.run
    folder = (run.origin if run is not None else None) or {}
    if not isinstance(folder.get("folder"), str):
        raise UsageError("The session has no folder, so no rule can be saved for it: use --scope session.")
    return Path(folder["folder"])


def _edited(options: Options) -> dict[str, Any] | None:
    if options.arguments is None:
        return None
    if options.is_denied:
        raise UsageError("--arguments cannot be combined with --deny: remove one of them.")
    found = json_value("--arguments", options.arguments)
    if not isinstance(found, dict):
        raise UsageError(f"--arguments must be one JSON object; got {options.arguments!r:.80}.")
    return found
