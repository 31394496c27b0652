"""The fold, event by event: what each adds to a session's state, and what follows from it."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle import (
    ConfigurationError,
)
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ChildEnded,
    ChildStarted,
    CompactionAsked,
    CompactionSkipped,
    ContextCompacted,
    DecisionRejected,
    HookActed,
    MessageAdded,
    ModeChanged,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RulesGranted,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    SessionSpawned,
    TaskSubmitted,
    ToolFinished,
    ToolInput,
    ToolResolved,
    ToolResumed,
    ToolsetListed,
    ToolStarted,
    ToolSuspended,
)
from treadle.messages import Finish, Message, Text, ToolCall, Usage, user_message
from treadle.sessions.maintenance import fold, take_in
from treadle.sessions.views import CompiledView, ReadOnlyView
from treadle.state import BUDGET_EXCEEDED, CallState, SessionState
from treadle.state.session import sums
from treadle.tools import CallStatus, Effect, ToolResult

PAY = ToolCall(id="c1", name="pay", arguments="{}")
STARTED = RunStarted(task="t", run_id="r1", at=10.0)
STOPPED = RunFinished(reason="cancelled", status="stopped", completed=False, message="", wall_seconds=1.0)


def folded(*events: AnyEvent) -> SessionState:
    """Return the state after these events, numbered from 1."""
    state = SessionState("s")
    for seq, event in enumerate(events, 1):
        state.apply(msgspec.structs.replace(event, seq=seq))
    return state


TASK = TaskSubmitted(message=user_message("go"), agent="clerk")


def proposed(*calls: ToolCall, words: str = "", **more: Any) -> ModelFinished:
    parts = (*((Text(words),) if words else ()), *(calls or (PAY,)))
    return ModelFinished(step=1, message=Message(role="assistant", parts=parts), finish=Finish.CALLS, **more)


def said(words: str, **more: Any) -> ModelFinished:
    return ModelFinished(message=Message(role="assistant", parts=(Text(words),)), **more)


def result(status: CallStatus = CallStatus.OK, **more: Any) -> ToolFinished:
    return ToolFinished(call_id="c1", result=ToolResult(call_id="c1", name="pay", status=status, content="x", **more))


def started(effect: Effect = Effect.UNSAFE, **more: Any) -> ToolStarted:
    return ToolStarted(call_id="c1", tool="pay", effect=effect, key="k", **more)


def asked(approval_id: str = "a1", **more: Any) -> ApprovalRequested:
    return ApprovalRequested(
        call_id="c1", approval_id=approval_id, tool="pay", arguments={"n": 1}, digest="d", effect=Effect.UNSAFE, expires_at=9.0, **more
    )  # fmt: skip


# --- runs


def test_a_run_that_continues_takes_over_what_the_resumption_brings_and_keeps_the_rest() -> None:
    begun = RunStarted(
        task="t", run_id="r1", profile="p", budget={"a": 1}, deadline=5.0, origin={"o": 1}, agent="clerk", fingerprint={"m": "1"}
    )  # fmt: skip
    kept = folded(begun, STOPPED, RunResumed()).run
    changed = RunResumed(
        budget={"b": 2}, deadline=0.0, profile="q", origin={"x": 1}, agent="boss", fingerprint={"m": "2"}
    )
    new = folded(begun, STOPPED, changed).run

    assert kept is not None
    assert new is not None
    fields = ("profile", "budget", "deadline", "origin", "agent", "fingerprint")
    assert [getattr(kept, name) for name in fields] == ["p", {"a": 1}, 5.0, {"o": 1}, "clerk", {"m": "1"}]
    assert [getattr(new, name) for name in fields] == ["q", {"b": 2}, 0.0, {"x": 1}, "boss", {"m": "2"}]
    assert (kept.status, kept.reason, kept.has_closed, kept.cut_in_calls) == ("running", None, False, 0)


def test_the_time_of_a_process_that_died_counts_up_to_its_last_event() -> None:
    died = folded(STARTED, said("x", at=14.0), RunResumed(at=100.0)).run
    ended = folded(STARTED, said("x", at=14.0), STOPPED, RunResumed(at=100.0)).run
    back = folded(STARTED, said("x", at=3.0), RunResumed(at=100.0)).run

    assert [one.spent.wall_seconds for one in (died, ended, back) if one is not None] == [4.0, 1.0, 0.0]
    assert died is not None
    assert (died.segment_at, died.last_at) == (100.0, 100.0)


def test_deaths_count_in_a_row_where_the_run_has_got_no_further() -> None:
    def deaths(*events: AnyEvent) -> tuple[int, int]:
        run = folded(STARTED, *events).run
        assert run is not None
        return run.deaths, run.deaths_now

    resumed = RunResumed()
    assert deaths() == (0, 1)
    assert deaths(resumed) == (1, 2)
    assert deaths(resumed, resumed, resumed) == (3, 4)
    assert deaths(resumed, resumed, said("x")) == (2, 1)
    assert deaths(resumed, said("x"), resumed) == (1, 2)
    assert deaths(resumed, STOPPED) == (1, 0)
    assert deaths(STOPPED, resumed) == (0, 1)


def test_who_lost_a_run_is_known_and_a_person_who_activates_its_session_lets_it_be_tried_anew() -> None:
    def lost(*events: AnyEvent) -> tuple[int, tuple[str, ...]]:
        run = folded(msgspec.structs.replace(STARTED, worker="a"), *events).run
        assert run is not None
        return run.deaths_now, run.lost_now

    by_b, by_c = RunResumed(worker="b"), RunResumed(worker="c")
    assert lost() == (1, ("a",))
    assert lost(by_b, by_c) == (3, ("a", "b", "c"))
    assert lost(by_b, said("x"), by_c) == (2, ("b", "c"))
    assert lost(*[by_b] * 70) == (71, ("b",) * 50)
    suspended, activated = SessionChanged(status="suspended"), SessionChanged(status="active")
    assert lost(by_b, suspended) == (2, ("a", "b"))
    assert lost(by_b, suspended, activated) == (0, ())
    assert lost(by_b, suspended, activated, by_c) == (1, ("c",))


def test_a_run_adds_up_what_its_events_say() -> None:
    usage = Usage(input_tokens=3, output_tokens=2)
    run = folded(
        STARTED,
        HookActed(hook="h", at_moment="end", answer="continued"),
        HookActed(hook="h", at_moment="end", answer="allowed"),
        ModelStarted(attempt=1, tools=("a",), prefix="p1"),
        ModelFailed(error="E", message="m", usage=usage),
        ModelStarted(attempt=2, tools=("a", "b"), prefix="p2"),
        DecisionRejected(reason="m", usage=usage),
        ToolsetListed(toolset="files", tools=("a", "b")),
        said("first", usage=usage),
        said("", usage=usage, finish=Finish.LENGTH),
        said("closing", usage=usage, closing=True),
    ).run

    assert run is not None
    assert (run.continued, run.model_retries, run.offered, run.prefix) == (1, 1, ("a", "b"), "p2")
    assert run.tool_owners == {"a": "files", "b": "files"}
    assert (run.text, run.steps, run.has_closed, run.was_cut) == ("closing", 3, True, True)
    assert (run.spent.model_turns, run.spent.usage.input_tokens, run.spent.usage.output_tokens) == (3, 15, 10)


def test_calls_are_charged_unless_the_response_is_the_closing_one_or_the_budget_does_not_cover_them() -> None:
    other = ToolCall(id="c2", name="pay", arguments="{}")
    open_run = folded(STARTED, proposed(PAY, other)).run
    closing = folded(STARTED, proposed(PAY, other, closing=True)).run
    uncovered = folded(STARTED, proposed(PAY, other), result(CallStatus.SKIPPED, code=BUDGET_EXCEEDED)).run

    charged = [(one.spent.tool_calls, one.spent.uncovered_calls) for one in (open_run, closing, uncovered) if one]
    assert charged == [(2, 0), (0, 0), (1, 1)]


def test_responses_that_were_cut_in_their_calls_count_in_a_row() -> None:
    def cut(*events: AnyEvent) -> int:
        run = folded(STARTED, *events).run
        return -1 if run is None else run.cut_in_calls

    one = msgspec.structs.replace(proposed(), finish=Finish.LENGTH)
    assert cut(one) == 1
    assert cut(one, result(), one) == 2
    assert cut(one, result(), proposed()) == 0
    assert cut(one, result(), said("x", finish=Finish.LENGTH)) == 0
    assert cut(one, result(), RunResumed()) == 0


# --- calls


def test_a_start_uses_up_a_consent_and_ends_a_wait() -> None:
    waits = ToolSuspended(call_id="c1", tool="pay", waits_for="a person")
    state = folded(
        STARTED, proposed(), asked(), ApprovalAnswered(call_id="c1", approval_id="a1", answer="allow"), started()
    )
    suspended = folded(STARTED, proposed(), started(), waits)
    again = folded(
        STARTED,
        proposed(),
        started(),
        waits,
        ToolInput(call_id="c1", tool="pay", value=1),
        ToolResumed(call_id="c1", tool="pay"),
        started(),
    )

    assert (state.approvals, state.open["c1"].starts) == ({}, 1)
    assert [one.call.id for one in suspended.suspended] == ["c1"]
    assert (again.suspended, again.open["c1"].starts, len(again.open["c1"].inputs)) == ([], 2, 1)
    assert folded(STARTED, proposed(), started(), result(), waits).suspended == []


def test_the_first_answer_to_a_question_counts_and_is_remembered() -> None:
    answers = [
        ApprovalAnswered(approval_id="a1", answer="allow", approved_by="ada", reason="Yes.", arguments={"n": 2}),
        ApprovalAnswered(approval_id="a1", answer="deny", approved_by="bob"),
        ApprovalAnswered(approval_id="a9", answer="deny", approved_by="bob"),
    ]
    state = folded(STARTED, proposed(), asked(), *answers)

    (consent,) = state.side_effects.consents
    assert (consent.tool, consent.arguments, consent.answer, consent.by, consent.reason) == (
        "pay",
        {"n": 2},
        "allow",
        "ada",
        "Yes.",
    )
    assert state.pending_approvals() == ()
    assert state.open["c1"].approval is not None
    assert state.open["c1"].approval.answer == msgspec.structs.replace(answers[0], seq=4)


@pytest.mark.parametrize(
    ("effect", "finished", "side_effects"),
    [
        (Effect.UNSAFE, result(), [("ok", False)]),
        (Effect.IDEMPOTENT, result(), [("ok", True)]),
        (Effect.READ, result(), []),
        (Effect.UNSAFE, result(CallStatus.FAILED), []),
        (Effect.UNSAFE, result(CallStatus.FAILED, may_have_acted=True), [("failed", False)]),
        (Effect.KEYED, result(CallStatus.OUTCOME_UNKNOWN), [("outcome_unknown", False)]),
    ],
    ids=range(6),
)
def test_what_has_changed_the_world_or_may_have_is_a_deed(
    effect: Effect, finished: ToolFinished, side_effects: Any
) -> None:
    state = folded(STARTED, proposed(), started(effect), finished)

    assert [(one.status, one.repeats) for one in state.side_effects.done] == side_effects
    assert all((one.tool, one.arguments) == ("pay", "{}") for one in state.side_effects.done)
    assert not folded(STARTED, proposed(), finished).side_effects.done


def test_denials_are_listed_with_what_was_denied() -> None:
    state = folded(
        STARTED,
        proposed(),
        CallDecided(call_id="c1", tool="pay", decision="deny", rule="r", reason="No.", interrupt=True),
        ActionDecided(call_id="c1", tool="run", arguments={}, action="net", decision="deny", rule="q", reason="Off."),
        ActionDecided(call_id="c1", tool="run", arguments={}, action="net", decision="sandbox", rule="q2", reason=""),
        ActionDecided(call_id="c1", tool="run", arguments={}, action="net", decision="allow", rule="q3", reason=""),
    )

    assert state.run is not None
    assert [(one.tool, one.rule, one.reason) for one in state.run.denials] == [
        ("pay", "r", "No."),
        ("net", "q", "Off."),
        ("net", "q2", ""),
    ]
    assert state.run.interrupted_by is not None
    assert (
        folded(STARTED, proposed(), CallDecided(call_id="c1", tool="pay", decision="deny", rule="r")).run.interrupted_by
        is None
    )  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("outcome", "is_early", "listed", "resolved"),
    [
        (None, False, ["c1"], 0),
        ("done", False, [], 1),
        ("not_done", False, [], 1),
        ("unknown", False, [], 1),
        ("done", True, [], 1),
        ("unknown", True, [], 0),
    ],
)
def test_a_call_of_unknown_outcome_is_a_doubt_until_a_person_says_how_it_ended(
    outcome: str | None, is_early: bool, listed: list[str], resolved: int
) -> None:
    answer = [] if outcome is None else [ToolResolved(call_id="c1", tool="pay", outcome=outcome)]  # type: ignore[arg-type]
    told = result(CallStatus.OUTCOME_UNKNOWN)
    state = folded(STARTED, proposed(), started(), *(answer if is_early else ()), told, *(() if is_early else answer))

    assert [one.call_id for one in state.open_doubts()] == listed
    assert len(state.untold_resolutions()) == resolved
    assert ("c1" in state.doubts) is (outcome in (None, "unknown"))


@pytest.mark.parametrize(
    ("events", "doubts"),
    [
        ([started()], ["c1"]),
        ([started(Effect.READ)], []),
        ([started(Effect.KEYED)], []),
        ([], []),
        ([started(), ToolSuspended(call_id="c1", tool="pay")], []),
        ([ChildStarted(call_id="c1", child_id="k", tool="pay"), started()], []),
        ([started(), ToolResolved(call_id="c1", tool="pay", outcome="done")], []),
    ],
    ids=range(7),
)
def test_a_started_call_without_a_result_is_a_doubt_where_it_cannot_be_repeated(events: Any, doubts: Any) -> None:
    state = folded(STARTED, proposed(), *events)

    assert [one.call_id for one in state.open_doubts()] == doubts
    assert not state.is_whole


# --- the session


def test_children_are_charged_by_what_their_sums_have_grown() -> None:
    spent = folded(STARTED, said("x", usage=Usage(input_tokens=5))).run
    assert spent is not None
    ends = [
        ChildStarted(call_id="c1", child_id="k", tool="clerk", agent="ada"),
        ChildEnded(call_id="c1", child_id="k", status="paused", reason="input_required", spent=spent.spent),
        ChildEnded(call_id="c1", child_id="k", status="completed", reason="completed", spent=spent.spent),
        ChildEnded(call_id="c1", child_id="other", status="completed", reason="completed", spent=spent.spent),
    ]
    paused, ended = folded(STARTED, *ends[:2]).run, folded(STARTED, *ends).run

    assert paused is not None
    assert ended is not None
    assert [one.children["k"].is_over for one in (paused, ended)] == [False, True]
    assert [one.spent.usage.input_tokens for one in (paused, ended)] == [5, 5]
    assert (ended.children["k"].agent, ended.children["k"].reason, list(ended.children)) == ("ada", "completed", ["k"])
    again = folded(STARTED, *ends[:2], ChildStarted(call_id="c2", child_id="k", tool="clerk")).run
    assert again is not None
    assert (again.children["k"].call_id, again.children["k"].status, again.children["k"].agent) == (
        "c2",
        "running",
        "ada",
    )


def test_messages_that_lay_in_the_inbox_are_known_by_their_ids() -> None:
    state = folded(
        MessageAdded(message=user_message("x"), message_id="m1"),
        MessageAdded(message=user_message("y")),
        ModeChanged(mode="plan", message_id="m2"),
        CompactionAsked(message_id="m3"),
    )

    assert set(state.message_ids) == {"m1", "m2", "m3"}
    assert (state.mode, state.compactions.asked) == ("plan", 4)
    assert folded(CompactionAsked(message_id="m3"), CompactionSkipped()).compactions.asked == 0


def test_a_fork_takes_over_no_consent_no_task_no_caller_and_no_children() -> None:
    spawned = SessionSpawned(
        parent_id="p",
        parent_seq=3,
        parent_run="r",
        tool="clerk",
        parent_call="c",
        parent_step=1,
        root_id="top",
        path=("clerk",),
    )
    before = [
        spawned,
        RulesGranted(rules=("pay(n=1)",)),
        TASK,
        STARTED,
        ChildStarted(call_id="c1", child_id="k", tool="t"),
        TASK,
    ]
    child, state = folded(*before), folded(*before, SessionForked(parent_id="s0", parent_seq=6))

    assert (child.root_id, child.path, child.parent_id, len(child.granted)) == ("top", ("clerk",), "p", 1)
    assert (state.root_id, state.path, state.parent_id, state.parent_seq) == ("s", (), "s0", 6)
    assert (state.granted, state.submitted, state.caller) == ((), None, None)
    assert state.run is not None
    assert state.run.children == {}


def test_a_rewind_takes_back_what_came_after_its_point_and_nothing_before() -> None:
    def added(words: str) -> MessageAdded:
        return MessageAdded(message=user_message(words))

    events: list[AnyEvent] = [
        added("one"), SessionMarked(name="first"), RulesGranted(rules=("a",)), added("two"), SessionMarked(name="second"),
        RulesGranted(rules=("b",)), asked(), SessionRewound(to=4), added("three"),
    ]  # fmt: skip
    state = folded(*events)

    assert [message.text for message in state.messages] == ["one", "two", "three"]
    assert [message.text for message in state.transcript] == ["one", "two", "three"]
    assert (state.message_seqs, state.marks) == ([1, 4, 9], {"first": 1, "second": 4})
    assert ([one.rules for one in state.granted], state.approvals) == ([("a",)], {})
    assert [state.is_visible(seq) for seq in (4, 5, 7, 8, 9)] == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("events", "may_act"),
    [((), True), ((started(Effect.READ),), False), ((started(Effect.UNSAFE),), True), ((started(Effect.READ), result()), False)],
    ids=["not decided", "a read", "an effect", "a read that ended"],
)  # fmt: skip
def test_an_open_call_may_act_unless_it_is_known_to_be_a_read(events: Any, may_act: bool) -> None:
    state = folded(STARTED, proposed(), *events)

    assert [one.call.id for one in state.open_effects()] == ["c1"] * may_act


def test_a_call_that_has_not_started_has_no_doubt() -> None:
    state = CallState(call=ToolCall(id="c", name="pay", arguments="{}"), position=0)

    with pytest.raises(ConfigurationError, match="The call 'c' has not started: it cannot be in doubt"):
        state.doubt("s")


@pytest.mark.row("N10")
async def test_events_that_two_take_in_at_once_are_taken_in_once() -> None:
    events = [SessionMarked(seq=number, name=f"m{number}") for number in range(1, 5001)]
    state = SessionState("s")
    turns: list[int] = []

    async def count() -> None:
        while state.head < 5000:
            turns.append(state.head)
            await asyncio.sleep(0)

    await asyncio.gather(take_in(state, events), take_in(state, events), count())

    assert len(turns) > 1
    assert sums(state) == sums(fold("s", events))


class Live:
    """A session as a view sees it."""

    def __init__(self, state: SessionState) -> None:
        self.state, self.id = state, state.id

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)


def test_a_view_for_requests_shows_what_compactions_have_left_and_keeps_its_copy_until_there_is_more() -> None:
    state = SessionState("s")

    def record(*events: AnyEvent) -> None:
        for event in events:
            state.apply(msgspec.structs.replace(event, seq=state.head + 1))

    def added(words: str) -> MessageAdded:
        return MessageAdded(message=user_message(words))

    view = CompiledView(state, ReadOnlyView(Live(state)))  # type: ignore[arg-type]
    record(added("one"), added("two"), RunStarted(task="three"), added("three"))
    plain = view.state
    record(ContextCompacted(tier="t", reason="size", first=1, last=2, messages=(user_message("short"),)))
    shown = view.state

    assert [message.text for message in plain.messages] == ["one", "two", "three"]
    assert (
        [message.text for message in shown.messages]
        == [message.text for message in view.messages]
        == ["short", "three"]
    )
    assert shown.message_seqs == [2, 4]
    assert shown.run is not None
    assert shown.run.first_message == 1
    assert view.state is shown
    record(added("four"))
    assert [message.text for message in view.state.messages] == ["short", "three", "four"]
    assert [message.text for message in state.messages] == ["one", "two", "three", "four"]
