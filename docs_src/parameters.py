"""Every type that a parameter of a tool may have. Each value arrives with its Python type."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal, TypedDict

import pydantic

from treadle import Agent, tool
from treadle.testing import ScriptedModel, call, text


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Address(pydantic.BaseModel):
    street: str
    town: str


@dataclass
class Line:
    product: str
    pieces: int = 1


class Extras(TypedDict, total=False):
    ribbon: bool


@tool(effect="read")
def quote(
    customer: str,
    lines: list[Line],
    address: Address,
    due: date,
    discount: Annotated[Decimal, pydantic.Field(ge=0, le=50, description="Percent.")],
    size: Size = Size.SMALL,
    speed: Literal["normal", "express"] = "normal",
    extras: Extras | None = None,
    notes: dict[str, str] | None = None,
) -> dict[str, str]:
    """Calculate the price of an order."""
    pieces = sum(line.pieces for line in lines)
    return {"to": f"{customer}, {address.town}", "due": due.isoformat(), "pieces": str(pieces), "less": f"{discount} %"}


order = {
    "customer": "Ada",
    "lines": [{"product": "teapot"}, {"product": "cup", "pieces": 6}],
    "address": {"street": "Ring 1", "town": "Vienna"},
    "due": "2026-12-01",
    "discount": "7.5",
}
result = Agent(ScriptedModel([call("quote", arguments=order), text("Done.")]), tools=[quote]).run_sync("Quote it")

print(result.messages[-2].results[0].content)
assert result.tool_calls[0].status == "ok"
