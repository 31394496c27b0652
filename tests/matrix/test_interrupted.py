"""What is kept of a response that somebody interrupts, and what the next request says of it, in every dialect."""

from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Tool, ToolContext, open_session, resolve_model
from treadle.events import ModelDelta, ModelFailed, ModelFinished
from treadle.messages import Thinking
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject

DIALECTS = ("openai-chat", "openai", "anthropic", "gemini", "bedrock", "cohere")
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
MARK = "the answer above was interrupted before it was complete. The run was cancelled by Ada."


def model_of(dialect: str, mock: MockProvider, **options: Any) -> Any:
    return resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k", options=options)


def pay(ran: list[str]) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append("paid")
        return "paid"

    return Tool(name="pay", description="Pay.", parameters={}, effect="unsafe", permission="allow", run=run)


async def interrupted(agent: Agent, session: Any, *, after: Any, by: str = "Ada") -> Any:
    """Run a task, and cancel it once the model has sent what `after` looks for."""
    async with agent.stream("Tell me a story", session=session) as run:
        async for event in run:
            if isinstance(event, ModelDelta) and after(event):
                run.cancel(by=by)
    return run.result


@every_dialect
async def test_what_had_come_is_in_the_next_request_and_marked(dialect: str, tmp_path: Path):
    turns = [
        Turn(text="Once upon a time there was a weaver", thinking="A.", pieces=35, gate="g", hold_after_pieces=24),
        Turn(text="Fine."),
    ]
    async with MockProvider(turns) as mock, open_session(tmp_path / "a.db") as session:
        agent = Agent(model_of(dialect, mock))
        first = await interrupted(agent, session, after=lambda delta: delta.text)
        said = first.messages[1].text

        assert first.reason == "cancelled"
        assert first.text == said
        assert said
        assert "Once upon a time there was a weaver".startswith(said)
        assert not [part for part in first.messages[1].parts if isinstance(part, Thinking)]
        result = await agent.run("Go on", session=session)

        assert result.text == "Fine."
        asked = str(mock.requests[1].body)
        assert said.rstrip() in asked
        assert MARK in asked
        events = await session.journal.read(session.id)
    finished = [event for event in events if isinstance(event, ModelFinished)]
    assert [one.interrupted for one in finished] == [True, False]
    assert finished[0].usage.output_tokens > 0
    assert not [event for event in events if isinstance(event, ModelFailed)]


@every_dialect
async def test_calls_that_had_come_whole_are_told_as_not_executed(dialect: str, tmp_path: Path):
    ran: list[str] = []
    turns = [
        Turn(text="I pay.", calls=(call("pay"), call("pay", again=True)), gate="g", hold_after_call=1),
        Turn(text="Fine."),
    ]
    async with MockProvider(turns) as mock, open_session(tmp_path / "a.db") as session:
        agent = Agent(model_of(dialect, mock), tools=[pay(ran)])
        first = await interrupted(agent, session, after=lambda delta: delta.call)

        assert first.reason == "cancelled"
        assert {(one.name, one.status) for one in first.tool_calls} == {("pay", "skipped")}
        result = await agent.run("Go on", session=session)
        assert result.text == "Fine.", result.stop

        asked = str(mock.requests[1].body)
        assert "I pay." in asked
        assert "run_stopped" in asked
    assert ran == []


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
async def test_an_interrupted_call_goes_back_to_a_model_that_thinks_with_a_budget(dialect: str, tmp_path: Path):
    budget = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    options = {"additionalModelRequestFields": budget} if dialect == "bedrock" else {**budget, "max_tokens": 4096}
    turns = [
        Turn(thinking="First I pay.", text="So.", calls=(call("pay"), call("pay")), gate="g", hold_after_call=1),
        Turn(text="Fine."),
    ]
    async with MockProvider(turns) as mock, open_session(tmp_path / "a.db") as session:
        agent = Agent(model_of(dialect, mock, **options), tools=[pay([])])
        first = await interrupted(agent, session, after=lambda delta: delta.call)

        assert first.reason == "cancelled"
        result = await agent.run("Go on", session=session)
        assert result.text == "Fine.", result.stop


async def test_a_stream_that_breaks_is_discarded_and_asked_again_and_so_is_one_that_a_limit_cuts_off(tmp_path: Path):
    turns = [Turn(text="Once upon a time", cut="mid-text"), Turn(text="Fine.")]
    async with MockProvider(turns) as mock, open_session(tmp_path / "a.db") as session:
        result = await Agent(model_of("openai-chat", mock)).run("Tell me a story", session=session)

    assert [message.text for message in result.messages] == ["Tell me a story", "Fine."]


async def test_an_interrupted_answer_is_in_forks_exports_and_goes_with_a_rewind(tmp_path: Path):
    turns = [Turn(text="Once upon a time", pieces=8, gate="g", hold_after_pieces=4)]
    async with MockProvider(turns) as mock, open_session(tmp_path / "a.db") as session:
        await session.mark("before")
        result = await interrupted(Agent(model_of("openai-chat", mock)), session, after=lambda delta: delta.text)
        forked = await session.fork()

        assert [message.text for message in forked.messages] == [message.text for message in result.messages]
        await session.rewind("before")
        assert session.messages == ()
