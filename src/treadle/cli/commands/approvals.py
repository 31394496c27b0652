"""`treadle approvals`: the calls of all sessions that wait for a person."""

import asyncio
import time
from typing import Any

from treadle.cli.options import Options
from treadle.cli.sessions import Waiting, is_there, opened, waiting_approvals
from treadle.cli.settings import settings_of
from treadle.cli.terminal import Terminal
from treadle.cli.text import one_line

__all__ = ["command", "described"]


def command(options: Options, terminal: Terminal) -> int:
    """List what waits. Requests that were answered, and wait only for `resume`, are left out."""
    return asyncio.run(_list(options, terminal))


async def _list(options: Options, terminal: Terminal) -> int:
    path = settings_of(options).journal
    found: list[Waiting] = []
    if is_there(path):
        async with opened(path) as journal:
            found = [waiting for waiting in await waiting_approvals(journal) if waiting.answer is None]
    if options.as_json:
        terminal.data([described(waiting) for waiting in found])
        return 0
    for waiting in found:
        approval = waiting.approval
        terminal.call(f"{approval.id}  {approval.effect:<10}  ", approval.tool, approval.arguments, is_answer=True)
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(approval.expires_at))
        below = "" if waiting.to_resume == approval.session_id else f" (asked by {approval.session_id})"
        why = f"; {one_line(approval.reason or approval.rule)}" if approval.reason or approval.rule else ""
        terminal.line(
            f"    session {waiting.to_resume}{below}, until {until}{'  EXPIRED' if waiting.is_expired else ''}{why}"
        )
    if not found:
        terminal.say("Nothing waits for a person.")
    return 0


def described(waiting: Waiting) -> dict[str, Any]:
    """Return a request as plain JSON values."""
    approval = waiting.approval
    return {
        "id": approval.id,
        "session_id": approval.session_id,
        "resume": waiting.to_resume,
        "call_id": approval.call_id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "effect": approval.effect.value,
        "digest": approval.digest,
        "requested_at": approval.requested_at,
        "expires_at": approval.expires_at,
        "rule": approval.rule,
        "reason": approval.reason,
    }
