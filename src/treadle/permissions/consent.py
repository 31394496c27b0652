"""Consent: when a person is asked about a call, and what the answer covers. Values only: asks nobody, records nothing."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.canonical import copied, digest, encoded
from treadle.events import ActionDecided, ApprovalAnswered, ApprovalRequested, CallDecided, DoubtBelow
from treadle.fields import explained
from treadle.permissions.denied import with_reachable
from treadle.permissions.lines import JudgedLine, facts_in, judged, subjects_of
from treadle.permissions.modes import BORDER, PROTECTED, UNCONFINED_RULE, may_be_spared
from treadle.permissions.policies import OUTSIDE, allow
from treadle.permissions.rules import NETWORK, Rule
from treadle.ports import Decision, DecisionKind, SessionView
from treadle.shell.judging import losing_words, turning_words
from treadle.shell.rules import exact, suggested
from treadle.state import IN_DOUBT, Approval, CallState, Doubt
from treadle.tools import ApprovalType, CheckedCall, Effect, JsonObject, Preview, Review, Subject, Tool

__all__ = [
    "action_digest",
    "answer_in_doubt",
    "answer_of",
    "asked_besides",
    "asked_instead",
    "changed_edit",
    "covers",
    "dangerous_edit",
    "edit_of",
    "equals_doubt",
    "escaped",
    "has_started_before",
    "is_allowed",
    "is_answered",
    "is_asked_about",
    "is_denied",
    "is_new_danger",
    "may_be_repeated",
    "offered_rules",
    "recorded_decision",
    "request",
    "review_of",
    "ruled",
    "start_of",
    "still_boxed",
    "unfit_edit",
    "was_reported_twice",
]


# --- Reviews: what a person who is asked about a call is shown, and which rules could spare the question. Asks nobody
# and runs nothing.

_MAX_PREVIEW = 200_000
"""Characters of a preview. The arguments of a request are whole in any case."""
_MAX_WORDS = 2_000
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u2d7f\u3164\uffa0\ufffc\U00016fe4\U0001d159")
"""Letters and marks that show nothing, though their category says otherwise."""
_EXPECTED = {
    Effect.READ: "Nothing is changed.",
    Effect.IDEMPOTENT: "The change is made once, however often the call is repeated.",
    Effect.KEYED: "The change is made once: the service recognizes a repeated call by its key.",
    Effect.UNSAFE: "The change is made, and repeating the call makes it again.",
}
_UNKNOWN_ROLLBACK = "Unknown: the tool does not say how to undo it."
_GLOB_SIGNS = re.compile(r"[*?\[,]")


def review_of(call: CheckedCall, facts: JsonObject, lifted: Sequence[str] = ()) -> Review:
    """Return what a person is shown of a call, whole: what the tool does not say is filled in. Every text is escaped.

    Args:
        facts: What tools have remembered in the session.
        lifted: What consent lifts of the sandbox's border.
    """
    own = _said_by(call, facts)
    line = judged(call, facts)
    preview = own.preview or (_arguments(call) if line is None else _command(call, line, lifted))
    return Review(
        action=_words(own.action) or ("Run a command" if line is not None else f"Call {_words(call.name)}"),
        target=_names(own.target) or _target(call, line),
        preview=_bounded(preview),
        expected_result=_words(own.expected_result) or _EXPECTED[call.effect],
        rollback=_words(own.rollback) or ("Not needed." if call.effect.is_read else _UNKNOWN_ROLLBACK),
    )


def offered_rules(call: CheckedCall, decision: Decision, session: SessionView) -> tuple[str, ...]:
    """Return the narrow rules that would let this very call run without a question; none where no rule can vouch for it.

    Each is tried on the call before it is offered. None is offered for a shell, an interpreter or a wrapper, nor where the question does
    not come from a default: a rule that asks, a protected file or a tool that requires approval would ask again.

    Args:
        decision: Why a person is asked.
    """
    facts = facts_in(session)
    is_unread = may_be_spared(decision, call, facts)
    is_border = decision.rule in (BORDER, UNCONFINED_RULE)
    if call.permission == "always_ask" or not (decision.scope in ("default", "tool") or is_unread or is_border):
        return ()
    line = judged(call, facts)
    if line is None:
        forms = [_path_rules(call)]
    else:
        kinds = [] if is_unread else [suggested(line.line)]
        named = [[f"{call.name}({one})" for one in found] for found in (*kinds, exact(line.line))]
        hosts = (
            [f"{NETWORK}({one.host})" for one in call.needs if one.kind == "network" and one.value != "*"]
            if is_border
            else []
        )
        forms = [*named, *([*one, *hosts] for one in named if hosts)]
    for texts in forms:
        policy = allow(*texts) if texts else None
        proven = None if policy is None else policy.decide(call, session)
        is_enough = proven is not None and proven.kind == "allow"
        if is_border and proven is not None:
            boxed = msgspec.structs.replace(proven, kind=DecisionKind.SANDBOX)
            lifted = with_reachable(boxed, call, (policy,), session).lifted
            wanted = {one.text for one in call.needs} | ({*decision.lifted} & {"network *"})
            is_enough = is_enough and wanted <= set(lifted)
        if is_enough:
            return tuple(texts)
    return ()


def start_of(call: CheckedCall) -> str:
    """Return in one sentence where the line of a call starts; nothing where that is the root folder."""
    return "" if call.folder == "." else f"It starts in the folder {_names(call.folder)}."


def escaped(text: str) -> str:
    """Return a text with every character visible: none of it hides, repaints or changes the direction of another. Line feeds and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in "\n\t" or _is_visible(one) else _escape(one) for one in text)


