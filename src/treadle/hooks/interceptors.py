"""Interceptors as hooks: one stands before and after each call. There is one mechanism for both."""

import inspect
from collections.abc import Iterable
from typing import Any

from treadle.errors import ConfigurationError, shown
from treadle.ports import Hook, HookContext, Interceptor, Moment

__all__ = ["hooks_of", "in_order", "interceptor_hooks"]


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
