"""Written: the function inside of what can be called, whatever was put around it. Calls nothing."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

__all__ = ["is_async", "name_of", "written"]

_MOST_WRAPPERS = 100


def _layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a callable and what it calls in turn: through decorators, `functools.partial` and an object's `__call__`."""
    one: Any = function
    for _ in range(_MOST_WRAPPERS):
        yield one
        if isinstance(one, partial):
            one = one.func
        elif "__wrapped__" in getattr(one, "__dict__", {}):
            one = one.__wrapped__
        elif not isinstance(one, FunctionType | MethodType) and isinstance(type(one).__call__, FunctionType):
            one = one.__call__
        else:
            return


def written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that its author wrote: what stands inside of everything around it."""
    *_, found = _layers(function)
    return found


def is_async(function: Callable[..., Any]) -> bool:
    """Whether what a call returns is to be awaited."""
    return any(map(inspect.iscoroutinefunction, _layers(function)))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a callable; of an object that is called, its class's name in small letters."""
    for one in _layers(function):
        name = getattr(one, "__name__", None)
        if isinstance(name, str) and name != "__call__":
            return name
        if not isinstance(one, partial | MethodType | FunctionType):
            return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(one).__name__).lower()
    return ""
