"""Kill -9 inside an agent that is another's tool; then resume the caller. The child continues: one key, nothing done twice."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from crash_child import Job
from crashing import Children, World, answer_all, children, stored, world

from invariants import check_events, check_pairs
from treadle import open_journal, open_session
from treadle.events import ChildStarted, ToolStarted

POINTS = ("CP1", "CP4", "CP6", "CP8", "CP9", "CP10", "CP11", "CP12", "CP13", "CP15:before", "CP15:after")


@pytest.fixture
async def mother() -> AsyncIterator[Children]:
    async with children() as found:
        yield found


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "acts") as found:
        yield found


def job(tmp_path: Path, outside: World, **words: object) -> Job:
    return Job(journal=str(tmp_path / "a.db"), port=outside.port, out=str(tmp_path / "out"), **words)  # type: ignore[arg-type]


async def check_whole(path: Path, session: str = "s") -> dict[str, str]:
    """Assert that a session and its children are whole. Return the status of each call's one result, the children's too."""
    events, state = await stored(path / "a.db", session)
    check_events(events)
    check_pairs(state.messages, open_ids=set(state.open))
    statuses = {event.call_id or "": event.result.status.value for event in events if event.type == "tool.finished"}
    for child in {event.child_id for event in events if isinstance(event, ChildStarted)}:
        statuses |= await check_whole(path, child)
    return statuses


async def spent_turns(path: Path) -> int:
    _, state = await stored(path / "a.db")
    assert state.run is not None
    return state.run.spent.model_turns


@pytest.mark.row("N07")
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("effect", ["keyed", "unsafe"])
@pytest.mark.parametrize("point", POINTS)
async def test_killed_inside_the_child_nothing_is_done_twice_and_the_caller_goes_on(
    tmp_path: Path, mother: Children, outside: World, point: str, effect: str, depth: int
) -> None:
    if depth == 2 and point not in ("CP10", "CP11", "CP15:after"):
        return
    died = await mother.run(job(tmp_path, outside, effect=effect, point=point, depth=depth))
    assert died.was_killed, f"never reached {point}: {died}"

    ended = await mother.run(job(tmp_path, outside, effect=effect, act="again", depth=depth))

    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    statuses = await check_whole(tmp_path)
    assert outside.duplicates() == []
    assert statuses["clerk"] == "ok"
    is_lost = effect == "unsafe" and point in ("CP9", "CP10", "CP11")
    assert statuses["act_1"] == ("outcome_unknown" if is_lost else "ok")
    if effect == "keyed":
        assert statuses["act_2"] == "ok"
    expected = depth + 1 + depth + 1  # each asks twice: for the call, and for the answer
    assert ended.report["usage"]["input_tokens"] > 0
    assert await spent_turns(tmp_path) == expected


@pytest.mark.row("N07")
@pytest.mark.parametrize("point", ["CP7", "CP7:paused"])
async def test_killed_while_the_child_asks_the_question_stays_and_is_answered_at_the_caller(
    tmp_path: Path, mother: Children, outside: World, point: str
) -> None:
    died = await mother.run(job(tmp_path, outside, consent=True, point=point, depth=1))
    assert died.was_killed
    waits = await mother.run(job(tmp_path, outside, consent=True, depth=1))
    assert (waits.report["reason"], len(waits.report["approvals"])) == ("approval_required", 2)

    assert await answer_all(tmp_path / "a.db") == 2
    ended = await mother.run(job(tmp_path, outside, consent=True, act="again", depth=1))

    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    assert outside.requests() == {1: 1, 2: 1}
    assert outside.duplicates() == []
    assert await check_whole(tmp_path) == {"clerk": "ok", "look": "ok", "act_1": "ok", "act_2": "ok"}


@pytest.mark.row("N07")
async def test_a_payment_in_doubt_in_the_child_asks_the_person_who_resumes_the_caller(
    tmp_path: Path, mother: Children, outside: World
) -> None:
    words = {"effect": "unsafe", "in_doubt": "ask", "depth": 1}
    assert (await mother.run(job(tmp_path, outside, point="CP11", **words))).was_killed
    waits = await mother.run(job(tmp_path, outside, **words))
    assert waits.report["reason"] == "approval_required"
    asked = [one["call_id"] for one in waits.report["approvals"]]
    assert asked in (["act_1"], ["act_1", "act_2"])  # the two ran side by side, and the second may have ended
    before = outside.requests()

    assert await answer_all(tmp_path / "a.db", "deny") == len(asked)
    ended = await mother.run(job(tmp_path, outside, act="again", **words))

    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    assert outside.requests() == before
    statuses = await check_whole(tmp_path)
    assert statuses["act_1"] == "outcome_unknown"


@pytest.mark.row("N07")
@pytest.mark.parametrize("number", range(1, 20))
async def test_killed_around_any_commit_of_the_family_it_goes_on(
    tmp_path: Path, mother: Children, outside: World, number: int
) -> None:
    died = await mother.run(job(tmp_path, outside, effect="keyed", point=f"append:{number}:after", depth=1))
    ended = died
    if died.was_killed:
        ended = await mother.run(job(tmp_path, outside, effect="keyed", act="again", depth=1))
    if died.was_killed and ended.report.get("error", "").startswith("NothingToResume"):
        return  # its last commit was the caller's end
    assert (ended.code, ended.report.get("reason")) == (0, "completed"), ended
    statuses = await check_whole(tmp_path)
    assert outside.duplicates() == []
    assert statuses["clerk"] == "ok"


@pytest.mark.row("N07")
@pytest.mark.parametrize("point", ["CP6", "CP9", "CP11", "CP7:paused"])
async def test_a_caller_that_is_cancelled_after_the_crash_ends_its_child_without_another_act(
    tmp_path: Path, mother: Children, outside: World, point: str
) -> None:
    consents = point == "CP7:paused"
    died = await mother.run(job(tmp_path, outside, point=point, depth=1, consent=consents))
    assert died.was_killed
    events, _ = await stored(tmp_path / "a.db")
    (child,) = {event.child_id for event in events if isinstance(event, ChildStarted)}
    before, _ = await stored(tmp_path / "a.db", child)
    async with open_session(tmp_path / "a.db", id="s") as session:
        assert await session.cancel()
    async with open_journal(tmp_path / "a.db") as journal:
        assert await journal.approvals() == ()  # what the child asked is withdrawn with it

    ended = await mother.run(job(tmp_path, outside, depth=1, consent=consents))

    assert (ended.code, ended.report.get("reason")) == (0, "cancelled"), ended
    statuses = await check_whole(tmp_path)
    assert statuses["clerk"] == "outcome_unknown"
    events, _ = await stored(tmp_path / "a.db")
    below, state = await stored(tmp_path / "a.db", child)
    # Not by what the world has written so far: an act that the dead process had begun may reach it late.
    assert not [event for event in below[len(before) :] if isinstance(event, ToolStarted)]
    assert set(outside.requests().values()) <= {1}
    assert state.run is not None
    assert (state.run.phase, state.run.reason, state.open) == ("stopped", "cancelled", {})
    assert below[-1].at <= events[-1].at


_PAYS = """
import asyncio, os, signal, sys
from pathlib import Path
from treadle import Agent, Tool, allow, open_session
from treadle.messages import Finish, Text, ToolCall
from treadle.ports import ModelEnd

