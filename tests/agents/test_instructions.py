"""Instructions that functions write for each run: what they know, what is sent and recorded, and what follows when they fail."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from treadle import Agent, Agents, Budget, ConfigurationError, RunContext, open_journal, open_session, tool
from treadle.events import RunFinished, RunStarted
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
def look(n: int) -> int:
    """Look something up."""
    return n


def clerk(*turns: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(turns) or [text("done")], name="mock")
    return Agent(model, name="clerk", tools=[look], **options), model


async def test_functions_write_instructions_from_deps_session_metadata_and_tenant_and_are_joined_in_order():
    async def asks(ctx: RunContext[dict[str, str]]) -> str:
        return f"The customer is {ctx.deps['ada']} of {ctx.tenant}, {ctx.metadata['plan']}."

    def about(ctx: RunContext) -> str:
        return f"Session {ctx.session.id} is {ctx.session.status}."

    agent, model = clerk(instructions=["Answer briefly.", asks, lambda _: None, about])
    async with open_session("memory:", id="s") as session:
        await session.change(metadata={"tenant": "acme", "plan": "gold"})
        await agent.run("go", session=session, deps={"ada": "Ada"})

    (request,) = model.requests
    assert request.instructions == "Answer briefly.\n\nThe customer is Ada of acme, gold.\n\nSession s is active."


@pytest.mark.parametrize("is_function", [True, False])
async def test_a_run_that_continues_sends_what_its_functions_wrote_and_the_agents_own_text_as_it_is_now(
    is_function: bool,
) -> None:
    journal = await open_journal("memory:")

    def instructions(day: str) -> Any:
        return (lambda _: f"Today is {day}.") if is_function else f"Today is {day}."

    limited, first = clerk(
        call("look", n=1), instructions=instructions("Monday"), budget=Budget(max_model_turns=1), on_limit="report"
    )
    async with open_session(journal, id="s") as session:
        await limited.run("go", session=session)
    tomorrow, second = clerk(text("done"), text("done"), instructions=instructions("Tuesday"))

    result = await Agents([tomorrow]).resume(journal, "s", budget=Budget(max_model_turns=5))
    async with open_session(journal, id="s") as session:
        await tomorrow.run("go on", session=session)

    assert result.completed
    assert first.requests[0].instructions == "Today is Monday."
    kept = "Today is Monday." if is_function else "Today is Tuesday."
    assert [one.instructions for one in second.requests] == [kept, "Today is Tuesday."]


async def test_only_instructions_that_were_written_for_a_run_are_recorded_word_by_word():
    async with open_session("memory:", id="s") as session:
        await clerk(instructions="A long text.")[0].run("go", session=session)
        await clerk(instructions=lambda _: "For Ada.")[0].run("go", session=session)
        started = [one for one in await session.events() if isinstance(one, RunStarted)]

    assert [one.sent_instructions for one in started] == [None, "For Ada."]
    assert len({one.instructions for one in started}) == 2


def fails(ctx: RunContext) -> str:
    raise LookupError("no such customer")


def counts(ctx: RunContext) -> Any:
    return 3


@pytest.mark.parametrize(
    ("function", "told"),
    [(fails, "LookupError: no such customer .*test_instructions"), (counts, "a string or None; got 3")],
)
async def test_a_function_that_fails_is_the_programmers_mistake_and_nothing_is_recorded(
    function: Callable[[RunContext], str], told: str
) -> None:
    agent, model = clerk(instructions=function)
    async with open_session("memory:", id="s") as session:
        with pytest.raises(ConfigurationError, match=told):
            await agent.run("go", session=session)
        assert await session.events() == ()
    assert not model.requests


async def test_a_run_that_is_cancelled_while_its_instructions_are_written_ends_as_cancelled_and_asks_no_model():
    began, gate = list[RunContext](), asyncio.Event()

    async def waits(ctx: RunContext) -> str:
        began.append(ctx)
        run.cancel(by="ada")
        await gate.wait()
        return "never"

    agent, model = clerk(instructions=waits)
    run = agent.stream("go")
    result = await run.finish()

    assert result.reason == "cancelled"
    assert [type(one) for one in await result.session.events()][-1] is RunFinished
    assert len(began) == 1
    assert not model.requests


@pytest.mark.parametrize("wrong", [3, [3], {"a": "b"}, b"text"])
def test_what_is_neither_a_text_nor_a_function_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="instructions must be a string, a function of the RunContext"):
        clerk(instructions=wrong)


def test_several_texts_are_one_text() -> None:
    parts: Sequence[str] = ["One.", "", "Two."]
    assert clerk(instructions=parts)[0].describe()["instructions"] == "One.\n\nTwo."


def test_a_function_is_described_by_its_name() -> None:
    assert clerk(instructions=["Be brief.", fails])[0].describe()["instructions"] == [
        "Be brief.",
        f"{fails.__module__}.fails",
    ]
