"""Finishing: the events that begin and end a call, with what the runtime adds to its result. Makes events; records none.

Added are the limit's notice, on the batch's last result, and what a decision has changed of a call or has to say to the model.
"""

from sys import intern
from typing import Any

import msgspec

from treadle.canonical import execution_id
from treadle.engine.rules.bounds import bound, with_fields
from treadle.events import ToolFinished, ToolStarted
from treadle.messages import ToolCall
from treadle.state import SessionState
from treadle.tools import CheckedCall, Decision, DecisionKind, Runner, ToolResult, business_key
from treadle.tools.results import failure_class

__all__ = ["Finisher"]

_LONGEST_SHARE = 4
"""The changed arguments that a result shows take at most one part in so many of it."""


class Finisher(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the `tool.started` and `tool.finished` of each call of one batch."""

    run_id: str
    step: int
    last_id: str
    """The last call of the batch, in call order."""
    state: SessionState
    """Read only: what was decided on the calls."""
    notice: dict[str, Any] | None = None
    """Fields that the last result gains because a limit is reached (seed 002)."""
    result_chars: int | None = None

    def started(
        self, call: CheckedCall, *, sandbox: Runner | None = None, early: ToolCall | None = None, attempt: int = 1
    ) -> ToolStarted:
        """Return the event that begins a call, with the decision by which it runs.

        Args:
            sandbox: Where it runs if that is the decision.
            early: The call as it was proposed, where its response still streams.
            attempt: The model attempt that proposed it.
        """
        decision = call.decision or Decision(kind=DecisionKind.ALLOW)
        is_boxed = decision.kind == DecisionKind.SANDBOX and sandbox is not None
        return ToolStarted(
            step=0 if early is None else self.step,
            call_id=call.id,
            tool=call.name,
            key=call.key,
            execution_id=self.execution_of(call.id),
            position=call.position,
            effect=call.effect,
            early=early is not None,
            attempt=attempt,
            call=early,
            digest=call.digest,
            business_key="" if call.effect.is_read else business_key(call.tool, call.arguments) or "",
            timeout=None if call.effect.is_read else call.tool.timeout,
            decision=intern(str(decision.kind)),
            rule=decision.rule,
            scope=decision.scope,
            by=decision.by,
            mode=decision.mode,
            sandbox=str(sandbox.name) if sandbox is not None and is_boxed else "",
        )

    def finished(self, result: ToolResult, *, reused_from: str | None = None) -> ToolFinished:
        """Return the event that ends the call of a result."""
        content = result.content
        notes = {**self._of_decision(result), **self._of_limit(result)}
        if notes:
            content = self._noticed(result, notes)
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

    def _of_limit(self, result: ToolResult) -> dict[str, Any]:
        return self.notice if self.notice is not None and result.call_id == self.last_id else {}

    def _of_decision(self, result: ToolResult) -> dict[str, Any]:
        """Return what the model is told of the decision by which a call was carried out."""
        call = self.state.open.get(result.call_id) or self.state.early.get(result.call_id)
        decided = None if call is None or not result.attempts else call.decision
        if decided is None or not (decided.message or decided.arguments is not None):
            return {}
        notes: dict[str, Any] = {"decision_message": decided.message} if decided.message else {}
        if decided.arguments is None:
            return notes
        limit = None if self.result_chars is None else self.result_chars // _LONGEST_SHARE
        shown, is_shortened = bound(decided.arguments, _json(decided.arguments), limit)
        return {**notes, "arguments_changed": True, "arguments": _decoded(shown) if is_shortened else decided.arguments}

    def _noticed(self, result: ToolResult, notice: dict[str, Any]) -> str:
        """Add notes beside the result's own fields; it is the result that is shortened for it, never a note."""
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
