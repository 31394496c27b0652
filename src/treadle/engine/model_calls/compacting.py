"""Compacting: have what the model is shown made shorter, see that it is, and record it. How is the compactor's business."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from functools import partial

import msgspec

from treadle.budgets import Spent
from treadle.canonical import artifact_id
from treadle.context.compaction import ClearResults, Tiers
from treadle.context.handoff import Handoff
from treadle.context.repair import is_sound
from treadle.engine.model_calls.reservations import (
    Reservations,
    add_costs,
    cost_of,
    count_tokens,
    encodable,
    encodable_message,
    encodable_part,
    estimate,
    forget_counts,
    format_cost,
    keep_content,
    whole_usage,
)
from treadle.engine.rules.endings import used_up
from treadle.engine.rules.failures import contained, model_wait_seconds, pass_interrupts
from treadle.engine.scope import RunScope
from treadle.engine.spec import show_request
from treadle.errors import BudgetUsedUp, IncompleteStream, ModelError, ModelRejected, ModelUnavailable, shown
from treadle.events import CompactionSkipped, ContextCompacted, ModelFailed, ModelFinished, ModelStarted
from treadle.messages import Finish, Message, Usage
from treadle.ports import Compaction, Journal, ModelEnd, ModelRequest, RequestNeed, SessionView, asked_model
from treadle.redaction import redacted_logger, shown_error
from treadle.sessions.views import ReadOnlyMessages, ReadOnlyView
from treadle.state import ShownMessage, compacted

__all__ = ["CheckView", "Compacting"]


# --- Asides: what the model is asked apart from the run's own steps: a summary, a check. Recorded under an act, charged to
# the run.

_CUT_OFF = "[The answer was cut off here: it reached the output limit.]"


class Aside:
    """One act apart from the steps of a run: its requests one after the other, and what they have used together.

    Args:
        kind: What its act is called; with the number of the event that it follows, unique in its session.
    """

    def __init__(self, scope: RunScope, reservations: Reservations, kind: str, *, step: int) -> None:
        self.act = f"{kind}:{scope.ledger.state.head + 1}"
        self.spent = Spent()
        """What its requests have used; a cost of None where nobody knows."""
        self._scope = scope
        self._reservations = reservations
        self._step = step
        self._order = asyncio.Lock()

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask without tools, and return the model's words. Tried again where that may help.

        An answer that the output limit cuts off is asked for again, with a higher limit where the vendor has one, and is marked
        as cut off where it is so again.

        Raises:
            ModelError: It failed, or the model refused to answer.
            BudgetUsedUp: The run's budget leaves no room for it.
        """
        scope, model = self._scope, self._scope.model
        request = ModelRequest(
            messages=tuple(messages),
            instructions=instructions,
            tool_choice="none",
            session_id=scope.ledger.state.id,
        )
        attempt = 0
        async with self._order:
            while True:
                attempt += 1
                if (stop := scope.interrupt.stop) is not None:
                    raise ModelUnavailable(f"The run ends: {stop.message}")
                if (reached := await self._reservations.take(request, model)) is not None:
                    raise BudgetUsedUp(used_up(reached))
                try:
                    end = await self._received(request, attempt)
                except ModelError as error:
                    if (wait := await self._failed(error, request, attempt)) is None:
                        raise
                    await scope.interrupt.sleep(wait)
                    continue
                words = await self._finished(end, request, attempt)
                if end.finish is not Finish.LENGTH or request.raise_output_limit:
                    return _whole(words, end)
                request = msgspec.structs.replace(request, raise_output_limit=True)

    async def _received(self, request: ModelRequest, attempt: int) -> ModelEnd:
        scope = self._scope
        started = ModelStarted(
            step=self._step,
            act=self.act,
            attempt=attempt,
            model=asked_model(scope.model).name,
            tool_choice="none",
            messages=len(request.messages),
        )
        await scope.ledger.record(started)
        show_request(scope.ledger, self.act, request, scope.model)
        end: ModelEnd | None = None
        stream = scope.model.stream(request)
        try:
            with scope.interrupt.cancel_scope():
                async for part in stream:
                    end = part if isinstance(part, ModelEnd) else end
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if end is None or end.is_broken_off:
            raise IncompleteStream("The response ended without its terminal part.")
        return end

    async def _failed(self, error: ModelError, request: ModelRequest, attempt: int) -> float | None:
        """Record a failed attempt; return how long to wait before the next, or None for no other."""
        scope, allowed = self._scope, self._scope.meter.budget.max_retries_per_model_call
        wait = None
        is_allowed = allowed is None or attempt <= allowed
        if error.may_retry and is_allowed and scope.interrupt.stop is None:
            wait = model_wait_seconds(error, attempt, scope.ledger.randomness.random(), scope.interrupt.seconds_left)
        usage = estimate(request, ()) if error.usage is None and isinstance(error, IncompleteStream) else error.usage
        cost = None if usage is None else cost_of(error.price or scope.model.price, usage)
        await self._charge(usage, cost)
        failed = ModelFailed(
            step=self._step,
            act=self.act,
            error=type(error).__name__,
            message=encodable(shown_error(error)),
            attempt=attempt,
            status=error.status,
            retry_in_seconds=wait,
            usage=usage,
            cost=format_cost(cost),
        )
        await scope.ledger.record(failed)
        return wait

    async def _finished(self, end: ModelEnd, request: ModelRequest, attempt: int) -> str:
        scope = self._scope
        parts = tuple(map(encodable_part, end.parts))
        usage = whole_usage(end.usage, request, parts)
        cost = cost_of(end.price or scope.model.price, usage)
        await self._charge(usage, cost)
        message = Message(role="assistant", parts=parts, origin=end.origin or scope.model.name)
        finished = ModelFinished(
            step=self._step,
            act=self.act,
            message=message,
            finish=end.finish,
            usage=usage,
            cost=format_cost(cost),
            attempt=attempt,
            turns=0,
            response_id=encodable(end.response_id),
            response_model=encodable(end.response_model),
        )
        await scope.ledger.record(finished, durable=True)  # it is paid: after a crash it counts too
        return message.text

    async def _charge(self, usage: Usage | None, cost: Decimal | None) -> None:
        await self._reservations.settle(usage, format_cost(cost))
        if usage is not None:
            self.spent = self.spent.plus(usage, format_cost(cost), turns=0, calls=0)


