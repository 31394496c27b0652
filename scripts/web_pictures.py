"""Take pictures of the web page, dark and light, into docs/pictures: an inbox and a session. Needs Chromium."""

import asyncio
import logging
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from playwright.async_api import async_playwright

from treadle import Agent, open_journal, open_session, tool
from treadle.budgets import Price
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import ask_user_tool
from treadle.web import Access, web

__all__ = ["FOLDER", "NAMES"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
NAMES = ("inbox", "session")
_WIDTH, _HEIGHT = 1160, 700
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@tool(effect="read")
async def find_order(order: int) -> str:
    """Find an order."""
    return f"Order {order}: 2 teapots, 48.00 EUR, delivered on Monday, one of them broken."


@tool(effect="read")
async def find_customer(email: str) -> str:
    """Find a customer."""
    return "A customer since 2021 with 14 orders and no refund before."


@tool(effect="unsafe")
async def refund(order: int, amount: float, reason: str) -> str:
    """Refund money."""
    return f"{amount} EUR refunded."


@tool(effect="unsafe", permission="allow")
async def send_parcel(order: int) -> str:
    """Send a parcel, and hear nothing of it."""
    raise ConnectionResetError("The carrier closed the connection before it answered.")


_STORIES = (
    ("acme", "The teapot of order 4711 arrived broken. ada@acme.example wants her money back.", (
        [text("I will look at the order and the customer."), call("find_order", order=4711), call("find_customer", email="ada@acme.example")],
        [text("One of two teapots is broken, so half of the price is due."),
         call("refund", order=4711, amount=24.0, reason="one of two teapots arrived broken")],
    )),
    ("globex", "Order 4655 got lost. Send it again.", (
        call("find_order", order=4655), call("send_parcel", order=4655),
        text("The carrier did not answer, so I do not know whether the parcel was sent."),
    )),
    ("acme", "Change the address of order 4720.", (
        call("ask_user", question="Which address shall order 4720 go to?", choices=["Home", "Office"]),
    )),
    ("initech", "Where is order 4698, and what else did grace@initech.example order?", (
        [text("I will look at both."), call("find_order", order=4698), call("find_customer", email="grace@initech.example")],
        text("Order 4698 was **delivered on Monday**. She has ordered 14 times since 2021, and never wanted money back."),
    )),
)  # fmt: skip


async def _pictures(program: str) -> None:
    async with open_journal("memory:") as journal:
        for tenant, task, turns in _STORIES:
            tools = [find_order, find_customer, refund, send_parcel, ask_user_tool()]
            model = ScriptedModel(list(turns), name="a-model", price=Price(input=3, output=15))
            async with open_session(journal) as session:
                await Agent(model, tools=tools, name="support").run(task, session=session, tenant=tenant)
        access = Access()
        async with _served(web(journal, access=access)) as url, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
            await page.goto(f"{url}/enter?key={access.new_link('ada')}")
            for theme in ("light", "dark"):
                await page.emulate_media(color_scheme=theme)
                for name, place in zip(NAMES, ("/inbox", f"/session?id={session.id}"), strict=True):
                    await page.goto(f"{url}{place}", wait_until="load")
                    await page.screenshot(path=FOLDER / f"web-{name}-{theme}.png")
            await browser.close()


@asynccontextmanager
async def _served(app: object) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


if __name__ == "__main__":
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        sys.exit("The pictures of the web page need Chromium: apt-get install chromium")
    logging.disable()  # the story has an error
    asyncio.run(_pictures(found))
