"""`treadle approvals`: the calls of all sessions that wait for a person."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle import Approval, Doubt, list_doubts
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_name, shown_time
from treadle.cli.sessions import is_there, opened

__all__ = ["command", "described"]


def command(options: Options, terminal: Terminal) -> int:
    """List what waits. Requests that were answered, and wait only for `resume`, are left out."""
    return asyncio.run(_list(options, terminal))


async def _list(options: Options, terminal: Terminal) -> int:
    path = settings_of(options).journal
    found: Sequence[Approval] = ()
    doubts: Sequence[Doubt] = ()
    if is_there(path):
        async with opened(path) as journal:
            found, doubts = await journal.approvals(), await list_doubts(journal)
    if options.as_json:
        terminal.data([described(approval) for approval in found])
        return 0
    for approval in found:
        terminal.call(f"{approval.id}  {approval.effect:<10}  ", approval.tool, approval.arguments, is_answer=True)
        until = shown_time(approval.expires_at)
        to_resume = approval.root_id or approval.session_id
        by = " > ".join(map(shown_name, approval.path)) or approval.session_id
        below = "" if to_resume == approval.session_id else f" (asked by {by})"
        why = f"; {one_line(approval.reason or approval.rule)}" if approval.reason or approval.rule else ""
        terminal.line(
            f"    session {to_resume}{below}, until {until}{'  EXPIRED' if time.time() > approval.expires_at else ''}{why}"
        )
        if approval.rules:
            terminal.line(f"    --scope session or rule would also allow: {', '.join(map(one_line, approval.rules))}")
    if not found:
        terminal.say("No call is waiting for approval.")
    if doubts:
        calls = "1 call has" if len(doubts) == 1 else f"{len(doubts)} calls have"
        terminal.say(f"{calls} an unknown outcome. To list them: treadle doubts")
    return 0


def described(approval: Approval) -> dict[str, Any]:
    """Return a request as plain JSON values."""
    return {
        "id": approval.id,
        "session_id": approval.session_id,
        "resume": approval.root_id or approval.session_id,
        "path": list(approval.path),
        "call_id": approval.call_id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "effect": approval.effect.value,
        "digest": approval.digest,
        "requested_at": approval.requested_at,
        "expires_at": approval.expires_at,
        "rule": approval.rule,
        "reason": approval.reason,
        "approval_type": approval.approval_type,
        "action": approval.action,
        "target": approval.target,
        "risk": approval.risk,
        "preview": None if approval.preview is None else msgspec.to_builtins(approval.preview),
        "expected_result": approval.expected_result,
        "rollback": approval.rollback,
        "scope": approval.scope,
        "rules": list(approval.rules),
        "edited": approval.edited,
    }