def _said_by(call: CheckedCall, facts: JsonObject) -> Review:
    if call.tool.review is None:
        return Review()
    try:
        said = call.tool.review(copied(call.arguments), copied(facts))
        return msgspec.convert(msgspec.to_builtins(said), Review) if isinstance(said, Review) else Review()
    except Exception:  # noqa: BLE001 - the author's function: a person is asked anyway, with the arguments
        return Review()


def _arguments(call: CheckedCall) -> Preview:
    whole = msgspec.json.format(msgspec.json.encode(call.arguments), indent=2)
    return Preview(kind="arguments", text=whole.decode())


def _command(call: CheckedCall, line: JudgedLine, lifted: Sequence[str]) -> Preview:
    """Show the line alone, in full, and below it only what is not in it."""
    start = start_of(call)
    found: list[str] = [start] if start else []
    if call.arguments.get("background") is True:
        after = ", also after this run," if call.arguments.get("keep") is True else ""
        found.append(f"It stays in the background{after} for at most {call.arguments.get('lifetime')} s.")
    found += [f"It needs {_BORDER.get(one.partition(' ')[0], one).format(one.partition(' ')[2])}." for one in lifted]
    outer = [one for one in line.line.invocations if not one.via]
    found += [
        f"`{word}` deletes or overwrites something, or skips a check."
        for one in outer
        for word in losing_words(one.words)
    ]
    found += [
        f"`{word}` has it use another program, other settings or another server."
        for one in outer
        for word in turning_words(one.words)
    ]
    outside = dict.fromkeys((one.access, one.subject.names[-1]) for one in line.reached if one.is_outside)
    found += [
        f"It {'may write' if access == 'write' else 'reads'} outside the folder: {path}" for access, path in outside
    ]
    linked = dict.fromkeys((one.way, one.subject.names[0]) for one in line.reached if one.way and not one.is_outside)
    found += [f"{way} leads to {name}, through a link." for way, name in linked]
    found += [one.shown for one in line.line.doubts[:1]]
    return Preview(kind="command", text="\n\n".join(filter(None, [line.line.source, "\n".join(dict.fromkeys(found))])))


_BORDER = {
    "git": "to write the git history, without hooks",
    "network": "the network: {}",
    "write": "to write {}",
    "unconfined": "to run without the sandbox",
}
"""What is lifted of a sandbox's border, in words."""


def _target(call: CheckedCall, line: JudgedLine | None) -> str:
    if line is not None:
        programs = dict.fromkeys(one.program for one in line.line.invocations if not one.via)
        return _words(", ".join(programs))
    return _names(", ".join(subject.names[0] for subject in _subjects(call).values() if subject.names))


def _subjects(call: CheckedCall) -> dict[str, Subject]:
    found = subjects_of(call) or {}
    return {key: one for key, one in found.items() if isinstance(one, Subject)}


def _path_rules(call: CheckedCall) -> list[str]:
    """Return a rule on the one thing that a call names. A call that names nothing, or several things, has none.

    Of a page of the web it is the host: people trust hosts, and the next page has another address.
    """
    subjects = _subjects(call)
    if subjects.keys() == {"host", "url"}:
        subjects = {"host": subjects["host"]}
    if len(subjects) != 1:
        return []
    ((key, subject),) = subjects.items()
    if not subject.names or subject.extent != "itself" or _words(subject.names[0]) != subject.names[0]:
        return []  # a name that is not what a person would read, were it shown on one line
    rule = f"{call.name}({key}={_GLOB_SIGNS.sub(_bracketed, subject.names[0])})"
    try:
        Rule.parse(rule)
    except Exception:  # noqa: BLE001 - a name that no rule can hold
        return []
    return [rule]


