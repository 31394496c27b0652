"""Given: what functions of the application make for one run: its instructions. Records nothing."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from treadle.canonical import copied
from treadle.engine.spec import Instruction
from treadle.errors import ConfigurationError, TreadleError, shown
from treadle.sessions.session import Session
from treadle.sessions.views import ReadOnlyMessages
from treadle.tools import JsonObject, RunContext, SessionSnapshot

__all__ = ["instructions_from", "snapshot_of"]


def snapshot_of(session: Session, metadata: JsonObject) -> SessionSnapshot:
    """Return a session as functions of the application see it before its run begins or continues.

    Args:
        metadata: What the run is about to change of the session's metadata.
    """
    state = session.state
    merged = {key: one for key, one in {**state.metadata, **metadata}.items() if one is not None}
    return SessionSnapshot(
        id=state.id,
        run_id="" if state.run is None else state.run.id,
        step=state.step,
        messages=ReadOnlyMessages().of(state.transcript),
        phase=state.phase,
        status=state.status,
        metadata=copied(merged),
    )


async def instructions_from(parts: Sequence[Instruction], context: RunContext) -> str:
    """Return instructions as they are sent: texts, and what functions return, in order. None and an empty text are left out.

    Raises:
        ConfigurationError: A function failed, or returned something else.
    """
    texts = [part if isinstance(part, str) else await _text_of(part, context) for part in parts]
    return "\n\n".join(text for text in texts if text)


async def _text_of(function: Callable[[RunContext], Any], context: RunContext) -> str | None:
    found = await _called(function, context, "The function for the instructions")
    if found is not None and not isinstance(found, str):
        raise ConfigurationError(f"The function for the instructions returns a string or None; got {shown(found)}.")
    return found


async def _called(function: Callable[..., Any], about: object, what: str) -> Any:  # Any: the application's own object
    """Call a function of the application, async or not.

    Raises:
        ConfigurationError: It failed. A worker sets a session aside for that, and a service reads where it happened.
    """
    try:
        found = function(about)
        return await found if inspect.isawaitable(found) else found
    except TreadleError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigurationError(
            f"{what} failed: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})."
        ) from error
