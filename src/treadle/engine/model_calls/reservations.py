"""Reservations: what a model call may use. It reserves its estimate before it begins, and gives back what it did not use.

Runs that draw from one budget side by side begin as many calls as fit into what is left; the others wait for what those
return. A run that draws from nobody's waits for nobody. Kept in memory only: what was used is folded from events.
"""

import weakref
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from treadle.budgets import Meter, Spent
from treadle.canonical import artifact_id
from treadle.context.compilers import sent_chars, shares
from treadle.engine.interrupts import Gate, Interrupt
from treadle.engine.rules.bounds import bound
from treadle.events import ContextCompacted
from treadle.messages import Message, Part, Result, Text, Thinking, ToolCall, Usage
from treadle.ports import Journal, Model, ModelRequest, Pricing, RequestNeed
from treadle.redaction import without_known
from treadle.sessions.ledger import Ledger
from treadle.sessions.spending import Purse, Receipt
from treadle.stops import LimitReached
from treadle.tools import ToolResult
from treadle.validation.plain import damaged_json, is_damaged, joined
from treadle.validation.plain import repaired as encodable

__all__ = [
    "Bounding",
    "Reservations",
    "add_costs",
    "cost_of",
    "count_tokens",
    "encodable",
    "encodable_call",
    "encodable_message",
    "encodable_part",
    "estimate",
    "forget_counts",
    "format_cost",
    "keep_content",
    "whole_usage",
]


# --- Consumption: what a response used, in tokens and money. Estimates where nobody counted; spends nothing.


def cost_of(price: Pricing | None, usage: Usage) -> Decimal | None:
    """Return the exact cost, or None where nobody knows the price."""
    return None if price is None else price.cost(usage)


