"""Sessions that no living worker can continue: they say so, with the reason and a next step, and nobody waits in silence."""

import logging
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.workers.test_health import numbers
from tests.workers.test_workers import clerk, until, working

from treadle import Agent, Tool, open_journal, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.workers import StrandedSession, result, stranded_sessions, submit

pytestmark = pytest.mark.row("N19")


def pay(name: str = "pay", *, effect: Any = "unsafe", amount: str = "integer") -> Tool:
    schema = {"type": "object", "properties": {"amount": {"type": amount}}}
    return Tool(
        name=name,
        description="Pay.",
        parameters=schema,
        effect=effect,
        permission="ask",
        run=lambda arguments, ctx: "ok",
    )


def payer(tools: Iterable[Tool] = (pay(),), tool_choice: str = "auto", name: str = "mock") -> Callable[[], Agent]:
    turns = [call("pay", amount=7), text("paid")]
    model = ScriptedModel(turns, follows_history=True, name=name)
    return lambda: Agent(model, tools=list(tools), tool_choice=tool_choice)


async def asking(address: str) -> str:
    """Return a session that a worker has begun, and that waits for a person since; the worker has ended."""
    session_id = await submit(address, "clerk", "Pay 7")
    async with working(address, {"clerk": payer()}), open_journal(address) as journal:
        await until(journal.approvals)
    return session_id


async def allow(address: str) -> None:
    async with open_journal(address) as journal:
        (asked,) = await journal.approvals()
        async with open_session(journal, id=asked.session_id) as session:
            await session.answer(asked.id, "allow")


def known(found: Iterable[StrandedSession]) -> list[tuple[str, str]]:
    return [(one.session_id, one.reason) for one in found]


CHANGES: dict[str, tuple[Callable[[], Agent], str]] = {
    "removed": (payer([]), "tools"),
    "renamed": (payer([pay("transfer")]), "tools"),
    "schema": (payer([pay(amount="number")]), "tools"),
    "effect": (payer([pay(effect="idempotent")]), "tools"),
    "answer": (payer(tool_choice="required"), "answer"),
    "model": (payer(name="other"), "model"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_deploy_is_previewed_by_the_open_sessions_that_it_would_strand(tmp_path: Path, change: str) -> None:
    address = str(tmp_path / "agent.db")
    session_id = await asking(address)
    changed, part = CHANGES[change]
    async with open_journal(address) as journal:
        assert await stranded_sessions(journal, agents={"clerk": payer()}) == ()
        (one,) = await stranded_sessions(journal, agents={"clerk": changed})
        gone = await stranded_sessions(journal, agents={"other": payer()})
    assert one == StrandedSession(
        session_id=session_id,
        reason="agent_changed",
        agent="clerk",
        message=f"The agent 'clerk' has changed since it began the run. Changed: {part}. Start a worker that has the agent as it was, "
        f"or one that continues with the changed agent: treadle worker --agents FILE.py --accept-change --journal {address}",
    )
    assert known(gone) == [(session_id, "unknown_agent")]


async def test_a_run_that_only_a_changed_agent_could_continue_is_reported_until_a_worker_accepts_the_change(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    session_id = await asking(address)
    async with open_journal(address) as journal:
        assert known(await stranded_sessions(journal)) == [(session_id, "no_worker")]
    changed = {"clerk": payer(tool_choice="required")}
    async with (
        working(address, changed, name="one", health_port=0) as worker,
        working(address, changed, name="two", health_port=0) as other,
        open_journal(address) as journal,
    ):

        async def counted() -> bool:
            counts = [await numbers(each) for each in (worker, other)]
            return all(one.get('treadle_sessions_stranded{reason="agent_changed"}') == 1 for one in counts)

        await until(lambda: _is_there(worker.health_address))
        await until(lambda: _is_there(other.health_address))
        await allow(address)
        await until(counted)
        assert known(await stranded_sessions(journal)) == [(session_id, "agent_changed")]
        warned = [record.getMessage() for record in caplog.records if "stranded" in record.getMessage()]
        assert len(warned) == 1
        assert warned[0].startswith(f"Session {session_id} is stranded: The agent 'clerk' has changed")

        async with working(address, changed, name="three", accepts_change=True):
            assert (await result(journal, session_id, timeout=60)).text == "paid"
        assert await stranded_sessions(journal) == ()


async def _is_there(value: object) -> object:
    return value


async def test_tasks_of_unknown_agents_and_unserved_tenants_are_reported(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    nobody = await submit(address, "nobody", "Do it")
    theirs = await submit(address, "clerk", "Do it", tenant="theirs")
    own = await submit(address, "clerk", "Do it", tenant="mine")
    async with open_journal(address) as journal:
        waiting = {one.session_id: one.reason for one in await stranded_sessions(journal)}
        assert waiting == dict.fromkeys((nobody, theirs, own), "no_worker")
        async with working(address, {"clerk": clerk()}, tenants=["mine"], health_port=0) as worker:
            await result(journal, own, timeout=60)
            found = {one.session_id: one for one in await stranded_sessions(journal)}
            assert known(found.values()) == [(theirs, "tenant"), (nobody, "unknown_agent")]
            assert found[theirs].message == (
                "No worker that has the agent 'clerk' takes tasks of the tenant 'theirs'. Start a worker that takes them: "
                f"treadle worker --agents FILE.py --tenant theirs --journal {shlex.quote(journal.location)}"
            )
            await until(lambda: _has(worker, 'treadle_sessions_stranded{reason="tenant"}'))
            assert sum("is stranded: No worker" in record.getMessage() for record in caplog.records) == 1
        async with working(address, {"clerk": clerk(), "nobody": clerk()}):
            for session_id in (theirs, nobody):
                assert (await result(journal, session_id, timeout=60)).completed


async def _has(worker: Any, name: str) -> bool:
    return (await numbers(worker)).get(name) == 1


async def test_what_waits_for_no_worker_is_not_stranded(address: str) -> None:
    """A program's own run, one that a person has set aside, one that has ended, a task before its time, and one that a process runs."""
    async with open_journal(address) as journal:
        own = Agent(ScriptedModel([call("pay", amount=7)]), tools=[pay()], name="service")
        async with open_session(journal, id="programs") as session:
            await own.run("go", session=session)
        async with open_session(journal, id="over") as session:
            await Agent(ScriptedModel([text("x")]), name="service").run("go", session=session)
        aside = await submit(journal, "nobody", "Do it")
        async with open_session(journal, id=aside) as session:
            await session.change(status="suspended")
        later = await submit(journal, "nobody", "Do it later", at=time.time() + 1e6)
        async with working(address):
            assert await stranded_sessions(journal) == ()
        preview = known(await stranded_sessions(journal, agents={"clerk": clerk()}))
        assert sorted(preview) == sorted([("programs", "unknown_agent"), (later, "unknown_agent")])
