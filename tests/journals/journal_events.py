"""Events to journal: a short whole session, and one of every journaled kind. Made the same way each time."""

from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    BudgetReached,
    BudgetWarned,
    CallDecided,
    ContextCompacted,
    ContractViolated,
    DecisionRejected,
    HistoryRepaired,
    MessageAdded,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RepeatNoticed,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    ToolAttemptFailed,
    ToolFinished,
    ToolInDoubt,
    ToolLate,
    ToolStarted,
)
from treadle.messages import Finish, Message, Text, Thinking, ToolCall, Usage, user_message
from treadle.state import SessionState
from treadle.tools import CallStatus, Effect, ToolResult

TASK = "What is the weather in Zürich?"

_CALL = ToolCall(id="call_1", name="weather", arguments='{"city": "Zürich"}')
_ASKS = Message(role="assistant", parts=(Thinking(text="hm", payload={"x": [None]}), _CALL), origin="demo")
_SAYS = Message(role="assistant", parts=(Text("Sunny."),), origin="demo")
_RESULT = ToolResult(
    call_id="call_1",
    name="weather",
    status=CallStatus.OK,
    content='{"sky": "sunny"}',
    data={"sky": "sunny"},
    attempts=1,
)


def note(seq: int, text: str = "note", *, at: float | None = None) -> MessageAdded:
    """Return one small event."""
    return MessageAdded(seq=seq, at=float(seq) if at is None else at, message=user_message(text))


def notes(first: int, last: int) -> tuple[MessageAdded, ...]:
    return tuple(note(seq) for seq in range(first, last + 1))


def whole_session(session_id: str) -> tuple[AnyEvent, ...]:
    """Return the events of one run: a task, one call, its result, an answer."""
    common = {"session_id": session_id, "run_id": "run_1"}
    return (
        RunStarted(**common, seq=1, at=1.0, task=TASK, model="demo", budget={"max_tool_calls": 3}, tools=("weather",)),
        MessageAdded(**common, seq=2, at=1.5, message=user_message(TASK)),
        ModelStarted(**common, seq=3, at=2.0, step=1, model="demo", messages=1),
        ModelFinished(
            **common, seq=4, at=3.0, step=1, message=_ASKS, finish=Finish.CALLS,
            usage=Usage(input_tokens=10, output_tokens=5),
        ),
        CallDecided(
            **common, seq=5, at=3.0, step=1, call_id="call_1", tool="weather", decision="allow", rule="read",
            effect=Effect.READ, digest="d", key="tk_1",
        ),
        ToolStarted(**common, seq=6, at=3.0, step=1, call_id="call_1", tool="weather", key="tk_1", effect=Effect.READ),
        ToolFinished(**common, seq=7, at=4.0, step=1, call_id="call_1", result=_RESULT),
        ModelStarted(**common, seq=8, at=4.5, step=2, model="demo", messages=3),
        ModelFinished(**common, seq=9, at=5.0, step=2, message=_SAYS, finish=Finish.STOP),
        RunFinished(**common, seq=10, at=6.0, step=2, reason="completed", status="completed", completed=True, text="Sunny."),
    )  # fmt: skip


def one_of_each() -> tuple[AnyEvent, ...]:
    """Return one event of each journaled kind, each with a value in what it may hold."""
    return (
        RunStarted(seq=1, at=1.0, task="t", budget={"max_total_cost": "0.10"}, profile="p", tools=("a", "b"), parent="run_0"),
        RunPaused(seq=2, at=2.0, reason="approval_required", wall_seconds=0.5),
        RunResumed(seq=3, at=3.0, budget={"max_tool_calls": None}),
        MessageAdded(seq=4, at=4.0, message=user_message("\x00 \u2028 😀 null"), source="steer", message_id="m1"),
        ModelStarted(seq=5, at=5.0, tools=("a",), tool_choice="required"),
        ModelFinished(seq=6, at=6.0, message=_ASKS, cost="0.0001", first_token_seconds=0.1),
        ModelFailed(seq=7, at=7.0, error="ModelUnavailable", message="429", status=429, retry_in_seconds=0.25),
        ModelDiscarded(seq=8, at=8.0, reason="cut", calls=("call_1",)),
        CallDecided(seq=9, at=9.0, tool="pay", decision="ask", rule="default", effect=Effect.UNSAFE, arguments={"n": 1}),
        ApprovalRequested(
            seq=10, at=10.0, approval_id="a1", tool="pay", arguments={"n": None}, digest="d", effect=Effect.UNSAFE,
            expires_at=1e9,
        ),
        ApprovalAnswered(seq=11, at=11.0, approval_id="a1", answer="allow", arguments={"n": 2}),
        ToolStarted(seq=12, at=12.0, tool="pay", early=True, call=_CALL),
        ToolAttemptFailed(seq=13, at=13.0, attempt=1, failure_class="timeout", message="slow", traceback="Traceback"),
        ToolFinished(seq=14, at=14.0, result=_RESULT, failure_class="timeout", reused_from="call_0"),
        ToolLate(seq=15, at=15.0, tool="pay", outcome="ok", content="paid"),
        ToolInDoubt(seq=16, at=16.0, tool="pay", key="tk_1", asked="check", answer="done"),
        RepeatNoticed(seq=17, at=17.0, tool="pay", digest="d", count=3),
        BudgetWarned(seq=18, at=18.0, budget="max_total_cost", used="0.08", limit="0.10"),
        BudgetReached(seq=19, at=19.0, budget="max_wall_time_seconds", used=3600.5, limit=3600),
        ContractViolated(seq=20, at=20.0, tool="pay", details=({"field": "$"},), artifact="ab"),
        HistoryRepaired(seq=21, at=21.0, repairs=("call_9",)),
        ContextCompacted(seq=22, at=22.0, summary="before"),
        DecisionRejected(seq=23, at=23.0, reason="no JSON", text="{", attempt=2),
        RunFinished(
            seq=24, at=24.0, reason="completed", status="completed", completed=True, output={"a": [1, 2.5, None, "ü"]},
            used="0.1", limit=3,
        ),
    )  # fmt: skip


def kept_session() -> tuple[AnyEvent, ...]:
    """Return the events of a session that people have forked, marked, rewound and suspended."""
    return (
        note(1),
        SessionForked(seq=2, at=2.0, parent_id="weather", parent_seq=1),
        SessionMarked(seq=3, at=3.0, name="start"),
        note(4),
        SessionRewound(seq=5, at=5.0, to=2, mark="start", effects=("pay (call_1)",)),
        SessionChanged(seq=6, at=6.0, status="suspended", metadata={"a": [1, None]}, by="ops", reason="r"),
    )


def fold(session_id: str, events: "tuple[AnyEvent, ...]") -> SessionState:
    state = SessionState(session_id)
    for event in events:
        state.apply(event)
    return state
