"""Checks: sentences about the evidence of one trial. Each returns what is wrong, or None."""

import json
import re
from collections.abc import Callable
from typing import Any

from treadle.conformance.evidence import Evidence, Item
from treadle.conformance.scenario import Check

__all__ = [
    "accepted",
    "answered",
    "any_of",
    "at_most_requests",
    "ended",
    "every_call_answered",
    "never_ran",
    "not_completed",
    "offered",
    "overlapped",
    "ran",
    "ran_with",
    "requests",
    "result_says",
    "sent",
    "told_failure",
]

_FAILURE = re.compile(
    r"error|fail|invalid|unknown|\bnot\b|cannot|can't|exception|missing|required|must|expected|denied|reject|refus|"
    r"tim(e|ed)[ -]?out|abort|cancel|interrupt|skip|unavailable|no (tool|such)|did you mean|correct|again",
    re.IGNORECASE,
)


def accepted(evidence: Evidence) -> str | None:
    """The strict provider takes every request."""
    return f"The provider refused a request: {evidence.refusals[0]}" if evidence.refusals else None


def ended(evidence: Evidence) -> str | None:
    """Every process ended by itself, or where the scenario killed it."""
    hung = [number for number, one in enumerate(evidence.exits, 1) if one.code is None and not one.was_killed]
    return f"Process {hung[0]} of the subject did not end by itself." if hung else None


def ran(name: str, times: int, upto: int | None = None) -> Check:
    """A tool was executed N times."""

    def check(evidence: Evidence) -> str | None:
        count = len(evidence.ran(name))
        if times <= count <= (times if upto is None else upto):
            return None
        wanted = _times(times) if upto is None else f"{times} to {_times(upto)}"
        return f"{name} was executed {_times(count)}, not {wanted}."

    return check


def ran_with(name: str, *wanted: dict[str, Any]) -> Check:
    """A tool was executed once with each of these arguments, in any order, and with no others."""

    def check(evidence: Evidence) -> str | None:
        found = sorted(_json(one.arguments) for one in evidence.ran(name))
        if found == sorted(map(_json, wanted)):
            return None
        return f"{name} was executed with {', '.join(found) or 'nothing'}, not with {', '.join(map(_json, wanted))}."

    return check


def never_ran(*names: str) -> Check:
    """No tool was executed, or none of these."""

    def check(evidence: Evidence) -> str | None:
        found = [one for one in evidence.executions if not names or one.tool in names]
        return f"{found[0].tool} was executed with {_json(found[0].arguments):.200}." if found else None

    return check


def overlapped(first: str, second: str, *, wanted: bool) -> Check:
    """Whether two tools were under way at one time."""

    def check(evidence: Evidence) -> str | None:
        one, other = evidence.ran(first), evidence.ran(second)
        if not one or not other:
            return f"{first if not one else second} was not executed."
        at_once = one[0].began < (other[0].ended or 0) and other[0].began < (one[0].ended or 0)
        return None if at_once is wanted else f"{first} and {second} {'overlapped' if at_once else 'did not overlap'}."

    return check


def result_says(call_id: str, says: str | Callable[[Item], bool] = "") -> Check:
    """The model got exactly one result of a call, which has this text."""

    def check(evidence: Evidence) -> str | None:
        found = evidence.results(call_id)
        if len(found) != 1:
            return f"The call {call_id} got {len(found)} results; it needs one."
        fits = says(found[0]) if callable(says) else says in found[0].text
        return None if fits else f"The result of {call_id} does not say what happened: {found[0].text:.300}"

    return check


def told_failure(call_id: str, says: str = "") -> Check:
    """The model got exactly one result of a call, which says that it failed."""
    return result_says(
        call_id,
        lambda item: (item.is_error or _FAILURE.search(item.text) is not None) and says.lower() in item.text.lower(),
    )


def every_call_answered(evidence: Evidence) -> str | None:
    """In each request every call of the history has exactly one result."""
    for number, request in enumerate(evidence.requests, 1):
        for call in (item for item in request.items if item.kind == "call"):
            count = len(request.results(call.id))
            if count != 1:
                return f"In request {number} the call {call.id} has {count} results."
    return None


def requests(times: int, upto: int | None = None) -> Check:
    """The provider was asked N times."""
    wanted = _times(times) if upto is None else f"{times} to {_times(upto)}"

    def check(evidence: Evidence) -> str | None:
        count = len(evidence.requests)
        return None if times <= count <= (upto or times) else f"The provider was asked {_times(count)}, not {wanted}."

    return check


def at_most_requests(most: int) -> Check:
    """The provider was asked at most N times."""
    return requests(1, most)


def sent(what: str, holds: Callable[[Evidence], bool]) -> Check:
    """Something else is true of the evidence. The sentence says what."""

    def check(evidence: Evidence) -> str | None:
        if not evidence.requests:
            return "The provider was not asked."
        return None if holds(evidence) else f"Not true: {what}"

    return check


def offered(name: str, keyword: str) -> Check:
    """The model sees a part of a tool's schema."""

    def check(evidence: Evidence) -> str | None:
        if not evidence.requests:
            return "The provider was not asked."
        schema = evidence.requests[0].tools.get(name)
        return None if keyword in _json(schema) else f"The model is not shown {keyword} of {name}: {_json(schema):.300}"

    return check


def answered(says: str = "") -> Check:
    """The last process completed the task, and its answer has this text."""

    def check(evidence: Evidence) -> str | None:
        last = evidence.last
        if not last.is_completed:
            why = last.outcome.get("error") or last.outcome.get("reason") or f"exit code {last.code}"
            return f"The task was not completed: {why}"
        return None if says in (last.answer or "") else f"The answer is {last.answer!r:.200}, without {says!r}."

    return check


def not_completed(evidence: Evidence) -> str | None:
    """The last process does not claim that the task is done."""
    return "The subject says that the task is completed." if evidence.last.is_completed else None


def any_of(*checks: Check) -> Check:
    """One of several outcomes, each of which is right."""

    def check(evidence: Evidence) -> str | None:
        faults = [fault for one in checks if (fault := one(evidence)) is not None]
        return None if len(faults) < len(checks) else " And: ".join(faults)

    return check


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
