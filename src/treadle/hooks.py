"""Hooks: what users put around calls."""

import inspect
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.messages import ToolCall
from treadle.ports import Hook, HookContext, Interceptor, Moment
from treadle.tools import CallStatus, ToolResult

__all__ = ["Envelope", "envelope", "hooks_of", "in_order", "interceptor_hooks"]


# --- Envelopes: interceptors that put every good result into one form. Not for errors: those have their one form
# already.


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
    return Envelope(form=form)


def _value_of(result: ToolResult) -> Any:
    """Return the value that the content shows; the shown part of it, where it was too long to be shown whole."""
    if result.artifact is None:
        return result.data
    try:
        return msgspec.json.decode(result.content)
    except msgspec.DecodeError:
        return result.content


# --- Interceptors as hooks: one comes before and after each call. There is one mechanism for both.


def interceptor_hooks(interceptor: Interceptor) -> tuple[Hook, Hook]:
    """Return the two hooks that an interceptor is. It has no time limit of its own."""
    name = f"interceptor {type(interceptor).__name__}"

    async def before(context: HookContext) -> Any:  # whatever a stranger's method answers
        return _required_answer(await _whole(interceptor.before(context.call)))  # type: ignore[arg-type]  # there is one before a tool

    async def after(context: HookContext) -> Any:  # as above
        return _required_answer(await _whole(interceptor.after(context.call, context.result)))  # type: ignore[arg-type]  # as above

    return (
        Hook(at=Moment.BEFORE_TOOL, run=before, name=name, timeout=None),
        Hook(at=Moment.AFTER_TOOL, run=after, name=name, timeout=None),
    )


def hooks_of(interceptors: Iterable[Interceptor], hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return interceptors and hooks as hooks, in the order in which they are called.

    Raises:
        ConfigurationError: One of the hooks is no `Hook`.
    """
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise ConfigurationError(f"hooks takes Hook(at=..., run=...); got {shown(hook)}.")
    return in_order([*(hook for one in interceptors for hook in interceptor_hooks(one)), *hooks])


def in_order(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return hooks in the order in which they are called."""
    return tuple(sorted(hooks, key=lambda hook: -hook.priority))


async def _whole(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _required_answer(answer: Any) -> Any:
    """An interceptor answers always: where it says nothing, it has broken its contract."""
    return NotImplemented if answer is None else answer
