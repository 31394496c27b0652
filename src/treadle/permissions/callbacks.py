"""Callbacks: a permission function in the manner of other agents, `can_use_tool(name, input, context)`, as a policy. Asks nobody itself."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from treadle.canonical import copied
from treadle.errors import ConfigurationError, shown
from treadle.ports import SessionView
from treadle.tools import CheckedCall, Decision, JsonObject

__all__ = ["CanUseTool", "can_use_tool"]

_Answer: TypeAlias = "Decision | Mapping[str, Any] | bool | None"
_Function: TypeAlias = "Callable[[str, JsonObject, SessionView], _Answer | Awaitable[_Answer]]"


class CanUseTool:
    """A policy that asks one function about every call."""

    def __init__(self, function: _Function) -> None:
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        """Return what the function says. One that raises, or answers with something else, denies the call."""
        given = copied(call.arguments)
        said = self._function(call.name, given, session)
        said = await said if inspect.isawaitable(said) else said
        return self._read(said, call)

    def _read(self, said: Any, call: CheckedCall) -> Decision | None:
        match said:
            case None | Decision():
                return said
            case True:
                return Decision(kind="allow", rule=self._name)
            case False:
                return Decision(kind="deny", rule=self._name)
            case Mapping():
                return self._read_object(said, call)
            case _:
                raise ConfigurationError(
                    f"{self._name} answered with {shown(said)}. Return a Decision, {{'behavior': 'allow'}}, True, False or None."
                )

    def _read_object(self, said: Mapping[str, Any], call: CheckedCall) -> Decision:
        behavior, changed = said.get("behavior"), said.get("updatedInput", said.get("updated_input"))
        if behavior not in ("allow", "deny", "ask"):
            raise ConfigurationError(f"{self._name}: behavior must be allow, deny or ask; got {shown(behavior)}.")
        is_changed = behavior == "allow" and changed is not None and changed != call.arguments
        return Decision(
            kind=behavior,
            rule=self._name,
            message=str(said.get("message") or ""),
            interrupt=behavior == "deny" and said.get("interrupt") is True,
            arguments=changed if is_changed else None,
        )


def can_use_tool(function: _Function) -> CanUseTool:
    """Return a policy that asks a function about every call: `async def can_use_tool(name, arguments, session)`.

    It returns `{"behavior": "allow", "updatedInput": {...}}`, `{"behavior": "deny", "message": ..., "interrupt": True}`, a `Decision`,
    True, False, or None for no opinion. Changed arguments are validated like the model's own. A tool asks the same function about
    what it does by itself with `ctx.decide(...)`.

    Example:
        agent = Agent(model, tools=tools, policy=can_use_tool(my_function))

    Raises:
        ConfigurationError: It is not a function.
    """
    if not callable(function):
        raise ConfigurationError(
            f"can_use_tool() takes a function of (name, arguments, session); got {shown(function)}."
        )
    return CanUseTool(function)
