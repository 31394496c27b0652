"""Facts: what tools remember in their session, beside the messages: what was read and its hash, a plan, a list of things to do."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.tools import JsonObject

__all__ = ["Facts"]


class Facts(msgspec.Struct, gc=False):
    """The facts of a session, folded from the results of its calls. `values` is replaced, never changed: threads may read it."""

    values: JsonObject = {}
    changes: list[tuple[int, JsonObject]] = []
    """What each event changed, by the event's number."""

    def change(self, seq: int, changes: JsonObject) -> None:
        """Take in the changes that an event brings: a JSON merge patch (RFC 7386), in which None removes a key."""
        self.changes.append((seq, changes))
        self.values = _merged(self.values, changes)

    def rewind(self, to: int) -> None:
        """Go back to what they were at an event."""
        self.changes = [change for change in self.changes if change[0] <= to]
        self.values = {}
        for _, changes in self.changes:
            self.values = _merged(self.values, changes)


def _merged(target: Any, patch: Mapping[str, Any]) -> JsonObject:  # Any: JSON
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            merged[name] = _merged(merged.get(name), value)
        else:
            merged[name] = value
    return merged
