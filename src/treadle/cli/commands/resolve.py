"""`treadle resolve`: record how a call in doubt ended, with the receipt in hand. Runs nothing."""

import asyncio
from collections.abc import Sequence

from treadle import Done, Doubt, NotDone, Unknown, UnknownDoubt, list_doubts
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.input.values import json_value
from treadle.cli.origins import continuing
from treadle.cli.output.terminal import Terminal
from treadle.cli.sessions import find_session, named, opened, opened_session, person
from treadle.ports import Journal

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Say that the call was done, that it was not, or that nobody will find out."""
    return asyncio.run(_resolve(options, terminal))


async def _resolve(options: Options, terminal: Terminal) -> int:
    outcome, by = _outcome(options), person(options)
    reason = options.reason.encode("utf-8", "replace").decode()
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id, call_id = await _find(journal, options)
        async with opened_session(journal, session_id) as session:
            about = next((one for one in session.doubts() if one.call_id == call_id), None)
            await session.resolve(call_id, outcome, reason=reason, by=by)
            is_over = session.state.phase == "completed" and session.state.root_id == session_id
            then = "" if is_over else await continuing(journal, session.state.root_id, options)
    word = "done" if isinstance(outcome, Done) else "not_done" if outcome is NotDone else "unknown"
    if options.as_json:
        terminal.data({"session_id": session_id, "call_id": call_id, "outcome": word, "by": by})
    if is_over:
        then = f'To report it to the model: treadle run --session {session_id}{same_journal(options)} "..."'
    title, tail = f"Resolved by {by} as {word}: ", f". {then}"
    if about is None:
        terminal.say(f"{title}{call_id}{tail}")
    else:
        terminal.call(title, about.tool, about.arguments, then=tail)
    return 0


def _outcome(options: Options) -> "Done | type[NotDone | Unknown]":
    given = [options.done is not None, options.is_not_done, options.is_unknown]
    if sum(given) != 1:
        raise UsageError("Say how the call ended: --done JSON with its result, --not-done, or --unknown.")
    if options.done is None:
        return NotDone if options.is_not_done else Unknown
    return Done(json_value("--done", options.done))


async def _find(journal: Journal, options: Options) -> tuple[str, str]:
    """Return the session and call of a doubt: by its key or the beginning of it, or by its call; the newest for `--last`."""
    given = named(options)
    doubts: Sequence[Doubt] = await list_doubts(journal)
    if options.session is not None:
        session_id = (await find_session(journal, options.session)).id
        doubts = [one for one in doubts if one.session_id == session_id]
    where = f"is in doubt in the journal {journal.location}. `treadle doubts` lists those that are"
    if given is None:
        if not doubts:
            raise UnknownDoubt(f"No call {where}.")
        newest = max(doubts, key=lambda one: one.since)
        return newest.session_id, newest.call_id
    fits = [one for one in doubts if given in (one.call_id, one.key)]
    # Only a key may be shortened: `call_1` begins `call_10` too, and may be a call that has been resolved.
    fits = fits or [one for one in doubts if given and one.key.startswith(given)]
    if len(fits) > 1:
        several = ", ".join(f"{one.key} of session {one.session_id}" for one in fits[:5])
        raise UsageError(f"{given!r:.80} fits several calls in doubt: {several}. Give the key, or --session ID.")
    if fits:
        return fits[0].session_id, fits[0].call_id
    if options.session is not None and not doubts:
        return session_id, given  # the session knows why there is no such doubt
    raise UnknownDoubt(f"No call {given!r:.80} {where}.")
