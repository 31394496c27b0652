"""Deps that a function of the session returns or opens: for runs, for those that continue by id, for workers and servers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from treadle import (
    Agent,
    Agents,
    ConfigurationError,
    RunContext,
    RunResult,
    ToolContext,
    Worker,
    open_journal,
    open_session,
    submit,
    tool,
)
from treadle.events import RunFinished
from treadle.serve import Setup
from treadle.serve.work import Work
from treadle.testing import ScriptedModel, call, text
from treadle.tools import SessionSnapshot
from treadle.workers import result


@tool(effect="read")
async def whose(ctx: ToolContext[str]) -> str:
    """Say whose session it is."""
    return f"{ctx.deps}: {ctx.session.tenant}, {ctx.session.metadata.get('plan')}, {ctx.session.status}"


def clerk(turns: int = 1, **options: Any) -> Agent[Any, Any]:
    script = [turn for _ in range(turns) for turn in (call("whose"), text("done"))]
    return Agent(ScriptedModel(script, name="mock"), name="clerk", tools=[whose], **options)


def following() -> ScriptedModel:
    """Return a model that many sessions share."""
    return ScriptedModel([call("whose"), text("done")], name="mock", follows_history=True)


def contents(done: RunResult) -> list[str]:
    return [one.content for message in done.messages for one in message.results]


def returned(session: SessionSnapshot) -> str:
    return f"{session.id} of {session.tenant}"


async def awaited(session: SessionSnapshot) -> str:
    await asyncio.sleep(0)
    return returned(session)


@asynccontextmanager
async def opened(session: SessionSnapshot) -> AsyncIterator[str]:
    yield returned(session)


class Shops:
    def of(self, session: SessionSnapshot) -> str:
        return returned(session)


@pytest.mark.parametrize(
    "function",
    [returned, awaited, opened, Shops().of, partial(lambda word, session: returned(session), "x")],
    ids=["sync", "async", "context manager", "method", "partial"],
)
async def test_a_function_of_the_session_says_what_deps_are(function: Callable[..., Any]) -> None:
    def about(ctx: RunContext[str]) -> str:
        return f"For {ctx.deps}."

    agent = clerk(instructions=about)
    async with open_session("memory:", id="s") as session:
        done = await agent.run("go", session=session, deps=function, tenant="acme", metadata={"plan": "gold"})

    assert contents(done) == ["s of acme: acme, gold, running"]
    assert agent.model.requests[0].instructions == "For s of acme."  # type: ignore[attr-defined]  # a ScriptedModel


async def test_what_is_no_function_is_given_as_it_is_and_never_closed():
    class Pool:
        """Shared by many runs, and callable too."""

        closed = False

        def __call__(self, session: SessionSnapshot) -> str:
            return "called"

        async def __aenter__(self) -> Self:
            raise AssertionError("nobody enters a pool that is shared")

        async def __aexit__(self, *_: object) -> None:
            self.closed = True

        def __str__(self) -> str:
            return "pool"

    pool = Pool()
    by_object = await clerk().run("go", deps=pool)
    by_function = await clerk().run("go", deps=lambda _: pool)

    assert [contents(one)[0].partition(":")[0] for one in (by_object, by_function)] == ["pool", "pool"]
    assert not pool.closed


async def test_what_a_function_opened_is_closed_after_the_end_of_the_run_is_recorded():
    seen = list[object]()

    @asynccontextmanager
    async def connection(snapshot: SessionSnapshot) -> AsyncIterator[str]:
        seen.append(snapshot.status)
        try:
            yield "connection"
        finally:
            seen.append(type((await session.events())[-1]))

    async with open_session("memory:", id="s") as session:
        await clerk().run("go", session=session, deps=connection)

    assert seen == ["active", RunFinished]


async def test_what_a_function_opened_learns_of_a_run_that_raises_and_cannot_hide_it():
    seen = list[BaseException]()

    @asynccontextmanager
    async def swallows(_: SessionSnapshot) -> AsyncIterator[str]:
        try:
            yield "connection"
        except ConfigurationError as error:
            seen.append(error)

    def fails(ctx: RunContext) -> str:
        raise LookupError("no such customer")

    with pytest.raises(ConfigurationError, match="no such customer"):
        await clerk(instructions=fails).run("go", deps=swallows)
    assert len(seen) == 1


async def test_a_failure_to_close_is_logged_and_the_result_stays(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def breaks(_: SessionSnapshot) -> AsyncIterator[str]:
        yield "connection"
        raise OSError("connection lost")

    done = await clerk().run("go", deps=breaks)

    assert done.completed
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "could not be closed" in record.getMessage()


async def test_a_function_that_fails_or_returns_nothing_that_a_tool_needs_begins_no_run():
    async def fails(_: SessionSnapshot) -> str:
        raise OSError("no database")

    async with open_session("memory:", id="s") as session:
        with pytest.raises(ConfigurationError, match="The function for deps failed: OSError: no database"):
            await clerk().run("go", session=session, deps=fails)
        with pytest.raises(ConfigurationError, match=r"needs `ctx\.deps` of the type str"):
            await clerk().run("go", session=session, deps=lambda _: None)
        assert await session.events() == ()


async def test_a_run_that_is_cancelled_while_its_deps_are_opened_ends_as_cancelled():
    entered, never = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(_: SessionSnapshot) -> AsyncIterator[str]:
        entered.set()
        await never.wait()
        yield "connection"

    async with clerk().stream("go", deps=slow) as run:
        await entered.wait()
        run.cancel(by="ada")

    assert run.result.reason == "cancelled"


async def test_an_agent_that_is_a_tool_has_the_deps_of_its_caller():
    inner = clerk()
    lead = Agent(
        ScriptedModel([call("ask", task="who?"), text("done")]), tools=[inner.as_tool("ask", "Ask.", effect="read")]
    )
    opens = list[str]()

    def once(session: SessionSnapshot) -> str:
        opens.append(session.id)
        return "mine"

    done = await lead.run("go", deps=once, tenant="acme")

    assert done.completed
    assert opens == [done.session_id]


async def test_tools_and_instructions_of_an_agent_that_is_a_tool_know_whose_session_it_is():
    seen = list[tuple[str, str, Any]]()

    @tool(effect="read")
    async def whose(ctx: ToolContext) -> str:
        """Say whose session it is."""
        seen.append(("tool", ctx.session.tenant, ctx.session.metadata.get("user")))
        return "known"

    def about(ctx: RunContext) -> str:
        seen.append(("instructions", ctx.tenant, ctx.metadata.get("user")))
        return "Answer."

    inner = Agent(ScriptedModel([call("whose"), text("done")]), tools=[whose], instructions=about)
    middle = Agent(
        ScriptedModel([call("ask", task="who?"), text("done")]), tools=[inner.as_tool("ask", "Ask.", effect="read")]
    )
    lead = Agent(
        ScriptedModel([call("ask", task="who?"), text("done")]), tools=[middle.as_tool("ask", "Ask.", effect="read")]
    )

    done = await lead.run("go", tenant="acme", metadata={"user": "ada"})

    assert done.completed
    assert seen == [("instructions", "acme", "ada"), ("tool", "acme", "ada")]


# --- whoever continues runs of many sessions


async def handed_over(journal: Any, tenant: str) -> None:
    """Leave a session as a process does that ends in the middle of a call."""
    began, never = asyncio.Event(), asyncio.Event()

    @tool(effect="read", name="whose")
    async def waits(ctx: ToolContext[str]) -> str:
        """Say whose session it is."""
        began.set()
        await never.wait()
        return "never"

    agent = clerk().replace(tools=[waits])
    async with open_session(journal, id=tenant) as session:
        run = agent.stream("go", session=session, deps="of the process that ended", tenant=tenant)
        running = asyncio.ensure_future(run.finish())
        await began.wait()
        await run.hand_over()
        await asyncio.gather(running, return_exceptions=True)


async def test_resume_all_gives_each_session_its_own_deps():
    journal = await open_journal("memory:")
    for tenant in ("acme", "initech"):
        await handed_over(journal, tenant)
    seen = list[str]()

    @asynccontextmanager
    async def connection(session: SessionSnapshot) -> AsyncIterator[str]:
        seen.append(f"{session.tenant} {session.status}")
        yield session.tenant

    ended = await Agents([clerk().replace(model=following())]).resume_all(journal, deps=connection)

    assert sorted(seen) == ["acme running", "initech running"]
    assert {name: contents(one) for name, one in ended.items()} == {
        one: [f"{one}: {one}, None, running"] for one in ("acme", "initech")
    }


async def test_a_worker_gives_each_session_its_own_deps(tmp_path: Path) -> None:
    address = tmp_path / "agent.db"
    ids = [await submit(address, "clerk", "go", tenant=tenant) for tenant in ("acme", "initech")]
    seen = list[str]()

    @asynccontextmanager
    async def connection(session: SessionSnapshot) -> AsyncIterator[str]:
        yield f"connection of {session.tenant}"
        seen.append(session.tenant)

    worker = Worker(address, [clerk().replace(model=following())], deps=connection)
    running = asyncio.create_task(worker.run())
    for one in ids:
        assert (await result(address, one, timeout=60)).status == "completed"
    worker.stop()
    await running

    assert sorted(seen) == ["acme", "initech"]
    async with open_session(address, id=ids[0]) as session:
        found = [one.content for message in session.messages for one in message.results]
    assert found == ["connection of acme: acme, None, running"]


async def test_a_served_agent_gives_each_session_its_own_deps():
    setup = Setup(agent=clerk(), deps=opened)

    async def nobody(_: object) -> None:
        return None

    async with open_session("memory:", id="s") as session:
        work = Work(setup, session, see=nobody, ask=nobody, by="a client")
        done = await work.start("go")

    assert contents(done) == ["s of : , None, running"]
