"""Operations: a tool that starts something slow, and one that asks how it went, tied by one id. Starts nothing twice."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from treadle.errors import Rejected, ToolDefinitionError, shown
from treadle.fields import checked
from treadle.tools import Done, JsonObject, NotDone, Tool, ToolContext, answer_of_check
from treadle.tools.tool import ServiceSilent, closed_schema

__all__ = ["operation"]

Start: TypeAlias = Callable[[JsonObject, ToolContext], Awaitable[Any]]
Check: TypeAlias = Callable[[str, ToolContext], Awaitable[Any]]

_LONGEST_SECONDS = 100 * 366 * 86400.0
_GRACE_SECONDS = 5.0
_MANY_KEYS = 10_000


@checked
def operation(
    name: str,
    *,
    start: Start,
    check: Check,
    description: str,
    parameters: JsonObject,
    effect: Literal["idempotent", "keyed", "unsafe"] = "unsafe",
    timeout: float = 30.0,
) -> tuple[Tool, Tool]:
    """Return the tools `start_NAME` and `check_NAME` of one slow operation.

    The operation's id is the idempotency key of the call that starts it: give it to the service as `ctx.idempotency_key`.
    A start without an answer is of unknown outcome; the model is told the id and can ask `check_NAME`. Its answer `not_started`
    is final: while the request of a start may still be under way, so until `timeout` has passed since it ended, NotDone is reported as `unknown`. After a
    crash the runtime asks `check` itself.

    Example:
        tools = operation("transfer", start=start_transfer, check=transfer_status,
                          description="Transfer money.", parameters={...})

    Args:
        start: Called as start(arguments, ctx). Returns the service's answer, raises `Rejected` where it says no.
        check: Called as check(operation_id, ctx). Returns what has happened to the operation, as `Done(value)` or a plain value that
            is not empty, or NotDone, or Unknown; anything else counts as Unknown. Only asks.
        effect: `keyed` where the service does nothing twice under one key.
        timeout: Seconds that the start may take.

    Raises:
        ToolDefinitionError: The timeout is not a number of seconds above 0.
    """
    if not 0 < timeout < _LONGEST_SECONDS:
        raise ToolDefinitionError(f"Operation {name!r}: timeout must be more than 0 seconds; got {shown(timeout)}.")
    asks = f"check_{name}"
    underway = _UnderWay(timeout)
    starter = Tool(
        name=f"start_{name}",
        description=f"{description}\n\nReturns an operation_id. If there is no answer, do not start it again: call {asks}.",
        parameters=parameters,
        effect=effect,
        timeout=timeout + _GRACE_SECONDS,
        run=_starting(start, asks, timeout, underway),
        check=_checking(check),
    )
    return starter, _checker(asks, name, check, underway)


class _UnderWay:
    """Until when the request of a start may still arrive at the service, by the clock of the event loop that asks.

    Another loop may have another clock: there a start counts as begun when it is first asked about, as one of another process.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, float]] = WeakKeyDictionary()

    def begin(self, key: str) -> None:
        self._note(key, asyncio.get_running_loop().time() + self._seconds)

    def end(self, key: str) -> None:
        """Note that the service has answered: nothing of this start arrives any more."""
        self._note(key, 0.0)

    def seconds_left(self, key: str) -> float:
        """Return the seconds that NotDone is not to be believed. A start of another process may have begun just now."""
        loop = asyncio.get_running_loop()
        if key not in self._of_loops.get(loop, {}):
            self.begin(key)
        return max(0.0, self._of_loops[loop][key] - loop.time())

    def _note(self, key: str, until: float) -> None:
        known = self._of_loops.setdefault(asyncio.get_running_loop(), {})
        while len(known) >= _MANY_KEYS:
            del known[next(iter(known))]
        known[key] = until


def _starting(start: Start, asks: str, timeout: float, underway: _UnderWay) -> Start:
    async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
        key = ctx.idempotency_key
        underway.begin(key)
        try:
            async with asyncio.timeout(timeout):
                answer = await start(arguments, ctx)
        except Rejected:
            underway.end(key)
            raise
        except OSError as exc:  # TimeoutError and ConnectionError are among them: the outcome is unknown
            underway.begin(key)  # its request may have been sent a moment ago
            raise ServiceSilent(f"no answer. Do not start it again; call {asks} with operation_id {key!r}") from exc
        underway.end(key)
        return _state_of(key, "started", answer)

    return run


def _checking(check: Check) -> Start:
    """Return the answer to the runtime's question, in the form that the start would have given."""

    async def ask(arguments: JsonObject, ctx: ToolContext) -> Any:
        answer = await check(ctx.idempotency_key, ctx)
        said = answer_of_check(answer)
        return Done(_state_of(ctx.idempotency_key, "started", said.value)) if isinstance(said, Done) else answer

    return ask


def _checker(asks: str, name: str, check: Check, underway: _UnderWay) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
        key = str(arguments["operation_id"])
        said = answer_of_check(await check(key, ctx))
        if isinstance(said, Done):
            return _state_of(key, "started", said.value)
        if said is NotDone and not (left := underway.seconds_left(key)):
            return {"operation_id": key, "state": "not_started"}
        more = {"ask_again_in_seconds": math.ceil(left)} if said is NotDone else {}
        return {"operation_id": key, "state": "unknown", **more}

    return Tool(
        name=asks,
        description=f"Return the outcome of an operation started by start_{name}. Starts nothing.",
        parameters=closed_schema(
            ["operation_id"],
            operation_id={
                "type": "string",
                "minLength": 1,
                "description": f"The operation_id that start_{name} returned.",
            },
        ),
        effect="read",
        polling=True,
        run=run,
    )


def _state_of(key: str, state: str, answer: Any) -> JsonObject:
    return {"operation_id": key, "state": state, "result": answer}
