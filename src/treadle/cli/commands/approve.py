"""`treadle approve`: record a person's answer. Runs nothing: `treadle resume` continues with it."""

import asyncio
from typing import Any, Literal

from treadle.cli.commands.approvals import described
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.input.values import json_value
from treadle.cli.origins import program_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import shown_name
from treadle.cli.sessions import find_approval, named, opened, opened_session, person

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Allow one call, or deny it."""
    return asyncio.run(_answer(options, terminal))


async def _answer(options: Options, terminal: Terminal) -> int:
    answer: Literal["allow", "deny"] = "deny" if options.is_denied else "allow"
    arguments = _edited(options)
    by, reason = person(options), options.reason.encode("utf-8", "replace").decode()
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id, approval_id = await find_approval(journal, named(options))
        async with opened_session(journal, session_id) as session:
            waiting = {name: one for one in await session.approvals() for name in (one.id, one.replaces)}
            program = program_of(session)
            await session.answer(approval_id, answer, reason=reason, arguments=arguments, by=by)
    approval = waiting[approval_id]
    if options.as_json:
        terminal.data({**described(approval), "answer": answer, "approved_by": by, "edited": arguments})
    title = f"{'Allowed' if answer == 'allow' else 'Denied'} by {by}: "
    root_id = approval.root_id or session_id
    if program and root_id == session_id:
        then = f". Its program resumes the run: the agent {shown_name(program)} is not known here."
    else:
        then = f". Resume with: treadle resume {root_id}{same_journal(options)}"
    terminal.call(title, approval.tool, approval.arguments if arguments is None else arguments, then=then)
    return 0


def _edited(options: Options) -> dict[str, Any] | None:
    if options.arguments is None:
        return None
    if options.is_denied:
        raise UsageError("--arguments edits a call that is allowed; leave out --deny.")
    found = json_value("--arguments", options.arguments)
    if not isinstance(found, dict):
        raise UsageError(f"--arguments must be one JSON object, by name; got {options.arguments!r:.80}.")
    return found
