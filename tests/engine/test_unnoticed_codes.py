"""What a survey of mutations showed that no test noticed: the codes and fields by which programs tell refused calls apart."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, checked_call, read
from treadle import Rejected, ToolCall
from treadle.engine.tool_calls import refusals
from treadle.ports import Decision, DecisionFailure
from treadle.state import CallState
from treadle.tools import ToolResult

PROPOSED = ToolCall(id="c", name="look", arguments="{}")
CALL = checked_call(read(Recorder()))
WRITER = checked_call(read(Recorder(), "write"))
STATE = CallState(call=PROPOSED, position=0)

REFUSED: dict[str, tuple[Callable[[], ToolResult], str, str | None, dict[str, Any]]] = {
    "stopped by a limit": (lambda: refusals.run_stopped(CALL, is_cancel=False), "skipped", "run_stopped", {}),
    "cancelled": (lambda: refusals.run_stopped(CALL, is_cancel=True), "cancelled", "run_stopped", {}),
    "a failed sibling": (
        lambda: refusals.sibling_failed(CALL, WRITER), "cancelled", "sibling_failed", {"errored_call": "c"},
    ),
    "a failed prerequisite": (
        lambda: refusals.prerequisite_failed(CALL, WRITER), "skipped", "prerequisite_failed", {"prerequisite": "c"},
    ),
    "a toolset that failed": (
        lambda: refusals.unavailable(PROPOSED, "files", "It is closed."), "failed", "toolset_unavailable", {"toolset": "files"},
    ),
    "a tool that is gone": (
        lambda: refusals.unavailable(PROPOSED, "files", ""), "unknown_tool", None, {"name": "look"},
    ),
    "a check that raised": (lambda: refusals.unchecked(PROPOSED, ValueError("x"), "short"), "failed", "internal_error", {}),
    "a check that refused": (
        lambda: refusals.unfit(PROPOSED, Rejected({"error": "No."}, code="closed")),
        "invalid_arguments", "closed", {"details": [{"error": "No."}], "message": "No."},
    ),
    "no decision": (
        lambda: refusals.undecided(PROPOSED, DecisionFailure(reason="extraction", message="No JSON.", details=({"n": 1},))),
        "failed", "decision_extraction", {"details": [{"n": 1}], "message": "No JSON."},
    ),
    "denied": (
        lambda: refusals.denied(STATE, CALL, Decision(kind="deny", rule="deny look", reason="Not now.")),
        "denied", "permission_denied", {"reason": "Not now.", "rule": "deny look"},
    ),
    "denied with words for the model": (
        lambda: refusals.denied(STATE, CALL, Decision(kind="deny", rule="r", reason="For people.", message="For models.")),
        "denied", "permission_denied", {"reason": "For models.", "rule": "r"},
    ),
    "no sandbox": (
        lambda: refusals.denied(STATE, CALL, Decision(kind="sandbox", rule="r")), "denied", "sandbox_unavailable", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("refuse", "status", "code", "fields"), REFUSED.values(), ids=REFUSED)
def test_a_program_tells_refused_calls_apart_by_status_code_and_fields(
    refuse: Callable[[], ToolResult], status: str, code: str | None, fields: dict[str, Any]
) -> None:
    result = refuse()
    told = msgspec.json.decode(result.content)

    assert (result.call_id, result.name, result.status, result.code) == ("c", "look", status, code)
    assert (result.attempts, result.may_have_acted) == (0, False)
    assert (told["type"], told["code"]) == (status, code)
    assert {name: told[name] for name in fields} == fields
