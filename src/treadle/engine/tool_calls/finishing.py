"""Finishing: the one event that ends a call, with the limit's notice on the batch's last. Makes events; records none."""

from typing import Any

import msgspec

from treadle.canonical import execution_id
from treadle.engine.rules.bounds import bound, with_fields
from treadle.events import ToolFinished
from treadle.results import failure_class
from treadle.tools import ToolResult

__all__ = ["Finisher"]


class Finisher(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the `tool.finished` of each call of one batch."""

    run_id: str
    step: int
    last_id: str
    """The last call of the batch, in call order."""
    notice: dict[str, Any] | None = None
    """Fields that the last result gains because a limit is reached (seed 002)."""
    result_chars: int | None = None

    def finished(self, result: ToolResult, *, reused_from: str | None = None) -> ToolFinished:
        """Return the event that ends the call of a result."""
        content = result.content
        if self.notice is not None and result.call_id == self.last_id:
            content = self._noticed(result, self.notice)
        elif self.result_chars is not None and len(content) > self.result_chars:
            content, _ = bound(_value_of(result), content, self.result_chars)
        result = msgspec.structs.replace(result, content=content, execution_id=self.execution_of(result.call_id))
        failure = failure_class(result) if result.is_error else None
        return ToolFinished(
            step=self.step, call_id=result.call_id, result=result, failure_class=failure, reused_from=reused_from
        )

    def execution_of(self, call_id: str) -> str:
        """Return what ties a result in the transcript to its events."""
        return execution_id(self.run_id, self.step, call_id)

    def _noticed(self, result: ToolResult, notice: dict[str, Any]) -> str:
        """Add the notice beside the result's own fields; it is the result that is shortened for it, never the notice."""
        value = _value_of(result)
        content = _json(with_fields(value, notice))
        if self.result_chars is None or len(content) <= self.result_chars:
            return content
        room = max(self.result_chars - len(_json(with_fields("", notice))), 1)
        text = value if isinstance(value, str) else _json(value)
        while room > 0:
            short, _ = bound(value, text, room)
            content = _json(with_fields(short if isinstance(value, str) else _decoded(short), notice))
            if len(content) <= self.result_chars:
                return content
            room -= max(len(content) - self.result_chars, room // 8, 1)
        return _json(notice)


def _value_of(result: ToolResult) -> Any:
    """Return what the model would read: the object of a JSON text, or the text itself."""
    if isinstance(result.data, str):
        return result.content
    return _decoded(result.content)


def _decoded(content: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
