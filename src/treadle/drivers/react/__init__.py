"""ReAct: tool calls in plain text, for models without calls of their own."""

from treadle.drivers.react.driver import BoundReActDriver, ReActDecision, ReActDriver

__all__ = ["BoundReActDriver", "ReActDecision", "ReActDriver"]
