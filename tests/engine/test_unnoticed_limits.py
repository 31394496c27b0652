"""What a second survey of mutations showed that no test noticed: a tool without a limit, long promises, modes."""

from typing import Any

import pytest

from pipeline_tools import act, checked_call, read, run_calls, statuses
from treadle import Decision
from treadle.permissions.modes import in_mode
from treadle.testing import call
from treadle.tools import DecisionKind


@pytest.mark.row("T05")
async def test_a_plain_function_that_makes_a_coroutine_may_have_no_limit() -> None:
    async def answer() -> str:
        return "seen"

    run = await run_calls(call("look"), tools=[read(lambda arguments, ctx: answer(), timeout=None)])

    assert statuses(run) == ["ok"]


@pytest.mark.row("F06")
@pytest.mark.parametrize(("last", "status"), [(1, "ok"), ("one", "unexpected_result_shape")])
async def test_a_long_result_is_held_to_what_its_tool_promised(last: Any, status: str) -> None:
    """So long that only its text would be kept if nobody looked at its values."""
    promised = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}

    async def look(arguments: Any, ctx: Any) -> Any:
        return [{"n": number} for number in (*range(60_000), last)]

    run = await run_calls(call("look"), tools=[read(look, output_schema=promised)])

    assert statuses(run) == [status]


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize("mode", ["ask", "plan", "deny-unlisted", "bypass", "accept-edits"])
def test_what_is_denied_stays_denied_in_every_mode_by_the_rule_that_denied_it(mode: Any) -> None:
    decision = Decision(kind=DecisionKind.DENY, rule="mine", reason="Never on Sundays.")

    assert in_mode(mode, decision, checked_call(act(lambda arguments, ctx: "done"))) is decision
