"""Late calls: they were told to stop, did not, and run on. Knows which they are, and records how each ends; stops none."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from treadle.engine.rules.failures import describe
from treadle.engine.rules.scheduling import conflicts
from treadle.events import ToolLate
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.tools import CheckedCall

__all__ = ["LateCalls"]

logger = redacted_logger(__name__)

_Running: TypeAlias = dict["asyncio.Future[Any]", CheckedCall]

_recording: set["asyncio.Task[None]"] = set()
"""Recordings of late ends, held so that they are not collected while they run."""


class LateCalls:
    """The late calls of one session. One that may change something keeps its resource until it ends.

    Args:
        running: Those that earlier runs of the session gave up; the next ones are added to it.
    """

    __slots__ = ("_ledger", "_running")

    def __init__(self, running: _Running, *, ledger: Ledger) -> None:
        self._running = running
        self._ledger = ledger

    def has(self, call: CheckedCall) -> bool:
        """Whether an earlier attempt of this call was given up and has not ended."""
        return any(one is call for one in self._running.values())

    def blocking(self, calls: Sequence[CheckedCall]) -> "list[asyncio.Future[Any]]":
        """Return those that hold what one of these calls needs."""
        acting = [call for call in calls if not call.effect.is_read]
        loop = asyncio.get_running_loop()  # a session may outlive a loop, whose futures nobody completes any more
        held = [
            (future, call)
            for future, call in self._running.items()
            if not call.effect.is_read and future.get_loop() is loop
        ]
        return [future for future, holder in held if any(conflicts(call, holder) for call in acting)]

    def leave(self, call: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Leave a call behind that has been told to stop. It is remembered until it ends."""
        self._running[future] = call
        logger.info("Call %s of %s was told to stop, and is still running", call.id, call.name)

        def ended(future: "asyncio.Future[Any]") -> None:
            self._running.pop(future, None)
            if future.cancelled():
                return
            task = asyncio.ensure_future(self.record(call, future))
            _recording.add(task)
            task.add_done_callback(_recording.discard)

        future.add_done_callback(ended)

    async def record(self, call: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Record how a call that had been given up ended (TF11). It is never sent to the model."""
        error = future.exception()
        outcome, content = ("returned", _shown(future.result())) if error is None else ("raised", describe(error))
        event = ToolLate(call_id=call.id, tool=call.name, outcome=outcome, content=content)
        try:
            await self._ledger.record(event)
        except Exception:
            # Nobody waits for this any more: a journal that has been closed since must not raise in the event loop.
            logger.info("Late end of call %s of %s could not be recorded", call.id, call.name, exc_info=True)


def _shown(value: Any) -> str:
    """Return a late value for operators."""
    try:
        return repr(value)[:2000].encode("utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a stranger's object may refuse to be shown
        return type(value).__name__
