"""Context: from stored messages to what the model sees. The store is never changed; pairs of calls and results stay whole."""

from collections.abc import Iterable, Sequence

from treadle.messages import Message
from treadle.ports import SessionView
from treadle.tools import Tool

__all__ = ["WholeHistory", "instructions_with_guidance"]


class WholeHistory:
    """The default compiler: every message as it was stored. Append-only, so that providers can cache the prefix."""

    def compile(self, session: SessionView) -> Sequence[Message]:
        """Return all messages but empty ones, which providers refuse."""
        return tuple(message for message in session.messages if message.parts)


def instructions_with_guidance(instructions: str | None, tools: Iterable[Tool]) -> str | None:
    """Return the instructions with the longer advice of each tool behind them, under the tool's name."""
    advice = [f"## {tool.name}\n{tool.guidance}" for tool in tools if tool.guidance]
    parts = [instructions] if instructions else []
    return "\n\n".join(parts + advice) or None
