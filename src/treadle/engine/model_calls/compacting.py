"""Compacting: have what the model is shown made shorter, see that it is, and record it. How is the compactor's business."""

from collections.abc import Sequence

import msgspec

from treadle.budgets import Spent
from treadle.canonical import artifact_id
from treadle.context.compaction import ClearResults, Tiers
from treadle.context.handoff import Handoff
from treadle.context.repair import is_sound
from treadle.engine.model_calls.asides import Aside, Asides
from treadle.engine.model_calls.bounding import keep_content
from treadle.engine.model_calls.texts import encodable, encodable_message
from treadle.engine.model_calls.usage import add_costs, count_tokens, estimate, forget_counts, format_cost
from treadle.engine.rules.failures import contained, pass_interrupts
from treadle.errors import shown
from treadle.events import CompactionSkipped, ContextCompacted
from treadle.messages import Message
from treadle.ports import Compaction, Compactor, ModelRequest, RequestNeed, SessionView
from treadle.redaction import redacted_logger, shown_error
from treadle.sessions.views import ReadOnlyMessages
from treadle.state import ShownMessage, compacted

__all__ = ["Compacting"]

logger = redacted_logger(__name__)

_MAX_FAILURES = 3
"""So many compactions in a row that did not help, and none is tried any more in this run but after an overflow."""


_STOPPED = "The run was stopped meanwhile."
_NOTHING = "The compactor found nothing to shorten."
_BY_HAND = Tiers(ClearResults(), Handoff())
"""What a person's wish is carried out by, where the agent has no compactor."""


class Compacting:
    """The compactions of one run.

    Args:
        compactor: The agent's own; None where only a person asks for compactions.
        session: With all of its messages.
    """

    def __init__(self, compactor: Compactor | None, asides: Asides, session: SessionView) -> None:
        self._compactor = compactor
        self._asides = asides
        self._session = session
        self._shown = ReadOnlyMessages()
        self._failures = 0

    @property
    def is_asked(self) -> bool:
        """Whether a person waits for a compaction."""
        return self._asides.ledger.state.compactions.asked > 0

    @property
    def may_be_due(self) -> bool:
        """Whether anything could make a request of this run shorter."""
        return self._compactor is not None or self.is_asked

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
        aside = self._asides.begin("compaction", step=need.step)
        state = self._asides.ledger.state
        entries = tuple(state.compactions.entries(state.messages, state.message_seqs))
        messages = tuple(one.message for one in entries)
        context = _Context(self._shown.of(messages), self._session, need, tokens, aside)
        made = await self._made(context)
        event = made if isinstance(made, str) else self._event(made, entries, context, aside.spent)
        if isinstance(event, str):
            await self._skip(event, is_free=event == _NOTHING and aside.spent == Spent())
            return False
        self._failures = 0
        forget_counts(messages)
        await self._asides.ledger.record(event, durable=True)
        return True

    async def _made(self, context: "_Context") -> Compaction | str:
        """Return what the compactor has made, or why there is nothing."""
        compactor = self._compactor or _BY_HAND
        made: Compaction | None = None
        try:
            with self._asides.interrupt.cancel_scope():
                made = await contained(compactor.compact(context))
        except BaseException as error:
            pass_interrupts(error)
            if self._asides.interrupt.stop is not None:
                return _STOPPED
            logger.exception("The compactor raised; the request stays as it is")
            return f"The compactor failed: {encodable(shown_error(error))}"
        if made is None and self._asides.interrupt.stop is not None:
            return _STOPPED
        return _NOTHING if made is None else made

    async def _skip(self, why: str, *, is_free: bool) -> None:
        """Count a compaction that did not help, and tell whoever has asked for it.

        Args:
            is_free: Nothing was found, at no cost: that may change with the next step, and is not counted.
        """
        self._failures += not (self.is_asked or is_free)
        if self.is_asked and self._asides.interrupt.stop is None:
            await self._asides.ledger.record(CompactionSkipped(message=why), durable=True)

    def _event(
        self, made: Compaction, entries: Sequence[ShownMessage], context: "_Context", spent: Spent
    ) -> ContextCompacted | str:
        """Return the event of a compaction, or what is wrong with it."""
        if (fault := _fault_of(made, context.messages)) is not None:
            logger.error("A compaction is not used: %s", fault)
            return f"The compaction is not used: {fault}."
        own = Spent().plus(made.usage, made.cost, turns=0, calls=0)
        event = ContextCompacted(
            step=context.need.step,
            act=context.act,
            summary=encodable(made.summary),
            tier=made.tier,
            reason=self._reason(context.need),
            first=entries[made.begin].first,
            last=entries[made.end - 1].last,
            messages=None if made.messages is None else tuple(map(encodable_message, made.messages)),
            results={call_id: encodable(text) for call_id, text in made.results.items()},
            artifacts=tuple(context.kept.values()),
            tokens_before=context.tokens,
            model=context.need.model,
            usage=spent.usage + own.usage,
            cost=format_cost(add_costs(spent.cost, own.cost)),
        )
        left = [one.message for one in compacted(entries, event)]
        saved = count_tokens(context.messages) - count_tokens(left)
        if saved <= 0:
            logger.warning(
                "The compaction %r of session %s does not make the conversation shorter", made.tier, context.session.id
            )
            return f"The compaction {made.tier!r} does not make the conversation shorter."
        return msgspec.structs.replace(event, tokens_after=max(context.tokens - saved, 0))

    def _reason(self, need: RequestNeed) -> str:
        return "overflow" if need.reason == "overflow" else "asked" if self.is_asked else "window"


class _Context:
    """What a compactor is given."""

    def __init__(
        self, messages: tuple[Message, ...], session: SessionView, need: RequestNeed, tokens: int, aside: Aside
    ) -> None:
        self.__messages = messages
        self.__session = session
        self.__need = need
        self.__tokens = tokens
        self.__aside = aside
        self.__kept: dict[str, str] = {}

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.__messages

    @property
    def session(self) -> SessionView:
        return self.__session

    @property
    def need(self) -> RequestNeed:
        return self.__need

    @property
    def tokens(self) -> int:
        return self.__tokens

    @property
    def act(self) -> str:
        """Under which its requests are recorded."""
        return self.__aside.act

    @property
    def kept(self) -> dict[str, str]:
        """Digests of the results that were kept whole, by call id; a copy."""
        return dict(self.__kept)

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        return await self.__aside.ask(messages, instructions=instructions)

    async def keep(self, call_id: str) -> str:
        if call_id not in self.__kept:
            part = next(part for message in self.messages for part in message.results if part.call_id == call_id)
            known = [digest for name, digest in self.session.state.artifacts.items() if name in part.content]
            stored = known[0] if known else await keep_content(self.__aside.ledger.journal, part.content)
            self.__kept[call_id] = stored
        return artifact_id(self.__kept[call_id])


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
