"""Decisions by their values: what a consent covers, what is asked instead, and what a mode makes of a decision."""

from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, checked_call, tool_of
from treadle.events import ApprovalAnswered, CallDecided, ToolStarted
from treadle.messages import ToolCall
from treadle.permissions import consent
from treadle.permissions.modes import in_mode, with_approval, with_protection
from treadle.permissions.policies import stricter
from treadle.permissions.rules import cleaned, covering_globs, fits, folded, lexical, reaches
from treadle.ports import Decision
from treadle.state import IN_DOUBT, Approval, CallState, Doubt
from treadle.tools import CheckedCall, Effect, JsonObject

PROPOSED = ToolCall(id="c1", name="pay", arguments='{"n":1}')


def made(effect: str = "unsafe", arguments: JsonObject | None = None, **options: Any) -> CheckedCall:
    values: JsonObject = {"n": 1} if arguments is None else arguments
    tool = tool_of(Recorder(), "pay", effect=effect, **options)
    return CheckedCall(
        call=PROPOSED, tool=tool, arguments=values, values=values, effect=tool.effect_of({}), position=0, digest="", key=""
    )  # fmt: skip


def answered(answer: Any = "allow", **more: Any) -> ApprovalAnswered:
    return ApprovalAnswered(approval_id="a1", answer=answer, at=5.0, seq=9, **more)


def asked(answer: ApprovalAnswered | None = None, **changes: Any) -> Approval:
    approval = Approval(
        id="a1", session_id="s", call_id="c1", tool="pay", arguments={"n": 1}, digest=consent.action_digest("s", made()),
        effect=Effect.UNSAFE, requested_at=1.0, expires_at=5.0, answer=answer,
    )  # fmt: skip
    return msgspec.structs.replace(approval, **changes)


def state(approval: Approval | None = None, **more: Any) -> CallState:
    return CallState(call=PROPOSED, position=0, approval=approval, **more)


# --- what a consent covers
def test_a_consent_is_bound_to_session_call_tool_arguments_effect_and_schema():
    other_call = msgspec.structs.replace(made(), call=ToolCall(id="c2", name="pay", arguments='{"n":1}'))
    other_tool = msgspec.structs.replace(made(), tool=tool_of(Recorder(), "play", effect="unsafe"))
    others = [
        consent.action_digest("s2", made()),
        *(
            consent.action_digest("s", call)
            for call in (
                other_call,
                other_tool,
                made(arguments={"n": 2}),
                made("keyed"),
                made(parameters={"type": "object"}),
                made(output_schema={"type": "integer"}),
            )
        ),
    ]

    assert consent.action_digest("s", made()) == consent.action_digest("s", made())
    assert len({consent.action_digest("s", made()), *others}) == 8


@pytest.mark.parametrize(
    ("approval", "allowed", "denied", "covers"),
    [
        (None, False, False, False), (asked(), False, False, False), (asked(answered()), True, False, True), (asked(answered("deny")), False, True, True),
        (asked(answered(), expires_at=4.9), True, False, False), (asked(answered(), digest="other"), True, False, False),
    ],
)  # fmt: skip
def test_an_answer_counts_for_this_very_action_while_the_question_was_open(approval, allowed, denied, covers):
    found = state(approval)

    assert (consent.is_allowed(found), consent.is_denied(found)) == (allowed, denied)
    assert consent.covers(found, made(), "s") is covers


STARTED = ToolStarted(call_id="c1", tool="pay", effect=Effect.UNSAFE, key="k", seq=3)


@pytest.mark.parametrize(
    ("approval", "started", "answer"),
    [
        (asked(answered(), rule=IN_DOUBT), STARTED, "allow"), (asked(answered("deny"), rule=IN_DOUBT), STARTED, "deny"),
        (asked(answered(), rule=IN_DOUBT), None, None), (asked(answered(), rule="other"), STARTED, None), (asked(rule=IN_DOUBT), STARTED, None),
        (None, STARTED, None), (asked(answered(), rule=IN_DOUBT), msgspec.structs.replace(STARTED, seq=10), None),
        (asked(answered(), rule=IN_DOUBT, digest="other"), STARTED, None), (asked(answered(), rule=IN_DOUBT, expires_at=1.0), STARTED, None),
    ],
)  # fmt: skip
def test_a_doubt_is_answered_once_for_the_start_that_it_is_about(approval, started, answer):
    assert consent.answer_in_doubt(state(approval, started=started), made(), "s") == answer


