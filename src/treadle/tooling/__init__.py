"""Tooling: make tools from functions, and find them by name."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.tooling.callables import FunctionTool as FunctionTool
    from treadle.tooling.decorators import tool as tool

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "callables": "FunctionTool",
        "decorators": "tool",
    },
)
