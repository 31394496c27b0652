"""A policy of one's own asks treadle what would be decided without it, and whether a person has answered already."""

import pytest

from pipeline_tools import Recorder, tool_of
from treadle import Agent, Decision, StopReason, default_decision, is_answered
from treadle.testing import ScriptedModel, call, text


class Unattended:
    """Denies what would be asked about, unless a person has answered: the policy of a program without people."""

    def __init__(self):
        self.kinds = []
        self.answered = []

    def decide(self, call, session):
        self.kinds.append(str(default_decision(call).kind))
        self.answered.append(is_answered(call, session))


@pytest.mark.parametrize(
    ("effect", "permission", "kind"),
    [
        ("read", None, "allow"),
        ("read", "deny", "deny"),
        ("read", "ask", "ask"),
        ("unsafe", None, "ask"),
        ("keyed", None, "ask"),
        ("unsafe", "allow", "allow"),
    ],
)
async def test_the_default_decision_is_what_is_decided_without_a_policy(effect, permission, kind):
    policy = Unattended()
    tool = tool_of(Recorder(), "pay", effect=effect, permission=permission)

    with_policy = await Agent(ScriptedModel([[call("pay")], text("Done.")]), tools=[tool], policy=policy).run("go")
    without = await Agent(ScriptedModel([[call("pay")], text("Done.")]), tools=[tool]).run("go")

    assert policy.kinds == [kind]
    assert with_policy.reason == without.reason
    assert (with_policy.reason is StopReason.APPROVAL_REQUIRED) == (kind == "ask")


async def test_a_call_is_answered_once_a_person_has_answered_it():
    policy, recorder = Unattended(), Recorder()
    model = ScriptedModel([[call("pay")], text("Paid.")])
    agent = Agent(model, tools=[tool_of(recorder, "pay", effect="unsafe")], policy=policy)

    paused = await agent.run("go")
    paused = await agent.resume(paused.session)  # nobody has answered yet
    await paused.session.answer(paused.approvals[0].id, "allow")
    result = await agent.resume(paused.session)

    assert result.text == "Paid."
    assert policy.answered == [False, False, True]
    assert policy.kinds == ["ask", "ask", "ask"]


async def test_a_policy_that_changes_arguments_leaves_those_that_a_person_has_put_in_their_place():
    class Capped:
        def decide(self, call, session):
            return Decision(kind="ask", arguments={"n": min(call.arguments["n"], 100)})

    recorder = Recorder()
    model = ScriptedModel([[call("pay", n=500)], text("Paid.")])
    agent = Agent(model, tools=[tool_of(recorder, "pay", effect="unsafe")], policy=Capped())

    paused = await agent.run("go")
    assert paused.approvals[0].arguments == {"n": 100}
    await paused.session.answer(paused.approvals[0].id, "allow", arguments={"n": 50})
    result = await agent.resume(paused.session)

    assert result.text == "Paid.", result.message
    assert recorder.log == [("begin", 50), ("end", 50)]
