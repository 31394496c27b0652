"""Whoever looks at a run changes nothing of it: what is done to all that each of them is given leaves the run as it is."""

import copy
import json
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, on_fake_clock, read
from treadle import Agent, Decision, Tool, ToolContext
from treadle.canonical import copied
from treadle.events import encode_event
from treadle.ports import Compaction, Hook, ModelRequest, Moment, SessionView
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CheckedCall, JsonObject
from treadle.toolsets import ToolList

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer", "enum": [1, 2, 3, 4]}, "tags": {"type": "array", "default": ["a"]}},
    "required": ["n"],
}

RESULT: JsonObject = {"type": "object", "properties": {"seen": {"type": "array"}}}


def vandalize(value: Any, depth: int = 0) -> None:
    """Change whatever can be changed in a value, and in all that it leads to by public names."""
    if depth > 7 or isinstance(value, str | bytes | int | float | type(None) | type) or callable(value):
        return
    if isinstance(value, dict | list | tuple | set | frozenset):
        for one in [*value.values()] if isinstance(value, dict) else [*value]:
            vandalize(one, depth + 1)
        for change in (methodcaller("update", {"n": 4}), methodcaller("append", "x"), methodcaller("clear")):
            attempt(change, value)
        return
    for name in dir(value):
        if not name.startswith("_"):
            vandalize(attempt(getattr, value, name), depth + 1)
            if not isinstance(value, Tool):
                attempt(setattr, value, name, None)


def attempt(change: Callable[..., Any], *given: Any) -> Any:
    try:
        return change(*given)
    except (AttributeError, TypeError, ValueError, NotImplementedError, DeprecationWarning):
        return None


