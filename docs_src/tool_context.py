"""What a tool can use: its object's methods, the application's own object, and the context of its call."""

import asyncio
import sqlite3
from dataclasses import dataclass

from treadle import Agent, ToolContext, tool
from treadle.testing import ScriptedModel, call, text


@dataclass
class App:
    """The application's own object: whatever the tools need. It is never sent to the model."""

    database: sqlite3.Connection
    customer: str


@tool(effect="read")
async def orders(ctx: ToolContext[App]) -> list[str]:
    """List the orders of the customer who asks."""
    app = ctx.deps
    ctx.progress("Reading the orders")  # shown to people, never to the model
    found = app.database.execute("SELECT product FROM orders WHERE customer = ?", (app.customer,))
    return [product for (product,) in found]


class Basket:
    """Methods are tools too: pass a bound method to `tool`."""

    def __init__(self) -> None:
        self.products: list[str] = []

    async def add(self, product: str, ctx: ToolContext) -> int:
        """Put a product into the basket.

        Args:
            product: The product's name.
        """
        assert ctx.idempotency_key  # give it to a service that honours keys
        self.products.append(product)
        return len(self.products)


async def main() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE orders (customer TEXT, product TEXT)")
    database.execute("INSERT INTO orders VALUES ('ada', 'teapot'), ('bo', 'cup')")
    basket = Basket()
    model = ScriptedModel([call("orders"), call("add", product="teapot"), text("One teapot, as last time.")])
    agent = Agent(model, tools=[orders, tool(basket.add, effect="unsafe", permission="allow")])

    result = await agent.run("The same as last time", deps=App(database, customer="ada"))

    print(result.text, basket.products)
    assert basket.products == ["teapot"]


asyncio.run(main())
