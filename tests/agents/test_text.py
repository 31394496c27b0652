"""The text of a run as it streams, and events as JSON."""

import json
from decimal import Decimal

import pytest

from loop_tools import echo_tool
from pipeline_tools import Recorder, on_fake_clock, read
from treadle import Agent, Price, ask, tool
from treadle.events import AnyEvent, decode_event, encode_event, event_object
from treadle.messages import Text
from treadle.ports import ModelEnd
from treadle.testing import ScriptedModel, Turn, call, text


async def spoken(agent: Agent) -> tuple[list[str], str]:
    async with agent.stream("go") as run:
        pieces = [piece async for piece in run.text()]
    return pieces, run.result.text


@pytest.mark.row("M-TEXT")
async def test_the_text_of_a_run_streams_alone_and_in_pieces():
    model = ScriptedModel([Turn(text="I look.", thinking="Hm.", calls=(call("echo"),)), Turn(text="It is four.")])

    pieces, answer = await spoken(Agent(model, tools=[echo_tool()]))

    assert "".join(pieces) == "I look.It is four."
    assert len(pieces) > 2
    assert answer == "It is four."


@pytest.mark.row("M-TEXT")
@pytest.mark.parametrize(
    ("second", "heard"),
    [("The answer is four.", "The answer is four."), ("The answers are many.", "The answers are many."), ("No.", "The answer\nNo.")],
)  # fmt: skip
async def test_a_response_that_breaks_off_is_not_said_twice(second, heard):
    model = ScriptedModel([Turn(text="The answer is four.", pieces=2, cut="mid-text"), text(second)])
    pieces = []

    async with on_fake_clock() as session, Agent(model).stream("go", session=session) as run:
        async for piece in run.text():
            pieces.append(piece)

    assert "".join(pieces) == heard
    assert run.result.text == second


async def test_a_model_that_sends_no_pieces_is_heard_all_the_same():
    class Silent(ScriptedModel):
        async def stream(self, request):
            yield ModelEnd(parts=(Text("All at once."),))

    assert await spoken(Agent(Silent([text("")]))) == (["All at once."], "All at once.")


@pytest.mark.row("M-EVENT-JSON")
async def test_each_event_of_a_run_is_one_json_object_on_one_line_and_is_read_back():
    @tool(effect="unsafe")
    def pay(amount: Decimal) -> str:
        """Pay."""
        return f"paid {amount}\nthank you"

    model = ScriptedModel(
        [[text("First\nline"), call("pay", amount="1.50")], text("done")], price=Price(input=1, output=2)
    )
    async with Agent(model, tools=[pay], policy=ask("pay")).stream("go") as run:
        events = [event async for event in run]

    for event in events:
        line = encode_event(event)
        assert b"\n" not in line
        assert json.loads(line) == event_object(event)
        assert event_object(event)["type"] == event.type
        assert decode_event(line) == event
    assert {"approval.requested", "run.paused", "model.delta"} <= {event.type for event in events}


# --- who watches
@pytest.mark.row("S10", "E01")
async def test_what_is_seen_of_a_response_that_streams_belongs_to_its_step():
    heard: list[AnyEvent] = []
    turns = [Turn(text="I look.", thinking="Hm.", calls=(call("look"),)), text("Done.")]

    await Agent(ScriptedModel(turns), tools=[read(Recorder())], subscribers=[heard.append]).run("go")

    deltas = [event for event in heard if event.type == "model.delta"]
    assert {(bool(one.text), bool(one.thinking), one.call is not None, one.step) for one in deltas} == {
        (True, False, False, 1), (False, True, False, 1), (False, False, True, 1), (True, False, False, 2),
    }  # fmt: skip
