"""The words of hooks, one by one: what each makes of a request, a call and its result."""

from typing import Any

import pytest

from pipeline_tools import Recorder, act, content, run_calls, statuses, types
from treadle import Decision, Hook
from treadle.events import HookActed
from treadle.testing import call


def saying(at: Any, said: Any, **words: Any) -> Hook:
    return Hook(at=at, run=lambda context: said, name="mine", timeout=None, **words)


@pytest.mark.parametrize(
    ("said", "answers", "status"),
    [
        ("Look.", ["message"], "completed"),
        ("  ", [], "completed"),
        (None, [], "completed"),
        (Decision(kind="allow"), [], "completed"),
        (Decision(kind="deny", reason="No."), ["deny"], "task_denied"),
        (Decision(kind="ask", reason="Hm."), ["deny"], "task_denied"),
    ],
)
async def test_a_hook_before_a_request_adds_ends_or_does_nothing(said: Any, answers: list[str], status: str) -> None:
    result = await run_calls(call("act"), tools=[act(Recorder())], hooks=[saying("before_request", said)])
    found = [event for event in await types(result, "hook.acted") if isinstance(event, HookActed)]
    assert (sorted({event.answer for event in found}), result.reason) == (answers, status)
    assert {event.at_moment for event in found} <= {"before_request"}
    assert not any(event.interrupt for event in found)


@pytest.mark.parametrize(
    ("tools", "status"), [("*", "denied"), ("act", "denied"), ("a*", "denied"), ("A*", "ok"), ("other", "ok")]
)
async def test_a_hook_is_asked_about_the_tools_that_it_names(tools: str, status: str) -> None:
    hook = saying("before_tool", Decision(kind="deny"), tools=tools)
    assert statuses(await run_calls(call("act"), tools=[act(Recorder())], hooks=[hook])) == [status]


@pytest.mark.parametrize(("fails", "status"), [("closed", "denied"), (None, "denied"), ("open", "ok")])
async def test_what_is_no_answer_of_a_hook_before_a_call_counts_as_told(fails: Any, status: str) -> None:
    def broken(context: Any) -> Any:
        raise ValueError("no")

    hook = Hook(at="before_tool", run=broken, name="mine", timeout=None, fails=fails)
    assert statuses(await run_calls(call("act"), tools=[act(Recorder())], hooks=[hook])) == [status]


@pytest.mark.parametrize(("fails", "told"), [("closed", "withheld"), ("open", "did")])
async def test_what_is_no_result_after_a_call_keeps_the_result_or_withholds_it(fails: Any, told: str) -> None:
    hook = saying("after_tool", 7, fails=fails)
    result = await run_calls(call("act"), tools=[act(Recorder("did"))], hooks=[hook])
    assert told in str(content(result))
    assert statuses(result) == ["ok"]
