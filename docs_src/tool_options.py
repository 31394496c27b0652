"""The options of a tool, each on a tool that needs it."""

import asyncio

from treadle import Agent, Done, NotDone, Tool, ToolContext, allow, tool
from treadle.testing import ScriptedModel, TurnLike, call, text
from treadle.tools import JsonObject, Subject

PAID: dict[str, int] = {}


@tool(name="price", effect="read", timeout=5, retries=1, result_limit=2_000, examples=[{"product": "teapot"}])
async def look_up_the_price(product: str) -> float:
    """Return the price of a product in euros."""
    return 24.5


async def was_paid(arguments: JsonObject, ctx: ToolContext) -> object:
    return Done(PAID[ctx.idempotency_key]) if ctx.idempotency_key in PAID else NotDone


def invoice_of(arguments: JsonObject) -> object:
    return arguments["invoice"]


@tool(effect="unsafe", timeout=20, check=was_paid, key=invoice_of, permission="ask", interrupt="block")
async def pay(invoice: str, amount: int, ctx: ToolContext) -> int:
    """Pay an invoice."""
    PAID[ctx.idempotency_key] = amount
    return amount


def effect_of(arguments: JsonObject) -> str:
    return "read" if arguments["command"].startswith("show ") else "unsafe"


@tool(effect=effect_of)
async def database(command: str) -> str:
    """Run a command of the database."""
    return "3 rows"


def writes(arguments: JsonObject) -> dict[str, str]:
    return {f"file:{arguments['path']}": "write"}


def names(arguments: JsonObject) -> dict[str, Subject]:
    return {"path": Subject(names=(arguments["path"].lower(),))}


@tool(effect="idempotent", resources=writes, subjects=names)
async def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters"


@tool(effect="read", polling=True)
async def is_ready(order: str) -> bool:
    """Say whether an order is ready. Ask again until it is."""
    return True


@tool(
    effect="read",
    ends_run=True,
    visible=lambda session: len(session.messages) > 1,
    guidance="Submit only complete work.",
)
async def submit(answer: str) -> str:
    """Hand in the answer."""
    return answer


async def main() -> None:
    turns: list[TurnLike] = [
        [call("price", product="teapot"), call("database", command="show orders")],
        [call("write_file", path="A.txt", content="24.5"), call("pay", invoice="7", amount=40)],
        call("is_ready", order="7"),
        call("submit", answer="All done."),
    ]
    tools: list[Tool] = [look_up_the_price, pay, database, write_file, is_ready, submit]
    agent = Agent(ScriptedModel([*turns, text("")]), tools=tools, policy=allow("write_file", "pay"))

    result = await agent.run("Do the day's work")

    print(result.reason, result.output)
    assert result.output == "All done."
    assert {one.status for one in result.tool_calls} == {"ok"}


asyncio.run(main())
