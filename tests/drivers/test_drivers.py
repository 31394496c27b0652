"""Drivers behind one contract: three that do the same, one of a user's own, a wrapper, and how one is chosen."""

import json
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from driver_tools import act, answer, chat, counter_tool, decision, lines

from loop_tools import echo_tool
from treadle import Agent, ConfigurationError, Tool
from treadle.drivers.native import NativeDriver
from treadle.drivers.react import ReActDriver
from treadle.drivers.scripted import ScriptedDriver
from treadle.messages import Text, ToolCall
from treadle.ports import (
    BoundDriver,
    Capability,
    Driver,
    Executor,
    HasCapabilities,
    Model,
    ModelEnd,
    ModelPart,
    ModelRequest,
)
from treadle.resolve import driver_for, resolve_model, with_fallback
from treadle.testing import MockProvider, ScriptedModel, call, parse_script, text

NATIVE = [[text("First."), call("echo", x=1)], call("pay", to="a"), text("Done.")]
REACT = [act("echo", "First.", x=1), act("pay", to="a"), answer("Done.")]


@pytest.mark.row("D02")
@pytest.mark.parametrize("kind", ["native", "react", "scripted", "scripted from a file"])
async def test_all_drivers_do_the_same_work(kind, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps(
            [
                {"text": "First.", "calls": [{"name": "echo", "arguments": {"x": 1}}]},
                {"calls": [{"name": "pay", "arguments": {"to": "a"}}]},
                {"text": "Done."},
            ]
        )
    )
    unused = ScriptedModel([text("never asked")])
    pairs: dict[str, tuple[Model, Driver]] = {
        "native": (ScriptedModel(NATIVE), NativeDriver()),
        "react": (ScriptedModel(REACT), ReActDriver()),
        "scripted": (unused, ScriptedDriver(ScriptedModel(NATIVE))),
        "scripted from a file": (unused, ScriptedDriver(resolve_model(f"script:{script}"))),
    }
    model, driver = pairs[kind]
    tools = [echo_tool(), counter_tool(tmp_path / "pay", permission="allow")]

    result = await Agent(model, tools=tools, driver=driver).run("go")

    assert (result.text, result.completed) == ("Done.", True)
    assert [(one.name, one.status, one.attempts) for one in result.tool_calls] == [("echo", "ok", 1), ("pay", "ok", 1)]
    assert len(lines(tmp_path / "pay")) == 1
    assert unused.requests == []
    said = [[part for part in message.parts if isinstance(part, Text | ToolCall)] for message in result.messages]
    assert [type(part).__name__ for part in said[1]] == ["Text", "ToolCall"]


# --- one's own -------------------------------------------------------------------------------------------------------


class Once:
    """A driver of twenty lines: it proposes one call, then repeats what came of it."""

    def __init__(self) -> None:
        self.bound: list[tuple[str, list[str], bool]] = []

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        self.bound.append((model.name, [tool.name for tool in tools], executor.offers("echo")))
        return self

    async def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        results = request.messages[-1].results
        if results:
            yield ModelEnd(parts=(Text(results[0].content),))
        else:
            yield ModelEnd(parts=(ToolCall(id="", name="echo", arguments='{"x": 1}'),))


@pytest.mark.row("D01", "D15")
async def test_a_driver_of_ones_own_works_with_the_stock_executor_and_is_bound_once_a_run():
    driver = Once()

    result = await Agent(ScriptedModel([text("x")]), tools=[echo_tool()], driver=driver).run("go")

    assert (result.text, [one.status for one in result.tool_calls]) == ('{"x":1}', ["ok"])
    assert driver.bound == [("scripted", ["echo"], True)]


class Counting:
    """A wrapper around any driver: counts what it is asked for, and what it proposes."""

    def __init__(self, inner: Driver) -> None:
        self._inner = inner
        self.requests = self.calls = 0

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        self._bound = self._inner.bind(model, tools, executor)
        return self

    async def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self.requests += 1
        async for part in self._bound.propose(request):
            if isinstance(part, ModelEnd):
                self.calls += sum(isinstance(piece, ToolCall) for piece in part.parts)
            yield part


