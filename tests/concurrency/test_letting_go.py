"""Letting go: what a very large value holds is freed in slices, with turns for others between two."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from treadle import Agent, Budget, Tool
from treadle.concurrency import LettingGo
from treadle.testing import ScriptedModel, call, text


class Held(dict[str, int]):
    """A dict that can be watched."""


@pytest.mark.row("N10")
@pytest.mark.parametrize("schema", [None, {"type": "array"}], ids=["text", "typed"])
async def test_a_large_result_is_freed_slice_by_slice_when_nobody_holds_it(schema):
    freed: list[int] = []
    turn = 0

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    def made() -> list[Held]:
        rows = [Held(a=1) for _ in range(60_000)]
        for row in rows:
            weakref.finalize(row, lambda: freed.append(turn))
        return rows

    box = [made()]

    async def run(arguments: Any, ctx: Any) -> Any:
        return box.pop()

    produce = Tool(
        name="produce", description="Give.", parameters={"type": "object"}, effect="read", run=run, output_schema=schema
    )
    before = gc.get_threshold()
    counting = asyncio.create_task(count())
    agent = Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce], budget=Budget())
    result = await agent.run("go")
    for _ in range(500):
        await asyncio.sleep(0)
    counting.cancel()

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert len(freed) == 60_000
    assert max(freed.count(one) for one in set(freed)) < 5000
    assert gc.get_threshold() == before


async def test_a_value_that_somebody_holds_stays_whole():
    rows = [{"a": number} for number in range(60_000)]
    copy = [{"a": number} for number in range(60_000)]

    async def run(arguments: Any, ctx: Any) -> Any:
        return rows

    produce = Tool(name="produce", description="Give.", parameters={"type": "object"}, effect="read", run=run)
    await Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce]).run("go")

    assert rows == copy


async def test_nothing_is_put_off_where_nothing_is_kept():
    before = gc.get_threshold()
    with LettingGo():
        assert gc.get_threshold() == before


async def test_collections_are_put_off_until_the_last_slice_is_gone():
    before = gc.get_threshold()
    with LettingGo() as holding:
        holding.keep(([],))
        holding.keep(([],))
    seen = []
    for _ in range(4):
        seen.append(gc.get_threshold() == before)
        await asyncio.sleep(0)

    assert seen == [False, False, True, True]


def test_a_loop_that_closes_meanwhile_puts_nothing_off_for_ever():
    before = gc.get_threshold()

    async def leave() -> None:
        with LettingGo() as holding:
            for _ in range(100):
                holding.keep(([],))

    asyncio.run(leave())

    assert gc.get_threshold() == before
