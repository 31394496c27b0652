"""Response: collect one response of the model as it arrives: its words, its calls, what it used. Decides on no retry."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Container, Coroutine, Iterable
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import msgspec

from treadle.budgets import Spent
from treadle.canonical import text_key
from treadle.concurrency import Pieces
from treadle.engine.model_calls.reservations import (
    add_costs,
    cost_of,
    encodable,
    encodable_call,
    encodable_part,
    estimate,
    format_cost,
    whole_usage,
)
from treadle.engine.rules.endings import limit_stop
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.errors import IncompleteStream, ModelError
from treadle.events import DecisionRejected, ModelDelta, ModelFailed, ModelFinished
from treadle.messages import Message, Part, Text, ToolCall, Usage
from treadle.ports import (
    BoundDriver,
    CallReady,
    ModelEnd,
    ModelPart,
    ModelRequest,
    RequestFailed,
    ResponseSetAside,
    TextDelta,
    ThinkingDelta,
    told_counted,
)
from treadle.redaction import settled_length, shown_error
from treadle.stops import Stop

__all__ = ["CallNames", "Collected", "ResponseCalls", "ResponseCollector"]


# --- Naming: the calls of one response, each once and under an id that is unique in its session. Values only.

LONGEST_ID = 256
"""What is kept as the server sent it: it goes back to that server unchanged. An adapter writes it anew where its dialect takes less."""


_MOST_OF_A_SECRET = 16
"""Characters. What is shorter than that of a key is of no use."""

_Action: TypeAlias = tuple[str, bytes]
_Identity: TypeAlias = tuple[str, str, bytes]


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """One whole response."""

    parts: tuple[Part, ...]
    """Each call once, under its own id."""
    cut: frozenset[str] = frozenset()
    """Ids of the calls whose end may be missing."""
    repeated: frozenset[str] = frozenset()
    """Ids of the calls that may be the repetition of an earlier one."""


class ResponseCalls:
    """Collects the calls of one response, those that were ready early and those of its final message."""

    def __init__(self, taken: Container[str], step: int) -> None:
        self._names = CallNames(taken, step)
        self._early: dict[_Identity, list[_Reported]] = {}
        self._keys: dict[str, bytes] = {}
        """By the text of arguments: most are read early, and in the final message."""
        self.early_count = 0

    def ready(self, call: ToolCall) -> ToolCall | None:
        """Return a call that is ready early, under its own id; None for one that was reported already."""
        linked_names = self._early.setdefault(self._identity(call), [])
        if call.id and linked_names:
            return None
        named = msgspec.structs.replace(call, id=self._names.give(self.early_count, call.id))
        linked_names.append(_Reported(raw=call, named=named))
        self.early_count += 1
        return named

    def collect(
        self, parts: Iterable[Part], *, cut: Collection[str], unnamed: Collection[str], is_retold: bool = False
    ) -> Collected:
        """Return the final message: each call once, under the id that it had when it was ready early.

        A call that was ready early and is missing from the final message comes last: it was proposed, so it gets its result.

        Args:
            cut: The provider's ids of calls that the response may have cut off.
            unnamed: Ids that the provider did not send.
            is_retold: Whether the provider may have reported one call under two ids.
        """
        kept: list[Part] = []
        known: dict[_Identity, _Reported] = {}
        ids: set[str] = set()
        actions: dict[_Action, bool] = {}
        repeated: list[str] = []
        reported: list[_Reported] = []
        for part in parts:
            if not isinstance(part, ToolCall):
                kept.append(part)
                continue
            is_named = bool(part.id) and part.id not in unnamed
            identity = self._identity(part)
            if is_named and (again := known.get(identity)) is not None:
                kept[again.place] = again.with_signature(part)
                continue
            one = _Reported(raw=part, named=self._named(part, identity, len(reported)), place=len(kept))
            action = identity[1:]
            may_be_known = action in actions and (is_retold or not (is_named and actions[action]))
            if (is_named and part.id in ids) or may_be_known:
                repeated.append(one.named.id)
            if part.id not in cut:  # a call that does not start is not a first of two
                actions[action] = actions.get(action, True) and is_named
            if is_named:
                known[identity] = one
            ids.add(part.id)
            reported.append(one)
            kept.append(one.named)
        kept += [
            one.named for early in self._early.values() for one in early if not one.is_final and one.raw.id not in ids
        ]
        cut_ids = frozenset(one.named.id for one in reported if one.raw.id in cut)
        return Collected(parts=tuple(kept), cut=cut_ids, repeated=frozenset(repeated))

    def _identity(self, call: ToolCall) -> _Identity:
        """Return what makes a call the same as another: its id and what it does, however the JSON of its arguments is written."""
        key = self._keys.get(call.arguments)
        if key is None:
            key = self._keys[call.arguments] = text_key(call.arguments.strip() or "{}")
        return call.id, call.name, key

    def _named(self, call: ToolCall, identity: _Identity, position: int) -> ToolCall:
        """Return the call under its id. One that continued after it looked complete is another call, with another id."""
        for early in self._early.get(identity, ()):
            if not early.is_final:
                early.is_final = True
                return msgspec.structs.replace(call, id=early.named.id)
        return msgspec.structs.replace(call, id=self._names.give(position, call.id))


class _Reported(msgspec.Struct, kw_only=True):
    """A call that was reported."""

    raw: ToolCall
    """Under the provider's id."""
    named: ToolCall
    place: int = -1
    """Where it is among the parts."""
    is_final: bool = False
    """Whether the final message holds this early call."""

    def with_signature(self, again: ToolCall) -> ToolCall:
        """Return the call with its proof of origin, which only one of its reports may carry."""
        if self.named.signature is None and again.signature is not None:
            self.named = msgspec.structs.replace(self.named, signature=again.signature)
        return self.named


