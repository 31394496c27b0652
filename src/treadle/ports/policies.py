"""The ports to what users decide on calls: policies and interceptors; and the view of a session that they are given."""

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from treadle.fields import Documented
from treadle.messages import Message, ToolCall
from treadle.state import Approval, SessionState
from treadle.tools import Answer, CheckedCall, Decision, DecisionKind, Mode, ToolResult

__all__ = ["Approver", "Decision", "DecisionKind", "Interceptor", "Policy", "SessionView", "UnmatchedRule"]


class SessionView(Protocol):
    """What policies, compilers and tools may know of a session. Read only."""

    @property
    def id(self) -> str: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def state(self) -> SessionState: ...
    @property
    def mode(self) -> Mode:
        """How much it lets happen without a question: of a session that carries out a call of another, that one's."""
        ...


class Policy(Protocol):
    """Turns a valid call into a decision, before anything runs.

    An attribute `unattended`, itself a policy, is asked where a person would be, once the mode has been applied: its decision stands in for
    the question.
    """

    def decide(self, call: CheckedCall, session: SessionView) -> "Decision | Awaitable[Decision | None] | None":
        """Return the decision, or None for no opinion. One that raises denies the call.

        A decision may carry other arguments. They are validated, and the policy is asked again, about the call with them: its
        answer so far is `call.decision` then. The call runs once the policy leaves the arguments as they are.
        """
        ...


class Interceptor(Protocol):
    """Stands before and after each tool call. It may change or block, and it can never widen what policy allows."""

    def before(self, call: ToolCall) -> "ToolCall | Decision | Awaitable[ToolCall | Decision]":
        """Return the call, perhaps with other arguments (they are validated again), or a Decision such as deny."""
        ...

    def after(self, call: ToolCall, result: ToolResult) -> "ToolResult | Awaitable[ToolResult]":
        """Return the result, perhaps changed. Its call_id stays."""
        ...


class Approver(Protocol):
    """Answers requests for consent before the run pauses for a person: a program, a queue, a person at a terminal.

    A plain function of the request will do, and so will a `Policy`. A plain function runs in a thread; a policy's `decide` runs in the event loop.
    """

    def approve(self, asked: Approval) -> "Answer | str | Awaitable[Answer | str | None] | None":
        """Return the answer, `"allow"` or `"deny"`, or None to leave it to a person. One that raises leaves it, too."""
        ...


class UnmatchedRule(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A rule that matches no call of the tools that there are: mostly a name that was misspelt."""

    kind: DecisionKind
    """What it would have decided."""
    rule: str
    """As the person wrote it."""
    scope: str
    """Where it holds, such as `user`."""
    origin: str = ""
    """Where it is written, such as a file; empty where nobody said."""
    near: str = ""
    """The name that may be meant; empty for none."""
    message: str
    """What it does not do, and why, in a sentence."""