@pytest.mark.parametrize(
    ("approval", "now", "in_doubt", "is_open"),
    [
        (None, 0.0, False, False), (asked(), 4.9, False, True), (asked(), 5.0, False, False), (asked(answered()), 0.0, False, False),
        (asked(digest="other"), 0.0, False, False), (asked(), 0.0, True, False), (asked(rule=IN_DOUBT), 0.0, True, True),
        (asked(rule=IN_DOUBT), 0.0, False, True),
    ],
)  # fmt: skip
def test_the_same_question_is_not_asked_twice(approval, now, in_doubt, is_open):
    assert consent.is_asked_about(state(approval), made(), "s", now=now, is_in_doubt=in_doubt) is is_open


@pytest.mark.parametrize(
    ("policy", "boxed", "answer", "kind"),
    [
        ("ask", "allow", "allow", "allow"), ("ask", "sandbox", "allow", "sandbox"), ("ask", "sandbox", "deny", "deny"), ("allow", "allow", "deny", "deny"),
        ("deny", "allow", "allow", "deny"), ("sandbox", "allow", "allow", "sandbox"), ("sandbox", "allow", "deny", "deny"),
        ("draft", "allow", "allow", "draft"),
    ],
)  # fmt: skip
def test_a_person_lifts_a_question_and_nothing_that_a_policy_forbids(policy, boxed, answer, kind):
    decision = Decision(kind=policy, rule="r", reason="Why.", scope="user", by="policy", consent=boxed)
    said = answered(answer, reason="Said.", approved_by="ada", interrupt=True)
    found = consent.ruled(decision, asked(said))

    assert found.kind == kind
    if policy == "deny" or (policy in ("sandbox", "draft") and answer == "allow"):
        assert found == decision
    else:
        assert (found.rule, found.reason, found.scope, found.by) == ("approval a1", "Said.", "call", "ada")
        assert found.interrupt is True


def test_a_recorded_decision_is_read_again_with_every_field():
    decided = CallDecided(
        call_id="c1", tool="pay", decision="deny", rule="r", reason="Why.", scope="user", by="ada", mode="plan", arguments={"n": 2},
        message="Ask.", interrupt=True,
    )  # fmt: skip
    found = consent.recorded_decision(state(decision=decided))

    assert found == Decision(
        kind="deny", rule="r", reason="Why.", scope="user", by="ada", mode="plan", arguments={"n": 2}, message="Ask.", interrupt=True
    )  # fmt: skip
    assert found is not None
    assert found.arguments is not decided.arguments
    assert consent.recorded_decision(state()) is None
    assert consent.recorded_decision(state(decision=msgspec.structs.replace(decided, decision="early"))) is None


@pytest.mark.parametrize(
    ("started", "kind", "found", "boxed"),
    [
        (None, "allow", "allow", "allow"),
        ("allow", "allow", "allow", "allow"),
        ("sandbox", "allow", "sandbox", "allow"),
        ("sandbox", "ask", "ask", "sandbox"),
        ("sandbox", "deny", "deny", "sandbox"),
    ],
)
def test_what_has_started_in_a_sandbox_stays_there(started, kind, found, boxed):
    box = (
        None
        if started is None
        else msgspec.structs.replace(STARTED, decision=started, rule="box", scope="user", by="eve")
    )
    after = consent.still_boxed(Decision(kind=kind, rule="r"), state(started=box))

    assert (after.kind, after.consent) == (found, boxed)
    assert (after.rule, after.scope, after.by) == (("box", "user", "eve") if found == "sandbox" else ("r", "", ""))


def test_a_question_of_the_runtime_lifts_nothing_else_of_the_decision():
    before = Decision(kind="sandbox", rule="r", mode="plan", arguments={"n": 2}, message="m", scope="user", by="eve")
    boxed = consent.asked_instead(before, consent.may_be_repeated())
    kept = consent.asked_instead(Decision(kind="ask", consent="sandbox"), consent.may_be_repeated())
    free = consent.asked_instead(Decision(kind="allow"), consent.has_started_before())

    assert (boxed.kind, boxed.consent, boxed.scope, boxed.by) == ("ask", "sandbox", "runtime", "runtime")
    assert (boxed.mode, boxed.arguments, boxed.message) == ("plan", {"n": 2}, "m")
    assert (kept.consent, free.consent, free.rule) == ("sandbox", "allow", IN_DOUBT)


