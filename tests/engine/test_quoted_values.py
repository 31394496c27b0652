"""Scalars in quotes: a call is carried out with what its schema wants, and is the same call as one without quotes."""

import json
from typing import Any

import pytest

from treadle import Agent, CheckedCall, Decision, allow, tool
from treadle.events import CallDecided
from treadle.ports import SessionView
from treadle.testing import ScriptedModel, call, text


def paying(**options: Any) -> tuple[Any, list[Any]]:
    """Return a tool that takes a number, a flag and a list, and what it was given."""
    given: list[Any] = []

    @tool(effect="unsafe", **options)
    async def pay(amount: int, now: bool = True, tags: list[str] | None = None) -> str:
        """Pay an amount.

        Args:
            amount: In euros.
            now: Whether at once.
            tags: Any words.
        """
        given.append((amount, now, tags))
        return "paid"

    return pay, given


class NoMoreThan:
    """Denies a larger amount."""

    def __init__(self, most: int) -> None:
        self._most = most

    def decide(self, call: CheckedCall, session: SessionView) -> Decision:
        return Decision(kind="allow" if call.arguments["amount"] <= self._most else "deny")


QUOTED = {"amount": "42", "now": "false", "tags": "rent"}
PLAIN = {"amount": 42, "now": False, "tags": ["rent"]}


async def test_a_quoted_value_runs_as_what_the_tool_takes_and_both_are_recorded():
    pay, given = paying()
    events: list[Any] = []
    model = ScriptedModel([call("pay", **QUOTED), text("done")])

    result = await Agent(model, tools=[pay], policy=allow("pay"), subscribers=[events.append]).run("go")

    (decided,) = [event for event in events if isinstance(event, CallDecided)]
    (sent,) = model.requests[1].messages[1].calls
    assert (result.text, given) == ("done", [(42, False, ["rent"])])
    assert (json.loads(sent.arguments), decided.converted, decided.arguments) == (QUOTED, PLAIN, None)
    assert [one.content for one in model.requests[1].messages[2].results] == ["paid"]


async def test_it_is_equal_to_the_call_without_quotes():
    pay, _ = paying()
    events: list[Any] = []
    script = [call("pay", **QUOTED), call("pay", **PLAIN), text("done")]

    await Agent(ScriptedModel(script), tools=[pay], policy=allow("pay"), subscribers=[events.append]).run("go")

    quoted, plain = [event for event in events if isinstance(event, CallDecided)]
    assert quoted.digest == plain.digest
    assert plain.converted is None


async def test_rules_and_the_person_see_the_value_that_runs():
    pay, given = paying(permission="ask")
    script = [call("pay", **QUOTED), text("done")]

    denied = await Agent(ScriptedModel(script), tools=[pay], policy=NoMoreThan(41)).run("go")
    agent = Agent(ScriptedModel(script), tools=[pay])
    paused = await agent.run("go")
    (approval,) = paused.approvals
    await paused.session.answer(approval.id, "allow")
    resumed = await agent.resume(paused.session)

    assert [one.status for one in denied.tool_calls] == ["denied"]
    assert (approval.arguments, resumed.text, given) == (PLAIN, "done", [(42, False, ["rent"])])


@pytest.mark.parametrize(("of_tool", "of_agent"), [(True, False), (False, True)])
async def test_a_strict_tool_or_agent_refuses_it(of_tool, of_agent):
    pay, given = paying(strict=of_tool)
    script = [call("pay", **QUOTED), text("done")]

    result = await Agent(ScriptedModel(script), tools=[pay], policy=allow("pay"), strict=of_agent).run("go")

    assert ([one.status for one in result.tool_calls], given) == (["invalid_arguments"], [])
