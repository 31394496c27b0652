"""What a survey of mutations showed that no test noticed: the policies of all callers count, also beyond one without an opinion."""

import pytest

from pipeline_tools import Recorder, act
from treadle import Agent, allow, ask, deny
from treadle.ports import Policy
from treadle.testing import ScriptedModel, call, text


@pytest.mark.row("P03")
@pytest.mark.parametrize("middle", [allow("worker"), deny("other"), ask("other")])
@pytest.mark.parametrize(("top", "runs"), [(deny("act"), 0), (allow("act", "clerk"), 1), (None, 1)])
async def test_a_call_is_denied_by_the_first_caller_although_the_one_between_has_no_opinion(
    middle: Policy, top: Policy | None, runs: int
) -> None:
    ran = Recorder()
    worker = Agent(ScriptedModel([call("act"), text("Done.")]), tools=[act(ran, permission=None)], policy=allow("act"))
    clerk = Agent(
        ScriptedModel([call("worker", task="Act"), text("Done.")]),
        tools=[worker.as_tool("worker", "Works.", effect="read")],
        policy=middle,
    )
    lead = Agent(
        ScriptedModel([call("clerk", task="Act"), text("Done.")]),
        tools=[clerk.as_tool("clerk", "Delegates.", effect="read")],
        policy=top,
    )

    result = await lead.run("go")

    assert (result.completed, ran.runs) == (True, runs)
