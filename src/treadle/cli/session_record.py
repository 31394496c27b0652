"""Session record: one session as plain values: its messages, and each call with its decision, its answers and its whole result."""

from typing import Any

import msgspec

from treadle import Session, ToolCall
from treadle.events import (
    ApprovalAnswered,
    CallDecided,
    ChildStarted,
    ModelFinished,
    ToolFinished,
    ToolInput,
    ToolResolved,
    ToolStarted,
)
from treadle.ports import Journal

__all__ = ["described", "empty_call"]


async def described(session: Session, journal: Journal) -> dict[str, Any]:
    """Return all that a person may want to read of a session."""
    return {
        "id": session.id,
        "phase": session.state.phase,
        "state": session.state.phase,  # its name before; programs may read it
        "status": session.state.status,
        "metadata": session.state.metadata,
        "parent_id": session.state.parent_id,
        "parent_seq": session.state.parent_seq,
        "caller": None if session.state.caller is None else msgspec.to_builtins(session.state.caller),
        "marks": session.state.marks,
        "agent": "" if session.state.run is None else session.state.run.agent,
        "facts": session.state.facts.values,
        "messages": [
            {"role": message.role, "parts": [msgspec.to_builtins(part) for part in message.parts]}
            for message in session.messages
        ],
        "calls": await _calls(session, journal),
        "approvals": [msgspec.to_builtins(approval) for approval in await session.approvals()],
        "in_doubt": [msgspec.to_builtins(doubt) for doubt in await session.doubts()],
    }


async def _calls(session: Session, journal: Journal) -> list[dict[str, Any]]:
    """Return every call as received, with its decision and its whole result, in the order in which they appeared."""
    calls: dict[str, dict[str, Any]] = {}
    for event in await session.events():
        match event:
            case ModelFinished(act=None):
                for call in event.message.calls:
                    _entry(calls, call.id, call.name)["arguments"] = call.arguments
            case CallDecided(call_id=str(call_id)):
                decision = {"kind": event.decision, "rule": event.rule, "reason": event.reason}
                _entry(calls, call_id, event.tool).update(
                    decision=decision, effect=event.effect, decided_arguments=event.arguments
                )
            case ToolStarted(
                call=ToolCall() as call
            ):  # it began before its response was whole, which may never have been
                _entry(calls, call.id, call.name)["arguments"] = call.arguments
            case (
                ApprovalAnswered(call_id=str(call_id))
                | ToolResolved(call_id=str(call_id))
                | ToolInput(call_id=str(call_id))
            ):
                _take_word(calls, call_id, event)
            case ToolFinished(call_id=str(call_id)):
                _entry(calls, call_id, event.result.name)["result"] = await _whole_result(event, journal)
            case ChildStarted(call_id=str(call_id)):
                children = _entry(calls, call_id, event.tool)["children"]
                children += [event.child_id] if event.child_id not in children else []
            case _:
                pass
    return list(calls.values())


def _take_word(
    calls: dict[str, dict[str, Any]], call_id: str, event: ApprovalAnswered | ToolResolved | ToolInput
) -> None:
    """Add what a person said on a call, or gave it."""
    match event:
        case ApprovalAnswered() if call_id in calls:  # that of a child is shown with the child
            calls[call_id]["answers"].append(_answer(event))
        case ToolResolved():
            _entry(calls, call_id, event.tool)["resolutions"].append(_resolution(event))
        case ToolInput():
            given = {"value": event.value, "by": event.by, "at": event.at, "given_at": event.given_at}
            _entry(calls, call_id, event.tool)["inputs"].append(given)
        case _:
            pass


def _entry(calls: dict[str, dict[str, Any]], call_id: str, name: str) -> dict[str, Any]:
    return calls.setdefault(call_id, empty_call(call_id, name))


def empty_call(call_id: str, name: str) -> dict[str, Any]:
    """Return a call of which nothing is recorded yet."""
    empty: dict[str, Any] = {"id": call_id, "name": name, "arguments": "", "decision": None, "effect": None}
    # `children` are the sessions that carried it out, where the tool is an agent.
    empty["decided_arguments"] = None
    return empty | {"answers": [], "inputs": [], "resolutions": [], "result": None, "children": []}


def _answer(event: ApprovalAnswered) -> dict[str, Any]:
    """Return what a person said on a request for consent. `given_at` is None for an answer of an older version."""
    return {
        "answer": event.answer,
        "by": event.approved_by,
        "given_at": event.given_at,
        "reason": event.reason,
        "arguments": event.arguments,
    }


def _resolution(event: ToolResolved) -> dict[str, Any]:
    """Return what a person said on a call in doubt."""
    return {"outcome": event.outcome, "by": event.by, "at": event.at, "reason": event.reason, "value": event.value}


async def _whole_result(event: ToolFinished, journal: Journal) -> dict[str, Any]:
    """Return a result; `full` is its whole text where the model was shown a part."""
    result = event.result
    kept = None if result.artifact is None else await journal.blob(result.artifact)
    return {
        "status": result.status,
        "content": result.content,
        "full": None if kept is None else kept.decode("utf-8", "replace"),
        "code": result.code,
        "attempts": result.attempts,
        "duration_seconds": result.duration_seconds,
        "may_have_acted": result.may_have_acted,
    }
