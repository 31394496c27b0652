"""A task that failed, stopped or was cancelled is submitted again: in its session, or from nothing under a new key."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from test_workers import clerk, working

from treadle import Agent, Budget, ConfigurationError, open_journal, open_session, tool
from treadle.errors import SessionNotActive, UnknownSession
from treadle.events import TaskSubmitted
from treadle.ports import Journal
from treadle.testing import ScriptedModel, call, text
from treadle.workers import result, retry, submit


@tool(effect="unsafe", permission="allow")
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    async with open_journal("memory:") as made:
        yield made


async def failed(journal: Journal, *turns: Any, **options: Any) -> str:
    """Return the session of a task that was stopped after one step."""
    made = Agent(ScriptedModel([*turns]), tools=[pay], budget=Budget(max_model_turns=1))
    async with working(journal, {"clerk": lambda: made}):
        session_id = await submit(journal, "clerk", "Pay 7", **options)
        assert not (await result(journal, session_id, timeout=60)).completed
    return session_id


PAYS = (call("pay", amount=7), text("Not finished."))


async def test_a_stopped_task_runs_again_in_its_session_where_the_model_reads_what_was_done(journal):
    session_id = await failed(journal, *PAYS, tenant="acme", key="invoice-7")

    assert await retry(journal, session_id, by="ada") == session_id

    async with working(journal):
        answer = await result(journal, session_id, timeout=60)
    async with open_session(journal, id=session_id) as session:
        tasks = [event for event in await session.events() if isinstance(event, TaskSubmitted)]
        words = [message.text for message in session.messages]
    assert (answer.completed, answer.text) == (True, "done")
    assert [(task.agent, task.tenant, task.by) for task in tasks] == [("clerk", "acme", ""), ("clerk", "acme", "ada")]
    assert words.count("Pay 7") == 2
    assert await submit(journal, "clerk", "Pay 7", tenant="acme", key="invoice-7") == session_id


async def test_a_new_key_begins_from_nothing_and_is_refused_where_that_may_repeat_what_was_done(journal):
    session_id = await failed(journal, *PAYS, tenant="acme", key="invoice-7", metadata={"order": 7})

    with pytest.raises(ConfigurationError, match=r"may repeat what was done: pay .*may_repeat=True"):
        await retry(journal, session_id, key="invoice-7b")
    with pytest.raises(ConfigurationError, match="has already"):
        await retry(journal, session_id, key="invoice-7", may_repeat=True)
    new = await retry(journal, session_id, key="invoice-7b", may_repeat=True)

    assert new != session_id
    assert await retry(journal, session_id, key="invoice-7b", may_repeat=True) == new
    async with working(journal):
        assert (await result(journal, new, timeout=60)).completed
    async with open_session(journal, id=new) as session:
        assert session.state.metadata == {"tenant": "acme", "order": 7, "retry_of": session_id}
        assert session.messages[0].text == "Pay 7"


async def test_a_task_that_was_withdrawn_is_submitted_again(journal):
    session_id = await submit(journal, "clerk", "Answer")
    async with open_session(journal, id=session_id) as session:
        await session.cancel()
    await retry(journal, session_id)
    async with working(journal):
        assert (await result(journal, session_id, timeout=60)).completed


async def test_what_has_not_failed_is_not_submitted_again(journal):
    with pytest.raises(UnknownSession):
        await retry(journal, "s_nobody")
    queued = await submit(journal, "clerk", "Answer")
    with pytest.raises(ConfigurationError, match=r"is queued: its task has not ended"):
        await retry(journal, queued)
    async with working(journal):
        await result(journal, queued, timeout=60)
    with pytest.raises(ConfigurationError, match="submit a new one"):
        await retry(journal, queued)
    async with open_session(journal) as session:
        await clerk()().run("Answer", session=session)
    with pytest.raises(ConfigurationError, match=r"treadle resume"):
        await retry(journal, session.id)
    stopped = await failed(journal, *PAYS)
    async with open_session(journal, id=stopped) as session:
        await session.change(status="suspended")
    with pytest.raises(SessionNotActive):
        await retry(journal, stopped)
