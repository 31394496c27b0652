"""One scenario over every driver, dialect and form of answer gives one neutral trace: what happened knows no provider."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import Agent, Rejected, Tool, ToolContext
from treadle.canonical import digest
from treadle.drivers.native import NativeDriver
from treadle.drivers.react import ReActDriver
from treadle.events import AnyEvent, CallDecided, ModelFinished, RunFinished, RunStarted, ToolFinished, ToolStarted
from treadle.messages import Usage
from treadle.ports import Driver
from treadle.resolve import resolve_model
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject

SCENARIO: JsonObject = json.loads(Path(__file__).with_name("scenario.json").read_text(encoding="utf-8"))
DIALECTS = ("openai-chat", "openai", "anthropic", "gemini", "bedrock", "bedrock-claude", "vertex", "vertex-claude", "cohere")  # fmt: skip
DRIVERS: dict[str, Driver] = {"native": NativeDriver(), "react": ReActDriver(), "react-schema": ReActDriver(output="json_schema")}  # fmt: skip


async def _temperature(arguments: JsonObject, ctx: ToolContext) -> float:
    known = {"Vienna": 21.5, "Bergen": 9.0}
    if arguments["town"] not in known:
        raise Rejected({"error": "no such town"}, code="not_found")
    return known[arguments["town"]]


async def _book(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    return {"booked": arguments, "key": ctx.idempotency_key[:3]}


TOWN = {"type": "object", "properties": {"town": {"type": "string"}, "unit": {"type": "string"}}, "required": ["town"]}
TOOLS = [
    Tool(name="temperature", description="The temperature now.", parameters=TOWN, effect="read", run=_temperature),
    Tool(
        name="book",
        description="Book a table.",
        parameters={"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
        effect="keyed",
        permission="allow",
        run=_book,
    ),
]


def turns(driver: str) -> list[Turn]:
    """Return the scenario as the model says it: in calls of its dialect, or in decisions."""
    usage = Usage(**SCENARIO["usage"])
    said = [_native(step) if driver == "native" else _decision(step) for step in SCENARIO["steps"]]
    return [msgspec.structs.replace(turn, usage=usage) for turn in said]


def _native(step: JsonObject) -> Turn:
    if "answer" in step:
        return Turn(text=step["answer"])
    return Turn(text=step["said"], calls=(call(step["tool"], arguments=step["args"]),))


def _decision(step: JsonObject) -> Turn:
    if "answer" in step:
        return Turn(text=json.dumps({"thought": None, "type": "final_answer", "answer": step["answer"]}))
    decision = {"thought": step["said"], "type": "call_tool", "tool": step["tool"], "args": step["args"]}
    return Turn(text=json.dumps(decision))


def neutral(events: list[AnyEvent]) -> list[Any]:
    """Return what happened, without what names this run, its moment or its provider."""
    return [fact for event in events if (fact := _fact(event)) is not None]


def _fact(event: AnyEvent) -> list[Any] | None:
    fact: list[Any] | None
    match event:
        case RunStarted():
            fact = ["started", event.task, event.tools]
        case ModelFinished():
            calls = [[one.name, json.loads(one.arguments)] for one in event.message.calls]
            usage = [event.usage.input_tokens, event.usage.output_tokens]
            fact = ["said", event.step, event.message.text, calls, usage, event.turns]
        case CallDecided():
            fact = ["decided", event.step, event.tool, event.decision, event.effect, event.digest]
        case ToolStarted():
            fact = ["ran", event.step, event.tool, event.digest]
        case ToolFinished():
            fact = ["got", event.step, event.result.name, event.result.status, event.result.content]
        case RunFinished():
            fact = ["ended", event.reason, event.text]
        case _:
            fact = None
    return fact


async def trace(dialect: str, driver: str, *, stream: bool) -> list[Any]:
    async with MockProvider(turns(driver)) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k", stream=stream)
        result = await Agent(model, tools=TOOLS, driver=DRIVERS[driver], instructions="Be brief.").run(SCENARIO["task"])
    assert mock.refusals == []
    assert result.completed, result.message
    events = await result.session.events()
    return _in_order(neutral(list(events)))


def _in_order(facts: list[Any]) -> list[Any]:
    """Order each step's facts by kind: a read that starts while its message streams is decided before that is whole."""
    kinds = ["started", "said", "decided", "ran", "got", "ended"]
    steps = {id(fact): fact[1] if fact[0] in kinds[1:5] else -1 if fact[0] == "started" else 99 for fact in facts}
    return sorted(facts, key=lambda fact: (steps[id(fact)], kinds.index(fact[0])))


@pytest.mark.row("W07", "D02")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("driver", DRIVERS)
async def test_one_scenario_has_one_trace_over_all_dialects(driver, stream):
    expected = await trace("openai-chat", "native", stream=False)

    for dialect in DIALECTS:
        found = await trace(dialect, driver, stream=stream)
        assert found == expected, dialect
        assert digest(found) == digest(expected), dialect


@pytest.mark.row("W07")
async def test_the_trace_is_the_scenario():
    facts = await trace("openai-chat", "native", stream=True)

    steps = SCENARIO["steps"]
    assert [fact[2] for fact in facts if fact[0] == "said"] == [one.get("said") or one["answer"] for one in steps]
    assert [fact[3] for fact in facts if fact[0] == "got"] == ["ok", "ok", "rejected", "invalid_arguments", "ok"]