def add_costs(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """Return the sum of two costs; one that nobody knows makes it unknown."""
    return None if one is None or other is None else one + other


def format_cost(cost: Decimal | None) -> str | None:
    """Return a cost as events hold it: an exact decimal."""
    return None if cost is None else format(cost.normalize(), "f")


def estimate(request: ModelRequest, parts: Iterable[Part]) -> Usage:
    """Estimate tokens at four characters each, where the server sends no usage: a budget must not count 0.

    What is not text counts a fixed number: its bytes would be hundreds of times too many.
    """
    sent = len(request.instructions or "") + _character_count(request.messages)
    sent += sum(len(spec.description) + len(msgspec.json.encode(spec.parameters)) for spec in request.tools)
    return Usage(input_tokens=sent // 4 + 1, output_tokens=_length(parts) // 4 + 1, estimated=True)


def whole_usage(usage: Usage | None, request: ModelRequest, parts: Iterable[Part]) -> Usage:
    """Return what a response used, with our estimate of each number that its server did not send in a readable form."""
    if usage is not None and not (usage.estimated and not (usage.input_tokens and usage.output_tokens)):
        return usage
    ours = estimate(request, parts)
    if usage is None:
        return ours
    known = usage.cached_input_tokens + usage.cache_written_tokens
    return msgspec.structs.replace(
        usage,
        input_tokens=usage.input_tokens or max(ours.input_tokens, known),
        output_tokens=usage.output_tokens or ours.output_tokens,
    )


class _Known(NamedTuple):
    """The characters of a history up to a message."""

    last: "weakref.ref[Message]"
    first: "weakref.ref[Message]"
    length: int
    chars: int


_known: dict[int, _Known] = {}
"""Histories that were counted, by the identity of their last message: the next request of a run only adds to one."""

_LOOK_BACK = 16
"""Messages that one step may add."""


def _character_count(messages: Sequence[Message]) -> int:
    """Return the characters of a history. The CPU does not grow with it: what was counted in the step before is kept."""
    start, chars = _counted(messages)
    chars += sum(_length(message.parts) for message in messages[start:])
    if messages:
        key = id(messages[-1])
        last = weakref.ref(messages[-1], lambda _: _known.pop(key, None))
        _known[key] = _Known(last, weakref.ref(messages[0]), len(messages), chars)
    return chars


def forget_counts(messages: Sequence[Message]) -> None:
    """Count a history anew: something in its middle is another message from now on."""
    for message in messages:
        _known.pop(id(message), None)


def count_tokens(messages: Sequence[Message]) -> int:
    """Return the estimate of a history that is counted once."""
    return sum(_length(message.parts) for message in messages) // 4 + 1


def _counted(messages: Sequence[Message]) -> tuple[int, int]:
    """Return how many messages at the beginning have been counted, and their characters."""
    for count in range(len(messages), max(len(messages) - _LOOK_BACK, 0), -1):
        known = _known.get(id(messages[count - 1]))
        if known is None or known.length != count:
            continue
        if known.last() is messages[count - 1] and known.first() is messages[0]:
            return count, known.chars
    return 0, 0


def _length(parts: Iterable[Part]) -> int:
    return sum(map(sent_chars, parts))


# --- Reservations: what a model call may use. It reserves its estimate before it begins, and gives back what it did not use.

_PURSE_SECONDS = 0.1
"""How soon is looked again whether others have returned what they had reserved of a tenant's budget."""
_USUAL_ANSWER = Text("x" * 1000)
"""What an answer is taken for before one has come: 250 tokens."""


class Reservations:
    """The budget of one run, as its model calls draw from it."""

    def __init__(self, meter: Meter, interrupt: Interrupt, purse: Purse | None) -> None:
        self._meter = meter
        self._interrupt = interrupt
        self._purse = purse
        self._receipts: list[Receipt] = []
        self._largest_answer = 0

    async def take(self, request: ModelRequest, model: Model) -> LimitReached | None:
        """Reserve what a request may use, once there is room for it. Return the limit that is reached meanwhile."""
        meter, purse = self._meter, self._purse
        if not meter.is_shared and purse is None:
            return meter.look(meter.spent()).exhausted
        usage = estimate(request, (_USUAL_ANSWER,))
        if self._largest_answer:
            usage = Usage(input_tokens=usage.input_tokens, output_tokens=self._largest_answer)
        cost = cost_of(model.price, usage)
        if (reached := await self._take_of_run(Spent().plus(usage, format_cost(cost), turns=0, calls=0))) is not None:
            return reached
        return None if purse is None else await self._take_of_tenant(purse, model.name, cost or Decimal(0))

    async def _take_of_tenant(self, purse: Purse, model: str, cost: Decimal) -> LimitReached | None:
        while self._interrupt.stop is None:
            taken = await purse.reserve(model, cost)
            if isinstance(taken, LimitReached):
                self._meter.reserve(None)
                return taken
            if taken is not None:
                self._receipts.append(taken)
                return None
            await self._interrupt.sleep(_PURSE_SECONDS)
        return None

    async def _take_of_run(self, wanted: Spent) -> LimitReached | None:
        meter = self._meter
        if not meter.is_shared:
            return meter.look(meter.spent()).exhausted
        while self._interrupt.stop is None:
            spent = meter.spent()
            if (reached := meter.look(spent).exhausted) is not None:
                return reached
            if meter.has_room(spent, wanted):
                meter.reserve(spent.with_child(wanted, Spent()), is_under_way=True)
                return None
            gate = Gate()
            meter.on_return(gate.open)
            await self._interrupt.wait_for(gate.opened)
        return None

    async def settle(self, usage: Usage | None, cost: str | None) -> None:
        """Keep only what a call has used, until that is recorded; None for a call that has used nothing that is known."""
        meter = self._meter
        if self._purse is not None and self._receipts:
            paid = Decimal(0) if usage is None else None if cost is None else Decimal(cost)
            await self._purse.pay(self._receipts.pop(), paid)
        if usage is not None:
            self._largest_answer = max(self._largest_answer, usage.output_tokens)
        if not meter.is_shared:
            return
        meter.reserve(None if usage is None else meter.spent().plus(usage, cost, turns=0, calls=0))


# --- Bounding: hold the results of one step within their limit together, the biggest first. Recorded once, and so the
# same for ever.

_CHARS_OF_WINDOW = 2
"""Characters for each token of the window: half of it, at four characters a token."""


class Bounding:
    """Shortens the results of one run's steps.

    Args:
        limit: Characters that the results of one step may take together; None for no limit.
    """

    def __init__(self, ledger: Ledger, limit: int | None) -> None:
        self._ledger = ledger
        self._limit = limit

    async def hold(self, need: RequestNeed) -> None:
        """Shorten the results of the last step, where they are too long together. What was decided on before stays."""
        limit = self._limit
        if limit is None:
            return
        if need.window is not None:
            limit = min(limit, need.window * _CHARS_OF_WINDOW)
        found = self._last_results()
        if found is None:
            return
        message, seq = found
        sizes = [len(part.content) for part in message.results]
        if sum(sizes) <= limit or any(one.last >= seq for one in self._ledger.state.compactions.made):
            return
        await self._shorten(message, seq, shares(sizes, limit), need)

    def _last_results(self) -> tuple[Message, int] | None:
        """Return the results that no request has held yet, and the number of their event."""
        state = self._ledger.state
        for message, seq in zip(reversed(state.messages), reversed(state.message_seqs), strict=True):
            if message.role == "tool":
                return message, seq
            if message.role == "assistant":
                return None
        return None

    async def _shorten(self, message: Message, seq: int, rooms: list[int], need: RequestNeed) -> None:
        state = self._ledger.state
        results = {one.call.id: one.result for one in state.answered}
        shorter: dict[str, str] = {}
        digests: list[str] = []
        for part, room in zip(message.results, rooms, strict=True):
            if len(part.content) > room:
                digest, shorter[part.call_id] = await self._shortened(part, results.get(part.call_id), room)
                digests.append(digest)
        before = need.fixed_tokens + count_tokens(state.shown)
        saved = sum(len(part.content) - len(shorter.get(part.call_id, part.content)) for part in message.results) // 4
        event = ContextCompacted(
            step=need.step,
            tier="limits",
            reason="step",
            first=seq,
            last=seq,
            results=shorter,
            artifacts=tuple(digests),
            tokens_before=before,
            tokens_after=max(before - saved, 0),
            model=need.model,
        )
        forget_counts(state.shown)  # what comes after it was counted with it
        await self._ledger.record(event, durable=True)

    async def _shortened(self, part: Result, result: ToolResult | None, room: int) -> tuple[str, str]:
        """Return the digest of the whole of a result, and what is shown of it."""
        journal, content = self._ledger.journal, part.content
        kept = None if result is None else result.artifact
        if kept is not None and artifact_id(kept) in content:  # a part of it was shown: of the same whole, less is
            whole = (await journal.blob(kept) or content.encode()).decode("utf-8", "replace")
            value = whole if isinstance(_value_of(content), str) else [whole]
            return kept, bound(value, whole, room, artifact=artifact_id(kept))[0]
        digest = await keep_content(journal, content)
        return digest, bound(_value_of(content), content, room, artifact=artifact_id(digest))[0]


async def keep_content(journal: Journal, content: str) -> str:
    """Store a result's text, without the values that journals hide, and return its digest."""
    return await journal.put_blob(without_known(content.encode("utf-8", "replace")))


def _value_of(content: str) -> object:
    """Return the object or list of a JSON text; any other text itself."""
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content
    return value if isinstance(value, dict | list) else content


# --- Texts: what a model wrote, made such that every journal and wire can hold it. Changes nothing that is text
# already.


def encodable_part(part: Part) -> Part:
    """Return the part with words that can be stored."""
    match part:
        case ToolCall():
            return encodable_call(part)
        case Text() | Thinking():
            text = encodable(part.text)
            return part if text is part.text else msgspec.structs.replace(part, text=text)
        case _:
            return part


def encodable_message(message: Message) -> Message:
    """Return the message with words that can be stored."""
    return msgspec.structs.replace(message, parts=tuple(map(encodable_part, message.parts)))


def encodable_call(call: ToolCall) -> ToolCall:
    """Join characters that were streamed in pieces. Damaged arguments stay invalid: they never run as something else."""
    if call.arguments.isascii() and call.name.isascii():
        return call
    if not is_damaged(call.arguments) and not is_damaged(call.name):
        return call
    name = joined(call.name).encode("utf-8", "backslashreplace").decode()
    return msgspec.structs.replace(call, name=name, arguments=damaged_json(joined(call.arguments)))
