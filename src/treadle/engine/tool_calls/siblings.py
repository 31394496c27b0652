"""Siblings: what the failure of one call means for the others of its response. Ends nothing by itself; makes no result but theirs.

What depends on a failed call by a resource that both name is skipped (S13). Whether a failed call that acts cancels the others, too, is
a policy, and off unless it is asked for (S12): most failures are benign.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from treadle.engine.rules.scheduling import named_resources
from treadle.engine.spec import CancelSiblings
from treadle.engine.tool_calls import refusals
from treadle.tools import CheckedCall, ToolResult

__all__ = ["Siblings"]


class Siblings:
    """The calls of one response, as far as one matters to another. Begins anew with each response.

    Args:
        policy: `on_unsafe_error`: a call that acts and ends with an error cancels the others; `never`: none does.
    """

    def __init__(self, policy: CancelSiblings) -> None:
        self._policy = policy
        self._broken: dict[str, CheckedCall] = {}  # resources that a failed call was to write
        self._culprit: CheckedCall | None = None
        self._reads: dict[str, asyncio.Task[ToolResult]] = {}  # that are under way, by call id

    def begin(self) -> None:
        """Forget the response before."""
        self._broken, self._culprit = {}, None

    def finished(self, call: CheckedCall, result: ToolResult) -> None:
        """Take note of a call's end. Where the policy says so, reads that are under way are cut off."""
        if not result.is_error or call.effect.is_read:
            return
        self._breaks(call, call)
        if self._policy == "on_unsafe_error" and self._culprit is None:
            self._culprit = call
            for task in self._reads.values():
                task.cancel()

    def refusal(self, call: CheckedCall) -> ToolResult | None:
        """Return the result of a call that may not start because another one failed; None where it may."""
        if self._culprit is not None:
            return refusals.sibling_failed(call, self._culprit)
        needed = next((self._broken[name] for name in _named(call) if name in self._broken), None)
        if needed is None:
            return None
        if not call.effect.is_read:
            self._breaks(call, needed)
        return refusals.prerequisite_failed(call, needed)

    def _breaks(self, call: CheckedCall, first: CheckedCall) -> None:
        written = (name for name, mode in _named(call).items() if mode == "write" and name != "*")
        self._broken.update((name, self._broken.get(name, first)) for name in written)

    async def watched(self, call: CheckedCall, task: "asyncio.Task[ToolResult]") -> ToolResult:
        """Wait for a read that may be cut off because a sibling fails; return what it is told then."""
        with self._watching(call, task):
            try:
                return await task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if self._culprit is None or (current is not None and current.cancelling()):
                    raise  # the read is cancelled too: whoever is cancelled while it waits for a task cancels that
                return refusals.sibling_failed(call, self._culprit)

    @contextmanager
    def _watching(self, call: CheckedCall, task: "asyncio.Task[ToolResult]") -> Iterator[None]:
        self._reads[call.id] = task
        try:
            yield
        finally:
            del self._reads[call.id]

    def may_cut(self, call: CheckedCall) -> bool:
        """Whether the call may be cut off when a sibling fails: a read may; a call with an effect runs to its end, so that its outcome is known."""
        return self._policy == "on_unsafe_error" and call.effect.is_read


def _named(call: CheckedCall) -> Mapping[str, str]:
    return named_resources(call) or {}
