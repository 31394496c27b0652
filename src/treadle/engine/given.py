"""Given: what functions of the application make for one run: the object that its tools get, and its instructions. Records nothing."""

import inspect
import traceback
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, asynccontextmanager
from functools import partial
from typing import Any

from treadle.canonical import copied
from treadle.engine.interrupts import Interrupt
from treadle.engine.spec import DepsFunction, Instruction
from treadle.errors import ConfigurationError, TreadleError, shown
from treadle.redaction import redacted_logger
from treadle.sessions.session import Session
from treadle.sessions.views import ReadOnlyMessages
from treadle.tools import JsonObject, RunContext, SessionSnapshot

__all__ = ["deps_for", "instructions_from", "makes_deps", "snapshot_of"]

logger = redacted_logger(__name__)


def snapshot_of(session: Session, metadata: JsonObject) -> SessionSnapshot:
    """Return a session as functions of the application see it before its run begins or continues.

    Args:
        metadata: What the run is about to change of the session's metadata.
    """
    state = session.state
    merged = {key: one for key, one in {**session.ledger.metadata, **metadata}.items() if one is not None}
    return SessionSnapshot(
        id=state.id,
        run_id="" if state.run is None else state.run.id,
        step=state.step,
        messages=ReadOnlyMessages().of(state.transcript),
        status=state.status,
        metadata=copied(merged),
    )


def makes_deps(deps: Any) -> bool:  # Any: the application's own object
    """Whether deps are a function that says what they are for a session. Other objects are passed on, even if they can be called."""
    return inspect.isroutine(deps) or isinstance(deps, partial)


@asynccontextmanager
async def deps_for(function: DepsFunction, session: SessionSnapshot, interrupt: Interrupt) -> AsyncGenerator[Any]:
    """Yield what tools get as `ctx.deps`: what a function says that it is for this session.

    What a function decorated with `@asynccontextmanager` has opened is closed at the end. Other objects that could be closed are
    not: a function may return a connection that many runs share. None where the run was interrupted meanwhile.

    Raises:
        ConfigurationError: The function failed.
    """
    found, opened = None, None
    with interrupt.cancel_scope():
        found = await _called(function, session, "The function for deps")
        if isinstance(found, AsyncContextDecorator) and isinstance(found, AbstractAsyncContextManager):
            opening, found = found, None
            found = await _called(lambda _: opening.__aenter__(), session, "The function for deps")
            opened = opening
    try:
        yield found
    except BaseException as error:
        await _close(opened, session, error)
        raise
    await _close(opened, session, None)


async def _close(
    opened: AbstractAsyncContextManager[Any] | None, session: SessionSnapshot, error: BaseException | None
) -> None:
    """Close what a run had. Its end is recorded by then, and a failure here must not hide it."""
    if opened is None:
        return
    try:
        await opened.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
    except Exception as failure:
        if failure is not error:
            logger.exception("What the function for deps had opened for session %s could not be closed", session.id)


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
