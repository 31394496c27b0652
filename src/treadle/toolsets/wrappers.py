"""Wrappers: tools made of tools. Each returns a new Tool; the one inside is untouched."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from treadle.concurrency.breakers import Breaker
from treadle.errors import Rejected, check_kind
from treadle.ports import Clock
from treadle.tools import JsonObject, Tool, ToolContext

__all__ = ["guarded_by_breaker"]

_Ended: TypeAlias = Callable[[BaseException | None], None]


def guarded_by_breaker(tool: Tool, *, clock: Clock, failures: int = 5, open_seconds: float = 30.0) -> Tool:
    """Return a tool that is left alone for a while after so many failures in a row, and then tried once.

    Until then each call is answered at once: rejected, with code `circuit_open` and when to try again. A service that
    refuses a call (`Rejected`) has not failed.

    Args:
        failures: How many failures in a row open the breaker.
        open_seconds: How many seconds the tool is left alone.
    """
    check_kind("tool", tool, Tool, "a Tool")
    check_kind("failures", failures, int, "a number of failures")
    check_kind("open_seconds", open_seconds, (int, float), "a number of seconds")
    breaker = Breaker(failures=failures, open_seconds=open_seconds)

    def begin() -> None:
        now = clock.monotonic()
        if not breaker.begin(now):
            wait = round(breaker.seconds_until_trial(now), 3)
            body = {"error": f"{tool.name} keeps failing and is left alone for now.", "retry_after": wait}
            raise Rejected(body, code="circuit_open")

    def ended(error: BaseException | None) -> None:
        match error:
            case None | Rejected():
                breaker.succeeded()
            case Exception():
                breaker.failed(clock.monotonic())
            case _:
                breaker.gave_up()

    if inspect.iscoroutinefunction(tool.run):
        return msgspec.structs.replace(tool, run=_around_coroutine(tool, begin, ended))
    return msgspec.structs.replace(tool, run=_around_function(tool, begin, ended))


def _around_coroutine(tool: Tool, begin: Callable[[], None], ended: _Ended) -> Callable[..., Any]:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        begin()
        try:
            value = await tool.run(arguments, ctx)
        except BaseException as error:
            ended(error)
            raise
        ended(None)
        return value

    return run


def _around_function(tool: Tool, begin: Callable[[], None], ended: _Ended) -> Callable[..., Any]:
    def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        begin()
        try:
            value = tool.run(arguments, ctx)
        except BaseException as error:
            ended(error)
            raise
        ended(None)
        return value

    return run