def test_a_call_that_equals_one_in_doubt_is_told_in_what():
    doubt = Doubt(call_id="c0", session_id="s", tool="pay", arguments={}, effect=Effect.UNSAFE, key="k")

    assert "equals call c0 of pay in its arguments" in consent.equals_doubt(doubt).reason
    keyed = msgspec.structs.replace(doubt, business_key='"inv-7"')
    assert 'equals call c0 of pay in its key "inv-7"' in consent.equals_doubt(keyed).reason
    repeated = asked(rule=consent.may_be_repeated().rule)
    assert [consent.was_reported_twice(state(one)) for one in (None, asked(), repeated)] == [False, False, True]


# --- modes
def decided(kind: Any, scope: str = "default", boxed: Any = "allow") -> Decision:
    return Decision(kind=kind, rule="r", scope=scope, by="policy", message="m", consent=boxed)


@pytest.mark.parametrize(
    ("mode", "decision", "call", "kind"),
    [
        ("ask", decided("ask"), made(), "ask"), ("plan", decided("allow"), made(), "deny"), ("plan", decided("allow"), made("read"), "allow"),
        ("plan", decided("ask"), made("read"), "ask"), ("plan", decided("deny"), made("read"), "deny"), ("deny-unlisted", decided("ask"), made(), "deny"),
        ("deny-unlisted", decided("allow"), made(), "allow"), ("bypass", decided("ask"), made(), "allow"),
        ("bypass", decided("ask", boxed="sandbox"), made(), "sandbox"), ("bypass", decided("ask", "runtime"), made(), "ask"),
        ("bypass", decided("ask", "hook"), made(), "ask"), ("bypass", decided("deny"), made(), "deny"), ("bypass", decided("sandbox"), made(), "sandbox"),
        ("accept-edits", decided("ask"), made(risk="write_local"), "allow"), ("accept-edits", decided("ask", "tool"), made(risk="write_local"), "allow"),
        ("accept-edits", decided("ask", "user"), made(risk="write_local"), "ask"),
        ("accept-edits", decided("ask"), made(risk="write_local", permission="always_ask"), "ask"), ("accept-edits", decided("ask"), made(), "ask"),
        ("accept-edits", decided("deny"), made(risk="write_local"), "deny"),
    ],
)  # fmt: skip
def test_a_mode_lifts_or_denies_what_it_says(mode, decision, call, kind):
    found = in_mode(mode, decision, call)

    assert found.kind == kind
    if kind == decision.kind:
        assert found == decision
    else:
        assert (found.rule, found.scope, found.by) == (f"mode {mode}", "session", "person")
        assert found.message == ("" if kind == "deny" else "m")


# --- what a tool requires
@pytest.mark.parametrize(
    ("decision", "options", "kind", "rule", "boxed"),
    [
        (decided("allow"), {"permission": "always_ask"}, "ask", "tool pay permission", "allow"),
        (decided("sandbox"), {"permission": "always_ask"}, "ask", "tool pay permission", "sandbox"),
        (decided("deny"), {"permission": "always_ask"}, "deny", "r", "allow"),
        (decided("ask"), {"permission": "always_ask"}, "ask", "r", "allow"),
        (decided("allow"), {"permission": "ask"}, "allow", "r", "allow"),
        (decided("allow"), {"leaves_sandbox": lambda _: True}, "allow", "r", "allow"),
        (decided("sandbox"), {"leaves_sandbox": lambda _: True}, "ask", "asks to leave the sandbox", "allow"),
        (decided("sandbox"), {"leaves_sandbox": lambda _: False}, "sandbox", "r", "allow"),
        (decided("sandbox"), {"leaves_sandbox": lambda call: call.arguments["no"]}, "ask", "asks to leave the sandbox", "allow"),
        (decided("ask", boxed="sandbox"), {"leaves_sandbox": lambda _: True}, "ask", "asks to leave the sandbox", "allow"),
        (decided("ask"), {"leaves_sandbox": lambda _: True}, "ask", "r", "allow"),
    ],
)  # fmt: skip
def test_what_a_tool_requires_makes_a_question(decision, options, kind, rule, boxed):
    found = with_approval(decision, made(**options))

    assert (found.kind, found.rule, found.consent) == (kind, rule, boxed)
    if rule == "asks to leave the sandbox":
        assert (found.scope, found.by) == ("runtime", "runtime")


# --- globs
@pytest.mark.parametrize(("glob", "plain"), [("./a", "a"), ("././a//b/", "a/b"), ("/", "/"), ("a", "a"), ("//a", "/a"), (".", "."), ("./", "./")])  # fmt: skip
def test_a_glob_is_written_as_canonical_names_are(glob, plain):
    assert cleaned(glob) in (plain, plain.removeprefix("./"))


