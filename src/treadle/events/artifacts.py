"""Artifacts: which stored bytes events name. Reads none of them."""

from collections.abc import Iterable

from treadle.events.calls import ContractViolated, ToolFinished
from treadle.events.codec import AnyEvent
from treadle.events.runs import ContextCompacted
from treadle.tools import ToolResult

__all__ = ["artifacts_of"]

_NAMING = frozenset({ToolFinished, ContractViolated, ContextCompacted})


def artifacts_of(events: Iterable[AnyEvent]) -> tuple[str, ...]:
    """Return the digests of the stored bytes that the events name, each once."""
    found: dict[str, None] = {}
    for event in events:
        if type(event) not in _NAMING:  # nearly all of them, and there may be very many
            continue
        match event:
            case ToolFinished(result=ToolResult(artifact=str(digest))) | ContractViolated(artifact=str(digest)):
                found[digest] = None
            case ContextCompacted(artifacts=digests):
                found |= dict.fromkeys(digests)
            case _:
                pass
    return tuple(found)
