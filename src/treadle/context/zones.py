"""Zones: the beginning of a run's requests, which a provider's cache can keep, and whether it stays as it is. Changes no request."""

from hashlib import sha256

import msgspec

from treadle.messages import Message
from treadle.ports import ModelRequest

__all__ = ["Zones"]


class Zones:
    """Compares the requests of one run: each must begin with all of the one before it.

    The stable zone is the instructions, the tools, the form of the answer, and the messages before the first one of the model. Its
    hash stays the same as long as the cache can be used.
    """

    def __init__(self) -> None:
        self._last: ModelRequest | None = None
        self._hash = ""
        self._shortened = 0

    def look(self, request: ModelRequest, *, shortened: int = 0, known: str = "") -> tuple[str, tuple[str, ...]]:
        """Return the hash of the stable zone, and which parts of the beginning have changed since the last request.

        Args:
            shortened: How often what the model sees was made shorter permanently: then its messages are expected to change.
            known: The hash of the last request of an earlier process; empty where there is none.
        """
        last, self._last = self._last, request
        is_shorter, self._shortened = shortened != self._shortened, shortened
        if last is not None and not is_shorter and _begins_with(request, last):  # most requests
            return self._hash, ()
        self._hash = _hash_of(request, _before_the_model(request.messages))
        if last is None:
            changed = ("restart",) if known and known != self._hash else ()
            return self._hash, changed
        parts = {
            "instructions": last.instructions == request.instructions,
            "tools": last.tools is request.tools or last.tools == request.tools,
            "output": last.output_schema == request.output_schema,
            "messages": is_shorter or request.messages[: len(last.messages)] == last.messages,
        }
        return self._hash, tuple(name for name, is_kept in parts.items() if not is_kept)


def _before_the_model(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    for at, message in enumerate(messages):
        if message.role == "assistant":
            return messages[:at]
    return messages


def _begins_with(request: ModelRequest, last: ModelRequest) -> bool:
    is_same_offer = last.tools is request.tools and last.output_schema is request.output_schema
    count = len(last.messages)
    if not is_same_offer or last.instructions != request.instructions or request.messages[:count] != last.messages:
        return False
    return (
        len(request.messages) <= count or request.messages[count].role == "assistant"
    )  # else the first ones may be more


def _hash_of(request: ModelRequest, first: tuple[Message, ...]) -> str:
    words = [(message.role, message.text) for message in first]
    try:
        head = msgspec.json.encode((request.instructions, request.tools, request.output_schema, words))
    except (TypeError, ValueError, OverflowError):  # half a surrogate, say: the provider will refuse it, too
        return ""
    return sha256(head).hexdigest()[:16]