def _whole(words: str, end: ModelEnd) -> str:
    """Return the words of an answer, marked where they are cut off. A refusal is not an answer."""
    if end.finish is Finish.REFUSED:
        raise ModelRejected(f"The model refused to answer: {encodable(end.message or words) or 'it gave no reason'}")
    return f"{words}\n{_CUT_OFF}" if words and end.finish is Finish.LENGTH else words


class CheckView(ReadOnlyView):
    """A session as a check sees it, which may ask the run's model too."""

    def __init__(self, session: SessionView, scope: RunScope, reservations: Reservations) -> None:
        super().__init__(session)
        self.__begin = partial(Aside, scope, reservations, "check")
        self.__run = scope.ledger

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask without tools, and return the model's words. Recorded under an act of its own, and charged to the run.

        Raises:
            ModelError: It failed.
            BudgetUsedUp: The run's budget leaves no room for it.
        """
        return await self.__begin(step=self.__run.state.step).ask(messages, instructions=instructions)


# --- Compacting: have what the model is shown made shorter, see that it is, and record it. How is the compactor's
# business.

logger = redacted_logger(__name__)

_MAX_FAILURES = 3
"""So many compactions in a row that did not help, and none is tried any more in this run but after an overflow."""


_STOPPED = "The run was stopped meanwhile."
_NOTHING = "The compactor found nothing to shorten."
_BY_HAND = Tiers(ClearResults(), Handoff())
"""What a person's wish is carried out by, where the agent has no compactor."""


