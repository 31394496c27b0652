"""The mock provider in each dialect: what a script says arrives through the adapter, faults included. One body for all of them."""

import asyncio
import json
from typing import Any

import pytest

from treadle import Agent, Tool, resolve_model
from treadle.errors import ModelRejected, ModelUnavailable
from treadle.messages import Finish, ToolCall, user_message
from treadle.ports import ModelEnd, ModelPart, ModelRequest
from treadle.testing import MockProvider, Turn, call, text

EACH = pytest.mark.parametrize(
    "name", ["openai-chat", "openai", "anthropic", "gemini", "cohere", "bedrock", "bedrock-claude"]
)
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


async def heard(
    name: str, turn: Any, *, stream: bool = True, shown: str = "k", wanted: str | None = None
) -> list[ModelPart]:
    async with MockProvider([turn], api_key=wanted) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key=shown, stream=stream)
        return [part async for part in model.stream(ModelRequest(messages=(user_message("hi"),)))]


@FORMS
@EACH
@pytest.mark.parametrize(
    ("turn", "finish"),
    [
        (text("x"), Finish.STOP),
        (call("f"), Finish.CALLS),
        (text("x", finish="length"), Finish.LENGTH),
        (Turn(refusal="No."), Finish.REFUSED),
        (text("x", finish="content_filter"), Finish.REFUSED),
    ],
    ids=["stop", "calls", "length", "refusal", "content filter"],
)
async def test_endings_are_said_in_the_vendors_words(name: str, turn: Any, finish: Finish, stream: bool) -> None:
    end = (await heard(name, turn, stream=stream))[-1]

    assert isinstance(end, ModelEnd)
    assert end.finish is finish


@FORMS
@EACH
@pytest.mark.parametrize("arguments", ['{"a": ', '{"a": 1, "a": 2}'])
async def test_broken_arguments_come_as_they_were_scripted(name: str, arguments: str, stream: bool) -> None:
    [made] = (await heard(name, call("f", arguments=arguments), stream=stream))[-1].parts  # type: ignore[union-attr]

    assert isinstance(made, ToolCall)
    assert made.arguments == arguments


@FORMS
@EACH
async def test_scripted_errors_wear_the_vendors_envelope(name: str, stream: bool) -> None:
    with pytest.raises(ModelUnavailable, match="Too much") as caught:
        await heard(name, Turn(status=429, error="Too much.", headers={"retry-after": "2"}), stream=stream)
    assert (caught.value.status, caught.value.retry_after_seconds) == (429, 2)
    if (name, stream) != ("bedrock-claude", False):  # which tells errors by their status alone
        with pytest.raises(ModelUnavailable, match="Overloaded"):
            await heard(name, Turn(text="x", error="Overloaded."), stream=stream)


@EACH
async def test_the_key_is_asked_for_in_the_vendors_header(name: str) -> None:
    assert isinstance((await heard(name, "Hello.", shown="right", wanted="right"))[-1], ModelEnd)
    with pytest.raises(ModelRejected, match="API key"):
        await heard(name, "Hello.", shown="wrong", wanted="right")


@pytest.mark.row("W05", "W06")
@FORMS
@EACH
async def test_an_agent_runs_to_its_end_and_nothing_is_refused(name: str, stream: bool) -> None:
    seen: list[Any] = []

    async def look(arguments: Any, ctx: Any) -> Any:
        seen.append(arguments)
        return {"found": arguments["path"]}

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    looking = Tool(
        name="look at", description="Look.", parameters=schema, effect="read", run=look
    )  # no vendor takes the name
    turns = iter(("two", "broken", "done"))

    def respond(body: Any) -> Any:
        wire = next(word for word in json.dumps(body).split('"') if word.startswith("look_at"))
        match next(turns):
            case "two":
                return [text("Two at once."), call(wire, path="a"), call(wire, path="b", id=None)]
            case "broken":
                return [call(wire, arguments='{"path": '), call("nobody")]
            case _:
                return "Done."

    async with MockProvider(respond) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k", stream=stream)
        result = await asyncio.wait_for(Agent(model, tools=[looking]).run("go"), timeout=60)

    assert (result.text, result.completed, provider.refusals) == ("Done.", True, [])
    assert seen == [{"path": "a"}, {"path": "b"}]
    assert [one.status for one in result.tool_calls] == ["ok", "ok", "invalid_json", "unknown_tool"]
