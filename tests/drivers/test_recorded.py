"""Record and replay: what a model said is played again for the very same requests, and for no others."""

import stat
from typing import Any

import msgspec
import pytest
from driver_tools import act, answer, chat, counter_tool

from loop_tools import echo_tool
from treadle import Agent, Budget, ConfigurationError, Price, open_session
from treadle.canonical import digest
from treadle.errors import ModelRejected
from treadle.events import AnyEvent
from treadle.messages import Text
from treadle.ports import ModelEnd, ModelRequest
from treadle.providers.recorded import RecordingModel, ReplayModel
from treadle.resolve import resolve_model
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text

OURS = {"session_id", "run_id", "at", "seq", "duration_seconds", "first_token_seconds", "wall_seconds", "execution_id"}


def trace_of(events: list[AnyEvent]) -> str:
    """Return the hash of all that happened, without names and times of one run."""

    def lasting(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: lasting(item) for key, item in value.items() if key not in OURS}
        return [lasting(item) for item in value] if isinstance(value, list) else value

    return digest([lasting(msgspec.to_builtins(event)) for event in events])


@pytest.mark.row("D16")
async def test_a_recorded_run_is_replayed_exactly_with_the_network_off(tmp_path):
    path = tmp_path / "trip.jsonl"
    first: list[AnyEvent] = []
    second: list[AnyEvent] = []
    turns = [[text("Both."), call("pay", x=1), call("pay", x=2)], Turn(text="Done: é", thinking="Hm.", pieces=5)]
    tools = [
        counter_tool(tmp_path / "pay", permission="allow")
    ]  # no read: those start whenever their arguments are there
    async with MockProvider(turns) as mock, open_session("memory:", id="s") as session:
        agent = Agent(RecordingModel(chat(mock), path), tools=tools, subscribers=[first.append])
        recorded = await agent.run("go", session=session)

    async with open_session("memory:", id="s") as session:
        replayed = await Agent(ReplayModel(path), tools=tools, subscribers=[second.append]).run("go", session=session)

    assert (replayed.text, replayed.usage) == (recorded.text, recorded.usage) == ("Done: é", recorded.usage)
    assert trace_of(second) == trace_of(first)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "127.0.0.1" not in path.read_text()


@pytest.mark.row("D16")
async def test_failures_are_replayed_too(tmp_path):
    path = tmp_path / "trip.jsonl"
    async with MockProvider([Turn(status=503, headers={"retry-after": "0"}), text("well")]) as mock:
        await Agent(RecordingModel(chat(mock), path)).run("go")

    failed: list[AnyEvent] = []
    result = await Agent(ReplayModel(path), subscribers=[failed.append]).run("go")

    assert result.text == "well"
    assert [event.type for event in failed].count("model.failed") == 1


@pytest.mark.row("D16")
async def test_a_request_that_differs_is_refused_and_the_place_told(tmp_path):
    path = tmp_path / "trip.jsonl"
    await Agent(RecordingModel(ScriptedModel([call("echo", x=1), text("end")]), path), tools=[echo_tool()]).run("go")

    other = await Agent(ReplayModel(path), tools=[echo_tool()]).run("stay")
    bare = await Agent(ReplayModel(path), instructions="Be brief.").run("go")

    assert (other.reason, bare.reason) == ("model_error", "model_error")
    assert "messages[0]" in other.message
    assert "instructions" in bare.message
    assert "tools" in bare.message


@pytest.mark.row("D16")
async def test_equal_requests_get_their_responses_in_order_and_no_more_than_there_are(tmp_path):
    path = tmp_path / "trip.jsonl"
    request = ModelRequest(messages=())
    model = RecordingModel(ScriptedModel([text("one"), text("two")]), path)
    for _ in range(2):
        [part async for part in model.stream(request)]

    replay = ReplayModel(path)
    said = []
    for _ in range(2):
        said += [part.parts async for part in replay.stream(request) if isinstance(part, ModelEnd)]
    with pytest.raises(ModelRejected, match="used up"):
        [part async for part in replay.stream(request)]

    assert said == [(Text("one"),), (Text("two"),)]


@pytest.mark.row("D16", "D18")
async def test_a_recording_knows_which_driver_its_model_needs(tmp_path):
    path = tmp_path / "trip.jsonl"
    async with MockProvider([act("echo", x=1), answer("end")]) as mock:
        model = resolve_model("openai-chat:m", base_url=mock.base_url, capabilities=["no_tools"])
        await Agent(RecordingModel(model, path), tools=[echo_tool()]).run("go")

    result = await Agent(ReplayModel(path), tools=[echo_tool()]).run("go")

    assert (result.text, len(result.tool_calls)) == ("end", 1)


async def test_a_replay_may_be_priced_and_a_recording_go_on(tmp_path):
    path = tmp_path / "trip.jsonl"
    for task in ("one", "two"):
        await Agent(RecordingModel(ScriptedModel([text(task)]), path)).run(task)

    agent = Agent(ReplayModel(path, price=Price(input=1, output=1)), budget=Budget(max_total_cost=1))

    assert [(await agent.run(task)).text for task in ("two", "one")] == ["two", "one"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": "other", "model": "m"}', b"\xff\xfe", b'{"format": "treadle recording 1"}', b"[]"])  # fmt: skip
def test_a_file_that_is_no_recording_is_refused_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "notes"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match="notes"):
        ReplayModel(path)
    if content:
        with pytest.raises(ConfigurationError, match="notes"):
            RecordingModel(ScriptedModel([text("x")]), path)
        assert path.read_bytes() == content


def test_a_file_that_cannot_be_there_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ReplayModel(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        RecordingModel(ScriptedModel([text("x")]), tmp_path / "no" / "folder")
    (tmp_path / "other").write_text('{"format":"treadle recording 1","model":"other"}\n')
    with pytest.raises(ConfigurationError, match="another model"):
        RecordingModel(ScriptedModel([text("x")]), tmp_path / "other")