@pytest.mark.row("D15")
@pytest.mark.parametrize(("inner", "turns"), [(NativeDriver(), NATIVE), (ReActDriver(), REACT)])
async def test_a_wrapper_around_a_driver_counts_calls(inner, turns, tmp_path):
    driver = Counting(inner)
    tools = [echo_tool(), counter_tool(tmp_path / "pay", permission="allow")]

    result = await Agent(ScriptedModel(turns), tools=tools, driver=driver).run("go")

    assert (result.text, driver.requests, driver.calls) == ("Done.", 3, 2)


# --- chosen by the model's capability --------------------------------------------------------------------------------


@pytest.mark.row("D18")
async def test_a_model_that_takes_no_tools_is_driven_by_react_without_being_asked():
    async with MockProvider([act("echo", x=1), answer("end")]) as mock:
        model = resolve_model("openai-chat:m", base_url=mock.base_url, capabilities=["no_tools"])
        result = await Agent(model, tools=[echo_tool()]).run("go")

    assert (result.text, [one.name for one in result.tool_calls]) == ("end", ["echo"])
    assert not any("tools" in request.body for request in mock.requests)
    assert (model.name, model.price) == ("openai-chat:m", None)


@pytest.mark.row("D18")
async def test_with_json_schema_besides_its_answers_are_held_to_the_schema():
    async with MockProvider([answer("end")]) as mock:
        special = ["no_tools", "json_schema"]
        model = resolve_model("openai-chat:m", base_url=mock.base_url, capabilities=special)
        await Agent(model, tools=[echo_tool()]).run("go")

    assert mock.requests[0].body["response_format"]["type"] == "json_schema"


@pytest.mark.row("D18")
async def test_a_driver_that_is_given_stays():
    async with MockProvider([call("echo", x=1), text("end")]) as mock:
        model = resolve_model("openai-chat:m", base_url=mock.base_url, capabilities=["no_tools"])
        result = await Agent(model, tools=[echo_tool()], driver=NativeDriver()).run("go")

    assert result.text == "end"
    assert "tools" in mock.requests[0].body


class Told(ScriptedModel):
    """A model of a user's own that says what is special about it."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.NO_TOOLS})


@pytest.mark.row("D18")
async def test_a_model_of_ones_own_may_say_it_too():
    result = await Agent(Told([act("echo", x=1), answer("end")]), tools=[echo_tool()]).run("go")

    assert (result.text, len(result.tool_calls)) == ("end", 1)
    assert isinstance(driver_for(ScriptedModel([text("x")])), NativeDriver)


@pytest.mark.row("D18")
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([], [], []),
        (["no_tools"], [], ["no_tools"]),
        (["no_tools", "json_schema"], ["no_tools"], ["no_tools"]),
        (["no_tools", "json_schema"], ["json_schema"], ["json_schema", "no_tools"]),
    ],
)
def test_a_fallback_needs_what_any_of_its_models_needs(first, second, expected):
    model = with_fallback(resolve_model("demo", capabilities=first), resolve_model("demo", capabilities=second))

    assert isinstance(model, HasCapabilities)
    assert sorted(model.capabilities) == expected
    assert isinstance(driver_for(model), ReActDriver if "no_tools" in expected else NativeDriver)


@pytest.mark.parametrize("words", [["tools"], "tools", [3], 3, [None]])
def test_a_capability_that_is_none_is_refused(words):
    with pytest.raises(ConfigurationError, match="no_tools"):
        resolve_model("demo", capabilities=words)


async def test_a_script_may_be_driven_by_react_too():
    script = parse_script(
        msgspec.json.encode([{"text": decision(type="final_answer", answer="hi")}]).decode(), where="x"
    )
    async with MockProvider(script) as mock:
        result = await Agent(chat(mock), driver=ReActDriver()).run("go")

    assert result.text == "hi"
