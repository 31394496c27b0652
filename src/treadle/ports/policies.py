"""The ports to what users decide on calls: policies and interceptors; and the view of a session that they are given."""

from collections.abc import Awaitable
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from treadle.fields import Documented
from treadle.messages import Message, ToolCall
from treadle.state import SessionState
from treadle.tools import CheckedCall, ToolResult

__all__ = ["Decision", "DecisionKind", "Interceptor", "Policy", "SessionView"]


class DecisionKind(StrEnum):
    """What may become of a call."""

    ALLOW = "allow"
    """The call runs."""
    DENY = "deny"
    """The call does not run; the model reads the reason."""
    ASK = "ask"
    """A person is asked; the run pauses."""
    SANDBOX = "sandbox"
    """The call may run in a sandbox only; denied where there is none."""


class Decision(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The word on one call, with the rule that spoke and its reason."""

    kind: DecisionKind | Literal["allow", "deny", "ask", "sandbox"]
    """`allow`, `deny`, `ask` or `sandbox`."""
    rule: str = ""
    """Name of the rule that decided."""
    reason: str = ""
    """Why, in one sentence; empty without one."""


class SessionView(Protocol):
    """What policies, compilers and tools may know of a session. Read only."""

    @property
    def id(self) -> str: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def state(self) -> SessionState: ...


class Policy(Protocol):
    """Turns a valid call into a decision, before anything runs."""

    def decide(self, call: CheckedCall, session: SessionView) -> "Decision | Awaitable[Decision | None] | None":
        """Return the decision, or None for no opinion. One that raises denies the call."""
        ...


class Interceptor(Protocol):
    """Stands before and after each tool call. It may change or block, and it can never widen what policy allows."""

    def before(self, call: ToolCall) -> "ToolCall | Decision | Awaitable[ToolCall | Decision]":
        """Return the call, perhaps with other arguments (they are validated again), or a Decision such as deny."""
        ...

    def after(self, call: ToolCall, result: ToolResult) -> "ToolResult | Awaitable[ToolResult]":
        """Return the result, perhaps changed. Its call_id stays."""
        ...