def _bracketed(found: "re.Match[str]") -> str:
    return f"[{found[0]}]"


def _bounded(preview: Preview) -> Preview:
    text = escaped(preview.text)
    if len(text) <= _MAX_PREVIEW:
        return Preview(kind=preview.kind, text=text, is_whole=preview.is_whole)
    left_out = len(text) - _MAX_PREVIEW
    shown = f"{text[:_MAX_PREVIEW]}\n({left_out:,} more characters are not shown.)"
    return Preview(kind=preview.kind, text=shown, is_whole=False)


def _words(text: str) -> str:
    """Return words on one line."""
    return " ".join(escaped(text[:_MAX_WORDS]).split())


def _names(text: str) -> str:
    """Return names on one line: spaces, tabs and line feeds are part of a file's name, and tell it from another."""
    return escaped(text[:_MAX_WORDS]).replace("\n", "\\n").replace("\t", "\\t")


def _is_visible(character: str) -> bool:
    is_mark = character in _INVISIBLE or "\ufe00" <= character <= "\ufe0f" or "\u180b" <= character <= "\u180f"
    return character.isprintable() and not is_mark and not "\U000e0000" <= character <= "\U000e0fff"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


# --- Consent: when a person is asked about a call, and what the answer covers. Values only: asks nobody, records
# nothing.

_EQUALS_DOUBT = "equals a call in doubt"
_REPORTED_TWICE = "possible repetition of a call"
_UNFIT_EDIT = "edited arguments"

_KINDS: dict[str, ApprovalType] = {
    IN_DOUBT: "in_doubt",
    _EQUALS_DOUBT: "in_doubt",
    _REPORTED_TWICE: "possible_repetition",
    _UNFIT_EDIT: "unfit_edit",
}
"""What is asked, by the rule that asks."""

# --- what a consent is bound to


def action_digest(session_id: str, call: CheckedCall) -> str:
    """Return what a consent is bound to: session, call, tool, arguments, effect, the tool's schema, and what a path leads to.

    A draft runs under the name of the call that commits; its own digest tells the two apart.
    """
    parts = [session_id, call.id, call.name, call.arguments, call.effect.value, _schema_digest(call.tool)]
    is_draft = call.digest != digest([call.name, encoded(call.arguments)])
    # The first name is relative to the root, which may lie elsewhere on another machine.
    named = {key: names[0] for key, names in call.named.items() if call.arguments.get(key) not in names}
    if named or call.folder != ".":
        parts += [named, call.folder]
    parts += [[name, access] for name, way, access, _ in call.files if way]
    return digest([*parts, call.digest] if is_draft else parts)


def _schema_digest(tool: Tool) -> str:
    return digest([tool.parameters, tool.output_schema])


# --- the answer


def answer_of(state: CallState) -> ApprovalAnswered | None:
    """Return what a person has answered about a call; None where nobody has."""
    return None if state.approval is None else state.approval.answer


def edit_of(state: CallState) -> JsonObject | None:
    """Return the arguments that a person has put in place of the model's, in the last answer or in one before; None where nobody has."""
    answer = answer_of(state)
    if answer is not None and answer.arguments is not None:
        return answer.arguments
    return None if state.approval is None else state.approval.edited


def is_allowed(state: CallState) -> bool:
    """Whether a person has allowed a call."""
    answer = answer_of(state)
    return answer is not None and answer.answer == "allow"


def is_denied(state: CallState) -> bool:
    """Whether a person has denied a call."""
    answer = answer_of(state)
    return answer is not None and answer.answer == "deny"


@explained
def is_answered(call: CheckedCall, session: SessionView) -> bool:
    """Whether a person has answered the question about a call already, before its run was resumed."""
    state = session.state.open.get(call.id)
    return state is not None and answer_of(state) is not None


def covers(state: CallState, call: CheckedCall, session_id: str) -> bool:
    """Whether the answer was given in time and for this very action."""
    approval = state.approval
    return approval is not None and approval.is_answered_in_time and approval.digest == action_digest(session_id, call)


def is_new_danger(state: CallState, decision: Decision) -> bool:
    """Whether a call reaches a protected file of which the person who allowed it was not told."""
    if decision.rule != PROTECTED:
        return False
    told = {PROTECTED: decision.reason, _UNFIT_EDIT: dangerous_edit(decision.reason).reason}
    asked = state.approval
    return asked is None or asked.rule not in told or not asked.reason.startswith(told[asked.rule])


