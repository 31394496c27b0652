"""A run that an agent of a program began, and a person at the command line: answered here, continued there."""

import asyncio

import pytest

from treadle import Agent, Session, Worker, open_journal, open_session, submit, tool
from treadle.permissions.policies import allow
from treadle.testing import ScriptedModel, call, text
from treadle.workers import result


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    return "paid"


@pytest.fixture
def waiting(treadle):
    """A session of a program's agent, in which a payment waits for a person."""

    async def begin() -> None:
        agent = Agent(ScriptedModel([call("pay", amount=40)]), name="clerk", tools=[pay])
        async with open_session(treadle.home / "journal.db", id="invoice-7") as session:
            await agent.run("Pay", session=session)

    treadle.home.mkdir()
    (treadle.folder / "script.json").write_text('[{"text": "Done."}]')
    (treadle.folder / "paying.py").write_text(
        """from treadle import tool
@tool(effect="unsafe")
async def pay(amount: int) -> str:
    "Pay an invoice."
    return "paid here"
"""
    )
    asyncio.run(begin())
    return treadle


def test_an_answer_says_that_the_program_continues_the_run(waiting):
    approved = waiting("approve", "--last", "--by", "bo", code=0)

    assert "Resume the run in the program that has the agent clerk: it is not known here." in approved.stderr
    assert "treadle resume" not in approved.stderr


def test_the_command_line_does_not_continue_the_run_of_a_programs_agent_without_being_asked_to(waiting):
    waiting("approve", "--last", code=0)

    refused = waiting("resume", "invoice-7", "-m", "script:script.json", "--tools", "paying.py", code=2)

    assert "belongs to the agent clerk of a program" in refused.stderr
    assert "--accept-change" in refused.stderr
    assert resumed_by_the_program(waiting).text == "Paid."


def resumed_by_the_program(treadle):
    async def resume() -> Session:
        agent = Agent(ScriptedModel([text("Paid.")]), name="clerk", tools=[pay])
        async with open_session(treadle.home / "journal.db", id="invoice-7") as session:
            return await agent.resume(session)

    return asyncio.run(resume())


def test_a_person_may_accept_the_change(waiting):
    waiting("approve", "--last", code=0)

    flags = ["-m", "script:script.json", "--tools", "paying.py", "--accept-change"]
    report = waiting.json("resume", "invoice-7", *flags, "--json", code=0)

    assert report["text"] == "Done."
    assert [one["status"] for one in report["tool_calls"]] == ["ok"]


@pytest.mark.parametrize("accepts", [False, True])
def test_a_conversation_does_not_continue_the_run_of_a_programs_agent_without_being_asked_to(waiting, accepts):
    import pexpect

    waiting("approve", "--last", code=0)
    flags = ["--session", "invoice-7", "-m", "script:script.json", "--tools", "paying.py"]
    command = waiting.command("chat", *flags, *(["--accept-change"] if accepts else []))
    child = pexpect.spawn(
        command[0],
        command[1:],
        cwd=str(waiting.folder),
        env={**waiting.environment, "TERM": "dumb"},
        encoding="utf-8",
        timeout=60,
        dimensions=(24, 200),
    )
    try:
        child.expect("a new message starts a new task")
        child.sendline("/resume invoice-7")
        child.expect("paid here" if accepts else "belongs to the agent clerk of a program")
        child.sendline("/exit")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)


def test_an_answer_below_an_agent_as_a_tool_names_what_continues_the_run_at_the_top(treadle):
    """The child has no record of its own of who set it up: the top has."""

    async def begin() -> None:
        helper = Agent(ScriptedModel([call("pay", amount=40)]), tools=[pay])
        model = ScriptedModel([call("helper", task="Pay")])
        clerk = Agent(model, name="clerk", tools=[helper.as_tool("helper", "Helps.")], policy=allow("helper"))
        async with open_session(treadle.home / "journal.db", id="top") as session:
            await clerk.run("Pay", session=session)

    treadle.home.mkdir()
    asyncio.run(begin())

    approved = treadle("approve", "--last", "--by", "bo", code=0)

    assert "Resume the run in the program that has the agent clerk: it is not known here." in approved.stderr
    assert "treadle resume" not in approved.stderr


async def test_an_answer_names_the_worker_that_continues_the_run(treadle):
    journal = treadle.home / "journal.db"
    treadle.home.mkdir()
    worker = Worker(
        journal, [Agent(ScriptedModel([call("pay", amount=1), text("Paid.")]), name="clerk", tools=[pay])], name="w1"
    )
    running = asyncio.create_task(worker.run())
    session_id = await submit(journal, "clerk", "Pay")
    async with open_journal(journal) as store:
        async for event in store.follow(session_id):
            if event.type == "run.paused":
                break
        while await store.held([session_id]):  # the run that has paused gives the session back
            await asyncio.sleep(0)
        approved = await asyncio.to_thread(treadle, "approve", "--last", code=0)
        ended = await result(store, session_id, timeout=60)
    worker.stop()
    await running

    assert f"A worker continues session {session_id}: w1 has its agent clerk." in approved.stderr
    assert ended.text == "Paid."
