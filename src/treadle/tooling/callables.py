"""Callables: tools that are still the functions they were made of. Describes nothing, and decides nothing about a call."""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import msgspec

from treadle.tools import Tool

if TYPE_CHECKING:
    from treadle.tooling.functions import FunctionSchema

__all__ = ["FunctionTool", "MethodTool", "is_method"]

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R], frozen=True, kw_only=True, eq=False):
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
            self: "FunctionTool[Concatenate[Any, P2], R]", thing: object, owner: type | None = None, /
        ) -> "FunctionTool[P2, R]": ...

        def __get__(self, thing: Any, owner: Any = None, /) -> Any: ...


class _Wrapped:
    """`__wrapped__` of instances, by which `inspect` finds the function. The class itself wraps nothing."""

    def __get__(self, made: FunctionTool[..., Any] | None, owner: type) -> Callable[..., Any]:
        if made is None:
            raise AttributeError("__wrapped__")
        return made.function


FunctionTool.__wrapped__ = _Wrapped()  # type: ignore[attr-defined]  # in the class body it would be taken for a field


class MethodTool:
    """What `@tool` makes of a method in its class: no tool yet, for it lacks its object. `thing.method` is one.

    Args:
        make: Makes the tool of a bound method, with what its signature says.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        make: "Callable[[Callable[..., Any]], tuple[FunctionTool[..., Any], FunctionSchema]]",
    ) -> None:
        self.function = self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._make = make
        self._first: tuple[FunctionTool[..., Any], FunctionSchema] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: the author's own signature
        return self.function(*args, **kwargs)

    def __get__(self, thing: object, owner: type | None = None) -> Any:
        from treadle.tooling.functions import run_of  # noqa: PLC0415 - pydantic is loaded with the first typed tool

        if thing is None:
            return self
        bound = self.function.__get__(thing, owner)
        if self._first is None:  # not before: annotations may name the class itself
            self._first = self._make(bound)
        made, schema = self._first
        return msgspec.structs.replace(made, function=bound, run=run_of(bound, schema))

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
