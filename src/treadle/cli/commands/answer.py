"""`treadle answer`: answer the question with which a run waits, such as one of the tool `ask_user`. Runs nothing."""

import asyncio
from contextlib import suppress
from typing import Any

from treadle import Session, UnknownInput
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.origins import continuing
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line
from treadle.cli.sessions import find_session, opened, opened_session, person

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """Give the call that waits its answer."""
    if options.task is None:
        raise UsageError('Give the session and the answer: treadle answer ID "ANSWER"')
    return asyncio.run(_answer(options, options.task, terminal))


async def _answer(options: Options, text: str, terminal: Terminal) -> int:
    by = person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        info = await find_session(journal, options.id)
        async with opened_session(journal, info.id) as session:
            questions = session.state.questions
            if not questions:
                raise UsageError(
                    f"Session {session.id} waits for no answer: it is {session.state.phase}. `treadle approvals` lists calls that wait for approval."
                )
            asked = await _given(session, questions, text, by)
            root_id = session.state.root_id
        then = await continuing(journal, root_id, options)
    if options.as_json:
        terminal.data({"session_id": info.id, "call_id": asked.call.id, "answer": text, "by": by})
    question = "" if asked.suspended is None else one_line(asked.suspended.waits_for, 120)
    terminal.say(f"Answered by {by}: {question} - {one_line(text, 300)}. {then}")
    return 0


async def _given(session: Session, questions: list[Any], text: str, by: str) -> Any:  # Any: a call that waits
    """Answer the first question that has no answer yet, and return it."""
    *others, last = questions
    for one in others:
        with suppress(UnknownInput):  # it has one already
            await session.input(one.call.id, text, by=by)
            return one
    await session.input(last.call.id, text, by=by)
    return last
