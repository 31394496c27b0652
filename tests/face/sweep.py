"""The sweep: one call of a public name with one value that is wrong for one parameter, and what came of it."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from faces import Face, Parameter
from valid import World

import treadle
from treadle.errors import TreadleError
from treadle.fields import NamedOptions, kind_of
from treadle.testing import FakeClock, Refusal

__all__ = ["WRONG", "attempt", "complaint"]


class Odd:
    """Something that nobody expects."""

    def __repr__(self) -> str:
        return "<odd>"


class OwnError(Exception):
    """Raised by the caller's own function: it reaches the caller."""


def _raising(*_: Any, **__: Any) -> None:
    raise OwnError


async def _coroutine() -> None: ...


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "5": lambda: 5,
    "-1": lambda: -1,
    "a huge number": lambda: 10**400,
    "True": lambda: True,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a text": lambda: "x",
    "no text": lambda: "",
    "a text with NUL": lambda: "a\0b",
    "half a surrogate pair": lambda: "\ud800",
    "bytes": lambda: b"x",
    "an empty list": list,
    "a list of 5": lambda: [5],
    "a list of None": lambda: [None],
    "one name twice": lambda: ["x", "x"],
    "an empty mapping": dict,
    "a mapping of 5": lambda: {5: 5},
    "a mapping of texts": lambda: {"x": "x"},
    "an object": Odd,
    "a coroutine": _coroutine,
    "a class": lambda: Odd,
    "a clock's class": lambda: FakeClock,
    "a time without a zone": lambda: datetime(2030, 1, 1),
    "another struct": lambda: treadle.Decision(kind="allow"),
    "a message without parts": lambda: treadle.Message(role="user", parts=5),  # type: ignore[arg-type]
    "a function that fails": lambda: _raising,
}
"""Makes each value anew: some can be used but once."""

_NOT_REFUSED = {
    "ClearResults.is_due": "asked before each request; what it compares with says so",
    "Summarize.is_due": "as above",
    "Tiers.is_due": "as above",
    "Sections.compile": "its sections are given the session, and they are the caller's own",
    "FunctionTool.effect_of": "what is unclear is unsafe",
    "Tool.effect_of": "what is unclear is unsafe",
    "FunctionTool.risk_of": "as above",
    "Tool.risk_of": "as above",
    "Handoff.is_due": "asked before each request; what it compares with says so",
    "Session.answer": "an approval that does not wait is refused first",
    "tool": "its options are refused where the decorator meets its function",
    "Filtered.open": "its source is given the context",
    "McpTools.open": "it looks at nothing of the context",
    "OnDemand.open": "its source is given the context",
    "Prefixed.open": "as above",
    "Renamed.open": "as above",
    "RequireApproval.open": "as above",
    "Shared.open": "as above",
    "VisibleWhen.open": "as above",
    "ToolList.open": "it looks at nothing of the context",
    "ToolList.tools": "it looks at nothing of the session",
    "default_decision": "it looks at nothing of the session",
    "FaultyJournal.append": "run at every step; what cannot be stored is refused",
    "FaultyJournal.adopt": "as above",
    "Suspended.event": "the engine calls it at each suspension",
}
"""Faces that take values of other kinds where these do no harm, each with the reason."""

_OTHER_WORDS = {"script": "turn", "source": "tools", "to": "point", "at": "point"}
"""What a message may call a parameter, where it has a better word than its name."""

_ROOMS = ("treadle", "treadle.testing", "treadle.providers.openai_chat")
"""Whose names refuse what they do not declare. The nouns below run at every step: they fail plainly, or do no harm."""

_TICKS = 300


async def attempt(folder: Path, face: Face, name: str = "", wrong: Any = None) -> Exception | None:
    """Call a face, all its values valid but one; return what it raised."""
    world = World(folder)
    try:
        async with world.stack:
            target = [await world.instance(face.owner)] if face.owner is not None else []
            values, options = await world.arguments(face, **({name: wrong} if name else {}))
            head = target[0].state.head if face.owner is treadle.Session else 0
            try:
                await _carried_out(world, face, [*target, *values], options)
            except TreadleError:
                assert face.owner is not treadle.Session or target[0].state.head == head, f"{face} changed something"
                raise
    except Exception as error:  # noqa: BLE001 - it is what the sweep looks at
        return error
    return None


async def _carried_out(world: World, face: Face, values: list[Any], options: dict[str, Any]) -> None:
    if face.member.endswith("_sync"):
        await asyncio.to_thread(face.callable, *values, **options)
        return
    made = face.callable(*values, **options)
    if hasattr(made, "__aenter__"):
        await world.stack.enter_async_context(made)
    elif face.member.startswith("wait") or hasattr(made, "__aiter__"):
        await _for_a_while(anext(aiter(made)) if hasattr(made, "__aiter__") else made)
    elif inspect.isawaitable(made):
        await asyncio.wait_for(made, 60)
    elif inspect.isgenerator(made):
        next(made, None)


async def _for_a_while(waiting: Coroutine[Any, Any, Any]) -> None:
    """What waits for something that never comes is let go."""
    task = asyncio.ensure_future(waiting)
    for _ in range(_TICKS):
        await asyncio.sleep(0)
        if task.done():
            break
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and not isinstance(task.exception(), StopAsyncIteration):
        task.result()


def complaint(face: Face, one: Parameter, wrong: Any, error: Exception | None) -> str | None:
    """Return what is wrong with how a value was taken, or None."""
    fits = kind_of(one.annotation).fits(wrong)
    if error is None:
        return "is accepted" if not fits and _refuses(face) else None
    if isinstance(error, OwnError | Refusal) or (isinstance(error, OSError) and fits):
        return None  # documented: what the caller's own function, the strict mock, or the machine says
    if not isinstance(error, TreadleError):
        return f"raises {error!r:.150}"
    if fits or face.module not in _ROOMS or face.name in _NOT_REFUSED:
        return None
    names = (f"{_plain(one.name).rstrip('s')}", _OTHER_WORDS.get(one.name, one.name))
    if any(name in _plain(str(error)) for name in names):
        return None
    return f"is not named: {error!s:.150}"


def _plain(text: str) -> str:
    return text.lower().replace("_", " ")


def _refuses(face: Face) -> bool:
    if face.module not in _ROOMS or face.name in _NOT_REFUSED:
        return False
    if inspect.isclass(face.callable):
        if issubclass(face.callable, msgspec.Struct):
            return isinstance(face.callable, NamedOptions)  # others are records, which the engine makes
        return not issubclass(face.callable, BaseException)  # an exception must not fail where it is raised
    return True