class CallNames:
    """The ids of one response's calls. A usable id stays; a missing, repeated, overlong or strange one is replaced."""

    def __init__(self, taken: Container[str], step: int) -> None:
        self._taken = taken
        self._step = step
        self._given: dict[str, None] = {}  # a set takes 200 bytes while it is empty

    def give(self, position: int, raw: str) -> str:
        """Return the id of the call at this position."""
        is_usable = 0 < len(raw) <= LONGEST_ID and raw.isascii() and raw.isprintable() and " " not in raw
        is_taken = raw in self._taken or raw in self._given
        name = raw if is_usable and not is_taken else self._new(position)
        self._given[name] = None
        return name

    def _new(self, position: int) -> str:
        name, number = f"call_{self._step}_{position + 1}", 1
        while name in self._taken or name in self._given:
            number += 1
            name = f"call_{self._step}_{position + 1}_{number}"
        return name


# --- Response: collect one response of the model as it arrives: its words, its calls, what it used. Decides on no
# retry.


class ResponseCollector:
    """Collects the response of one attempt.

    Args:
        early: Where its calls may start before it is whole.
        step: The step that it belongs to.
        attempt: From 1, in this step.
    """

    def __init__(
        self,
        request: ModelRequest,
        scope: RunScope,
        *,
        early: EarlyCalls,
        step: int,
        attempt: int,
    ) -> None:
        self.request = request
        self.step = step
        self.attempt = attempt
        self.end: ModelEnd | None = None
        """Its terminal part; None until it has arrived."""
        self.stop: Stop | None = None
        """The limit that forbids the driver's next request."""
        self.has_emitted = False
        """Whether anything of it was reported."""
        self._ledger = ledger = scope.ledger
        self._model = scope.model
        self._early = early
        self._meter = scope.meter
        self._calls = ResponseCalls(ledger.state.call_ids, step)
        # Calls that may start early, and what offers them.
        self._waiting: list[partial[Coroutine[Any, Any, None]]] = []
        self._wake: asyncio.Handle | None = None
        self._offering: asyncio.Task[None] | None = None
        self._begun = ledger.clock.monotonic()
        self._first_at: float | None = None
        # Of the responses that were set aside for a better wording; the turns include the response itself.
        self._turns = 0
        self._usage = Usage()
        self._cost: Decimal | None = Decimal(0)
        # What the server has sent of the response that is under way.
        self._text_pieces = Pieces()
        self._thought_pieces = Pieces()
        self._called: list[ToolCall] = []
        self._counted: Usage | None = None  # what the server had counted when we cut it off

    async def receive(self, driver: BoundDriver) -> None:
        """Ask the driver and take in what it sends, until the response ends or breaks off.

        Raises:
            ModelError: The request failed.
            JournalError: What has arrived could not be recorded.
        """
        stream = driver.propose(self.request)
        try:
            async for part in stream:
                match part:
                    case TextDelta() | ThinkingDelta():
                        if self._say(part):
                            await asyncio.sleep(0)  # who listens has the first word before we look further
                    case CallReady():
                        self._ready(part.call)
                    case ModelEnd():
                        await self._take_end(part)
                    case RequestFailed(error=error):
                        await self._tell_lost_request(error)
                    case ResponseSetAside():
                        if await self._set_aside(part):
                            break
        except asyncio.CancelledError as cut:
            self._counted = told_counted(cut)
            raise
        finally:
            await self._close(stream)

    async def _take_end(self, end: ModelEnd) -> None:
        self.end = end
        self._turns += 1
        if self._waiting:  # what was not offered by now goes with the batch
            self._forget_offers()
        if (failure := end.failure) is not None:
            rejected = DecisionRejected(
                step=self.step,
                reason=failure.reason,
                text=encodable(_text(end.parts)),
                attempt=failure.attempts,
                message=encodable(failure.message),
            )
            await self._ledger.record(rejected)

    # --- early calls: offered as soon as the stream makes us wait, and not before

    def _offer(self, call: ToolCall, position: int) -> None:
        """Offer a call in its turn. A response that ends in the bytes that are already here gains nothing from an early start."""
        self._waiting.append(partial(self._early.offer, call, position=position, step=self.step, attempt=self.attempt))
        if self._wake is None and self._offering is None:
            self._wake = asyncio.get_running_loop().call_soon(self._begin_offering)

    def _begin_offering(self) -> None:
        self._wake = None
        self._offering = asyncio.create_task(self._offer_waiting())

    async def _offer_waiting(self) -> None:
        while self._waiting:
            await self._waiting.pop(0)()
        self._offering = None  # nothing was awaited since the last look: whoever offers now begins anew

    def _forget_offers(self) -> None:
        self._waiting.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    async def _close(self, stream: AsyncIterator[ModelPart]) -> None:
        """Wait for the offer that is under way, or break it off when its response broke off; then close the stream.

        Raises:
            JournalError: The start of a call could not be recorded.
        """
        if self._waiting:
            self._forget_offers()
        if self._offering is not None:
            if self.end is None:
                self._offering.cancel()
            await asyncio.gather(self._offering, return_exceptions=self.end is None)
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()

    # --- what is not the step's own message

    async def _set_aside(self, part: ResponseSetAside) -> bool:
        """Count a response that is not the step's own message. Return whether the driver may not ask again."""
        self._text_pieces.clear()
        self._thought_pieces.clear()
        self._called.clear()
        parts = tuple(map(encodable_part, part.parts))
        usage = whole_usage(part.usage, self.request, parts)
        cost = cost_of(self._model.price, usage)
        if part.reason == "reworded":
            self._turns, self._usage = self._turns + 1, self._usage + usage
            self._cost = add_costs(self._cost, cost)
        else:
            rejected = DecisionRejected(
                step=self.step,
                reason=part.reason,
                text=_text(parts),
                attempt=part.attempt,
                message=encodable(part.message),
                usage=usage,
                cost=format_cost(cost),
            )
            await self._ledger.record(rejected)
        if (reached := self._meter.look(self._spent_with_this).reached) is not None:
            self.end = part.fallback
            self.stop = None if part.fallback is not None else limit_stop(reached)
        return self.stop is not None or self.end is not None

    @property
    def _spent_with_this(self) -> Spent:
        run = self._ledger.state.run
        spent = Spent() if run is None else run.spent
        return msgspec.structs.replace(
            spent,
            model_turns=spent.model_turns + self._turns,
            usage=spent.usage + self._usage,
            cost=add_costs(spent.cost, self._cost),
        )

    async def _tell_lost_request(self, error: ModelError) -> None:
        """Record a request that failed and that the step continues without. What it used is in the step's own response."""
        failed = ModelFailed(
            step=self.step,
            error=type(error).__name__,
            message=encodable(shown_error(error)),
            attempt=self.attempt,
            status=error.status,
            is_aside=True,
        )
        await self._ledger.record(failed)

    def _say(self, part: TextDelta | ThinkingDelta) -> bool:
        """Tell a piece of what the model says. Return whether it is the first that somebody hears."""
        text = part.text if part.text.isascii() else encodable(part.text)
        is_first = self._first_at is None
        if is_first:
            self._first_at = self._ledger.clock.monotonic()
        is_text = type(part) is TextDelta
        (self._text_pieces if is_text else self._thought_pieces).add(text)
        self.has_emitted = True
        if not self._ledger.is_heard:
            return False
        delta = ModelDelta(step=self.step, text=text) if is_text else ModelDelta(step=self.step, thinking=text)
        self._ledger.publish(delta)
        return is_first

    def _ready(self, call: ToolCall) -> None:
        position = self._calls.early_count
        call = encodable_call(call)
        self._called.append(msgspec.structs.replace(call, id=""))
        named = self._calls.ready(call)
        if named is None:
            return
        if self._first_at is None:
            self._first_at = self._ledger.clock.monotonic()
        self.has_emitted = True
        if self._ledger.is_heard:
            self._ledger.publish(ModelDelta(step=self.step, call=named))
        if position < self._early.room:
            self._offer(named, position)

    # --- what came of it

    def collected(self, end: ModelEnd) -> Collected:
        """Return the whole response: each call once, under its own id."""
        parts = map(encodable_part, end.parts)
        return self._calls.collect(parts, cut=end.cut_calls, unnamed=end.unnamed_calls, is_retold=end.is_retold)

    def finished(self, end: ModelEnd, parts: tuple[Part, ...], *, closing: bool) -> ModelFinished:
        """Return the event of the whole response.

        Args:
            closing: Whether it answers the request after a limit.
        """
        usage = whole_usage(end.usage, self.request, parts)
        cost = add_costs(self._cost, cost_of(end.price or self._model.price, usage))
        begun, first_at = self._begun, self._first_at
        return ModelFinished(
            step=self.step,
            message=Message(role="assistant", parts=parts, origin=end.origin or self._model.name),
            finish=end.finish,
            usage=self._usage + usage,
            cost=format_cost(cost),
            attempt=self.attempt,
            closing=closing,
            dropped_text=end.dropped_text,
            from_text=encodable(end.from_text),
            advice=end.advice,
            turns=self._turns,
            response_id=encodable(end.response_id),
            response_model=encodable(end.response_model),
            duration_seconds=round(self._ledger.clock.monotonic() - begun, 6),
            first_token_seconds=None if first_at is None else round(first_at - begun, 6),
        )

    def interrupted(self, *, closing: bool) -> ModelFinished | None:
        """Return the event of what a response had brought when somebody cancelled the run; None where that was no word and no call.

        Thoughts are left out: no vendor takes back half of one, nor one without its proof.
        """
        if self.end is not None:  # it arrived in the same moment
            parts = self.collected(self.end).parts
        else:
            said = _without_half_a_secret("".join(self._text_pieces))
            parts = self._calls.collect([Text(said)] if said.strip() else [], cut=(), unnamed=()).parts
        if not any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in parts):
            return None
        usage, cost = self.used(None)
        assert usage is not None  # something was said
        return ModelFinished(
            step=self.step,
            message=Message(role="assistant", parts=parts, origin=self._model.name),
            usage=usage,
            cost=format_cost(cost),
            attempt=self.attempt,
            closing=closing,
            turns=self._turns if self.end is not None else self._turns + 1,
            duration_seconds=round(self._ledger.clock.monotonic() - self._begun, 6),
            interrupted=True,
        )

    def used(self, error: ModelError | None) -> tuple[Usage | None, Decimal | None]:
        """Return what a failed attempt has used and what it costs; None for what nobody knows.

        A response that broke off counts what its server had counted by then, and at least what was received of it, by our
        estimate. A request that got no response at all counts nothing.
        """
        has_begun = self.has_emitted or isinstance(error, IncompleteStream)
        used = self._counted if error is None else error.usage
        if used is None and not has_begun:
            return (self._usage, self._cost) if self._turns else (None, None)
        pieces = [*self._text_pieces, *self._thought_pieces]
        said = [Text("".join(pieces))] if pieces else []
        ours = estimate(self.request, (*said, *self._called))
        usage = whole_usage(used, self.request, (*said, *self._called))
        if usage.output_tokens < ours.output_tokens and (said or self._called):  # counted before the model spoke
            usage = msgspec.structs.replace(usage, output_tokens=ours.output_tokens, estimated=True)
        price = self._model.price if error is None or error.price is None else error.price
        return self._usage + usage, add_costs(self._cost, cost_of(price, usage))


def _without_half_a_secret(text: str) -> str:
    """Return a text that was cut off, without an end that may be the larger part of a secret: half of one is not recognised as one."""
    settled = settled_length(text)
    return text if len(text) - settled < _MOST_OF_A_SECRET else text[:settled]


def _text(parts: tuple[Part, ...]) -> str:
    return Message(role="assistant", parts=parts).text
