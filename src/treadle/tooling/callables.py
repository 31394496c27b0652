"""Callables: tools that are still functions, and the function inside of what can be called. Describes nothing, loads nothing heavy."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, overload

import msgspec

from treadle.tools import Tool
from treadle.tools.contexts import Deps_contra
from treadle.tools.tool import Run

__all__ = ["FunctionTool", "MethodTool", "is_method", "layers", "name_of", "written"]

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")

Function: TypeAlias = Callable[..., Any]  # Any: whatever its author wrote


class FunctionTool(Tool[Deps_contra], Generic[P, R, Deps_contra], frozen=True, kw_only=True, eq=False):
    """The tool that `@tool` makes of a function, which can still be called with its own signature.

    A call of it is a plain call of the function: nothing is checked, decided or recorded.

    Example:
        @tool
        def double(number: int) -> int:
            \"\"\"Double a number.\"\"\"
            return 2 * number

        double(4)                               # 8
        Agent("openai-chat:gpt-5-mini", tools=[double])
    """

    function: Callable[P, R]
    """The function itself, or the bound method."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", self.name))

    if TYPE_CHECKING:  # what type checkers see of a decorated method: at run time that is a MethodTool

        @overload
        def __get__(self, thing: None, owner: type, /) -> Self: ...

        @overload
        def __get__(
            self: "FunctionTool[Concatenate[Any, P2], R, Deps_contra]", thing: object, owner: type | None = None, /
        ) -> "FunctionTool[P2, R, Deps_contra]": ...

        def __get__(self, thing: Any, owner: Any = None, /) -> Any: ...


class _Wrapped:
    """`__wrapped__` of instances, by which `inspect` finds the function. The class itself wraps nothing."""

    def __get__(self, made: FunctionTool[..., Any, Any] | None, owner: type) -> Callable[..., Any]:
        if made is None:
            raise AttributeError("__wrapped__")
        return made.function


FunctionTool.__wrapped__ = _Wrapped()  # type: ignore[attr-defined]  # in the class body it would be taken for a field


class MethodTool:
    """What `@tool` makes of a method in its class: no tool yet, for it lacks its object. `thing.method` is one.

    Args:
        make: Makes the tool of a bound method, and what runs the same method of other objects.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: Callable[[Function], tuple[FunctionTool[..., Any, Any], Callable[[Function], Run]]],
    ) -> None:
        self.function = self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._make = make
        self._first: tuple[FunctionTool[..., Any, Any], Callable[[Function], Run]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: the author's own signature
        return self.function(*args, **kwargs)

    def __get__(self, thing: object, owner: type | None = None) -> Any:
        if thing is None:
            return self
        bound = self.function.__get__(thing, owner)
        if self._first is None:  # not before: annotations may name the class itself
            self._first = self._make(bound)
        made, run_of = self._first
        return msgspec.structs.replace(made, function=bound, run=run_of(bound))

    def __repr__(self) -> str:
        return f"the method {self.function.__qualname__}"


def is_method(function: Callable[..., Any]) -> bool:
    """Whether a function is defined in a class, takes its object first and is not bound to one."""
    plain = inspect.unwrap(function)
    if not isinstance(function, FunctionType) or not isinstance(plain, FunctionType):
        return False
    around = plain.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(plain).parameters), None)
    return bool(around) and not around.endswith("<locals>") and first in ("self", "cls")


# --- what was put around a function ---

_MOST_WRAPPERS = 100


def layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
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
    """Return the function that its author wrote: what is inside of everything around it."""
    *_, found = layers(function)
    return found


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a callable; of an object that is called, its class's name in small letters."""
    for one in layers(function):
        name = getattr(one, "__name__", None)
        if isinstance(name, str) and name != "__call__":
            return name
        if not isinstance(one, partial | MethodType | FunctionType):
            return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(one).__name__).lower()
    return ""