class Compacting:
    """The compactions of one run."""

    def __init__(self, scope: RunScope, reservations: Reservations) -> None:
        self._compactor = scope.about.compactor  # None where only a person asks for compactions
        self._scope = scope
        self._begin = partial(Aside, scope, reservations, "compaction")
        self._session = scope.offering.session
        self._shown = ReadOnlyMessages()
        self._failures = 0

    @property
    def is_asked(self) -> bool:
        """Whether a person waits for a compaction."""
        return self._scope.ledger.state.compactions.asked > 0

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Whether a request is to be made shorter before it is sent."""
        if self.is_asked or self._compactor is None:
            return self.is_asked
        if need.reason == "overflow":
            return True
        try:
            return self._failures < _MAX_FAILURES and bool(self._compactor.is_due(need, tokens))
        except Exception:
            logger.exception("The compactor's is_due() raised; the request is sent as it is")
            return False

    async def compact(self, need: RequestNeed, request: ModelRequest) -> bool:
        """Return whether the model is shown something shorter from now on. What failed is logged, and ends no run."""
        tokens = estimate(request, ()).input_tokens
        aside, state = self._begin(step=need.step), self._scope.ledger.state
        entries = tuple(state.compactions.entries(state.messages, state.message_seqs))
        messages = tuple(one.message for one in entries)
        context = _Context(
            messages=self._shown.of(messages), session=self._session, need=need, tokens=tokens, _aside=aside,
            _journal=self._scope.ledger.journal,
        )  # fmt: skip
        made = await self._made(context)
        event = made if isinstance(made, str) else self._event(made, entries, context, aside)
        if isinstance(event, str):
            await self._skip(event, is_free=event == _NOTHING and aside.spent == Spent())
            return False
        self._failures = 0
        forget_counts(messages)
        await self._scope.ledger.record(event, durable=True)
        return True

    async def _made(self, context: "_Context") -> Compaction | str:
        """Return what the compactor has made, or why there is nothing."""
        compactor = self._compactor or _BY_HAND
        made: Compaction | None = None
        try:
            with self._scope.interrupt.cancel_scope():
                made = await contained(compactor.compact(context))
        except BaseException as error:
            pass_interrupts(error)
            if self._scope.interrupt.stop is not None:
                return _STOPPED
            logger.exception("The compactor raised; the request stays as it is")
            return f"The compactor failed: {encodable(shown_error(error))}"
        if made is None and self._scope.interrupt.stop is not None:
            return _STOPPED
        return _NOTHING if made is None else made

    async def _skip(self, why: str, *, is_free: bool) -> None:
        """Count a compaction that did not help, and tell whoever has asked for it.

        Args:
            is_free: Nothing was found, at no cost: that may change with the next step, and is not counted.
        """
        self._failures += not (self.is_asked or is_free)
        if self.is_asked and self._scope.interrupt.stop is None:
            await self._scope.ledger.record(CompactionSkipped(message=why), durable=True)

    def _event(
        self, made: Compaction, entries: Sequence[ShownMessage], context: "_Context", aside: Aside
    ) -> ContextCompacted | str:
        """Return the event of a compaction, or what is wrong with it."""
        if (fault := _fault_of(made, context.messages)) is not None:
            logger.error("A compaction is not used: %s", fault)
            return f"The compaction is not used: {fault}."
        own = Spent().plus(made.usage, made.cost, turns=0, calls=0)
        event = ContextCompacted(
            step=context.need.step,
            act=aside.act,
            summary=encodable(made.summary),
            tier=made.tier,
            reason="overflow" if context.need.reason == "overflow" else "asked" if self.is_asked else "window",
            first=entries[made.begin].first,
            last=entries[made.end - 1].last,
            messages=None if made.messages is None else tuple(map(encodable_message, made.messages)),
            results={call_id: encodable(text) for call_id, text in made.results.items()},
            artifacts=context.kept,
            tokens_before=context.tokens,
            model=context.need.model,
            usage=aside.spent.usage + own.usage,
            cost=format_cost(add_costs(aside.spent.cost, own.cost)),
        )
        left = [one.message for one in compacted(entries, event)]
        saved = count_tokens(context.messages) - count_tokens(left)
        if saved <= 0:
            logger.warning(
                "The compaction %r of session %s does not make the conversation shorter", made.tier, context.session.id
            )
            return f"The compaction {made.tier!r} does not make the conversation shorter."
        return msgspec.structs.replace(event, tokens_after=max(context.tokens - saved, 0))


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a compactor is given."""

    messages: tuple[Message, ...]
    session: SessionView
    need: RequestNeed
    tokens: int
    _aside: Aside
    _journal: Journal
    _kept: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def kept(self) -> tuple[str, ...]:
        """Digests of the results that were kept whole."""
        return tuple(self._kept.values())

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        return await self._aside.ask(messages, instructions=instructions)

    async def keep(self, call_id: str) -> str:
        if call_id not in self._kept:
            part = next(part for message in self.messages for part in message.results if part.call_id == call_id)
            known = [digest for name, digest in self.session.state.artifacts.items() if name in part.content]
            self._kept[call_id] = known[0] if known else await keep_content(self._journal, part.content)
        return artifact_id(self._kept[call_id])


def _fault_of(made: object, messages: Sequence[Message]) -> str | None:
    """Return what is wrong with a compaction. One that splits a call from its result would be refused by every provider."""
    if not isinstance(made, Compaction):
        return f"the compactor returned {shown(made)}; return a Compaction or None"
    if not 0 <= made.begin < made.end <= len(messages):
        return f"it is of the messages {made.begin} to {made.end}, and there are {len(messages)}"
    if messages[made.begin].role == "tool" or (made.end < len(messages) and messages[made.end].role == "tool"):
        return f"its range {made.begin} to {made.end} separates calls from their results"
    if made.messages is not None and not is_sound(made.messages):
        return "its messages hold a call without its result, a result without its call, or nothing"
    return None
