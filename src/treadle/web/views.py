"""Views: what pages and the API show, as plain values made of a snapshot or of one session's events. Asks no network and changes nothing."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from markdown_it import MarkdownIt
from markupsafe import Markup

from treadle import Approval, ConfigurationError
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    BudgetReached,
    BudgetWarned,
    CallDecided,
    ChildStarted,
    ContextCompacted,
    DecisionRejected,
    MessageAdded,
    ModeChanged,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    TaskSubmitted,
    TaskWithdrawn,
    ToolAttemptFailed,
    ToolFinished,
    ToolInput,
    ToolLate,
    ToolResolved,
    ToolStarted,
    ToolSuspended,
)
from treadle.redaction import Redactor
from treadle.sessions import BudgetLeft
from treadle.state import Doubt
from treadle.web.access import Person, is_proven
from treadle.web.snapshot import Card, Question, Snapshot, Used

__all__ = [
    "CONDITIONS",
    "FILTERS",
    "PAGE",
    "WAITING",
    "Inbox",
    "Listing",
    "acts_on",
    "budgets",
    "chart",
    "chosen",
    "conversation",
    "costs",
    "fleet",
    "hidden",
    "inbox",
    "listing",
    "metadata",
    "of_session",
    "points",
    "row",
    "steps",
    "waiting",
    "waterfall",
]

PAGE = 50
"""Lines of a page of a list."""

CONDITIONS = ("status", "state", "tenant", "agent", "model", "text", "age", "parent", "below")
"""What a list of sessions can be filtered by."""
WAITING = ("tenant", "agent", "tool", "age")
"""What a list of requests or doubts can be filtered by."""
_MOST_CHARS = 100_000


_ALL: Mapping[str, str] = {}
"""No condition."""

# --- Inbox: what waits for a person.


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a person: the oldest first, what expires soon before it, and what has expired last."""

    items: list[dict[str, Any]]
    """A page of it."""
    total: int
    """How much there is."""
    waiting: int
    """How much of it can be answered: the rest has expired."""
    page: int
    """The page, from 1."""
    pages: int
    """How many pages there are."""


