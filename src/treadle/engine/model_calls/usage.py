"""Consumption: what a response used, in tokens and money. Estimates where nobody counted; spends nothing."""

import weakref
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from treadle.context.shortening import sent_chars
from treadle.messages import Message, Part, Usage
from treadle.ports import ModelRequest, Pricing

__all__ = ["add_costs", "cost_of", "count_tokens", "estimate", "forget_counts", "format_cost", "whole_usage"]


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
