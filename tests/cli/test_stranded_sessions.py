"""What a person reads of a session that no living worker can continue, and of the commands that help."""

import asyncio
import re
from typing import Any

import pytest
from tests.workers.test_arrivals_below import all_paused, clerk, family
from tests.workers.test_stranding import asking, pay, payer
from tests.workers.test_workers import until, working

from treadle import Agent, open_journal, open_session
from treadle.testing import ScriptedModel, call
from treadle.workers import list_workers, result, submit

pytestmark = pytest.mark.row("N19")

AGENTS = """
from treadle import Agent
from treadle.testing import ScriptedModel, text

clerk = Agent(ScriptedModel([text("done")], follows_history=True, name="mock"), name="clerk", tool_choice="required")
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

    why = "The agent 'clerk' has changed since it began the run. Changed: answer."
    step = f"treadle worker --agents FILE.py --accept-change --journal {address}"
    preview = await said("sessions", "check", "--agents", "agents.py", code=1)
    assert (
        f"{session_id}  stranded: The agent 'clerk' has changed since it began the run. Changed: tools, answer."
        in preview
    )
    assert step in preview
    assert "With these agents, 1 open session could not continue." in preview
    (one,) = await data("sessions", "check", "--agents", "agents.py", code=1)
    assert (one["session_id"], one["reason"]) == (session_id, "agent_changed")

    async with working(address, {"clerk": payer(tool_choice="required")}):
        await until(lambda: _any_worker(address))
        for words in (
            ("sessions",),
            ("sessions", "--status", "stranded"),
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

        async with working(address, {"clerk": payer(tool_choice="required")}, name="new", accepts_change=True):
            await result(address, session_id, timeout=60)
        assert "STRANDED" not in await said("sessions")
        assert "No sessions match." in await said("sessions", "--status", "stranded")


async def test_whoever_answers_below_a_suspended_session_is_told_which_one_to_activate_and_what_else_waits(
    treadle: Any,
) -> None:
    """Two levels deep: the agent in the middle is suspended, and two calls at the bottom wait."""
    address = str(treadle.folder / "j.db")
    session_id = await submit(address, "clerk", "Pay 7")
    async with working(address, {"clerk": clerk([call("wire", amount=7), call("wire", amount=8)])}):
        async with open_journal(address) as journal:
            await until(journal.approvals)
            await until(lambda: all_paused(journal, session_id))
            first, second = await journal.approvals()
            _, middle, bottom = await family(journal, session_id)

        async def said(*words: str) -> str:
            found = await asyncio.to_thread(treadle, *words, "--journal", "j.db", code=0)
            return str(found.stdout + found.stderr)

        tail = f"--journal {address}"
        assert f"treadle sessions show {middle} {tail}" in await said("sessions", "show", session_id)
        assert f"treadle approve {first.id} {tail}" in await said("sessions", "show", bottom)
        await said("sessions", "suspend", middle)
        answered = await said("approve", first.id)
        explained = await said("sessions", "explain", session_id)
        for text in (answered, explained):
            (activate,) = set(re.findall(r"treadle (sessions activate \S+ --journal \S+\.db)", text))
            assert activate == f"sessions activate {middle} {tail}"
            assert f"treadle approve {second.id} {tail}" in text
            assert f"treadle approve {first.id}" not in text
        await said(*activate.split())
        assert "is suspended" not in await said("approve", second.id)
        assert (await result(address, session_id, timeout=60)).status == "completed"


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
