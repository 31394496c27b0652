"""Typed agents as users write them: deps, answers, tools and their tests. Checked by mypy and pyright in strict mode; never run."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

import msgspec

from treadle import Agent, Agents, Run, RunContext, RunResult, Session, Tool, ToolContext, open_session, tool
from treadle.events import AnyEvent, ModelDelta, encode_event, event_object
from treadle.ports import Interceptor, Policy
from treadle.testing import FakeToolContext, ScriptedModel, text, tool_context
from treadle.tooling import FunctionTool
from treadle.tools import SessionSnapshot


class Invoice(msgspec.Struct, frozen=True):
    number: int
    total: str


@dataclass
class Database:
    invoices: dict[int, str]

    async def find(self, number: int) -> str:
        return self.invoices[number]


# --- tools -----------------------------------------------------------------------------------------------------------


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(effect="read", timeout=5, examples=[{"number": 7}])
async def find_invoice(number: int, ctx: ToolContext[Database], *, verbose: bool = False) -> str:
    """Find an invoice."""
    ctx.progress("asking", done=1, total=2)
    assert_type(ctx.deps, Database)
    return await ctx.deps.find(number)


@tool
async def anything_goes(ctx: ToolContext) -> str:
    """Say something."""
    assert_type(ctx.deps, Any)
    return str(ctx.deps)


class Ledger:
    def __init__(self, currency: str) -> None:
        self.currency = currency

    @tool(effect="read")
    def balance(self, account: int) -> str:
        """Return the balance of an account."""
        return f"{account} {self.currency}"

    @tool
    async def pay(self, amount: int, ctx: ToolContext[Database]) -> bool:
        """Pay."""
        return bool(ctx.deps.invoices) and amount > 0


def plain(word: str) -> str:
    """Return a word."""
    return word


def plain_number(number: int, /) -> int:
    """Return a number."""
    return number


ledger = Ledger("EUR")
assert_type(double(4), int)
made: FunctionTool[[int], int] = tool(plain_number)
assert_type(ledger.balance(7), str)
assert_type(Ledger.balance(ledger, 7), str)
assert_type(tool(plain)("x"), str)
assert_type(tool(plain, effect="read", name="say")("x"), str)
assert_type(double.name, str)
tools: list[Tool] = [double, find_invoice, ledger.balance, ledger.pay, tool(plain)]
function: Callable[[int], int] = double


async def unit_tests() -> None:
    ctx = tool_context(Database({7: "Ada"}), attempt=2)
    assert_type(ctx, FakeToolContext[Database])
    assert_type(await find_invoice(7, ctx, verbose=True), str)
    assert_type(await ledger.pay(3, ctx), bool)
    await anything_goes(tool_context())
    await anything_goes(ctx)
    decision = await ctx.decide("delete", {"path": "a"})
    assert_type(decision.rule, str)


# --- agents ----------------------------------------------------------------------------------------------------------

model = ScriptedModel([text("hello")])
untyped = Agent(model, tools=tools)
assert_type(untyped, Agent[Any, Any])
answering = Agent(model, output=Invoice)
assert_type(answering, Agent[Any, Invoice])
listing = Agent(model, output=list[str])
assert_type(listing, Agent[Any, list[str]])
by_schema = Agent(model, output={"type": "object"})
one_of: Agent[Any, Any] = Agent(model, output=Literal["yes", "no"])
either = Agent[Any, int | str](model, output=int | str)
full: Agent[Database, Invoice] = Agent(model, tools=tools, output=Invoice)
explicit = Agent[Database, Invoice]("openai-chat:gpt-5-mini", tools=[double, ledger.balance], output=Invoice)
assert_type(explicit, Agent[Database, Invoice])
only_deps = Agent[Database](model, tools=tools)
assert_type(only_deps, Agent[Database, Any])
registered = Agents([untyped, answering, full])


async def runs() -> None:
    result = await full.run("Find invoice 7", deps=Database({}))
    assert_type(result, RunResult[Invoice])
    assert_type(result.output, Invoice | None)
    if result.output is not None:
        assert_type(result.output.number, int)
    assert_type(result.session, Session)
    assert_type(result.tool_calls[0].arguments, dict[str, Any])
    assert_type(result.run_id, str)
    assert_type(await full.resume(result.session, deps=Database({})), RunResult[Invoice])
    assert_type(full.run_sync("Find it", deps=Database({})), RunResult[Invoice])
    assert_type(full.resume_sync(result.session, deps=Database({})), RunResult[Invoice])
    await result.session.answer(result.approvals[0].id, "allow")
    assert_type((await listing.run("List them")).output, list[str] | None)


# --- one run, and agents made from others ------------------------------------------------------------------------------


async def greeting(ctx: RunContext[Database]) -> str:
    assert_type(ctx.deps, Database)
    assert_type(ctx.tenant, str)
    return await ctx.deps.find(7)


def season(ctx: RunContext) -> str | None:
    return None if ctx.session.status == "active" else "It is winter."


@asynccontextmanager
async def connection(session: SessionSnapshot) -> AsyncGenerator[Database]:
    yield Database({7: session.tenant})


written: Agent[Database, Invoice] = Agent(model, instructions=["Answer briefly.", greeting, season], output=Invoice)
assert_type(written.replace(model="demo", name="other"), Agent[Database, Invoice])
assert_type(written.replace(output=list[str]), Agent[Database, list[str]])


async def one_run() -> None:
    result = await written.run(
        "Find it", deps=Database({}), model="demo", tools=[double], tenant="acme", metadata={"user": 7}
    )
    assert_type(result, RunResult[Invoice])
    assert_type(
        await written.run("List", deps=Database({}), output=list[str], instructions=greeting), RunResult[list[str]]
    )
    await written.run("Find it", deps=connection)
    await written.run("Find it", deps=lambda session: Database({len(session.tenant): ""}))
    assert_type(await written.run("List", deps=connection, output=list[str], single_turn=True), RunResult[list[str]])
    assert_type(written.stream("List", deps=connection, output=list[str]), Run[list[str]])
    assert_type(written.run_sync("List", deps=connection, output=list[str]), RunResult[list[str]])
    assert_type(written.run_sync("List", deps=connection, instructions="Be brief."), RunResult[Invoice])


async def streams() -> AsyncIterator[bytes]:
    async with full.stream("Find invoice 7", deps=Database({})) as run:
        assert_type(run, Run[Invoice])
        async for piece in run.text():
            assert_type(piece, str)
        async for event in run:
            if isinstance(event, ModelDelta):
                assert_type(event.text, str)
            yield encode_event(event)
            assert_type(event_object(event), dict[str, Any])
    assert_type(run.result.output, Invoice | None)
    async with open_session("agent.db") as session, full.stream_resume(session, deps=Database({})) as again:
        assert_type(await again.finish(), RunResult[Invoice])


def subscriber(event: AnyEvent) -> None:
    print(event.type, event.seq)


class Reading(TypedDict):
    celsius: float


def uses(policy: Policy, interceptor: Interceptor, reading: Reading) -> Agent[Database, Reading]:
    return Agent(model, policy=policy, interceptors=[interceptor], subscribers=[subscriber], output=Reading)
