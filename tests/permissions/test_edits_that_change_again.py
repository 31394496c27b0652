"""A person edits a call, and a hook, an interceptor or a policy changes what the person wrote: what is asked next follows from the edit."""

import json
from typing import Any

import msgspec
import pytest

from treadle import Agent, Decision, Hook, HookContext, ToolCall, ToolResult, open_session, tool
from treadle.ports import SessionView
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CheckedCall

said: list[str] = []


@tool(effect="unsafe")
async def say(words: str) -> str:
    """Say words."""
    said.append(words)
    return f"said {words}"


def loud(words: str) -> str:
    return words if words.endswith("!") else f"{words}!"


async def hook(context: HookContext) -> Decision:
    assert context.arguments is not None
    return Decision(kind="allow", arguments={"words": loud(context.arguments["words"])})


class Interceptor:
    def before(self, call: ToolCall) -> ToolCall:
        words = json.loads(call.arguments)["words"]
        return msgspec.structs.replace(call, arguments=json.dumps({"words": loud(words)}))

    def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return result


class Policy:
    def decide(self, call: CheckedCall, session: SessionView) -> Decision:
        return Decision(kind="ask", rule="loud", arguments={"words": loud(call.arguments["words"])})


WHO: dict[str, dict[str, Any]] = {
    "hook": {"hooks": [Hook(at="before_tool", run=hook)]},
    "interceptor": {"interceptors": [Interceptor()]},
    "policy": {"policy": Policy()},
}


@pytest.mark.parametrize("who", WHO)
async def test_a_second_question_is_about_the_edited_call_until_it_has_run(who, tmp_path):
    said.clear()
    agent = Agent(ScriptedModel([call("say", words="buy"), text("Done.")]), tools=[say], **WHO[who])
    async with open_session(tmp_path / "j.db", id="s") as session:
        first = (await agent.run("Go", session=session)).approvals[0]
        await session.answer(first.id, "allow", arguments={"words": "wait"})
        (second,) = (await agent.resume(session)).approvals
    assert (first.arguments, second.arguments) == ({"words": "buy!"}, {"words": "wait!"})
    assert second.reason.startswith("The edited arguments were changed")
    assert second.edited == {"words": "wait"}

    async with open_session(tmp_path / "j.db", id="s") as session:
        (still,) = (await agent.resume(session)).approvals
        assert still.id == second.id
        await session.answer(second.id, "allow")
        result = await agent.resume(session)

    assert result.completed
    assert said == ["wait!"]


async def test_an_edit_of_an_edit_counts_from_itself():
    said.clear()
    agent = Agent(ScriptedModel([call("say", words="buy"), text("Done.")]), tools=[say], **WHO["hook"])
    async with open_session("memory:") as session:
        result = await agent.run("Go", session=session)
        for words in ("wait", "sell", "stop!"):
            await session.answer(result.approvals[0].id, "allow", arguments={"words": words})
            result = await agent.resume(session)

    assert result.completed
    assert said == ["stop!"]
