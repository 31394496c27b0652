"""The ports to what a model is shown: compilers, and compactors, which make it shorter permanently."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.fields import Documented
from treadle.messages import Message, Usage
from treadle.ports.policies import SessionView

__all__ = ["CheckView", "Compactable", "Compaction", "Compactor", "Compiler", "RequestNeed", "RequestView"]


class RequestNeed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a request is for. Each attempt of a step has its own request."""

    model: str = ""
    """The model that will be asked: of several, the current one."""
    window: int | None = None
    """The model's context window in tokens, including its response; None if unknown."""
    step: int = 0
    """Number of the step, from 1."""
    attempt: int = 1
    """From 1, in this step."""
    reason: Literal["step", "retry", "overflow"] = "step"
    """`overflow`: the provider refused the last request as too long, and this one must be shorter."""
    overflows: int = 0
    """How often that has happened in this step."""
    fixed_tokens: int = 0
    """Tokens of the instructions and the tools, estimated at four characters each."""
    closing: bool = False
    """Whether it is the request after a limit, in which the model may not call tools."""


class RequestView(SessionView, Protocol):
    """A session from which a request is built. Its messages are those that compactions have left."""

    @property
    def need(self) -> RequestNeed: ...


class Compiler(Protocol):
    """Chooses what the model sees of the stored messages. It never changes the store."""

    def compile(self, session: RequestView) -> Sequence[Message] | Awaitable[Sequence[Message]]:
        """Return the messages of one request: the same for the same state and need, and never a call without its result.

        Asked before each attempt; may be a coroutine function.
        """
        ...


class Compaction(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Something shorter that permanently replaces some messages. Recorded as `context.compacted`."""

    tier: str
    """How it was shortened, such as `results` or `summary`."""
    begin: int
    """Index of the first message concerned, in `Compactable.messages`."""
    end: int
    """Index behind the last one. Calls and their results are both in, or both out."""
    messages: tuple[Message, ...] | None = None
    """What replaces the messages; None if each stays in its place."""
    results: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What replaces the results of these calls, by call id."""
    summary: str = ""
    """The text that replaces the messages, for people."""
    usage: Usage = Usage()
    """What was used besides requests by `Compactable.ask`, which are counted separately."""
    cost: str | None = "0"
    """The cost of that usage: an exact decimal; None if unknown."""


class Compactable(Protocol):
    """What a compactor gets: the messages as they are shown now, and a model to ask."""

    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def session(self) -> SessionView:
        """The session with all its messages, facts, approvals and marks."""
        ...

    @property
    def need(self) -> RequestNeed: ...
    @property
    def tokens(self) -> int:
        """Estimated tokens of the whole request as it is now."""
        ...

    async def keep(self, call_id: str) -> str:
        """Keep the whole result of a call, so that the model can read it later, and return the id of the artifact.

        If it is already kept, the id is the same.
        """
        ...

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask the run's model without tools, and return its text. Recorded under the compaction, and charged to the run.

        Raises:
            ModelError: It failed, or the run's budget is used up.
        """
        ...


class Compactor(Protocol):
    """Shortens what the model is shown when it has become too long."""

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Return whether a request with this number of tokens should be shortened before it is sent.

        Asked before each attempt, except after an overflow, when the request is shortened in any case.
        """
        ...

    async def compact(self, context: Compactable) -> Compaction | None:
        """Return what is shorter, or None if nothing can be shortened. The same events always lead to the same request."""
        ...


class CheckView(SessionView, Protocol):
    """The session that `done_when` gets: a check may ask the run's model, at the run's cost."""

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask the run's model without tools, and return its text. Recorded as `check:...`, and charged to the run.

        Raises:
            ModelError: It failed, or the run's budget is used up.
        """
        ...