def inbox(
    snapshot: Snapshot, person: Person, wanted: Mapping[str, str] = _ALL, *, page: int = 1, size: int = PAGE
) -> Inbox:
    """Return what waits for a person and is shown to this one.

    Args:
        wanted: `kind` (`approval`, `question` or `doubt`), `tenant`, `agent`, `tool` and `age`, the least age in seconds.
    """
    now = time.time()
    kept = [
        one for one in snapshot.made("inbox", _waits) if person.sees(one["tenant"]) and _is_wanted(one, wanted, now)
    ]
    pages = max(1, -(-len(kept) // size))
    page = min(max(1, page), pages)
    shown = [_item(snapshot, one, now) for one in kept[(page - 1) * size : page * size]]
    waiting = len(kept) - sum(one["has_expired"] for one in kept)
    return Inbox(items=shown, total=len(kept), waiting=waiting, page=page, pages=pages)


def waiting(snapshot: Snapshot, person: Person) -> int:
    """Return how much waits that this person sees, and can be answered."""
    counts = snapshot.made("waiting by tenant", _waiting_by_tenant)
    return sum(count for tenant, count in counts.items() if person.sees(tenant))


def _waiting_by_tenant(snapshot: Snapshot) -> Counter[str]:
    return Counter(one["tenant"] for one in snapshot.made("inbox", _waits) if not one["has_expired"])


def of_session(snapshot: Snapshot, person: Person, session_id: str) -> list[dict[str, Any]]:
    """Return what waits in a session and in those below it, and is shown to this person."""
    found = snapshot.made("by root", _by_root).get(snapshot.top_of(session_id), [])
    now = time.time()
    kept = [one for one in found if session_id in (one["root"], one["session"]) and person.sees(one["tenant"])]
    return [_item(snapshot, one, now) for one in kept]


def _by_root(snapshot: Snapshot) -> dict[str, list[dict[str, Any]]]:
    """Return what waits for a person, by the session at the top."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in snapshot.made("inbox", _waits):
        found.setdefault(one["root"], []).append(one)
    return found


def chosen(snapshot: Snapshot, person: Person, kind: str, wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return `session`, `id` and `title` of all that waits of one kind, fulfils the conditions and has not expired, in order."""
    items = inbox(snapshot, person, {**wanted, "kind": kind}, size=1_000_000).items
    kept = [one for one in items if not one.get("is_expired")]
    return [{"session": one["session"], "id": one["id"], "title": one["title"]} for one in kept]


def _waits(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return what waits for a person, in order: what expires soon, then the oldest, and last what nobody can answer any more."""
    now = time.time()
    can_be_answered = {one.id for one in snapshot.open_approvals}
    expired = [one for one in snapshot.approvals if one.id not in can_be_answered]
    found: list[tuple[int, float, str, Approval | Question | Doubt]] = [
        *(
            (int(one.expires_at >= now + _URGENT_SECONDS), one.requested_at, "approval", one)
            for one in snapshot.open_approvals
        ),
        *((2, one.requested_at, "approval", one) for one in expired),
        *((1, one.since, "question", one) for one in snapshot.questions),
        *((1, one.since, "doubt", one) for one in snapshot.doubts),
    ]
    found.sort(key=lambda one: one[:2])
    return [
        {
            "kind": kind,
            "since": since,
            "of": one,
            "tool": one.tool,
            "has_expired": place == 2,
            **_place(snapshot, one.session_id),
        }
        for place, since, kind, one in found
    ]


def _item(snapshot: Snapshot, waits: Mapping[str, Any], now: float) -> dict[str, Any]:
    match waits["of"]:
        case Approval() as approval:
            return _approval_item(snapshot, approval, now)
        case Question() as question:
            return _question_item(snapshot, question)
    return _doubt_item(snapshot, waits["of"])


def _is_wanted(item: Mapping[str, Any], wanted: Mapping[str, str], now: float) -> bool:
    age = float(wanted.get("age") or 0)
    same = all(item[name] == wanted[name] for name in ("kind", "tenant", "agent", "tool") if wanted.get(name))
    return same and now - item["since"] >= age


_URGENT_SECONDS = 3600.0


def _place(snapshot: Snapshot, session_id: str) -> dict[str, Any]:
    top = snapshot.top_of(session_id)
    card = snapshot.cards.get(top)
    return {
        "session": session_id,
        "root": top,
        "tenant": snapshot.tenant_of(session_id),
        "agent": "" if card is None else card.agent,
        "task": "" if card is None else card.task,
    }


def _approval_item(snapshot: Snapshot, one: Approval, now: float) -> dict[str, Any]:
    preview = one.preview
    return {
        "kind": "approval",
        **_place(snapshot, one.session_id),
        "id": one.id,
        "tool": one.tool,
        "title": one.action or f"Call {one.tool}",
        "target": one.target,
        "effect": one.effect.value,
        "risk": one.risk,
        "type": one.approval_type,
        "why": one.reason or one.rule,
        "preview": None
        if preview is None
        else {"kind": preview.kind, "text": preview.text, "is_whole": preview.is_whole},
        "arguments": one.arguments,
        "expected": one.expected_result,
        "undo": one.rollback,
        "lifts": list(one.lifted),
        "rules": list(one.rules),
        "path": list(one.path),
        "since": one.requested_at,
        "until": one.expires_at,
        "is_expired": now > one.expires_at,
        "is_urgent": one.expires_at - now < _URGENT_SECONDS,
    }


def _question_item(snapshot: Snapshot, one: Question) -> dict[str, Any]:
    return {
        "kind": "question",
        **_place(snapshot, one.session_id),
        "id": one.call_id,
        "tool": one.tool,
        "title": one.text,
        "form": one.form,
        "since": one.since,
        "is_urgent": False,
    }


def _doubt_item(snapshot: Snapshot, one: Doubt) -> dict[str, Any]:
    return {
        "kind": "doubt",
        **_place(snapshot, one.session_id),
        "id": one.call_id,
        "tool": one.tool,
        "title": f"Was {one.tool} done?",
        "arguments": one.arguments,
        "effect": one.effect.value,
        "key": one.key,
        "business_key": one.business_key,
        "is_told": one.is_told,
        "since": one.since,
        "is_urgent": False,
    }


# --- Sessions: the list.


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list of sessions."""

    rows: list[dict[str, Any]]
    """A page of it."""
    total: int
    """How many sessions match."""
    page: int
    """The page, from 1."""
    pages: int
    """How many pages there are."""
    unread: int
    """How many sessions have not been looked into yet: filters on their agent and model do not find them."""


def listing(
    snapshot: Snapshot, person: Person, wanted: Mapping[str, str] = _ALL, *, page: int = 1, size: int = PAGE
) -> Listing:
    """Return the sessions that this person sees, the last changed first.

    Args:
        wanted: `status` (of the session or its last run, or `waiting`, `in-doubt`, `stranded`, `set-aside`), `tenant`, `agent`, `model`, `text`, `parent`,
            and `age`, the least time since the last change in seconds. Sessions that carry out calls of others are shown with `below`.
    """
    now = time.time()
    rows = snapshot.made("rows", _rows)
    kept = [one for one in rows if person.sees(one["tenant"]) and _is_row_wanted(one, wanted, now)]
    pages = max(1, -(-len(kept) // size))
    page = min(max(1, page), pages)
    shown = kept[(page - 1) * size : page * size]
    return Listing(rows=shown, total=len(kept), page=page, pages=pages, unread=snapshot.unread)


def _rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    infos = sorted(snapshot.infos.values(), key=lambda one: one.updated_at, reverse=True)
    return [row(snapshot, info.id) for info in infos]


def row(snapshot: Snapshot, session_id: str) -> dict[str, Any]:
    """Return a session's line of the list."""
    info = snapshot.infos[session_id]
    card = snapshot.cards.get(session_id)
    waits = [one for one in snapshot.made("by root", _by_root).get(session_id, []) if not one["has_expired"]]
    below = next((one for one in waits if one["session"] != session_id), None)
    found: dict[str, Any] = {
        "id": info.id,
        "run_status": info.run_status,
        "own_status": info.own_status,
        "tenant": snapshot.tenant_of(info.id),
        "task": info.task,
        "updated_at": info.updated_at,
        "is_below": card is not None and card.root_id != info.id,
        "parent": info.parent_id,
        "waits": sum(one["kind"] != "doubt" for one in waits),
        "waits_below": "" if below is None else below["session"],
    }
    found.update(_of_card(snapshot, card, info.updated_at))
    if below is not None and found["status"] == "paused" and session_id not in snapshot.left:
        found["why"] = f"its subagent {_wish(below)}"
    found["state"] = found["status"]  # its name before; programs may read it
    found["text"] = " ".join([found[name] for name in ("id", "task", "why", "agent", "tenant")]).lower()
    return found


def acts_on(row: Mapping[str, Any]) -> list[str]:
    """Return the acts that can be done to a session, as its line of the list says."""
    run_status, own_status = row["run_status"], row["own_status"]
    is_active = own_status == "active"
    can = {
        "cancel": run_status in ("running", "paused", "queued"),
        "retry": is_active and row["was_submitted"] and run_status in ("stopped", "failed", "active"),
        "resume": is_active and run_status in ("paused", "stopped", "failed", "running") and row["status"] != "running",
        "suspend": is_active,
        "activate": own_status == "suspended",
        "steer": own_status != "deleted",
        "fork": own_status != "deleted",
        "delete": run_status != "running",
        "purge": run_status != "running",
    }
    return [act for act, is_possible in can.items() if is_possible]


def _wish(one: Mapping[str, Any]) -> str:
    match one["kind"]:
        case "approval":
            return f"waits for approval of {one['tool']}"
        case "question":
            return f"waits for an answer: {one['of'].text}"
    return f"does not know whether {one['tool']} was done"


def metadata(snapshot: Snapshot, session_id: str) -> dict[str, Any]:
    """Return a session's metadata, without secrets."""
    card = snapshot.cards.get(session_id)
    found: dict[str, Any] = {} if card is None else hidden(card.metadata)
    return found


def _of_card(snapshot: Snapshot, card: Card | None, updated_at: float) -> dict[str, Any]:
    if card is None:
        blank = dict.fromkeys(("agent", "model", "why", "worker", "fault"), "")
        figures = {"steps": None, "calls": None, "tokens": None, "cost": None, "doubts": 0, "was_submitted": False}
        return {**blank, **figures, "since": updated_at, "status": "unread"}
    stranded = snapshot.stranded.get(card.id)
    doubts = [one for one in card.doubts if one.is_told or card.id not in snapshot.held]
    status, why = _status(snapshot, card)
    if stranded is not None:
        status, why = "stranded", stranded
    if doubts and status != "deleted":
        unknown = f"nobody knows whether {_tools(doubts)} was done"
        status, why = "in-doubt", unknown if status == "completed" else f"{unknown}; {why}"
    return {
        "agent": card.agent,
        "model": card.model,
        "why": why,
        "status": status,
        "since": card.since,
        "steps": card.steps,
        "calls": card.calls,
        "tokens": card.tokens,
        "cost": card.cost,
        "doubts": len(doubts),
        "was_submitted": card.was_submitted,
        "worker": card.worker.rpartition(" ")[0],
        "fault": card.fault,
    }


def _tools(doubts: Sequence[Doubt]) -> str:
    more = f" and {len(doubts) - 1} more" if len(doubts) > 1 else ""
    return f"{doubts[0].tool}{more}"


def _status(snapshot: Snapshot, card: Card) -> tuple[str, str]:
    """Return one word for what a session does now, and why."""
    if card.fault:
        return "broken", f"cannot be read: {card.fault}"
    if card.set_aside:
        return "set-aside", card.why
    if card.own_status in ("suspended", "deleted"):
        return card.own_status, card.why
    if card.run_status == "running" and card.id not in snapshot.held:
        return "broken-off", "its process has ended; it waits for a worker or a resume"
    if card.run_status == "paused":
        has_expired = card.id in snapshot.made("expired", _expired)
        why = (
            "its request has expired: when a worker or a resume continues it, it asks anew" if has_expired else card.why
        )
        return "paused", snapshot.left.get(card.id, why)
    return card.run_status, card.why


def _expired(snapshot: Snapshot) -> set[str]:
    """Return the sessions all of whose requests have expired."""
    asking = {one.session_id for one in snapshot.open_approvals}
    return {one.session_id for one in snapshot.approvals} - asking


def _is_row_wanted(row: Mapping[str, Any], wanted: Mapping[str, str], now: float) -> bool:
    status = wanted.get("status") or wanted.get("state") or ""  # the second is its name before
    text = wanted.get("text", "").lower()
    is_shown = (wanted.get("below") or not row["is_below"]) and (row["own_status"] != "deleted" or status == "deleted")
    same = all(row[name] == wanted[name] for name in ("tenant", "agent", "model", "parent") if wanted.get(name))
    is_old = now - row["updated_at"] >= float(wanted.get("age") or 0)
    has_text = not text or text in row["text"]
    return bool(is_shown and same and is_old and has_text and _has_status(row, status))


def _has_status(row: Mapping[str, Any], status: str) -> bool:
    if status == "waiting":
        return bool(row["waits"])
    if status == "in-doubt":
        return bool(row["doubts"])
    if status == "running":  # not what ran last where nobody runs it now
        return bool(row["status"] == status)
    return status in ("", row["status"], row["own_status"], row["run_status"])


# --- One session: the conversation as people read it.

_REDACTOR = Redactor()


def hidden(value: Any) -> Any:  # Any: JSON
    """Return a value without secrets."""
    return _REDACTOR.value(value)


class _Call(msgspec.Struct, kw_only=True):
    """What is known of one call."""

    id: str
    tool: str
    step: int
    arguments: str = ""
    edited: str = ""
    digest: str = ""
    key: str = ""
    effect: str = ""
    decision: str = ""
    rule: str = ""
    scope: str = ""
    by: str = ""
    reason: str = ""
    mode: str = ""
    proposed_at: float = 0.0
    asked_at: float | None = None
    answered_at: float | None = None
    answer: str = ""
    answered_by: str = ""
    is_proven: bool = False
    answer_reason: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    attempts: int = 0
    failures: list[str] = msgspec.field(default_factory=list)
    status: str = ""
    result: str = ""
    error: str = ""
    waits_for: str = ""
    waits: list[tuple[float, float | None]] = msgspec.field(default_factory=list)
    given: list[str] = msgspec.field(default_factory=list)
    late: str = ""
    resolution: str = ""
    children: list[str] = msgspec.field(default_factory=list)


def conversation(events: Iterable[AnyEvent]) -> list[dict[str, Any]]:
    """Return what was said and done, in order: entries of `kind` person, model, call or note. Secrets are redacted."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    found: list[dict[str, Any]] = hidden(msgspec.to_builtins(reader.entries))
    return found


class _Reader:
    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.calls: dict[str, _Call] = {}
        self._early: dict[str, _Call] = {}
        self._asks: dict[str, str] = {}

    def take(self, event: AnyEvent) -> None:
        match event:
            case MessageAdded():
                self._say("person", event, source=event.source, text=event.message.text)
            case TaskSubmitted():
                self._say("note", event, text=f"Task submitted for the agent {event.agent}", detail=event.message.text)
            case ModelFinished():
                self._answer(event)
            case ModelFailed():
                text = f"The model failed (attempt {event.attempt}): {event.message}"
                self._say("note", event, level="bad", text=text)
            case DecisionRejected():
                self._say("note", event, level="bad", text=f"An answer could not be used: {event.reason}")
            case _:
                self._take_other(event)

    def _answer(self, event: ModelFinished) -> None:
        message = event.message
        thinking = "".join(getattr(part, "text", "") for part in message.parts if type(part).__name__ == "Thinking")
        self._say(
            "model",
            event,
            text=message.text,
            thinking=thinking,
            step=event.step,
            act=event.act or "",
            cost=event.cost,
            tokens=event.usage.input_tokens + event.usage.output_tokens,
            seconds=event.duration_seconds,
            interrupted=event.interrupted,
        )
        for call in message.calls:
            # A read may have been decided and started while its response was still coming.
            found = self._early.pop(call.id, None) or _Call(id=call.id, tool=call.name, step=event.step)
            found.arguments, found.proposed_at = call.arguments, found.proposed_at or event.at
            self.calls[call.id] = found
            self._say("call", event, call=found)

    def _say(self, kind: str, event: AnyEvent, **said: Any) -> None:
        self.entries.append({"kind": kind, "seq": event.seq, "at": event.at, "run": event.run_id, **said})

    def _take_other(self, event: AnyEvent) -> None:
        if isinstance(event, CallDecided | ToolStarted) and event.early and event.call_id is not None:
            early = _Call(id=event.call_id, tool=event.tool, step=event.step, proposed_at=event.at)
            self._early.setdefault(event.call_id, early)
        call = self._early.get(event.call_id or "") or self.calls.get(event.call_id or "")
        if call is not None:
            _take_call(call, event)
            if isinstance(event, ApprovalRequested):
                self._asks[event.approval_id] = call.id
        if isinstance(event, ApprovalAnswered) and (asked := self.calls.get(self._asks.get(event.approval_id, ""))):
            asked.answer, asked.answered_at = event.answer, event.given_at or event.at
            asked.answered_by, asked.answer_reason = event.approved_by, event.reason
            asked.is_proven = is_proven(event.approved_by)
            asked.edited = "" if event.arguments is None else _json(event.arguments)
        if (note := _note(event)) is not None:
            self._say("note", event, **note)


def _take_call(call: _Call, event: AnyEvent) -> None:  # noqa: C901 - a list of cases, one each
    match event:
        case CallDecided():
            call.decision, call.rule, call.scope, call.mode = event.decision, event.rule, event.scope, event.mode
            call.by, call.reason, call.digest = event.by, event.reason or event.message, event.digest
            call.key = event.key or call.key
            call.effect = "" if event.effect is None else event.effect.value
            if event.arguments is not None:
                call.edited = _json(event.arguments)
        case ApprovalRequested():
            call.asked_at = event.at
        case ToolStarted():
            call.started_at = call.started_at or event.at
            call.attempts = max(call.attempts + 1, event.attempt)
            call.key, call.effect = event.key or call.key, event.effect.value
        case ToolAttemptFailed():
            call.failures.append(f"{event.failure_class}: {event.message}")
        case ToolSuspended():
            call.waits_for = event.waits_for
            call.waits.append((event.at, None))
        case ToolInput():
            if call.waits:
                call.waits[-1] = (call.waits[-1][0], event.given_at or event.at)
            call.given.append(f"{_json(event.value)} (by {event.by})")
            call.waits_for = ""
        case ToolFinished():
            result = event.result
            call.ended_at, call.status = event.at, str(result.status)
            call.result = result.content[:_MOST_CHARS]
            call.error = result.message or ""
            call.waits_for = ""
        case ToolLate():
            call.late = f"{event.outcome}: {event.content}"
        case ToolResolved():
            call.resolution = f"{event.outcome.replace('_', ' ')}, says {event.by}" + (
                f": {event.reason}" if event.reason else ""
            )
        case ChildStarted():
            call.children.append(event.child_id)


def _note(event: AnyEvent) -> dict[str, Any] | None:  # noqa: C901, PLR0911, PLR0912 - a list of cases, one each
    """Return what is said of an event that is neither a message nor a call's."""
    match event:
        case RunStarted():
            return {
                "text": f"Run started{f' by {event.agent}' if event.agent else ''}, model {event.model}",
                "run_id": event.run_id,
            }
        case RunPaused():
            return {"text": f"Paused: {event.reason.replace('_', ' ')}"}
        case RunResumed():
            return {"text": "Resumed" + (f" at {event.worker.rpartition(' ')[0]}" if event.worker else "")}
        case RunFinished():
            level = "good" if event.completed else "bad"
            said = event.message or ("" if event.reason == event.status else event.reason.replace("_", " "))
            return {"level": level, "text": event.status.capitalize(), "detail": said}
        case BudgetWarned():
            return {"level": "bad", "text": f"Close to a limit: {event.budget} {event.used} of {event.limit}"}
        case BudgetReached():
            return {"level": "bad", "text": f"Limit reached: {event.budget} {event.used} of {event.limit}"}
        case ContextCompacted():
            return {"text": f"Context made shorter: {event.tokens_before} to {event.tokens_after} tokens"}
        case SessionRewound():
            return {"text": f"Taken back to event {event.to}" + (f" ({event.mark})" if event.mark else "")}
        case SessionMarked():
            return {"text": f"Marked: {event.name}"}
        case SessionForked():
            return {"text": f"Forked from {event.parent_id} at event {event.parent_seq}"}
        case ModeChanged():
            return {"text": f"Mode {event.mode}, set by {event.by}"}
        case TaskWithdrawn():
            return {"text": f"Task withdrawn{f' by {event.by}' if event.by else ''}"}
        case SessionChanged() if event.status is not None:
            by = f" by {event.by}" if event.by else ""
            return {"text": f"Status {event.status}, set{by}" + (f": {event.reason}" if event.reason else "")}
    return None


def _json(value: Any) -> str:  # Any: JSON
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# --- One session: the timeline.


def waterfall(sessions: Mapping[str, Sequence[AnyEvent]], session_id: str, *, depth: int = 0) -> list[dict[str, Any]]:
    """Return what took time in a session, and in those below it, as bars in order.

    Each has `kind` (run, model or call), `label`, `depth`, and `parts`: what it did from when to when (`queue`, `person`, `work`).

    Args:
        sessions: The events of the session and of those that carry out its calls, by id.
    """
    timeline = _Timeline(depth)
    for event in sessions.get(session_id, ()):
        timeline.take(event)
    bars: list[dict[str, Any]] = []
    for bar in timeline.finished():
        bars.append(bar)
        for child in bar.pop("children", ()):
            bars += waterfall(sessions, child, depth=bar["depth"] + 1)
    return bars


class _Timeline(_Reader):
    """The bars of one session."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self._depth = depth
        self._bars: list[dict[str, Any]] = []
        self._run: dict[str, Any] = {}
        self._asked: ModelStarted | None = None
        self._last = 0.0

    def take(self, event: AnyEvent) -> None:
        super().take(event)
        self._last = event.at
        match event:
            case RunStarted() | RunResumed():
                label = event.task if isinstance(event, RunStarted) else "resumed"
                self._run = self._add("run", label or "run", 0, event.at)
            case RunFinished() | RunPaused():
                self._run.setdefault("to", event.at)
            case ModelStarted():
                self._asked = event
            case ModelFinished() | ModelFailed():
                self._answered(event)

    def _answered(self, event: ModelFinished | ModelFailed) -> None:
        begun = event.at if self._asked is None else self._asked.at
        label = "model" if self._asked is None else self._asked.model
        bar = self._add("model", label or "model", 1, begun)
        bar.update(to=event.at, status="failed" if isinstance(event, ModelFailed) else "ok")
        for call in event.message.calls if isinstance(event, ModelFinished) else ():
            self._add("call", call.name, 2, event.at)["call"] = self.calls[call.id]
        self._asked = None

    def _add(self, kind: str, label: str, depth: int, begun: float) -> dict[str, Any]:
        bar = {"kind": kind, "label": label, "depth": self._depth + depth, "from": begun, "status": ""}
        self._bars.append(bar)
        return bar

    def finished(self) -> list[dict[str, Any]]:
        """Return the bars, each with its parts."""
        for bar in self._bars:
            call: _Call | None = bar.pop("call", None)
            begun, ended = bar.pop("from"), bar.pop("to", self._last)
            marks = [("work", begun, ended)] if call is None else _marks(call, self._last)
            bar["parts"] = [{"what": what, "from": since, "to": to} for what, since, to in marks if to >= since]
            if call is not None:
                bar["status"] = call.status or ("waits" if call.asked_at or call.waits_for else "open")
                bar.update(attempts=call.attempts, children=call.children)
        return self._bars


def _marks(call: _Call, last: float) -> list[tuple[str, float, float]]:
    """Return what a call did from when to when: it waited, for a person or for its turn, and it worked."""
    end = call.ended_at or last
    marks = [("queue", call.proposed_at, call.asked_at or call.started_at or end)]
    if call.asked_at is not None:
        answered = call.answered_at or call.started_at or end
        marks += [("person", call.asked_at, answered), ("queue", answered, call.started_at or end)]
    if call.started_at is not None:
        marks.append(("work", call.started_at, end))
    # Drawn last, over what it interrupts.
    return [*marks, *(("person", since, end if to is None else to) for since, to in call.waits)]


def chart(bars: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return bars on a scale of 1000: `x` and `width` of each part, and the seconds of the whole."""
    parts = [part for bar in bars for part in bar["parts"]]
    begun = min((part["from"] for part in parts), default=0.0)
    whole = max((part["to"] for part in parts), default=1.0) - begun or 1.0
    for part in parts:
        part["x"] = round(1000 * (part["from"] - begun) / whole, 2)
        part["width"] = max(2.0, round(1000 * (part["to"] - part["from"]) / whole, 2))
    for bar in bars:
        bar["seconds"] = sum(part["to"] - part["from"] for part in bar["parts"])
    return {"bars": bars, "seconds": whole}


def steps(events: Iterable[AnyEvent]) -> list[dict[str, Any]]:
    """Return size of the context and cost by step: input and output tokens, cached tokens, and the cost."""
    return [
        {
            "step": number,
            "model": event.response_model,
            "input": event.usage.input_tokens,
            "cached": event.usage.cached_input_tokens,
            "output": event.usage.output_tokens,
            "cost": event.cost,
            "seconds": event.duration_seconds,
        }
        for number, event in enumerate((one for one in events if isinstance(one, ModelFinished)), 1)
    ]


def points(events: Iterable[AnyEvent]) -> list[dict[str, Any]]:
    """Return where a fork may begin: marks, and the end of each answer without calls."""
    found = []
    for event in events:
        if isinstance(event, SessionMarked):
            found.append({"seq": event.seq, "label": f"mark {event.name}"})
        elif isinstance(event, RunFinished):
            found.append({"seq": event.seq, "label": f"end of a run ({event.reason.replace('_', ' ')})"})
    return found


# --- Fleet and costs.


def fleet(snapshot: Snapshot) -> dict[str, Any]:
    """Return the workers, the queue by agent and tenant, and what is set aside or stranded."""
    now = time.time()
    queue: dict[tuple[str, str], dict[str, Any]] = {}
    for info in snapshot.infos.values():
        if info.run_status != "queued":
            continue
        card = snapshot.cards.get(info.id)
        key = ("" if card is None else card.agent, info.tenant)
        line = queue.setdefault(key, {"agent": key[0], "tenant": key[1], "count": 0, "oldest": now, "session": info.id})
        line["count"] += 1
        since = info.updated_at if card is None else card.since
        if since < line["oldest"]:
            line["oldest"], line["session"] = since, info.id
    rows = snapshot.made("rows", _rows)
    stuck = [one for one in rows if one["status"] in ("in-doubt", "stranded", "set-aside", "broken-off", "broken")]
    statuses = Counter(one["status"] for one in rows)
    statuses["in-doubt"] = len(snapshot.doubts)
    statuses["waiting"] = len(snapshot.open_approvals) + len(snapshot.questions)
    return {
        "workers": [
            msgspec.to_builtins(one) for one in sorted(snapshot.workers, key=lambda one: (not one.is_alive, one.name))
        ],
        "queue": sorted(queue.values(), key=lambda line: line["oldest"]),
        "stuck": sorted(stuck, key=lambda one: one["since"]),
        "statuses": {name: statuses[name] for name in sorted(+statuses, key=_by_urgency)},
    }


_URGENCY = ("in-doubt", "stranded", "set-aside", "broken", "broken-off", "failed", "stopped", "suspended", "waiting")


def _by_urgency(status: str) -> tuple[int, str]:
    return (_URGENCY.index(status) if status in _URGENCY else len(_URGENCY), status)


def costs(snapshot: Snapshot, person: Person, *, by: str, days: int) -> dict[str, Any]:
    """Return what was used: lines by day and `by` (tenant, agent or model), and their sums.

    Raises:
        ConfigurationError: There is no such grouping.
    """
    if by not in _BY:
        raise ConfigurationError(f"Costs are shown by {', '.join(_BY)}; got {by!r:.40}.")
    first = datetime.fromtimestamp(time.time() - (days - 1) * 86400, UTC).date().isoformat()
    lines = _used_since(snapshot, person, first)
    groups = _groups(lines, by)
    series = {group["name"]: group["series"] for group in groups}
    return {
        "by": by,
        "days": days,
        "lines": lines,
        "total": _sum({"name": ""}, lines),
        "groups": groups,
        **_columns(lines, by, series, first),
    }


def budgets(found: Sequence[BudgetLeft], person: Person) -> list[dict[str, Any]]:
    """Return what is left of the tenants' budgets: `used` is the part of a thousand that is used or reserved."""
    return [
        {
            **{name: getattr(one, name) for name in ("tenant", "each", "per", "period")},
            **{name: f"{getattr(one, name):f}" for name in ("limit", "spent", "reserved", "left")},
            "used": int(1000 * (one.limit - one.left) / one.limit) if one.limit else 1000,
        }
        for one in found
        if person.sees(one.tenant)
    ]


def _used_since(snapshot: Snapshot, person: Person, first: str) -> list[dict[str, Any]]:
    """Return what was used from a day on, by day, tenant, agent and model."""
    sums: dict[tuple[str, str, str, str], list[Used]] = {}
    for card in snapshot.cards.values():
        tenant = snapshot.tenant_of(card.id)
        for one in card.used if person.sees(tenant) else ():
            if one.day >= first:
                sums.setdefault((one.day, tenant, card.agent, one.model), []).append(one)
    names = ("day", "tenant", "agent", "model")
    return [_sum(dict(zip(names, key, strict=True)), map(msgspec.structs.asdict, sums[key])) for key in sorted(sums)]


def _groups(lines: Sequence[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    names = dict.fromkeys(line[by] for line in lines)
    groups = [_sum({"name": name}, [line for line in lines if line[by] == name]) for name in names]
    groups.sort(key=lambda group: (-Decimal(group["cost"]), group["name"]))
    return [{**group, "series": number} for number, group in enumerate(groups)]


def _sum(group: dict[str, Any], lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    figures = ("requests", "input_tokens", "cached_tokens", "output_tokens", "unpriced")
    lines = list(lines)
    sums = {name: sum(line[name] for line in lines) for name in figures}
    cost = sum((Decimal(line["cost"]) for line in lines), Decimal(0))
    return {**group, **sums, "cost": f"{cost:f}"}


def _columns(lines: Sequence[Mapping[str, Any]], by: str, series: Mapping[str, int], first: str) -> dict[str, Any]:
    """Return a column for each day, its parts one above the other on a scale of 120."""
    begin, end = date.fromisoformat(first), datetime.now(UTC).date()
    days = [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]
    costs_of: dict[str, dict[str, Decimal]] = {day: {} for day in days}
    for line in lines:
        day = costs_of.setdefault(line["day"], {})
        day[line[by]] = day.get(line[by], Decimal(0)) + Decimal(line["cost"])
    most = max((sum(day.values()) for day in costs_of.values()), default=Decimal(0))
    return {
        "most": f"{most:f}",
        "days_used": [_column(day, costs_of[day], most, series) for day in sorted(costs_of)] if most else [],
    }


def _column(day: str, parts: Mapping[str, Decimal], most: Decimal, series: Mapping[str, int]) -> dict[str, Any]:
    top, placed = 120.0, []
    for name, cost in sorted(parts.items(), key=lambda part: series[part[0]]):
        height = float(110 * cost / most)
        top -= height
        placed.append(
            {"name": name, "series": series[name], "cost": f"{cost:f}", "y": round(top, 2), "height": round(height, 2)}
        )
    return {"day": day, "parts": placed}


_BY = ("model", "agent", "tenant")


# --- How values are written on pages.


def _escaped(text: object) -> str:
    """Return a text in which nothing is invisible, and nothing changes the direction of what is around it."""
    return _HIDDEN_CHARS.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


_HIDDEN_CHARS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")
)


def _opened_apart(self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:  # Any: of markdown-it's renderer
    """Draw a link that a model wrote so that it leaves the page where it is, and tells the other site nothing."""
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    tokens[index].attrSet("target", "_blank")
    drawn: str = self.renderToken(tokens, index, options, env)
    return drawn


_MARKDOWN.add_render_rule("link_open", _opened_apart)


def _markdown(text: str) -> Markup:
    """Return Markdown as HTML. HTML in it is shown as text, and its links are those of the web."""
    return Markup(_MARKDOWN.render(_escaped(text)[:_MOST_CHARS]))  # noqa: S704 - markdown-it escapes all text


def _ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %Y, %H:%M UTC")


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def _money(value: object) -> str:
    if value is None:
        return "no price"
    amount = Decimal(str(value))
    return "0" if not amount else f"{amount:.4f}" if amount < 1 else f"{amount:.2f}"


def _number(value: object) -> str:
    return "" if value is None else f"{value:,}".replace(",", "\u202f")


FILTERS = {
    "shown": _escaped,
    "markdown": _markdown,
    "ago": _ago,
    "clock": _clock,
    "day": _day,
    "seconds": _seconds,
    "money": _money,
    "number": _number,
    "json": _json,
}
"""What templates may apply to a value."""
