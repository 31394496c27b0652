"""What arrives for an agent as a tool, two levels below the session that a worker runs, wakes that session."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.workers.test_workers import until, working

from pipeline_tools import called_through
from treadle import Agent, Done, Suspended, ToolContext, open_journal, open_session, tool
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.workers import PgQueuerDispatcher, result, submit

pytestmark = pytest.mark.row("N19")


@tool(effect="unsafe", permission="ask")
async def wire(amount: int) -> str:
    """Wire."""
    return f"wired {amount}"


@tool(effect="keyed", permission="allow")
async def paint(ctx: ToolContext) -> str:
    """Paint."""
    if not ctx.inputs:
        raise Suspended("a colour")
    return f"painted {ctx.inputs[-1]}"


def scripted(*turns: Any) -> ScriptedModel:
    return ScriptedModel(list(turns), follows_history=True)


def clerk(leaf: Any = None) -> Callable[[], Agent]:
    """Return what makes an agent that calls an agent, which calls an agent, which makes this call."""

    def said(request: Any) -> Any:
        results = [one.content for message in request.messages for one in message.results]
        steered = [message.text for message in request.messages if message.role == "user"][1:]
        return text("; ".join([*results, *steered]))

    def make() -> Agent:
        bottom = Agent(scripted(leaf or call("wire", amount=7), said), tools=[wire, paint])
        return called_through(bottom, "helper", "middle", answer=said)

    return make


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[Any, dict[str, Any]]:
    """A journal, and how workers find what is in it."""
    if request.param == "memory":
        return MemoryJournal(), {}
    if request.param == "sqlite":
        return str(tmp_path / "agent.db"), {}
    url = request.getfixturevalue("postgres_url")
    return url, {"dispatcher": PgQueuerDispatcher(url)} if request.param == "pgqueuer" else {}


@asynccontextmanager
async def opened(journal: Any) -> AsyncIterator[Journal]:
    if isinstance(journal, MemoryJournal):
        yield journal
    else:
        async with open_journal(journal) as store:
            yield store


async def family(journal: Journal, root: str) -> list[str]:
    """Return the sessions from the top down."""
    ids = [root]
    while below := [one.id for one in await journal.sessions() if one.parent_id == ids[-1]]:
        ids += below
    return ids


async def all_paused(journal: Journal, root: str) -> bool:
    statuses = {one.id: one.run_status for one in await journal.sessions()}
    return len(statuses) == 3 and set(statuses.values()) == {"paused"}


async def recorded(journal: Journal, ids: Sequence[str]) -> list[Sequence[AnyEvent]]:
    return [await journal.read(one) for one in ids]


async def answer(journal: Journal, ids: Sequence[str], at: int, word: Any) -> None:
    (asked,) = await journal.approvals()
    async with open_session(journal, id=ids[at], must_exist=True) as session:
        await session.answer(asked.id, word, reason="no")


async def cancel(journal: Journal, session_id: str) -> None:
    async with open_session(journal, id=session_id, must_exist=True) as session:
        assert await session.cancel()


async def give(journal: Journal, session_id: str) -> None:
    async with open_session(journal, id=session_id, must_exist=True) as session:
        (waiting,) = [one.call.id for one in session.state.suspended]
        await session.input(waiting, "red")


async def steer(journal: Journal, ids: Sequence[str]) -> None:
    async with open_session(journal, id=ids[2], must_exist=True) as session:
        await session.steer("Hurry")
    await answer(journal, ids, 2, "allow")


async def activate(journal: Journal, ids: Sequence[str]) -> None:
    async with open_session(journal, id=ids[2], must_exist=True) as session:
        await session.change(status="suspended")
        await answer(journal, ids, 2, "allow")
        await session.change(status="active")


ARRIVALS: dict[str, tuple[Any, Callable[[Journal, Sequence[str]], Any], str, str]] = {
    "an answer, by the top": (None, lambda journal, ids: answer(journal, ids, 0, "allow"), "completed", "wired 7"),
    "an answer, by the middle": (None, lambda journal, ids: answer(journal, ids, 1, "allow"), "completed", "wired 7"),
    "an answer, by the bottom": (None, lambda journal, ids: answer(journal, ids, 2, "allow"), "completed", "wired 7"),
    "a denial": (None, lambda journal, ids: answer(journal, ids, 2, "deny"), "completed", "was denied: no"),
    "a message and an answer": (None, steer, "completed", "wired 7; Hurry"),
    "an answer and an activation": (None, activate, "completed", "wired 7"),
    "an input, by the top": (call("paint"), lambda journal, ids: give(journal, ids[0]), "completed", "painted red"),
    "an input, by the bottom": (call("paint"), lambda journal, ids: give(journal, ids[2]), "completed", "painted red"),
    "a cancellation of the top": (None, lambda journal, ids: cancel(journal, ids[0]), "stopped", ""),
    "a cancellation of the middle": (None, lambda journal, ids: cancel(journal, ids[1]), "completed", "cancelled"),
    "a cancellation of the bottom": (None, lambda journal, ids: cancel(journal, ids[2]), "completed", "cancelled"),
}


BEST_KNOWN = "an answer, by the bottom"
PLACES_AND_ARRIVALS = [("memory", arrival) for arrival in ARRIVALS] + [
    pytest.param(place, arrival, marks=() if arrival == BEST_KNOWN else pytest.mark.soak)
    for place in ("sqlite", "postgres", "pgqueuer")
    for arrival in ARRIVALS
]


@pytest.mark.parametrize(("place", "arrival"), PLACES_AND_ARRIVALS, indirect=["place"])
async def test_whatever_arrives_for_an_agent_as_a_tool_wakes_its_top(place: Any, arrival: str) -> None:
    leaf, arrive, status, says = ARRIVALS[arrival]
    store, options = place
    session_id = await submit(store, "clerk", "Pay 7")
    async with working(store, {"clerk": clerk(leaf)}, **options), opened(store) as journal:
        await until(lambda: all_paused(journal, session_id))
        await arrive(journal, await family(journal, session_id))
        ended = await result(journal, session_id, timeout=60)
    assert ended.status == status
    assert says in ended.text


async def test_a_request_that_expires_below_is_asked_anew_and_an_idle_family_records_nothing() -> None:
    clock, journal = FakeClock(), MemoryJournal()
    session_id = await submit(journal, "clerk", "Pay 7", clock=clock)
    async with working(journal, {"clerk": clerk()}, clock=clock):
        await until(lambda: all_paused(journal, session_id))
        (first,) = await journal.approvals()
        clock.advance(first.expires_at - clock.now() + 1)

        async def is_asked_anew() -> bool:
            return first.id not in {one.id for one in await journal.approvals()} and await all_paused(
                journal, session_id
            )

        await until(is_asked_anew)
        ids = await family(journal, session_id)
        before = await recorded(journal, ids)
        async with open_session(journal, id=ids[2]) as session:
            await session.steer("Hurry")
        other = await submit(journal, "clerk", "Pay 8", clock=clock)
        await result(journal, other, timeout=60)
        assert await recorded(journal, ids) == before
        (asked,) = [one for one in await journal.approvals() if one.root_id == session_id]
        async with open_session(journal, id=session_id, clock=clock) as session:
            await session.answer(asked.id, "allow")
        assert (await result(journal, session_id, timeout=60)).text == "wired 7; Hurry"


@pytest.mark.parametrize("place", ["memory", "pgqueuer"], indirect=True)
async def test_the_outcome_of_a_call_in_doubt_below_wakes_the_top(place: Any, caplog: Any) -> None:
    store, options = place
    begun = asyncio.Event()

    @tool(effect="unsafe", permission="allow")
    async def send() -> str:
        """Send."""
        begun.set()
        await asyncio.Event().wait()
        return "sent"

    def make() -> Agent:
        bottom = Agent(scripted(call("send"), text("It was sent.")), tools=[send], in_doubt="ask")
        return called_through(bottom, "helper", answer=text("done"))

    session_id = await submit(store, "clerk", "Send it")
    async with working(store, {"clerk": make}, drain_seconds=0.0):
        await asyncio.wait_for(begun.wait(), 60)
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []  # a hand-over is no failure
    async with working(store, {"clerk": make}, **options), opened(store) as journal:
        await until(journal.approvals)
        (asked,) = await journal.approvals()
        async with open_session(journal, id=asked.session_id) as session:
            await session.resolve(asked.call_id, Done("sent"))
        assert (await result(journal, session_id, timeout=60)).text == "done"