def answer_in_doubt(state: CallState, call: CheckedCall, session_id: str) -> Literal["allow", "deny"] | None:
    """Return the answer to the question whether to run the call again, given in time and since it last started."""
    answer, started = answer_of(state), state.started
    if answer is None or started is None or not _is_about_doubt(state.approval) or answer.seq < started.seq:
        return None
    return answer.answer if covers(state, call, session_id) else None


def ruled(decision: Decision, approval: Approval) -> Decision:
    """Return a person's decision in place of the policy's. It cannot lift what the policy forbids, nor its sandbox."""
    answer = approval.answer
    assert answer is not None
    is_lower = decision.kind in (DecisionKind.SANDBOX, DecisionKind.DRAFT)
    if decision.kind == DecisionKind.DENY or (is_lower and answer.answer == "allow"):
        return decision
    allowed = DecisionKind.SANDBOX if decision.consent == "sandbox" else DecisionKind.ALLOW
    return msgspec.structs.replace(
        decision,
        kind=allowed if answer.answer == "allow" else DecisionKind.DENY,
        rule=f"approval {approval.id}",
        reason=answer.reason,
        scope="call",
        by=answer.approved_by,
        interrupt=answer.interrupt,
        lifted=approval.lifted,  # what the person was shown, whatever has changed since
    )


# --- what was decided before


def recorded_decision(state: CallState) -> Decision | None:
    """Return the decision on a call that its session has recorded, before a pause or a crash; None where there is none."""
    decided = state.decision
    if decided is None or decided.decision not in set(DecisionKind):
        return None
    return msgspec.structs.replace(
        decision_of(decided),
        arguments=copied(decided.arguments),
        message=decided.message,
        interrupt=decided.interrupt,
    )


def decision_of(event: ActionDecided | CallDecided) -> Decision:
    """Return the decision that an event tells: what, by which rule and whom, in which mode."""
    return Decision(
        kind=DecisionKind(event.decision),
        rule=event.rule,
        reason=event.reason,
        scope=event.scope,
        by=event.by,
        mode=event.mode,
        lifted=event.lifted if isinstance(event, CallDecided) else (),
    )


def still_boxed(decision: Decision, state: CallState) -> Decision:
    """Keep a call in the sandbox that has started there: what is decided anew after a crash can only be stricter."""
    started = state.started
    if started is None or started.decision != DecisionKind.SANDBOX:
        return decision
    if decision.kind == DecisionKind.ALLOW:
        box = {"kind": DecisionKind.SANDBOX, "rule": started.rule, "scope": started.scope, "by": started.by}
        return msgspec.structs.replace(decision, **box, lifted=started.lifted)
    return msgspec.structs.replace(decision, consent="sandbox")


# --- the question


def is_asked_about(
    state: CallState, call: CheckedCall, session_id: str, *, now: float, is_in_doubt: bool = False
) -> bool:
    """Whether the very same question is open already.

    Args:
        now: The store's time in seconds since 1970.
        is_in_doubt: Whether the question is to run the call again.
    """
    approval = state.approval
    if approval is None or approval.answer is not None or (is_in_doubt and not _is_about_doubt(approval)):
        return False
    return now < approval.expires_at and approval.digest == action_digest(session_id, call)


def request(
    state: CallState,
    call: CheckedCall,
    decision: Decision,
    *,
    session: SessionView,
    token: str,
    expires_at: float,
    edited: JsonObject | None = None,
) -> ApprovalRequested:
    """Return the request for a person's consent to exactly this call.

    Args:
        decision: Why a person is asked.
        session: The session that asks.
        token: Makes the request's id unique.
        expires_at: When the request is void, in seconds since 1970.
        edited: Arguments of a person from which the call follows.
    """
    replaced = state.approval if decision.rule == _UNFIT_EDIT else None
    shown = review_of(call, facts_in(session), decision.lifted)
    return ApprovalRequested(
        call_id=state.call.id,
        approval_id="ap_" + token,
        tool=call.name,
        arguments=copied(call.arguments),  # who learns of the event shares nothing with the call
        digest=action_digest(session.id, call),
        effect=call.effect,
        expires_at=expires_at,
        rule=decision.rule,
        reason=f"{decision.reason or _why(decision, call)} {start_of(call)}".strip(),
        replaces="" if replaced is None else replaced.replaces or replaced.id,
        approval_type=_KINDS.get(decision.rule, "plan" if call.tool.ends_plan else "tool_call"),
        action=shown.action,
        target=shown.target,
        risk=call.risk,
        preview=shown.preview,
        expected_result=shown.expected_result,
        rollback=shown.rollback,
        rules=offered_rules(call, decision, session),
        edited=copied(edited),
        lifted=decision.lifted,
    )


