"""Words: whatever a policy, a service or a tool's own check says, the model gets valid, bounded JSON of it."""

import json

import pytest

from treadle import Agent, Decision, InvalidArguments, Rejected, Tool, ToolContext
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


async def told(tool: Tool, **words: object) -> JsonObject:
    """What the model is told of one call of the tool."""
    result = await Agent(ScriptedModel([call("t", x=1), text("done")]), tools=[tool], **words).run("go")  # type: ignore[arg-type]
    assert result.completed
    content: JsonObject = json.loads(result.messages[2].results[0].content)
    return content


def tool_of(run: object, **words: object) -> Tool:
    return Tool(name="t", description="d", parameters={}, effect="read", retries=0, run=run, **words)  # type: ignore[arg-type]


HOSTILE = {
    "half a character": "caf\udce9",
    "no number": float("nan"),
    "endless": float("inf"),
    "a set": {1, 2},
    "bytes": b"\x00",
    "a huge number": 10**400,
    "deep": [[[[[[["x"]]]]]]],
    "an object": object,
}


@pytest.mark.row("V01", "V04", "TF4")
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_a_check_says_of_the_arguments_reaches_the_model_as_json(value: object) -> None:
    def validate(arguments: JsonObject) -> None:
        raise InvalidArguments("no good", [{"field": "x", "constraint": "good", "value": value, 7: (value,)}])

    async def run(arguments: JsonObject, ctx: ToolContext) -> None: ...

    content = await told(tool_of(run, validate=validate))

    assert content["type"] == "invalid_arguments"
    assert content["details"][0]["field"] == "x"


@pytest.mark.row("V01", "F04", "MF7")
@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_a_service_says_reaches_the_model_as_json(value: object) -> None:
    async def run(arguments: JsonObject, ctx: ToolContext) -> None:
        raise Rejected({"error": "NO", "value": value}, code="conflict")

    content = await told(tool_of(run))

    assert (content["type"], content["code"]) == ("rejected", "conflict")
    assert content["details"]


@pytest.mark.row("P03", "MF7")
async def test_a_policys_reason_that_is_no_unicode_still_reaches_the_model() -> None:
    class Policy:
        def decide(self, checked: object, session: object) -> Decision:
            return Decision(kind="deny", reason="caf\udce9 " + "x" * 100_000)

    async def run(arguments: JsonObject, ctx: ToolContext) -> None: ...

    content = await told(tool_of(run), policy=Policy())

    assert content["type"] == "denied"
    assert "caf?" in content["message"]
    assert len(content["message"]) < 10_000
