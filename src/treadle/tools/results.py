"""Observations: the texts in which the model reads what happened to a call. Makes results; knows no tool and no wire."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.canonical import find_unencodable
from treadle.fields import explained
from treadle.messages import ToolCall
from treadle.tools.effects import CallStatus
from treadle.tools.tool import CheckedCall, ToolResult

__all__ = ["TOOL_UNAVAILABLE", "after_earlier_attempt", "error_content", "failed_result", "failure_class", "may_follow"]

TOOL_UNAVAILABLE = "tool_unavailable"
"""Code of a call whose tool cannot reach its service."""

LONGEST_MESSAGE = 4000
"""Characters of a message; it may quote what a policy, a person or a tool's author wrote."""

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


@explained
def may_follow(status: CallStatus) -> tuple[str, ...]:
    """Return what the model may safely do after such a result."""
    return _NEXT.get(status, ())


@explained
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


@explained
def failed_result(
    call: ToolCall | CheckedCall,
    status: CallStatus,
    message: str,
    *,
    code: str | None = None,
    details: Sequence[Any] = (),
    extra: Mapping[str, Any] | None = None,
    attempts: int = 0,
    may_have_acted: bool = False,
) -> ToolResult:
    """Make the result of a call that is not `ok`. What is not valid JSON in its words is made JSON: a result never fails."""
    code = code if code is None else str(code)
    message = message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 3] + "..."
    if find_unencodable([message, code, list(details), dict(extra or {})]) is not None:
        message, code = _tamed(message), None if code is None else str(_tamed(code))
        details, extra = [_tamed(row) for row in details], _tamed(dict(extra or {}))
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


@explained
def failure_class(result: ToolResult) -> str:
    """Return the class of a failure: a decision that could not be read, or not be accepted, is one of its own (F15)."""
    code = result.code or ""
    return code if code in ("decision_extraction", "decision_validation") else result.status.value


@explained
def after_earlier_attempt(result: ToolResult) -> ToolResult:
    """Return the result of a call of which an earlier attempt may have acted: no later refusal may hide that."""
    if not result.is_error or result.may_have_acted or result.code == "not_done":
        return result  # `not_done`: the tool's own check has looked
    text = "An earlier attempt may have taken effect: check before you repeat it."
    try:
        shown = msgspec.json.decode(result.content, type=dict[str, Any])
    except msgspec.DecodeError:  # shortened to what fits, which is no longer valid JSON
        content = f"{text} {result.content}"
    else:
        shown |= {"message": f"{shown.get('message', '')} {text}", "may_have_acted": True}
        content = msgspec.json.encode(shown).decode()
    return msgspec.structs.replace(result, content=content, may_have_acted=True)


def _tamed(value: Any, depth: int = 20) -> Any:
    """Turn anything into JSON, and what JSON cannot hold into its text."""
    match value:
        case str():
            return _text(value)
        case Mapping() if depth:
            return {_text(str(key)): _tamed(item, depth - 1) for key, item in value.items()}
        case list() | tuple() if depth:
            return [_tamed(item, depth - 1) for item in value]
        case _:
            return value if _is_scalar(value) else _text(repr(value)[:200])


def _is_scalar(value: Any) -> bool:
    match value:
        case None | bool():
            return True
        case int():
            return value.bit_length() <= 64
        case _:
            return isinstance(value, float) and math.isfinite(value)


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()
