"""What a type checker must refuse: each line with `# refused` is an error for mypy and for pyright, and no other line is one.

Never run. tests/test_typing.py compares what the checkers say with the marks.
"""

from typing import Any, Literal

import msgspec

from treadle import Agent, Budget, RunContext, RunResult, Session, Tool, ToolContext, tool
from treadle.testing import ScriptedModel, text, tool_context

model = ScriptedModel([text("hello")])


class Invoice(msgspec.Struct, frozen=True):
    number: int


class Database:
    def find(self, number: int) -> str:
        return str(number)


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(effect="read")
async def find(number: int, ctx: ToolContext[Database]) -> str:
    """Find an invoice."""
    ctx.deps.missing(number)  # refused: a Database has no such method
    ctx.deps.find("seven")  # refused: find takes an int
    ctx.attempt = 3  # refused: read only
    return ctx.deps.find(number)


async def greeting(ctx: RunContext[Database]) -> str:
    ctx.deps.missing(7)  # refused: a Database has no such method
    return ctx.deps.find(7)


class Ledger:
    @tool
    def balance(self, account: int) -> str:
        """Return the balance of an account."""
        return str(account)


@tool
def of_ledger(account: int, ctx: ToolContext[Ledger]) -> str:
    """Return the balance of an account."""
    return ctx.deps.balance(account)


@tool(effect="read")
async def of_third(account: int, currency: str, ctx: ToolContext[Ledger], digits: int = 2) -> str:
    """Return the balance of an account."""
    return ctx.deps.balance(account)[:digits]


class Desk:
    @tool(effect="read")
    def invoice(self, number: int, ctx: ToolContext[Database]) -> str:
        """Find an invoice."""
        return ctx.deps.find(number)


double("four")  # refused: an int
double()  # refused: number is missing
double(4, 5)  # refused: one parameter
double(number=4, other=5)  # refused: no such parameter
halved: str = double(4)  # refused: an int comes back
Ledger().balance("seven")  # refused: an int
Ledger().balance(7, 8)  # refused: one parameter beside self

tool(effect="harmless")  # refused: no such effect
tool(tries=3)  # refused: no such option
tool(timeout="10 seconds")  # refused: a number
tool(double, retries="many")  # refused: an int
tool(3)  # refused: no function

agent: Agent[Database, Invoice] = Agent(model, tools=[double, find], output=Invoice)
wrong: Agent[Database, Invoice] = Agent(model, output=str)  # refused: another answer
Agent[Database, Invoice](model, output=str)  # refused: another answer
Agent(model, output=3)  # refused: no type
Agent(model, tools=[len])  # refused: a function that is not a tool
Agent(model, tools=double)  # refused: a list
Agent[Database, Any](model, tools=[of_ledger])  # refused: a tool of other deps
Agent[Database, Any](model, tools=[double, find, of_third])  # refused: a tool of other deps
Agent[Ledger, Any](model, tools=[Desk().invoice])  # refused: a method of other deps
other_deps: Agent[Database, Any] = Agent(model, tools=[of_ledger, double])  # refused: a tool of other deps
part: Agent[Ledger, Any] = agent  # refused: it needs a Database
agent.replace(tools=[of_ledger])  # refused: a tool of other deps
either: Agent[Any, Invoice] = Agent(model, output=Invoice | str)  # refused: perhaps a text
listed: Agent[Any, list[int]] = Agent(model, output=list[str])  # refused: a list of texts
word: Agent[Any, Literal["yes"]] = Agent(model, output=Literal["yes", "no"])  # refused: perhaps "no"
desk = Agent(model, tools=[Desk().invoice])
Agent(model, on_limit="explode")  # refused: no such value
Agent(model, max_turns=3)  # refused: an option of Budget
Agent(model, budget=Budget(max_turns=3))  # refused: a misspelt limit
Agent[Ledger, Any](model, instructions=greeting)  # refused: it needs a Database
Agent(model, instructions=3)  # refused: neither a text nor a function
agent.replace(instruction="Be brief.")  # refused: no such option
agent.replace(max_depth="three")  # refused: an int
changed: Agent[Database, Invoice] = agent.replace(output=str)  # refused: another answer
Agent(model, subscribers=[double])  # refused: a subscriber takes an event


async def runs(session: Session) -> None:
    result = await agent.run("Find it", deps=Database())
    await agent.run("Find it", deps="a text")  # refused: a Database
    await agent.resume(session, deps=3)  # refused: a Database
    agent.stream("Find it", deps=Ledger())  # refused: a Database
    agent.stream("Find it")  # refused: deps are missing
    await agent.run("Find it")  # refused: deps are missing
    agent.run_sync("Find it")  # refused: deps are missing
    await agent.resume(session)  # refused: deps are missing
    agent.resume_sync(session)  # refused: deps are missing
    agent.stream_resume(session)  # refused: deps are missing
    await agent.run("Find it", deps=None)  # refused: a Database
    await Agent(model, tools=[find]).run("Find it")  # refused: its tool needs a Database
    await Agent(model, tools=[find]).run("Find it", deps=Ledger())  # refused: its tool needs a Database
    await Agent(model, instructions=greeting).run("Find it")  # refused: its instructions need a Database
    await desk.run("Find it", deps=Ledger())  # refused: its method needs a Database
    await agent.run("Find it", deps=Database(), tools=[of_ledger])  # refused: a tool of other deps
    (await agent.run("Find it", deps=Database(), output=Invoice | str)).output.number  # refused: perhaps a text
    await agent.run("Find it", deps=Database(), instruction="Be brief.")  # refused: no such option
    await agent.run("Find it", deps=lambda session: Ledger())  # refused: a Database
    await agent.run("Find it", deps=Database(), tenant=7)  # refused: a string
    (await agent.run("Find it", deps=Database(), output=list[str])).output.total  # refused: a list, or None
    await agent.resume("session-7", deps=Database())  # refused: a Session
    result.output.number  # refused: None after an abnormal stop
    if result.output is not None:
        result.output.total  # refused: no such field
    number: int = result.output  # refused: an Invoice
    other: RunResult[str] = result  # refused: an Invoice
    result.session.answers()  # refused: no such method
    result.session.answer("approval_1", "perhaps")  # refused: allow or deny
    await find(7, tool_context(Ledger()))  # refused: a Database
    await find(7)  # refused: ctx is missing
    async with agent.stream("Find it", deps=Database()) as run:
        async for piece in run.text():
            piece.seq  # refused: a text
        run.result.output.total  # refused: no such field


def calls(raw: Tool) -> None:
    raw(4)  # refused: a plain Tool cannot be called
