"""A web service for the AG-UI check of scripts/conformance.py: one conversation in memory. It prints its address."""

import asyncio
import sys
from collections.abc import AsyncIterator

from aiohttp import web

from treadle import Agent, Rejected, ToolContext, ToolOutput, open_session, tool
from treadle.serve import serve_ag_ui
from treadle.testing import ScriptedModel, Turn, call, text


@tool(effect="read")
async def stock(product: str, ctx: ToolContext) -> ToolOutput:
    """Return how many pieces are in stock."""
    ctx.progress("Counting", done=1, total=2)
    return ToolOutput(data={"product": product, "pieces": 7}, display=f"7 {product} in stock")


@tool(effect="read")
async def price(product: str) -> float:
    """Return a price."""
    raise Rejected({"error": "NO_PRICE", "path": "/srv/prices"})


@tool(effect="unsafe")
async def order(product: str, pieces: int) -> str:
    """Order a product."""
    return f"{pieces} {product} ordered"


def scripted() -> ScriptedModel:
    return ScriptedModel(
        [
            Turn(
                thinking="I look first.",
                text="I look.",
                calls=(call("stock", product="cup"), call("price", product="cup")),
            ),
            [call("order", product="cup", pieces=2), call("order", product="pot", pieces=1)],
            text("Two cups are on their way."),
            text("You are welcome."),
        ]
    )


async def main() -> None:
    agent = Agent(scripted(), name="desk", tools=[stock, price, order])
    async with open_session("memory:", id="thread") as session:

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            pieces: AsyncIterator[bytes] = serve_ag_ui(
                agent,
                session,
                await request.read(),
                show=["reasoning"],
                state=lambda session: {"status": session.state.status},
            )
            async for piece in pieces:
                await response.write(piece)
            return response

        app = web.Application()
        app.add_routes([web.post("/", answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}/\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the other end goes
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
