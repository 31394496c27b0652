"""The calls of a run's result: arguments and results as values."""

from typing import Any

from treadle import Agent, open_session, tool
from treadle.events import RunStarted
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
def town(name: str, deep: bool = False) -> dict[str, Any]:
    """Describe a town."""
    return {"name": name, "people": [1, 2]}


@tool(effect="read")
def say(word: str) -> str:
    """Say a word."""
    return word


@tool(effect="read")
def breaks() -> None:
    """Break."""
    raise OSError("no")


async def test_each_call_has_its_arguments_and_its_result_as_values():
    turns = [call("town", name="Bergen"), call("say", word="7"), call("breaks"), text("done")]
    done = await Agent(ScriptedModel(turns), tools=[town, say, breaks]).run("go")

    first, second, third = done.tool_calls
    assert (first.arguments, first.result) == ({"name": "Bergen"}, {"name": "Bergen", "people": [1, 2]})
    assert (second.arguments, second.result) == ({"word": "7"}, "7")
    assert third.status == "failed"
    assert third.result == third.content == done.messages[-2].results[0].content


async def test_a_call_whose_arguments_a_person_changed_has_those_with_which_it_ran():
    @tool(effect="unsafe")
    def pay(amount: int) -> int:
        """Pay."""
        return amount

    agent = Agent(ScriptedModel([call("pay", amount=40), text("done")]), tools=[pay])
    async with open_session("memory:", id="s") as session:
        paused = await agent.run("go", session=session)
        await session.answer(paused.approvals[0].id, "allow", arguments={"amount": 4})
        done = await agent.resume(session)

    (one,) = done.tool_calls
    assert (one.arguments, one.result) == ({"amount": 4}, 4)


async def test_arguments_that_are_not_an_object_are_empty_and_their_text_is_kept():
    done = await Agent(ScriptedModel([call("say", arguments='{"word": '), text("done")]), tools=[say]).run("go")

    (one,) = done.tool_calls
    assert (one.arguments, one.arguments_text) == ({}, '{"word": ')


async def test_a_long_result_that_was_shortened_is_the_text_that_the_model_read():
    @tool(effect="read", result_limit=300)
    def long() -> list[int]:
        """Return much."""
        return list(range(1000))

    done = await Agent(ScriptedModel([call("long"), text("done")]), tools=[long]).run("go")

    (one,) = done.tool_calls
    assert isinstance(one.result, str)
    assert one.result == done.messages[-2].results[0].content


async def test_a_result_names_its_run_and_a_report_has_no_arguments():
    done = await Agent(ScriptedModel([call("say", word="secret"), text("done")]), tools=[say]).run("go")

    (started,) = [one for one in await done.session.events() if isinstance(one, RunStarted)]
    assert done.run_id == started.run_id
    assert "secret" not in str(done.report()["tool_calls"])
