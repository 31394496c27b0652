"""`treadle doubts`: the calls of unknown outcome, of all sessions."""

import asyncio
from collections.abc import Sequence

import msgspec

from treadle import Doubt, list_doubts
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import shown_json, shown_name, shown_time
from treadle.cli.sessions import is_there, opened

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """List the calls in doubt, with what one needs to look into them."""
    return asyncio.run(_list(options, terminal))


async def _list(options: Options, terminal: Terminal) -> int:
    path = settings_of(options).journal
    found: Sequence[Doubt] = ()
    if is_there(path):
        async with opened(path) as journal:
            found = await list_doubts(journal)
    if options.as_json:
        terminal.data([msgspec.to_builtins(doubt) for doubt in found])
        return 0
    for doubt in found:
        terminal.call(f"{doubt.key}  {doubt.effect:<10}  ", doubt.tool, doubt.arguments, is_answer=True)
        standing = "reported to the model" if doubt.is_told else "no result yet: the run was interrupted"
        about = f", about {_about(doubt.business_key)}" if doubt.business_key else ""
        terminal.line(
            f"    call {shown_name(doubt.call_id)} of session {doubt.session_id}, started {shown_time(doubt.since)}{about}; {standing}"
        )
    if found:
        terminal.say(
            f"The id is the idempotency key that the tool received. Find out how the call ended, then run: treadle resolve ID{same_journal(options)} --done JSON, or --not-done, or --unknown"
        )
    else:
        terminal.say("No call is in doubt.")
    return 0


def _about(business_key: str) -> str:
    """Return a business key, which is JSON, as a person wrote it where it is one word."""
    try:
        key = msgspec.json.decode(business_key)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        key = business_key
    return shown_name(key, 200) if isinstance(key, str) else shown_json(key, 200)
