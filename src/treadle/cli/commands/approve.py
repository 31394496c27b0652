"""`treadle approve`: record a person's answer. Runs nothing: `treadle resume` goes on with it."""

import asyncio
from typing import Literal

from treadle import UnknownApproval
from treadle.cli.commands.approvals import described
from treadle.cli.options import Options
from treadle.cli.places import same_journal
from treadle.cli.sessions import Waiting, opened, opened_session, waiting_approvals
from treadle.cli.settings import settings_of
from treadle.cli.terminal import Terminal
from treadle.ports import Journal

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Allow one call, or deny it."""
    return asyncio.run(_answer(options, terminal))


async def _answer(options: Options, terminal: Terminal) -> int:
    assert options.id is not None  # the parser requires it
    answer: Literal["allow", "deny"] = "deny" if options.is_denied else "allow"
    named = same_journal(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        waiting = await _find(journal, options.id, named)
        async with opened_session(journal, waiting.approval.session_id) as session:
            reason = options.reason.encode("utf-8", "replace").decode()
            await session.answer(waiting.approval.id, answer, reason=reason)
    if options.as_json:
        terminal.data({**described(waiting), "answer": answer})
    title = "Allowed: " if answer == "allow" else "Denied: "
    then = f". Go on with: treadle resume {waiting.to_resume}{named}"
    terminal.call(title, waiting.approval.tool, waiting.approval.arguments, then=then)
    return 0


async def _find(journal: Journal, approval_id: str, named: str) -> Waiting:
    found = {waiting.approval.id: waiting for waiting in await waiting_approvals(journal)}
    waiting = found.get(approval_id)
    if waiting is None:
        raise UnknownApproval(
            f"No approval {approval_id!r:.80} waits in the journal {journal.location}. `treadle approvals` lists what does."
        )
    if waiting.answer is not None:
        raise UnknownApproval(
            f"Approval {approval_id!r} has been answered already ({waiting.answer}): the first answer wins. "
            f"Go on with: treadle resume {waiting.to_resume}{named}"
        )
    if waiting.is_expired:
        raise UnknownApproval(
            f"Approval {approval_id!r} has expired. `treadle resume {waiting.to_resume}{named}` asks anew."
        )
    return waiting
