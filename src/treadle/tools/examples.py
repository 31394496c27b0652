"""Examples: recorded calls of a tool: arguments, and what it returned then. Values only; runs and checks nothing."""

from typing import Any

import msgspec
from msgspec import UNSET

from treadle.fields import Documented, NamedOptions
from treadle.tools.contexts import JsonObject

__all__ = ["ToolExample"]


class ToolExample(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """A recorded call of a tool. `treadle tools check` holds it to the tool's contracts as they are now.

    Example:
        @tool(effect="read", examples=[ToolExample(arguments={"product": "teapot"}, result=24.5)])
        async def price(product: str) -> float: ...
    """

    arguments: JsonObject
    """The arguments of the call. The model is shown them, in the tool's description."""
    result: Any = UNSET
    """What the tool returned, as JSON; a refusal of its service too. Left out for arguments alone."""
    deterministic: bool = False
    """Whether the same arguments give the same result whenever the tool is called: `tools check --run` calls it and compares."""

    @property
    def has_result(self) -> bool:
        return self.result is not UNSET
