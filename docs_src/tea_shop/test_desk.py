"""Tests of the desk: a tool by itself, a run in this process, and the service with a person in another process."""

import json
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from desk import Answer, Shop, make_agent, reserve, stock

from treadle import Rejected, open_session
from treadle.testing import ScriptedModel, call, text, tool_context

ORDER = {"product": "teapot", "pieces": 2, "address": {"street": "Ring 1", "town": "Vienna"}}
ANSWER = {"status": "ordered", "product": "teapot", "pieces": 2, "total": "49.00"}
HERE = Path(__file__).parent


async def test_a_repeated_call_reserves_once() -> None:
    ctx = tool_context(deps=Shop("ada"))

    assert await reserve("teapot", 2, ctx) == 10
    assert await reserve("teapot", 2, ctx) == 10


async def test_an_unknown_product_is_refused() -> None:
    with pytest.raises(Rejected):
        await stock("samovar", tool_context(deps=Shop("ada")))


async def test_an_order_waits_for_a_person() -> None:
    shop = Shop("ada")
    agent = make_agent(ScriptedModel([call("order", arguments=ORDER), text(json.dumps(ANSWER))]))

    async with open_session("memory:") as session:
        paused = await agent.run("Two teapots, please", session=session, deps=shop)
        assert paused.reason == "approval_required"
        assert shop.orders == {}

        await session.answer(paused.approvals[0].id, "allow", by="bo")
        result = await agent.resume(session, deps=shop)

    assert result.output == Answer(status="ordered", product="teapot", pieces=2, total=Decimal(49))
    assert list(shop.orders.values()) == ["2 x teapot for ada, Vienna"]


def service(folder: Path) -> subprocess.Popen[str]:
    """Start the service as a process, with a model that reads its answers from a file."""
    turns = [
        {"calls": [{"name": "find_products", "arguments": {"query": "tea"}}]},
        {"calls": [{"name": "reserve", "arguments": {"product": "teapot", "pieces": 2}}]},
        {"calls": [{"name": "order", "arguments": ORDER}]},
        {"text": json.dumps(ANSWER)},
    ]
    (folder / "script.json").write_text(json.dumps(turns))
    command = [sys.executable, str(HERE / "service.py"), "shop.db", "script:script.json"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def approve_order(folder: Path) -> None:
    """Answer as a person does: on the command line."""
    command = [sys.executable, "-m", "treadle", "approve", "--last", "--by", "bo", "--journal", "shop.db"]
    subprocess.run(command, cwd=folder, check=True)


async def follow(address: str, after: int, until: str) -> tuple[int, dict[str, Any]]:
    """Follow a run up to an event, as a browser does: connect again when the stream ends. Return its number and itself."""
    while True:
        async with (
            ClientSession() as client,
            client.get(f"{address}/ada/events", headers={"Last-Event-ID": str(after)}) as response,
        ):
            async for line in response.content:
                if line.startswith(b"id: "):
                    after = int(line[4:])
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if event["type"] == until:
                        return after, event


async def test_a_run_outlives_its_process_and_a_person_answers_elsewhere(tmp_path: Path) -> None:
    first = service(tmp_path)
    assert first.stdout is not None
    address = first.stdout.readline().strip()
    async with ClientSession() as client:
        await client.post(f"{address}/ada/task", json={"task": "Two teapots, please"})
    seen, _ = await follow(address, after=0, until="end")
    first.send_signal(signal.SIGKILL)  # the machine is switched off
    first.wait()

    approve_order(tmp_path)

    second = service(tmp_path)
    assert second.stdout is not None
    address = second.stdout.readline().strip()
    _, finished = await follow(address, after=seen, until="end")
    second.terminate()
    second.wait()

    assert finished["output"] == ANSWER
