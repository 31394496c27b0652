"""A run that its process lets go of, and the one loop that a service needs: resume what can continue, leave the rest alone."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from invariants import check_session
from treadle import (
    Agent,
    Agents,
    ConfigurationError,
    Done,
    Session,
    Suspended,
    Tool,
    ToolContext,
    allow,
    open_journal,
    open_session,
    tool,
)
from treadle.errors import RunHandedOver
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal, Toolset
from treadle.testing import Gate, ScriptedModel, call, text
from treadle.tools import JsonObject
from treadle.toolsets import ToolList


@tool(effect="unsafe", permission="ask")
async def wire(amount: int) -> str:
    """Wire."""
    return f"wired {amount}"


def above(agent: Agent, levels: int, name: str = "clerk") -> Agent:
    """Return an agent so many levels above this one, each calling the one below."""
    for level in range(levels):
        model = ScriptedModel([call(f"helper{level}", task="do it"), text("done")], follows_history=True)
        agent = Agent(
            model, tools=[agent.as_tool(f"helper{level}", "Helps.")], policy=allow(f"helper{level}"), name=name
        )
    return agent


def asking(levels: int = 0, tools: Sequence[Tool | Toolset] = (wire,)) -> Agent:
    twice = [call("wire", id="a", amount=7), call("wire", id="b", amount=7)]  # a repetition is noticed once
    model = ScriptedModel([twice, text("done")], follows_history=True)
    return above(Agent(model, tools=tools, name="clerk"), levels)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty journal that outlives its process."""
    url: str = str(tmp_path / "agent.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return url


async def recorded(journal: Journal) -> dict[str, list[str]]:
    return {one.id: [event.type for event in await journal.read(one.id)] for one in await journal.sessions()}


@pytest.mark.parametrize("tools", [wire, ToolList([wire], name="bank")], ids=["tool", "toolset"])
@pytest.mark.parametrize("levels", [0, 1, 2])
async def test_resuming_a_run_for_which_nothing_has_arrived_records_nothing(levels, tools):
    journal, agent = MemoryJournal(), asking(levels, [tools])
    async with open_session(journal, id="s") as session:
        paused = await agent.run("Wire 7", session=session)
    before = await recorded(journal)
    for _ in range(2):
        again = await Agents([agent]).resume(journal, "s")
        assert (again.reason, again.message) == (paused.reason, paused.message)
        assert [one.id for one in again.approvals] == [one.id for one in paused.approvals]
        assert await Agents([agent]).resume_all(journal) == {}
        assert await recorded(journal) == before
    async with open_session(journal, id="s") as session:
        for asked in await session.approvals():
            await session.answer(asked.id, "allow")
    assert await journal.resumable() == ("s",)
    found = await Agents([agent]).resume_all(journal)
    assert {name: one.text for name, one in found.items()} == {"s": "done"}
    async with open_session(journal, id="s") as session:
        await check_session(session)


async def test_a_service_that_looks_every_second_leaves_alone_what_only_waits(durable_address):
    async def paint(arguments: JsonObject, ctx: ToolContext) -> str:
        if not ctx.inputs:
            raise Suspended("a colour")
        return f"painted {ctx.inputs[-1]}"

    def agent(name: str) -> Agent:
        paints = Tool(name="paint", description="Paint.", parameters={}, effect="keyed", permission="allow", run=paint)
        model = ScriptedModel([call("paint", id="a"), text("done")], follows_history=True)
        return Agent(model, tools=[paints], name=name)

    async with open_journal(durable_address) as journal:
        for name in ("known", "other"):
            async with open_session(journal, id=name) as session:
                await agent(name).run("Paint", session=session)
        before, service = await recorded(journal), Agents([agent("known")])
        for _ in range(3):
            assert await service.resume_all(journal) == {}
        for name in ("known", "other"):
            async with open_session(journal, id=name) as session:
                await session.input("a", "red")
        assert sorted(await journal.resumable()) == ["known", "other"]
        assert [(name, one.text) for name, one in (await service.resume_all(journal)).items()] == [("known", "done")]
        assert (await recorded(journal))["other"] == before["other"]
        with pytest.raises(ConfigurationError, match="concurrency"):
            await service.resume_all(journal, concurrency=0)


class Act:
    """A call that acts, and is under way when its process lets go of the run."""

    def __init__(self, *, check: Any = None, in_doubt: Any = None, levels: int = 0) -> None:
        self.began, self.done, self._is_first = Gate(), 0, True
        self._check, self._in_doubt, self._levels = check, in_doubt, levels

    def agent(self) -> Agent:
        async def run(arguments: JsonObject, ctx: ToolContext) -> str:
            self.done += 1
            if self._is_first:
                self._is_first = False
                self.began.open()
                await asyncio.Event().wait()
            return "sent"

        async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
            return self._check

        send = Tool(
            name="send", description="Send.", parameters={}, effect="unsafe", permission="allow", run=run, timeout=None if self._check is None else 30.0,
            check=None if self._check is None else check,
        )  # fmt: skip
        model = ScriptedModel([call("send"), lambda request: text(_told(request))], follows_history=True)
        return above(Agent(model, tools=[send], name="clerk", in_doubt=self._in_doubt), self._levels)


def _told(request: Any) -> str:
    return "; ".join(f"I was told: {one.content}" for message in request.messages for one in message.results)


async def handed_over(agent: Agent, session: Session, began: Gate) -> None:
    """Begin a run, and let go of it while its call acts."""
    run = agent.stream("Send it", session=session)
    finishing = asyncio.ensure_future(run.finish())
    await began.wait()
    await run.hand_over()
    with pytest.raises(RunHandedOver, match="any process may resume it"):
        await finishing
    await run.hand_over()  # nothing is left to hand over


@pytest.mark.parametrize("levels", [0, 1, 2])
async def test_a_run_that_was_handed_over_stands_as_a_kill_leaves_it_and_its_call_is_settled_by_its_check(
    durable_address, levels
):
    act = Act(check=Done("it was sent"), levels=levels)
    async with open_journal(durable_address) as journal:
        async with open_session(journal, id="s") as session:
            await handed_over(act.agent(), session, act.began)
        events = await recorded(journal)
        assert {types[-1] for types in events.values()} <= {"tool.started", "child.started"}
        assert {one.run_status for one in await journal.sessions()} == {"running"}
        assert await journal.resumable() == ("s",)
    async with open_journal(durable_address) as journal:
        found = await Agents([act.agent()]).resume_all(journal)
        assert found["s"].completed
        async with open_session(journal, id="s") as session:
            await check_session(session)
    assert act.done == 1


@pytest.mark.parametrize(
    ("act", "reason", "says"),
    [(Act, "completed", "outcome is unknown"), (lambda: Act(in_doubt="ask"), "approval_required", "")],
)
async def test_a_call_that_acted_while_its_run_was_handed_over_is_never_repeated_unasked(act, reason, says):
    journal, acting = MemoryJournal(), act()
    async with open_session(journal, id="s") as session:
        await handed_over(acting.agent(), session, acting.began)
        resumed = await acting.agent().resume(session)  # the same process may change its mind
    assert (resumed.reason, acting.done) == (reason, 1)
    assert says in resumed.text


def thinking(asked: Gate) -> Agent:
    async def never(request: Any) -> Any:
        asked.open()
        await asyncio.Event().wait()

    return Agent(ScriptedModel([never]), name="clerk")


async def test_a_service_that_ends_hands_over_what_it_had_begun_and_what_it_had_resumed():
    journal, begun, resumed = MemoryJournal(), Gate(), Gate()
    unread: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    async with open_session(journal, id="s") as session:
        await handed_over(thinking(begun), session, begun)
    resuming = asyncio.ensure_future(Agents([thinking(resumed)]).resume_all(journal))
    await resumed.wait()
    assert await journal.resumable() == ()
    resuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resuming
    assert (await recorded(journal))["s"][-2:] == ["run.resumed", "model.started"]
    found = await Agents([Agent(ScriptedModel([text("done")]), name="clerk")]).resume_all(journal)
    assert {name: one.text for name, one in found.items()} == {"s": "done"}
    gc.collect()
    assert unread == []


async def test_a_run_that_has_not_begun_or_has_ended_is_not_changed_by_handing_it_over():
    run = Agent(ScriptedModel([text("done")])).stream("Go")
    await run.hand_over()
    assert (await run.finish()).text == "done"
    await run.hand_over()
    assert run.result.text == "done"
