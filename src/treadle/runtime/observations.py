"""Observations: the words in which the model is told what became of a call. Makes results; knows no tool and no wire."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.messages import ToolCall
from treadle.tools import CallStatus, ToolResult

__all__ = ["error_content", "failed_result", "may_follow"]

_NEXT: dict[CallStatus, tuple[str, ...]] = {
    CallStatus.INVALID_JSON: ("reissue_call_with_valid_json",),
    CallStatus.INVALID_ARGUMENTS: ("reissue_call_with_corrected_arguments",),
    CallStatus.UNKNOWN_TOOL: ("call_a_listed_tool", "answer_without_this_tool"),
    CallStatus.DENIED: ("try_another_way", "answer_without_this_action", "ask_the_user"),
    CallStatus.FAILED: ("try_other_arguments", "try_another_tool", "report_the_failure"),
    CallStatus.REJECTED: ("try_other_arguments", "try_another_tool", "report_the_failure"),
    CallStatus.UNEXPECTED_RESULT_SHAPE: ("try_another_tool", "report_the_failure"),
    CallStatus.TIMEOUT: ("check_status", "retry_later", "report_the_failure"),
    CallStatus.CANCELLED: ("reissue_call_if_still_needed",),
    CallStatus.SKIPPED: ("answer_with_what_is_known",),
    CallStatus.OUTCOME_UNKNOWN: ("check_status", "report_the_uncertainty"),
}


def may_follow(status: CallStatus) -> tuple[str, ...]:
    """Return what the model may safely do after such a result."""
    return _NEXT.get(status, ())


def error_content(
    status: CallStatus,
    message: str,
    *,
    code: str | None = None,
    details: Sequence[Any] = (),
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the one form in which every error reaches the model (design section 2)."""
    return {
        "status": "error",
        "type": status.value,
        "message": message,
        "code": code,
        "details": list(details),
        **(extra or {}),
        "next_valid_actions": list(may_follow(status)),
    }


def failed_result(
    call: ToolCall,
    status: CallStatus,
    message: str,
    *,
    code: str | None = None,
    details: Sequence[Any] = (),
    extra: Mapping[str, Any] | None = None,
    attempts: int = 0,
    may_have_acted: bool = False,
) -> ToolResult:
    """Make the result of a call that is not `ok`."""
    content = error_content(status, message, code=code, details=details, extra=extra)
    return ToolResult(
        call_id=call.id,
        name=call.name,
        status=status,
        content=msgspec.json.encode(content).decode(),
        message=message,
        code=code,
        attempts=attempts,
        may_have_acted=may_have_acted,
        data={"details": list(details)} if details else None,
    )
