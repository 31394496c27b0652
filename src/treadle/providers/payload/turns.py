"""Turns: messages as the dialects of Claude group them, whether they come from Anthropic or from Bedrock. Knows no block's form."""

from collections.abc import Callable, Iterable

from treadle.messages import Message, Thinking
from treadle.providers.payload.encoded import EncodedMessages

__all__ = ["Turns", "grouped", "is_foreign", "open_turn", "turns_json"]

Turns = list[tuple[bytes, list[bytes]]]
"""Of each turn: who speaks, and its blocks as JSON."""


def grouped(messages: Iterable[Message], encoded: EncodedMessages, *, earlier: bytes) -> Turns:
    """Return the turns of a history: neighbours of one role are one, so that results and what the person adds stand together.

    Args:
        earlier: The block that stands before a history that begins with the model: the vendor wants the person to speak first.
    """
    turns: Turns = []
    for message in messages:
        role = b"assistant" if message.role == "assistant" else b"user"
        for blocks in encoded.pieces((message,)):
            if turns and turns[-1][0] == role:
                turns[-1][1].append(blocks)
            else:
                turns.append((role, [blocks]))
    if turns and turns[0][0] == b"assistant":
        turns.insert(0, (b"user", [earlier]))
    return turns


def turns_json(turns: Turns) -> list[bytes]:
    """Return each turn as a JSON object."""
    return [b'{"role":"%b","content":[%b]}' % (role, b",".join(blocks)) for role, blocks in turns]


def open_turn(messages: tuple[Message, ...]) -> list[Message]:
    """Return the messages of the turn that continues, the last one first; none where the person has begun another."""
    turn: list[Message] = []
    for message in reversed(messages):
        if message.role != "user":
            turn.append(message)
        elif turn:
            break
    has_ended = turn and turn[0].role == "assistant" and turn[0] is not messages[-1]
    return [] if has_ended else turn


def is_foreign(messages: tuple[Message, ...], *, origin: str, is_provable: Callable[[Thinking], bool]) -> bool:
    """Whether the turn that continues holds calls and no thought of this model that can go back: with thinking on, it is refused.

    Args:
        origin: What messages of this model are marked with.
        is_provable: Whether the vendor takes a thought back.
    """
    turn = open_turn(messages)
    if not turn or turn[0].role != "tool":
        return False
    own = [part for message in turn if message.origin == origin for part in message.parts]
    return not any(isinstance(part, Thinking) and is_provable(part) for part in own)