def _why(decision: Decision, call: CheckedCall) -> str:
    """Say in plain words why a decision asks that gives no reason of its own."""
    if decision.rule == OUTSIDE:
        return "It reads outside the folder."
    if call.permission == "always_ask" and decision.scope == "tool":
        return "The tool asks for each call."
    is_edit = call.risk == "write_local"  # of an edit everybody knows why
    if decision.scope == "default" or (decision.scope == "tool" and not is_edit):
        kind = "this command" if call.tool.line is not None else "this call"
        return f"No rule allows {kind} yet."
    if decision.rule.startswith("ask "):
        return f"A rule asks each time: {decision.rule.removeprefix('ask ')}."
    return ""


def _is_about_doubt(approval: Approval | None) -> bool:
    return approval is not None and approval.rule == IN_DOUBT


# --- why a person is asked about what a policy allows


def asked_instead(decision: Decision, question: Decision) -> Decision:
    """Return the question in place of a decision that lets the call run. Consent to it lifts nothing else of the decision."""
    is_boxed = decision.kind == DecisionKind.SANDBOX or decision.consent == "sandbox"
    return msgspec.structs.replace(
        question,
        scope="runtime",
        by="runtime",
        mode=decision.mode,
        arguments=decision.arguments,
        message=decision.message,
        consent="sandbox" if is_boxed else "allow",
        lifted=decision.lifted,
    )


def asked_besides(decision: Decision, question: Decision) -> Decision:
    """Return one question for two, where a person is asked anyway: who answers is told of both."""
    if decision.rule == PROTECTED:  # consent to that is given by its rule
        return msgspec.structs.replace(decision, reason=f"{decision.reason} {question.reason}")
    both = msgspec.structs.replace(question, reason=f"{question.reason} {decision.reason}".strip())
    return asked_instead(decision, both)


def has_started_before() -> Decision:
    """The call had started when its process died, and nobody knows how it ended."""
    reason = "It had started when the run was interrupted, and its outcome is unknown. Allowing it runs it again."
    return Decision(kind=DecisionKind.ASK, rule=IN_DOUBT, reason=reason)


def equals_doubt(doubt: Doubt | DoubtBelow) -> Decision:
    """The call equals another one, whose outcome is unknown: run under a new key, it could act a second time."""
    what = f"its key {doubt.business_key}" if doubt.business_key else "its arguments"
    reason = f"It equals call {doubt.call_id} of {doubt.tool} in {what}, whose outcome is unknown. If you allow it, it may act a second time: first find out how that call ended."
    return Decision(kind=DecisionKind.ASK, rule=_EQUALS_DOUBT, reason=reason)


def may_be_repeated() -> Decision:
    """The call may be the repetition of another one in its response."""
    reason = (
        "The model's server may have reported one call twice: another call of this response has the same id or action."
    )
    return Decision(kind=DecisionKind.ASK, rule=_REPORTED_TWICE, reason=reason)


def was_reported_twice(state: CallState) -> bool:
    """Whether a person has been asked about the call because it may be a repetition."""
    return state.approval is not None and state.approval.rule == _REPORTED_TWICE


def unfit_edit(message: str) -> Decision:
    """The arguments that a person had put in place of the model's do not fit.

    Args:
        message: Why not.
    """
    reason = f"The edited arguments are invalid, and nothing has run. {message} Answer again."
    return Decision(kind=DecisionKind.ASK, rule=_UNFIT_EDIT, reason=reason)


def changed_edit(decision: Decision) -> Decision:
    """Return the decision on a call whose edited arguments were changed again, with the reason for a second question."""
    why = "The edited arguments were changed by a hook, an interceptor or a policy, so they need a second answer."
    return msgspec.structs.replace(decision, reason=f"{why} {decision.reason}".strip())


def dangerous_edit(reason: str) -> Decision:
    """The arguments that a person had put in place of the model's reach a protected file.

    Args:
        reason: Which, and why it is protected.
    """
    told = f"Nothing has run, because the edited arguments need a second answer. {reason} Answer again, with the same arguments or with others."
    return Decision(kind=DecisionKind.ASK, rule=_UNFIT_EDIT, reason=told)
