"""Conditions: an end of the run that its user declares: a function of the session that says when the work is done.

Asked after each batch of calls; it sees what the model sees. Records nothing and ends nothing by itself.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.failures import contained, pass_interrupts
from treadle.engine.spec import DoneWhen
from treadle.ports import SessionView
from treadle.redaction import redacted_logger
from treadle.stops import Stop, StopReason
from treadle.tooling.toolbox import Toolbox
from treadle.tools import CallStatus, Done, ToolResult

__all__ = ["DoneCondition"]

logger = redacted_logger(__name__)


class DoneCondition:
    """The condition of one run.

    Args:
        function: The user's own; None for no condition.
    """

    def __init__(
        self, function: DoneWhen | None, *, session: SessionView, toolbox: Toolbox, interrupt: Interrupt
    ) -> None:
        self._function = function
        self._session = session
        self._toolbox = toolbox
        self._interrupt = interrupt
        self._ending = frozenset(tool.name for tool in toolbox if tool.ends_run)

    def ended_by(self, results: Sequence[ToolResult | None]) -> Stop | None:
        """Return the end of the run where one of the results is a success of a tool that ends it."""
        for result in results if self._ending else ():
            if result is not None and result.status is CallStatus.OK and result.name in self._ending:
                output = result.data if result.artifact is None else result.content
                return Stop(reason=StopReason.DONE_CONDITION_SATISFIED, output=output)
        return None

    async def stop(self) -> Stop | None:
        """Return the end of the run where the condition holds. A condition that fails is logged and ends nothing."""
        if self._function is None:
            return None
        try:
            answer: Any = self._function(self._session)  # whatever a stranger's function returns
            if inspect.isawaitable(answer):
                awaited, answer = answer, None
                with self._interrupt.cancel_scope():
                    answer = await contained(awaited)
        except BaseException as error:
            pass_interrupts(error)
            logger.exception("The function of done_when raised; the run goes on")
            return None
        if answer is None or answer is False:
            return None
        if answer is True or answer is Done:
            answer = Done()
        if not isinstance(answer, Done):
            logger.error("done_when returned a %s; the run goes on. Return Done(payload)", type(answer).__name__)
            return None
        return await self._done(answer)

    async def _done(self, answer: Done) -> Stop | None:
        plain = await self._toolbox.plain(answer.value)
        if plain.problem is not None:
            logger.error("The payload of done_when is not JSON (%s); the run goes on", plain.problem)
            return None
        message = "The condition of done_when holds."
        return Stop(reason=StopReason.DONE_CONDITION_SATISFIED, message=message, output=plain.data)
