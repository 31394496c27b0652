"""Tests of your own agent: the tool by itself, the whole run, and a refusal."""

import asyncio

from treadle import Agent, ask, open_session, tool
from treadle.ports import Model
from treadle.testing import ScriptedModel, call, text


class Shop:
    def __init__(self) -> None:
        self.stock = {"teapot": 2}

    async def sell(self, product: str, pieces: int) -> int:
        """Sell pieces of a product. Returns how many are left."""
        self.stock[product] -= pieces
        return self.stock[product]


def make_agent(model: str | Model, shop: Shop) -> Agent:
    """The program builds its agent here, and so do the tests: with another model."""
    return Agent(model, tools=[tool(shop.sell, effect="unsafe")], policy=ask("sell"))


async def test_a_sale_waits_for_a_person_and_happens_once() -> None:
    shop = Shop()
    agent = make_agent(ScriptedModel([call("sell", product="teapot", pieces=1), text("Sold.")]), shop)

    async with open_session("memory:") as session:
        paused = await agent.run("Sell a teapot", session=session)
        assert shop.stock["teapot"] == 2

        await session.answer(paused.approvals[0].id, "allow", by="ada")
        result = await agent.resume(session)

    assert result.text == "Sold."
    assert shop.stock["teapot"] == 1


async def test_a_refused_sale_reaches_the_model_with_the_reason() -> None:
    model = ScriptedModel([call("sell", product="teapot", pieces=1), text("As you wish.")])
    shop = Shop()
    agent = make_agent(model, shop)

    async with open_session("memory:") as session:
        paused = await agent.run("Sell a teapot", session=session)
        await session.answer(paused.approvals[0].id, "deny", reason="It is a gift.")
        await agent.resume(session)

    assert "It is a gift." in model.requests[-1].messages[-1].results[0].content
    assert shop.stock["teapot"] == 2


async def test_wrong_arguments_never_reach_the_tool() -> None:
    model = ScriptedModel([call("sell", product="teapot", pieces="many"), text("I cannot.")])
    shop = Shop()

    result = await make_agent(model, shop).run("Sell")

    assert [one.status for one in result.tool_calls] == ["invalid_arguments"]
    assert shop.stock["teapot"] == 2


asyncio.run(test_a_sale_waits_for_a_person_and_happens_once())  # pytest calls them by itself
asyncio.run(test_a_refused_sale_reaches_the_model_with_the_reason())
asyncio.run(test_wrong_arguments_never_reach_the_tool())
