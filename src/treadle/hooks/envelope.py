"""Envelopes: interceptors that put every good result into one form. Not for errors: those have their one form already."""

from typing import Any, Literal

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.messages import ToolCall
from treadle.tools import CallStatus, ToolResult

__all__ = ["Envelope", "envelope"]

_FORMS = ("data", "status")


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Wraps the content of each `ok` result; what the result itself is, and any other result, stays."""

    form: Literal["data", "status"]

    def before(self, call: ToolCall) -> ToolCall:
        return call

    def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        if result.status is not CallStatus.OK:
            return result
        content = msgspec.json.encode(self._wrapped(_value_of(result), result)).decode()
        return msgspec.structs.replace(result, content=content)

    def _wrapped(self, value: Any, result: ToolResult) -> dict[str, Any]:
        if self.form == "data":
            return {"success": True, "data": value}
        items = value if isinstance(value, list) else [] if value is None else [value]
        summary = result.display or f"{result.name}: {len(items)} {'item' if len(items) == 1 else 'items'}"
        return {"status": "ok", "summary": summary, "items": items, "next_valid_actions": []}


@checked
def envelope(form: Literal["data", "status"]) -> Envelope:
    """Make an interceptor that gives every good result one form, without loss.

    Example:
        Agent(model, interceptors=[envelope("data")])    # {"success": true, "data": ...}

    Args:
        form: `data` for {"success", "data"}; `status` for {"status", "summary", "items", "next_valid_actions"}.

    Raises:
        ConfigurationError: There is no such form.
    """
    if form not in _FORMS:
        raise ConfigurationError(f"envelope() makes one of {', '.join(_FORMS)}; got {shown(form)}.")
    return Envelope(form=form)


def _value_of(result: ToolResult) -> Any:
    """Return the value that the content shows; the shown part of it, where it was too long to be shown whole."""
    if result.artifact is None:
        return result.data
    try:
        return msgspec.json.decode(result.content)
    except msgspec.DecodeError:
        return result.content
