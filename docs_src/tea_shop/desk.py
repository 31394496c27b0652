"""The desk of a tea shop: the shop, five tools that work on it, and the agent."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

import pydantic

from treadle import Agent, Budget, Rejected, ToolContext, tool
from treadle.ports import Model

PRICES = {"teapot": Decimal("24.50"), "cup": Decimal("6.00")}


@dataclass
class Shop:
    """The application's own object, one for each run: `deps=Shop("ada")`."""

    customer: str
    stock: dict[str, int] = field(default_factory=lambda: {"teapot": 12, "cup": 0})
    reserved: dict[str, int] = field(default_factory=dict[str, int])
    orders: dict[str, str] = field(default_factory=dict[str, str])

    def check(self, product: str) -> None:
        if product not in self.stock:
            raise Rejected({"error": "NO_SUCH_PRODUCT", "known": list(self.stock)})


class Address(pydantic.BaseModel):
    street: str
    town: str


class Answer(pydantic.BaseModel):
    """What a run of the desk results in."""

    status: Literal["ordered", "not ordered"]
    product: str
    pieces: int
    total: Decimal


@tool(effect="read")
async def find_products(query: str, ctx: ToolContext[Shop]) -> list[str]:
    """Find products by a part of their name.

    Args:
        query: A part of the name, such as `tea`.
    """
    return [name for name in ctx.deps.stock if query in name]


@tool(effect="read")
async def stock(product: str, ctx: ToolContext[Shop]) -> int:
    """Return how many pieces of a product are in stock.

    Args:
        product: The product's name, as `find_products` returns it.
    """
    ctx.deps.check(product)
    return ctx.deps.stock[product]


@tool(effect="read")
async def price(product: str, pieces: int, ctx: ToolContext[Shop]) -> Decimal:
    """Return the price of some pieces of a product, in euros.

    Args:
        product: The product's name.
        pieces: How many pieces.
    """
    ctx.deps.check(product)
    return PRICES[product] * pieces


@tool(effect="keyed", permission="allow")
async def reserve(product: str, pieces: int, ctx: ToolContext[Shop]) -> int:
    """Reserve pieces of a product for this customer. Returns how many are left.

    Args:
        product: The product's name.
        pieces: How many pieces.
    """
    shop = ctx.deps
    shop.check(product)
    if ctx.idempotency_key not in shop.reserved:  # a repeated call has the same key
        shop.reserved[ctx.idempotency_key] = pieces
        shop.stock[product] -= pieces
    return shop.stock[product]


@tool(effect="keyed", permission="always_ask")
async def order(product: str, pieces: int, address: Address, ctx: ToolContext[Shop]) -> str:
    """Order pieces of a product. A person of the shop must allow it.

    Args:
        product: The product's name.
        pieces: How many pieces.
        address: Where they are sent.
    """
    shop = ctx.deps
    shop.check(product)
    return shop.orders.setdefault(ctx.idempotency_key, f"{pieces} x {product} for {shop.customer}, {address.town}")


def make_agent(model: str | Model) -> Agent[Shop, Answer]:
    return Agent(
        model,
        name="desk",
        instructions="You work at the desk of a tea shop. Reserve before you order.",
        tools=[find_products, stock, price, reserve, order],
        output=Answer,
        budget=Budget(max_model_turns=20),
    )
