"""Choices: what a request's choice of tools forbids, whatever its server made of it. Values only; refuses nothing itself."""

from collections.abc import Sequence

from treadle.messages import Message

__all__ = ["forbidden_by", "was_refused"]

_REFUSED = "Not executed: tool_choice is "


def forbidden_by(tool_choice: str, name: str) -> str | None:
    """Return why a call of this tool may not run, or None where the choice of tools permits it."""
    if tool_choice in ("auto", "required", name):
        return None
    if tool_choice == "none":
        return f"{_REFUSED}'none': no tool may be called. Answer without one."
    return f"{_REFUSED}{tool_choice!r}: only this tool may be called now."


def was_refused(messages: Sequence[Message]) -> bool:
    """Whether the last response called only tools that its choice of tools forbade."""
    results = messages[-1].results if messages else ()
    return bool(results) and all(result.is_error and _REFUSED in result.content for result in results)
