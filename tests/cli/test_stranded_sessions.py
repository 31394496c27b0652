"""What a person reads of a session that no living worker can continue, and of the commands that help."""

import asyncio
from typing import Any

import pytest
from tests.workers.test_stranding import asking, pay, payer
from tests.workers.test_workers import until, working

from treadle import Agent, list_workers, open_journal, open_session
from treadle.testing import ScriptedModel, call
from treadle.workers import result

pytestmark = pytest.mark.row("N19")

AGENTS = """
from treadle import Agent
from treadle.testing import ScriptedModel, text

clerk = Agent(ScriptedModel([text("done")], follows_history=True, name="mock"), name="clerk", instructions="Changed.")
"""


async def test_each_command_says_why_a_session_is_stranded_and_approve_recommends_what_works(treadle: Any) -> None:
    address = str(treadle.folder / "j.db")
    session_id = await asking(address)
    place = ("--journal", "j.db")
    (treadle.folder / "agents.py").write_text(AGENTS)
    async with open_journal(address) as journal:
        (approval,) = await journal.approvals()

    async def said(*words: str, code: int = 0) -> str:
        found = await asyncio.to_thread(treadle, *words, *place, code=code)
        return str(found.stdout + found.stderr)

    async def data(*words: str, code: int = 0) -> Any:
        return await asyncio.to_thread(treadle.json, *words, *place, "--json", code=code)

    why = "The agent 'clerk' has changed since it began the run. Changed: instructions."
    step = f"treadle worker --agents FILE.py --accept-change --journal {address}"
    preview = await said("sessions", "check", "--agents", "agents.py", code=1)
    assert (
        f"{session_id}  stranded: The agent 'clerk' has changed since it began the run. Changed: instructions, tools."
        in preview
    )
    assert step in preview
    assert "With these agents, 1 open session could not continue." in preview
    (one,) = await data("sessions", "check", "--agents", "agents.py", code=1)
    assert (one["session_id"], one["reason"]) == (session_id, "agent_changed")

    async with working(address, {"clerk": payer(instructions="Changed.")}):
        await until(lambda: _any_worker(address))
        for words in (
            ("sessions",),
            ("sessions", "--state", "stranded"),
            ("sessions", "explain", session_id),
            ("workers",),
        ):
            text = await said(*words)
            assert why in text, words
            assert step in text, words
        assert (await data("sessions"))[0]["stranded"].startswith(why)
        assert (await data("sessions", "explain", session_id))["stranded"].startswith(why)
        assert [one["session_id"] for one in (await data("workers"))["stranded"]] == [session_id]
        allowed = await said("approve", approval.id)
        assert f"{why} " in allowed
        assert step in allowed
        assert "treadle resume" not in allowed

        async with working(address, {"clerk": payer(instructions="Changed.")}, name="new", accepts_change=True):
            await result(address, session_id, timeout=60)
        assert "STRANDED" not in await said("sessions")
        assert "No sessions match." in await said("sessions", "--state", "stranded")


async def _any_worker(address: str) -> bool:
    async with open_journal(address) as journal:
        return bool(await list_workers(journal))


@pytest.mark.parametrize("command", ["approve", "explain"])
async def test_what_is_recommended_works_for_the_session(treadle: Any, command: str) -> None:
    """A worker's, a program's, the command line's own, and one that is suspended."""
    address = str(treadle.folder / "j.db")
    workers_own = await asking(address)
    async with open_journal(address) as journal:
        for session_id, name in (("programs", "service"), ("own", None), ("aside", None)):
            async with open_session(journal, id=session_id) as session:
                await Agent(ScriptedModel([call("pay", amount=7)]), tools=[pay()], name=name).run("go", session=session)
                if session_id == "aside":
                    await session.change(status="suspended")

    def told(session_id: str, approvals: dict[str, str]) -> str:
        words = ("approve", approvals[session_id]) if command == "approve" else ("sessions", "explain", session_id)
        found = treadle(*words, "--journal", "j.db", code=0)
        return str(found.stdout + found.stderr)

    async with open_journal(address) as journal:
        approvals = {one.session_id: one.id for one in await journal.approvals()}
    async with working(address, {"clerk": payer()}):
        await until(lambda: _any_worker(address))
        ways = {one: await asyncio.to_thread(told, one, approvals) for one in approvals}
    tail = f" --journal {address}"
    assert "A worker continues session" in ways[workers_own] or "already running" in ways[workers_own]
    assert "Resume the run in the program that has the agent service" in ways["programs"]
    assert f"treadle resume own{tail}" in ways["own"]
    assert "treadle sessions activate aside" in ways["aside"]
    assert "treadle resume aside" not in ways["aside"]
