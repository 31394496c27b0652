"""Answers and deps that type checkers infer: unions, lists, literals, free text, and what an agent's tools need. Checked by both; never run."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

import msgspec
from pydantic import BaseModel

from treadle import Agent, Budget, Run, RunContext, RunResult, Session, Tool, ToolContext, open_session, sync, tool
from treadle.testing import ScriptedModel, text
from treadle.tooling import FunctionTool
from treadle.workers import follow

model = ScriptedModel([text("hello")])


class Invoice(msgspec.Struct, frozen=True):
    number: int


class Refund(BaseModel):
    amount: int


@dataclass
class Note:
    words: str


class Reading(TypedDict):
    celsius: float


class Database:
    def find(self, number: int) -> str:
        return str(number)


class Replica(Database):
    """A database that only reads."""


# --- answers ---------------------------------------------------------------------------------------------------------

assert_type(Agent(model), Agent[Any, Any])
assert_type(Agent(model, output=Invoice), Agent[Any, Invoice])
assert_type(Agent(model, output=Refund), Agent[Any, Refund])
assert_type(Agent(model, output=Note), Agent[Any, Note])
assert_type(Agent(model, output=Reading), Agent[Any, Reading])
assert_type(Agent(model, output=Invoice | Refund), Agent[Any, Invoice | Refund])
assert_type(Agent(model, output=Invoice | Refund | Note), Agent[Any, Invoice | Refund | Note])
assert_type(Agent(model, output=Invoice | str), Agent[Any, Invoice | str])
assert_type(Agent(model, output=Invoice | None), Agent[Any, Invoice | None])
assert_type(Agent(model, output=list[Invoice]), Agent[Any, list[Invoice]])
assert_type(Agent(model, output=list[Invoice | Refund]), Agent[Any, list[Invoice | Refund]])
assert_type(Agent(model, output=list[Invoice] | str), Agent[Any, list[Invoice] | str])
assert_type(Agent(model, output=dict[str, int]), Agent[Any, dict[str, int]])
assert_type(Agent(model, output=tuple[int, str]), Agent[Any, tuple[int, str]])
assert_type(Agent(model, output=Literal["yes", "no"]), Agent[Any, Literal["yes", "no"]])
assert_type(Agent(model, output=str), Agent[Any, str])
assert_type(Agent(model, output=int), Agent[Any, int])
assert_type(Agent(model, output=bool), Agent[Any, bool])
assert_type(Agent(model, output={"type": "object"}), Agent[Any, Any])
assert_type(Agent(model, output=Invoice).replace(output=Note | str), Agent[Any, Note | str])
assert_type(Agent(model, output=Invoice).replace(output={"type": "object"}), Agent[Any, Any])
assert_type(Agent(model, output=Invoice).replace(budget=Budget(max_model_turns=3)), Agent[Any, Invoice])


async def answers() -> None:
    either = Agent(model, output=Invoice | Refund)
    found = await either.run("Look")
    assert_type(found, RunResult[Invoice | Refund])
    match found.output:
        case Invoice(number=number):
            assert_type(number, int)
        case Refund(amount=amount):
            assert_type(amount, int)
        case None:
            pass
    assert_type(await either.run("Look", output=Literal["yes", "no"]), RunResult[Literal["yes", "no"]])
    assert_type(await either.run("Look", output=Note | str), RunResult[Note | str])
    assert_type(await either.run("Look", output={"type": "object"}), RunResult[Any])
    assert_type(either.stream("Look", output=list[Note]), Run[list[Note]])
    assert_type(either.run_sync("Look", output=list[Note] | str), RunResult[list[Note] | str])
    assert_type(await either.run("Look", single_turn=True), RunResult[Invoice | Refund])


# --- deps ------------------------------------------------------------------------------------------------------------


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
def find(number: int, ctx: ToolContext[Database], *, verbose: bool = False) -> str:
    """Find an invoice."""
    return ctx.deps.find(number)


@tool(effect="read")
async def first(ctx: ToolContext[Database], number: int) -> str:
    """Find an invoice."""
    return ctx.deps.find(number)


@tool(effect="read")
async def fourth(year: int, month: int, day: int, ctx: ToolContext[Database]) -> str:
    """Find an invoice."""
    return ctx.deps.find(year + month + day)


@tool
def perhaps(number: int, ctx: ToolContext[Database | None]) -> str:
    """Find an invoice."""
    return "" if ctx.deps is None else ctx.deps.find(number)


class Desk:
    @tool(effect="read")
    def invoice(self, number: int, ctx: ToolContext[Database]) -> str:
        """Find an invoice."""
        return ctx.deps.find(number)


async def greeting(ctx: RunContext[Database]) -> str:
    return ctx.deps.find(7)


of_double: FunctionTool[[int], int, object] = double
assert_type(double(4), int)
written: Tool[Database] = find
any_deps: Tool[Database] = double
tools: list[Tool[Database]] = [double, find, first, fourth, perhaps, Desk().invoice]
assert_type(Agent(model, tools=[double]), Agent[object, Any])
assert_type(Agent(model, tools=[find]), Agent[Database, Any])
assert_type(Agent(model, tools=[first], output=Invoice | str), Agent[Database, Invoice | str])
assert_type(Agent(model, tools=[fourth]), Agent[Database, Any])
assert_type(Agent(model, tools=[Desk().invoice]), Agent[Database, Any])
assert_type(Agent(model, tools=tools), Agent[Database, Any])
assert_type(Agent(model, instructions=greeting), Agent[Database, Any])
whole: Agent[Database, Invoice] = Agent(
    model, tools=[double, find, perhaps, Desk().invoice], instructions=["Be brief.", greeting], output=Invoice
)
for_replica: Agent[Replica, Invoice] = whole
as_part: Tool[Database] = whole.as_tool("bookkeeper", "Answers about invoices.")


async def runs(session: Session) -> None:
    assert_type(await whole.run("Find it", deps=Database()), RunResult[Invoice])
    assert_type(await whole.run("Find it", deps=Replica()), RunResult[Invoice])
    assert_type(await whole.resume(session, deps=Database()), RunResult[Invoice])
    assert_type(await Agent(model, tools=[double]).run("Double it"), RunResult[Any])
    assert_type(await Agent(model, tools=[double]).run("Double it", deps=Database()), RunResult[Any])
    assert_type(await Agent(model, tools=[perhaps]).run("Look"), RunResult[Any])
    assert_type(await Agent(model).resume(session), RunResult[Any])
    await whole.run("Find it", deps=Database(), tools=[find, double])


# --- programs that are not async -------------------------------------------------------------------------------------


def plain() -> None:
    with sync.opened(open_session("desk.db", id="7")) as session:
        assert_type(session, Session)
        assert_type(whole.run_sync("Find it", session=session, deps=Database()), RunResult[Invoice])
        sync.wait(session.answer("approval_1", "allow"))
        assert_type(sync.wait(whole.run("Find it", deps=Database())), RunResult[Invoice])
    for event in sync.each(follow("desk.db", "7")):
        assert_type(event.session_id, str)
