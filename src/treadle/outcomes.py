"""Outcomes: the one event that ends a call, with the limit's notice on the batch's last. Makes events; records none."""

from typing import Any

import msgspec

from treadle.events import ToolFinished
from treadle.messages import ToolCall
from treadle.runtime.bounds import bound, with_fields
from treadle.tools import ToolResult

__all__ = ["Outcomes", "execution_id"]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the `tool.finished` of each call of one batch."""

    run_id: str
    step: int
    last_id: str
    """The last call of the batch, in call order."""
    notice: dict[str, Any] | None = None
    """Fields that the last result gains because a limit is reached (seed 002)."""
    result_chars: int | None = None

    def finished(self, call: ToolCall, result: ToolResult, *, reused_from: str | None = None) -> ToolFinished:
        """Return the event that ends this call."""
        result = msgspec.structs.replace(result, execution_id=execution_id(self.run_id, self.step, call.id))
        if self.notice is not None and call.id == self.last_id:
            result = self._noticed(result, self.notice)
        failure = result.status.value if result.is_error else None
        return ToolFinished(
            step=self.step, call_id=call.id, result=result, failure_class=failure, reused_from=reused_from
        )

    def _noticed(self, result: ToolResult, notice: dict[str, Any]) -> ToolResult:
        fields = with_fields(_value_of(result), notice)
        content, _ = bound(fields, msgspec.json.encode(fields).decode(), self.result_chars)
        return msgspec.structs.replace(result, content=content)


def execution_id(run_id: str, step: int, call_id: str) -> str:
    """Return what ties a result in the transcript to its events."""
    return f"{run_id}.{step}.{call_id}"


def _value_of(result: ToolResult) -> Any:
    """Return what the model would read: the object of a JSON text, or the text itself."""
    if isinstance(result.data, str):
        return result.content
    try:
        return msgspec.json.decode(result.content)
    except msgspec.DecodeError:
        return result.content
