"""The ports to what a model is shown: compilers, and compactors, which make it shorter permanently."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.fields import Documented
from treadle.messages import Message, Usage
from treadle.ports.policies import SessionView

__all__ = ["CheckView", "Compactable", "Compaction", "Compactor", "Compiler", "RequestNeed", "RequestView"]


class RequestNeed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What one request is made for. Each attempt of a step has a request of its own."""

    model: str = ""
    """The model that will be asked: of several, the one whose turn it is."""
    window: int | None = None
    """Tokens that the model takes, its response included; None where nobody knows."""
    step: int = 0
    """Number of the step, from 1."""
    attempt: int = 1
    """From 1, in this step."""
    reason: Literal["step", "retry", "overflow"] = "step"
    """`overflow`: the provider refused the last request as too long, and this one must be shorter."""
    overflows: int = 0
    """How often that has happened in this step."""
    fixed_tokens: int = 0
    """Of the instructions and the tools, estimated at four characters each."""
    closing: bool = False
    """Whether it is the request after a limit, which may call nothing."""


class RequestView(SessionView, Protocol):
    """A session as a request is made of it. Its messages are those that compactions have left."""

    @property
    def need(self) -> RequestNeed: ...


class Compiler(Protocol):
    """What the model sees of the stored messages. The store is never changed by it."""

    def compile(self, session: RequestView) -> Sequence[Message] | Awaitable[Sequence[Message]]:
        """Return the messages of one request: the same for the same state and need, pairs of calls and results whole.

        Asked before each attempt; may be a coroutine function.
        """
        ...


class Compaction(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Something shorter in place of some messages, permanently. Recorded as `context.compacted`."""

    tier: str
    """Which way it was made shorter, such as `results` or `summary`."""
    begin: int
    """Index of the first message concerned, in `Compactable.messages`."""
    end: int
    """Index behind the last one. Calls and their results are both in, or both out."""
    messages: tuple[Message, ...] | None = None
    """What stands in place of the messages; None where each stays in its place."""
    results: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What stands in place of the results of these calls, by call id."""
    summary: str = ""
    """The text that stands in place of the messages, for people."""
    usage: Usage = Usage()
    """What was used beside requests by `Compactable.ask`, which are counted by themselves."""
    cost: str | None = "0"
    """Of that usage: an exact decimal; None where nobody knows."""


class Compactable(Protocol):
    """What a compactor is given: the messages as they are shown now, and a model to ask."""

    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def session(self) -> SessionView:
        """The session with all of its messages, its facts, approvals and marks."""
        ...

    @property
    def need(self) -> RequestNeed: ...
    @property
    def tokens(self) -> int:
        """Of the whole request as it is now, estimated."""
        ...

    async def keep(self, call_id: str) -> str:
        """Keep the whole of a call's result, so that the model can read on in it, and return the id of the artifact.

        The same one where it is kept already.
        """
        ...

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask the run's model without tools, and return its words. Recorded under the compaction, and charged to the run.

        Raises:
            ModelError: It failed, or the run's budget is used up.
        """
        ...


class Compactor(Protocol):
    """Makes what the model is shown shorter, where it has become too long."""

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Return whether a request of so many tokens is to be made shorter before it is sent.

        Asked before each attempt but one after an overflow, which is made shorter in any case.
        """
        ...

    async def compact(self, context: Compactable) -> Compaction | None:
        """Return what is shorter, or None where nothing can be. The same events lead to the same request for ever."""
        ...


class CheckView(SessionView, Protocol):
    """A session as `done_when` is given it: a check may ask the run's model, and what that costs is the run's."""

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask the run's model without tools, and return its words. Recorded as `check:...`, and charged to the run.

        Raises:
            ModelError: It failed, or the run's budget is used up.
        """
        ...
