"""Healing: make a history one that every provider accepts: each call has an id of its own and its result right behind it, once.

The stored original is untouched. How a dialect writes ids and signatures is the adapters' business.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from treadle.messages import Message, Part, Result, ToolCall

__all__ = ["HistoryRepair", "is_sound"]

_LOST = msgspec.json.encode(
    {
        "status": "error",
        "type": "outcome_unknown",
        "message": "The result of this call is not in the history. Check before you repeat it.",
        "code": "result_missing",
        "details": [],
        "next_valid_actions": ["check_status", "report_the_uncertainty"],
    }
).decode()


class HistoryRepair:
    """Heals the histories of one run. Remembers what was sound, so that only what is new is examined."""

    def __init__(self) -> None:
        self._known: tuple[Message, ...] = ()
        self._ids: dict[str, None] = {}  # half of what a set takes, in each session
        self._was_stored = False

    def repair_history(
        self, messages: Sequence[Message], *, is_stored: bool = False
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Return a valid history and one sentence a repair; the same messages and none where all is well.

        Args:
            is_stored: They are the session's own each time, which grow in a run and never change: the known ones are
                not compared again.
        """
        whole = tuple(messages)
        is_longer = is_stored and self._was_stored
        begins = len(self._known) if is_longer or whole[: len(self._known)] == self._known else 0
        known_ids = self._ids if begins else {}
        new_ids = _sound_ids(whole[begins:])
        if new_ids is not None and len(set(new_ids)) == len(new_ids) and known_ids.keys().isdisjoint(new_ids):
            known_ids |= dict.fromkeys(new_ids)
            self._known, self._ids, self._was_stored = whole, known_ids, is_stored
            return whole, ()
        return _repaired(whole)


def is_sound(messages: Sequence[Message]) -> bool:
    """Whether each call has its result right behind it, and nothing else is amiss. Nothing before them is open."""
    return _sound_ids(messages) is not None


def _sound_ids(messages: Sequence[Message]) -> list[str] | None:
    """Return the ids of all calls, where each has its result right behind it and nothing else is amiss; else None.

    Nothing before these messages is open.
    """
    calls: list[str] = []
    ids: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not calls or calls != [part.call_id for part in message.parts if isinstance(part, Result)]:
                return None
            calls = []
        elif calls or not message.parts:
            return None
        else:
            calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
            ids += calls
    return None if calls else ids


def _repaired(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    repairs: list[str] = []
    repaired: list[Message] = []
    used: set[int] = set()
    taken: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            continue  # each result is placed after its call, below
        unrepeated = _without_repeated_calls(message, repairs)
        if not unrepeated.parts:
            repairs.append(f"message {index + 1} was empty and is left out")
            continue
        ids = _ids_for(unrepeated.calls, taken, repairs)
        repaired.append(_with_ids(unrepeated, ids))
        if unrepeated.calls:
            repaired.append(_with_ids(_results_for(unrepeated.calls, index, messages, used, repairs), ids))
    repairs.extend(_orphans(messages, used))
    if not repairs:
        repairs.append("results were brought together and into the order of their calls")
    return tuple(repaired), tuple(repairs)


def _without_repeated_calls(message: Message, repairs: list[str]) -> Message:
    seen: set[str] = set()
    parts = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in seen:
                repairs.append(f"call {part.id!r} occurred twice in one message; the first is kept")
                continue
            seen.add(part.id)
        parts.append(part)
    return message if len(parts) == len(message.parts) else msgspec.structs.replace(message, parts=tuple(parts))


def _ids_for(calls: Sequence[ToolCall], taken: set[str], repairs: list[str]) -> dict[str, str]:
    """Return ids that no earlier call has, by those that are not: most providers want every id to be new."""
    others: dict[str, str] = {}
    for call in calls:
        name, number = call.id, 2
        while name in taken:
            name, number = f"{call.id}_{number}", number + 1
        taken.add(name)
        if name != call.id:
            others[call.id] = name
            repairs.append(f"the id {call.id!r} is of an earlier call too; this one is called {name!r}")
    return others


def _with_ids(message: Message, others: Mapping[str, str]) -> Message:
    """Return the message with these ids of its calls, or of its results, in place of theirs."""
    return (
        msgspec.structs.replace(message, parts=tuple(_with_id(part, others) for part in message.parts))
        if others
        else message
    )


def _with_id(part: Part, others: Mapping[str, str]) -> Part:
    match part:
        case ToolCall(id=name) if name in others:
            return msgspec.structs.replace(part, id=others[name])
        case Result(call_id=name) if name in others:
            return msgspec.structs.replace(part, call_id=others[name])
        case _:
            return part


def _results_for(
    calls: Sequence[ToolCall], index: int, messages: Sequence[Message], used: set[int], repairs: list[str]
) -> Message:
    """Collect the results of one message's calls, in call order: the first one each that comes before the next such id."""
    found: list[Result] = []
    for call in calls:
        result, place = _find(call, index, messages, used)
        if result is None:
            repairs.append(f"call {call.id!r} of {call.name!r} had no result; its outcome is reported as unknown")
            result = Result(call_id=call.id, name=call.name, content=_LOST, is_error=True)
        elif place != index + 1:
            repairs.append(f"the result of call {call.id!r} did not follow its call and is moved there")
        found.append(result)
    return Message(role="tool", parts=tuple(found))


def _find(call: ToolCall, index: int, messages: Sequence[Message], used: set[int]) -> tuple[Result | None, int]:
    for place in range(index + 1, len(messages)):
        later = messages[place]
        if later.role == "assistant" and any(other.id == call.id for other in later.calls):
            break  # the id is used again: what comes after belongs to that call
        for result in later.results:
            if result.call_id == call.id and id(result) not in used:
                used.add(id(result))
                return result, place
    return None, -1


def _orphans(messages: Iterable[Message], used: set[int]) -> list[str]:
    return [
        f"a result for {result.call_id!r} answers no call, or one that has its result; it is left out"
        for message in messages
        for result in message.results
        if id(result) not in used
    ]
