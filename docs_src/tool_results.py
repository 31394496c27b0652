"""What a tool can return: a refusal, a transient error, an image, and a text for people in addition to the value for the model."""

import asyncio
import base64
import logging

from treadle import Agent, Rejected, ToolContext, ToolOutput, tool
from treadle.errors import Transient
from treadle.messages import Media
from treadle.testing import ScriptedModel, call, text

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@tool(effect="read")
async def customer(number: int) -> dict[str, str]:
    """Look up a customer."""
    raise Rejected({"error": "NO_SUCH_CUSTOMER", "number": number})  # the model reads this body, and may answer it


@tool(effect="read")
async def rate(currency: str, ctx: ToolContext) -> float:
    """Return today's exchange rate."""
    if ctx.attempt == 1:
        raise Transient("the service is busy", retry_after_seconds=0.01)  # tried again, because the tool only reads
    return 1.08


@tool(effect="read")
async def chart(product: str) -> ToolOutput:
    """Draw the sales of a product."""
    picture = Media(media_type="image/png", base64=PIXEL, name="sales.png")
    return ToolOutput(data={"weeks": 4}, media=(picture,), display="A chart of four weeks")


@tool(effect="read")
async def broken() -> int:
    """Count something."""
    raise ValueError("there is a fault in this tool")


async def main() -> None:
    logging.getLogger("treadle").setLevel(logging.ERROR)  # else the traceback of `broken` is shown, as a warning
    calls = [call("customer", number=9), call("rate", currency="USD"), call("chart", product="cup"), call("broken")]
    model = ScriptedModel([calls, text("Done.")])

    result = await Agent(model, tools=[customer, rate, chart, broken]).run("Look everything up")

    for one in model.requests[1].messages[-1].results:
        print(f"{one.name}: {one.content[:60]} {len(one.media)} pictures")
    assert [one.status for one in result.tool_calls] == ["rejected", "ok", "ok", "failed"]
    assert result.tool_calls[1].attempts == 2


asyncio.run(main())