class Vandal:
    """Stands in all places of an agent, and changes what it is given in one of them."""

    def __init__(self, place: str | None) -> None:
        self.place = place
        self.was_there: set[str] = set()

    def at(self, place: str, *values: Any) -> None:
        self.was_there.add(place)
        if place == self.place:
            for value in values:
                vandalize(value)

    # a policy, an interceptor, a compiler, a compactor

    def decide(self, call: Any, session: Any) -> Decision:
        decision = Decision(kind="ask" if call.name == "pay" else "allow")
        self.at("policy", call, session)
        return decision

    def before(self, call: Any) -> Any:
        self.at("interceptor before", call)
        return call

    def after(self, call: Any, result: Any) -> Any:
        own = msgspec.structs.replace(result, data=copied(result.data))
        self.at("interceptor after", call, result)
        return own

    def compile(self, session: Any) -> Any:
        messages = session.messages
        self.at("compiler", session, [*messages])
        return messages

    def is_due(self, need: Any, tokens: int) -> bool:
        self.at("compactor due", need)
        return need.step == 3

    async def compact(self, context: Any) -> Compaction | None:
        result = context.messages[2].results[0]
        self.at("compactor", context)
        return Compaction(tier="results", begin=1, end=3, results={result.call_id: "shorter"})

    # functions

    def function(self, place: str, value: Any) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            self.at(place, *given)
            return value

        return run

    def approver(self) -> Callable[..., Any]:
        async def run(approval: Any) -> str:
            self.at("approver", approval)
            return "allow"

        return run

    def hook(self, moment: Moment) -> Hook:
        return Hook(at=moment, run=self.function(f"hook {moment.value}", None), timeout=None)

    def tool(self, name: str, seen: list[Any], **words: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            seen.append((name, copied(arguments), ctx.idempotency_key, copied(ctx.facts)))
            self.at("tool", arguments, ctx.call, ctx.decision, ctx.session, ctx.facts, ctx.inputs, ctx.trace)
            return {"seen": [name, {"deep": [1]}]}

        return Tool(
            name=name,
            description="Do it.",
            parameters=copied(SCHEMA),
            output_schema=copied(RESULT),
            aliases={"number": "n"},
            examples=[{"n": 1}],
            run=run,
            resources=self.function("resources", {"thing": "write"}),
            key=self.function("key", 1),
            risk=self.function("risk", "read_only"),
            review=self.function("review", None),
            visible=self.function("visible", True),
            validate=self.function("validate", None),
            convert=lambda arguments: (copied(arguments), self.at("convert", arguments))[0],
            subjects=self.function("subjects", {}),
            permission=self.function("permission", None),
            leaves_sandbox=self.function("leaves_sandbox", False),
            **words,
        )


class Model(ScriptedModel):
    def __init__(self, turns: Any, vandal: Vandal) -> None:
        super().__init__(turns)
        self.vandal, self.seen = vandal, list[bytes]()

    def stream(self, request: ModelRequest) -> Any:
        self.seen.append(msgspec.json.encode(request))
        self.vandal.at("model", request)
        return super().stream(request)


async def lived(place: str | None) -> tuple[Any, set[str]]:
    """Return what happened in a run, with somebody in one place who changes all that can be changed."""
    vandal, seen = Vandal(place), list[Any]()
    model = Model([[call("look", n=1), call("act", n=2)], call("pay", n=3), text("Done.")], vandal)
    tools = [
        vandal.tool("look", seen, effect="read"),
        vandal.tool("act", seen, effect=vandal.function("effect", "unsafe")),
        vandal.tool("pay", seen, effect="keyed"),
    ]
    agent = Agent(
        model,
        tools=tools,
        policy=vandal,
        approver=vandal.approver(),
        interceptors=[vandal],
        compiler=vandal,
        compactor=vandal,
        hooks=[vandal.hook(moment) for moment in Moment],
        subscribers=[vandal.function("subscriber", None)],
        done_when=vandal.function("done_when", False),
    )
    async with on_fake_clock() as session:
        result = await agent.run("go", session=session)
        await check_session(session)
        events = [encode_event(event) for event in await session.events()]
    told = [msgspec.json.encode(one) for one in (result.tool_calls, result.messages, result.text, result.reason)]
    return (events, model.seen, seen, told), vandal.was_there


PLACES = sorted(
    {"policy", "interceptor before", "interceptor after", "compiler", "compactor due", "compactor", "tool", "resources"}
    | {"key", "risk", "review", "visible", "validate", "convert", "subjects", "permission", "effect", "model"}
    | {"approver", "subscriber", "done_when", *(f"hook {moment.value}" for moment in Moment if moment is not Moment.ERROR)}
)  # fmt: skip


@pytest.mark.row("H21", "T03")
@pytest.mark.parametrize("place", PLACES)
async def test_what_is_given_to_somebody_is_theirs_alone(place):
    (expected, _), (found, was_there) = await lived(None), await lived(place)

    assert place in was_there
    for one, other in zip(found, expected, strict=True):
        assert one == other


CHANGES: list[Callable[[Any], object]] = [
    lambda schema: schema.update(type="array"),
    lambda schema: schema["properties"].clear(),
    lambda schema: schema.get("properties").pop("n"),
    lambda schema: schema["properties"]["n"]["enum"].append(5),
    lambda schema: [*schema.values()][1].clear(),
    lambda schema: dict(schema)["properties"].clear(),
    lambda schema: {**schema}["properties"].clear(),
    lambda schema: (schema | {})["properties"].clear(),
    lambda schema: schema.copy()["required"].clear(),
    lambda schema: copy.copy(schema["properties"]["n"])["enum"].clear() or schema["required"].clear(),
    lambda schema: (schema["examples"] + [])[0].clear(),
    lambda schema: schema["examples"][:1][0].clear(),
    lambda schema: [one.clear() for one in reversed(schema["examples"])],
]


@pytest.mark.row("H21")
@pytest.mark.parametrize("change", CHANGES)
def test_the_schema_of_a_tool_that_an_agent_has_refuses_every_change(change):
    tool = Tool(name="look", description="", run=print, parameters=copied({**SCHEMA, "examples": [{"n": 1}]}))
    Agent(ScriptedModel([text("Done.")]), tools=[tool])

    with pytest.raises(TypeError, match="read-only"):
        change(tool.parameters)
    assert tool.parameters == {**SCHEMA, "examples": [{"n": 1}]}
    assert copy.deepcopy(tool.parameters) == tool.parameters
    copy.deepcopy(tool.parameters)["properties"].clear()  # a copy is one's own
    assert json.loads(json.dumps(tool.parameters)) == tool.parameters
    assert msgspec.json.decode(msgspec.json.encode(tool.parameters)) == tool.parameters


class ToolVandal:
    """A policy that changes what it can of the tool of a call, and allows it."""

    def decide(self, call: CheckedCall, session: SessionView) -> Decision:
        vandalize(call.tool)
        return Decision(kind="allow")


@pytest.mark.parametrize("own", [True, False])
async def test_a_policy_cannot_change_a_tool_of_the_agent_or_of_a_toolset(own):
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = read(Recorder(), parameters=parameters, aliases={"number": "n"}, examples=[{"n": 1}])
    model = ScriptedModel([call("look", n=1), call("look", number=2), text("Done.")])
    result = await Agent(model, tools=[tool if own else ToolList([tool])], policy=ToolVandal()).run("go")

    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    assert model.requests[2].tools == model.requests[0].tools
    assert "n" in model.requests[2].tools[0].parameters["properties"]