class Told:
    price = None
    def __init__(self, name, call, answer):
        self.name, self.call, self.answer = name, call, answer
    async def stream(self, request):
        await asyncio.sleep(0)
        is_first = all(message.role != "assistant" for message in request.messages)
        parts = (self.call,) if is_first else (Text(self.answer),)
        yield ModelEnd(parts=parts, finish=Finish.CALLS if is_first else Finish.STOP)

async def main(journal, paid, dies):
    async def pay(arguments, ctx):
        with Path(paid).open("a") as file:
            file.write(ctx.idempotency_key + "\\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"
    tool = Tool(name="pay", description="Pay.", parameters={}, effect="keyed", run=pay)
    child = Agent(Told("child", ToolCall(id="p", name="pay", arguments="{}"), "Paid."), tools=[tool], policy=allow("pay"))
    clerk = ToolCall(id="c", name="clerk", arguments='{"task": "Pay"}')
    lead = Agent(Told("lead", clerk, "Done."), tools=[child.as_tool("clerk", "Pays.")], policy=allow("clerk"))
    async with open_session(journal, id="s") as session:
        run = lead.run("Pay", session=session) if dies else lead.resume(session)
        print((await run).text, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] == "dies"))
"""


@pytest.mark.row("N07")
def test_killed_inside_a_childs_payment_on_postgresql_it_goes_on_under_the_same_key(
    postgres_url: str, tmp_path: Path
) -> None:
    paid = tmp_path / "paid"

    def process(how: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", _PAYS, postgres_url, str(paid), how]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    died = process("dies")
    assert died.returncode == -signal.SIGKILL, died.stderr
    ended = process("resumes")
    assert ended.stdout == "Done.\n", ended.stderr
    keys = paid.read_text().splitlines()
    assert (len(keys), len(set(keys))) == (2, 1)  # asked twice under one key: the service pays once
