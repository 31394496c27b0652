"""Calls on the nouns as users write them. Only type-checked, never run: what must not type-check says so."""

from decimal import Decimal
from typing import assert_never, assert_type

from treadle.budgets import Budget, Meter, Price, budget_from
from treadle.errors import Rejected, SessionHeld, Transient, TreadleError
from treadle.events import AnyEvent, RunFinished, Subscriber
from treadle.messages import Message, ToolCall, Usage, user_message
from treadle.ports import (
    CallReady,
    Decision,
    ModelEnd,
    ModelPart,
    Policy,
    RequestFailed,
    ResponseSetAside,
    SessionView,
    TextDelta,
    ThinkingDelta,
)
from treadle.stops import Status, StopReason, exit_code
from treadle.tools import CheckedCall, Effect, JsonObject, Tool, ToolContext


async def rate(arguments: JsonObject, ctx: ToolContext) -> float:
    assert_type(ctx.idempotency_key, str)
    ctx.progress("asking", done=1, total=2)
    if ctx.cancelled:
        raise Transient("cancelled")
    raise Rejected({"error": "closed"}, code="conflict")


raw = Tool(name="rate", description="Today's rate.", parameters={"type": "object"}, effect="read", run=rate)
by_arguments = Tool(name="rate", description="", parameters={}, run=rate, effect=lambda arguments: Effect.READ)
Tool(name="rate", description="", parameters={}, run=rate, effect="harmless")  # type: ignore[arg-type]  # no such effect
Tool("rate", "", {}, rate)  # type: ignore[call-arg]  # words are keyword-only
raw.name = "other"  # type: ignore[misc]  # values are frozen

budget = Budget(max_model_turns=20, max_total_cost=0.50, max_tool_calls=None)
Budget(max_turns=3)  # type: ignore[call-arg]  # a misspelt budget
assert_type(budget_from({"max_model_turns": 3}), Budget)
assert_type(Price(input=1.25, output=10).cost(Usage()), Decimal)
assert_type(Meter(budget).seconds_left(0.0), float | None)

assert_type(user_message("hello").calls, tuple[ToolCall, ...])
assert_type(StopReason.COMPLETED.status, Status)
assert_type(exit_code(StopReason.CANCELLED, 2), int)


class NoDeleting:
    """A policy is any class with this method."""

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        assert_type(session.messages, tuple[Message, ...])
        return Decision(kind="deny", rule="no deleting") if call.name == "rm" else None


class AsksSomebody:
    """It may be asynchronous too."""

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        return Decision(kind="perhaps")  # type: ignore[arg-type]  # no such decision


policies: list[Policy] = [NoDeleting(), AsksSomebody()]


def watch(event: AnyEvent) -> None:
    if isinstance(event, RunFinished):
        assert_type(event.reason, str)


subscriber: Subscriber = watch


def words(part: ModelPart) -> str:
    match part:
        case TextDelta(text) | ThinkingDelta(text):
            return text
        case CallReady(call):
            return call.name
        case ModelEnd():
            return ""
        case RequestFailed(error=error):
            return str(error)
        case ResponseSetAside(message=message):
            return message
        case _:
            assert_never(part)


def last_words(error: TreadleError) -> str:
    return "held" if isinstance(error, SessionHeld) else str(error)