@pytest.mark.parametrize(("path", "plain"), [("", ""), ("a/../b", "b"), ("//a", "/a"), ("a/./b/", "a/b"), ("/..", "/")])
def test_a_path_is_read_as_far_as_its_text_tells(path, plain):
    assert lexical(path) == plain


@pytest.mark.parametrize(
    ("glob", "name", "is_meant"),
    [
        ("secret", "secret", True), ("secret", "secret/a/b", True), ("secret", "secrets", False), ("secret/", "secret", False), ("secret/", "secret/a", True),
        ("**/key", "key", True), ("**/key", "a/key/b", True), ("Secret", "SECRET/x", True), ("./secret/", "secret/x", True),
    ],
)  # fmt: skip
def test_a_rule_that_forbids_a_folder_means_all_below_it(glob, name, is_meant):
    assert any(fits(folded(name), one) for one in covering_globs(glob)) is is_meant


@pytest.mark.parametrize(
    ("glob", "folder", "deep", "is_reached"),
    [
        ("a/b", "a", False, True), ("a/b/c", "a", False, False), ("a/b/c", "a", True, True), ("a", "a", True, False), ("*.py", "a", False, True),
        ("*", "", False, True), ("/etc/x", ".", True, False), ("/etc/x", "/etc", False, True), ("b/*", "a", True, False), ("[ab]/x", "a", False, True),
        ("[!a]/x", "a", False, False), ("?/x", "a", False, True),
    ],
)  # fmt: skip
def test_a_glob_reaches_below_a_folder_where_it_can_continue(glob, folder, deep, is_reached):
    assert reaches(glob, folder, is_deep=deep) is is_reached


KINDS = ("allow", "sandbox", "ask", "draft", "deny")
"""From the loosest to the strictest."""

DECISIONS = [
    Decision(kind=kind, rule=kind, consent=bound, message=message, interrupt=cuts)
    for kind in KINDS
    for bound in ("allow", "sandbox")
    for message in ("", "said")
    for cuts in ((False, True) if kind == "deny" else (False,))
]


@pytest.mark.row("P02")
@pytest.mark.parametrize("one", DECISIONS, ids=lambda one: f"{one.kind}-{one.consent}-{one.message}-{one.interrupt}")
def test_of_two_decisions_nothing_that_either_forbids_is_lifted(one):
    for other in DECISIONS:
        found = stricter(one, other)
        kinds = [str(one.kind), str(other.kind)]

        assert found.kind == max(kinds, key=KINDS.index)
        assert found.interrupt == (one.interrupt or other.interrupt)
        if found.kind != "deny":
            lower = other if found.rule == one.rule else one
            boxed = "sandbox" in (one.consent, other.consent) or lower.kind == "sandbox"
            assert found.consent == ("sandbox" if boxed else "allow")
            assert found.message == (one.message or other.message)
        if one.kind == other.kind and one.interrupt >= other.interrupt:
            assert found.reason == one.reason
            assert found.rule == one.rule


def test_a_person_s_interrupt_in_a_tool_s_function_is_not_swallowed():
    def stops(call: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_approval(Decision(kind="allow"), checked_call(tool_of(Recorder(), permission=stops)))


@pytest.mark.parametrize(
    ("kind", "boxed", "effect", "found"),
    [
        ("allow", "allow", "unsafe", ("ask", "allow")), ("sandbox", "allow", "unsafe", ("ask", "sandbox")), ("ask", "sandbox", "unsafe", ("ask", "sandbox")),
        ("ask", "allow", "unsafe", ("ask", "allow")), ("deny", "allow", "unsafe", ("deny", "allow")), ("allow", "allow", "read", ("allow", "allow")),
    ],
)  # fmt: skip
def test_a_question_about_a_protected_file_lifts_no_sandbox(kind, boxed, effect, found):
    tool = tool_of(Recorder(), "save", effect=effect)
    save = CheckedCall(
        call=ToolCall(id="c", name="save", arguments="{}"), tool=tool, arguments={"path": ".env"}, values={},
        effect=tool.effect_of({}), position=0, digest="", key="",
    )  # fmt: skip
    decision = Decision(kind=kind, rule="r", scope="user", by="eve", consent=boxed)
    after = with_protection(decision, save, {})

    assert (after.kind, after.consent) == found
    if found[0] == "ask":
        assert (after.rule, after.scope, after.by) == ("protected file", "runtime", "runtime")
        assert after.reason.startswith(".env is protected: it controls what runs later")
    else:
        assert after == decision
    other = msgspec.structs.replace(save, arguments={"path": "notes.txt"})
    assert with_protection(decision, other, {}) == decision
