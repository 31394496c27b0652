"""Deeds: what a session has done to the world, and what people have said of it. Kept for whoever continues; decides nothing."""

import msgspec

from treadle.events import ApprovalAnswered
from treadle.fields import Documented
from treadle.state.calls import Approval, CallState
from treadle.tools import CallStatus, Effect, JsonObject

__all__ = ["Consent", "Deed", "Deeds"]

_LONGEST = 2_000
"""Characters of arguments that are kept: they stand whole in the messages."""


class Deed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call that has changed the world, or may have."""

    tool: str
    """Name of the tool."""
    arguments: str
    """Its arguments as JSON text; of very long ones the beginning."""
    status: str
    """`ok`; else the status of a call that may have acted."""
    repeats: bool
    """Whether the same call again would change nothing more."""


class Consent(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a person has answered about one call."""

    tool: str
    """Name of the tool."""
    arguments: JsonObject
    """What was asked about, or what the person made of it."""
    answer: str
    """`allow` or `deny`."""
    by: str
    """Who answered."""
    reason: str = ""
    """Why; empty without one."""


class Deeds(msgspec.Struct, gc=False):
    """The deeds of a session, and what people have answered. A rewind takes none back: nothing is undone by it."""

    done: list[Deed] = []
    consents: tuple[Consent, ...] = ()

    def add(self, state: CallState) -> None:
        """Take in a call that has its result."""
        started, result = state.started, state.result
        if started is None or result is None or started.effect is Effect.READ:
            return
        if result.status is not CallStatus.OK and not (
            result.may_have_acted or result.status is CallStatus.OUTCOME_UNKNOWN
        ):
            return
        repeats = started.effect is Effect.IDEMPOTENT
        arguments = state.call.arguments[:_LONGEST]
        status = result.status.value
        self.done.append(Deed(tool=state.call.name, arguments=arguments, status=status, repeats=repeats))

    def consent(self, approval: Approval, answer: ApprovalAnswered) -> None:
        """Take in what a person has answered."""
        arguments = approval.arguments if answer.arguments is None else answer.arguments
        said = Consent(
            tool=approval.tool,
            arguments=arguments,
            answer=answer.answer,
            by=answer.approved_by,
            reason=answer.reason,
        )
        self.consents = (*self.consents, said)
