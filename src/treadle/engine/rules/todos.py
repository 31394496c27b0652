"""Todos: when the model is shown its list of todos again, and in which words. Values only; records nothing."""

from collections.abc import Sequence

from treadle.messages import Message
from treadle.tools import JsonObject

__all__ = ["todos_reminder"]

_EVERY_STEPS = 10
"""So many responses after the model has last written or read its list, it is shown the list again."""
_HEAD = "A note from the runtime: your current to-do list:"
_KEPT = "## Plan and todos"
"""The heading under which a compaction keeps the list."""
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


def todos_reminder(facts: JsonObject, shown: Sequence[Message]) -> str | None:
    """Return the list where items are open and the model has not seen it for a while, or not at all since a compaction.

    Args:
        shown: The messages as the model is shown them.
    """
    items = facts.get("todos")
    if not isinstance(items, list) or not any(_is_open(one) for one in items):
        return None
    responses = 0
    for message in reversed(shown):
        if _shows_list(message):
            return None
        responses += message.role == "assistant"
        if responses >= _EVERY_STEPS:
            break
    return "\n".join([_HEAD, *map(_line, items), "Write the whole list again after each finished item."])


def _shows_list(message: Message) -> bool:
    if message.role == "user":
        return _HEAD in message.text or _KEPT in message.text
    return any(part.name.endswith("todo") for part in message.results)


def _is_open(item: object) -> bool:
    return isinstance(item, dict) and item.get("state") != "done"


def _line(item: object) -> str:
    if not isinstance(item, dict):
        return f"[ ] {item}"
    return f"{_MARKS.get(str(item.get('state')), '[ ]')} {item.get('text', '')}"
