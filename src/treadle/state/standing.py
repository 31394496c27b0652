"""How a session stands: the values that its events are added up in, and what follows from them. Adds up nothing itself."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from treadle.events import (
    ApprovalRequested,
    CallDecided,
    DoubtBelow,
    RulesGranted,
    SessionSpawned,
    SessionStatus,
    TaskSubmitted,
    ToolResolved,
)
from treadle.messages import Message
from treadle.state.calls import Approval, CallRecord, CallState, approval_of, asks_of, call_record, only_reads
from treadle.state.compactions import Compactions
from treadle.state.deeds import Deeds
from treadle.state.doubts import Doubt, resolution_id
from treadle.state.facts import Facts
from treadle.state.runs import RunState
from treadle.tools import DEFAULT_MODE, JsonObject, Mode

__all__ = ["Standing", "sums"]


class Standing:
    """How a session stands: what its events add up to, and what follows from that. Changes nothing."""

    # A dict of so many names takes five times the memory, and a process may hold thousands of sessions.
    __slots__ = (
        "__weakref__", "_decided_early", "_missing", "_transcript", "answered", "approvals", "call_ids", "caller",
        "compactions", "deeds", "doubts", "doubts_below", "early", "facts", "granted", "has_empty_messages", "head", "id", "marks",
        "message_ids", "message_seqs", "messages", "metadata", "mode", "moved_to", "open", "parent_id", "parent_seq",
        "resolutions", "rewinds", "run", "salvaged", "status", "step", "submitted",
    )  # fmt: skip

    def __init__(self, session_id: str) -> None:  # noqa: PLR0915 - a list of values, each with its first one
        self.id = session_id
        self.head = 0
        self.step = 0
        self.messages: list[Message] = []
        self.open: dict[str, CallState] = {}
        """Calls of the last step, in call order, until all have results."""
        self.answered: tuple[CallState, ...] = ()
        """Calls of the last step whose calls all have results."""
        self.early: dict[str, CallState] = {}
        """Calls that started while their response still streamed."""
        self.salvaged: list[CallState] = []
        """Early calls of discarded responses of this step: their results may answer equal calls."""
        self.approvals: dict[str, Approval] = {}
        """Pending and answered but not yet used."""
        self.doubts: dict[str, Doubt] = {}
        """Calls whose unknown outcome was reported to the model, until a person says how they ended."""
        self.doubts_below: dict[str, tuple[DoubtBelow, ...]] = {}
        """Calls of unknown outcome of sessions that carried out its calls, by the session that ended."""
        self.resolutions: tuple[ToolResolved, ...] = ()
        """How those calls ended."""
        self.deeds = Deeds()
        self.call_ids: dict[str, None] = {}
        """Ids of its calls. A set of five of them takes three times the memory."""
        self.message_ids: dict[str, None] = {}
        """Ids of the inbox messages that it has read."""
        self.run: RunState | None = None
        self.status: SessionStatus = "active"
        """The status that people have set, independent of its runs."""
        self.submitted: TaskSubmitted | None = None
        """The task that waits for a worker to begin its run; None for none."""
        self.moved_to = ""
        """Where a session that was moved continues; empty for one that is here."""
        self.metadata: JsonObject = {}
        """The application's metadata of the session."""
        self.parent_id: str | None = None
        self.parent_seq: int | None = None
        self.caller: SessionSpawned | None = None
        """The call of another session that this one carries out; None for a session that people run."""
        self.mode: Mode = DEFAULT_MODE
        """How much happens in it without a question."""
        self.granted: tuple[RulesGranted, ...] = ()
        """Rules that people have granted in it."""
        self.facts = Facts()
        """The facts that tools have stored in the session."""
        self.compactions = Compactions()
        """Where the model is shown something shorter instead of messages."""
        self.marks: dict[str, int] = {}
        """Names of points, by the number of their last event."""
        self.rewinds: tuple[tuple[int, int], ...] = ()
        """Each rewind: the event it went back to, and its own number."""
        self.message_seqs: list[int] = []
        """The event that brought each message."""
        self.has_empty_messages = False
        """Whether a message without parts was ever added, such as an empty answer of the model."""
        self._transcript: tuple[Message, ...] | None = None
        self._decided_early: CallDecided | None = None
        self._missing = 0  # open calls without a result; counted, because a step may hold a thousand

    @property
    def transcript(self) -> tuple[Message, ...]:
        """All messages: the same tuple until there is another one, because a long session's is copied in every step."""
        if self._transcript is None:
            self._transcript = tuple(self.messages)
        return self._transcript

    @property
    def shown(self) -> tuple[Message, ...]:
        """The messages as the model is shown them: all, except those that a compaction has replaced."""
        if not self.compactions.made:
            return self.transcript
        self.compactions.entries(self.messages, self.message_seqs)
        return self.compactions.messages

    @property
    def artifacts(self) -> Mapping[str, str]:
        """Digests of the artifacts of which the model was shown a part, by the ids that it was given."""
        return self.compactions.artifacts

    @property
    def has_open_calls(self) -> bool:
        return bool(self.open)

    @property
    def is_whole(self) -> bool:
        """Whether every call has its result, early calls of responses that broke off included: a point to fork or move."""
        return not (self.open or self.early or any(one.result is None for one in self.salvaged))

    @property
    def unanswered(self) -> list[CallState]:
        return [state for state in self.open.values() if state.result is None]

    @property
    def phase(self) -> str:
        """What happened to its last run, for lists: `active` before its first run, then its last run's phase.

        `queued` where a task waits for a worker; `deleted` where the session was deleted.
        """
        if self.status == "deleted":
            return "deleted"
        if self.submitted is not None:
            return "queued"
        return self.run.phase if self.run else "active"

    def phase_at(self, seq: int) -> str:
        """Say what the phase is after a rewind to this event: its run can continue, unless its task is gone too."""
        kept = bisect_right(self.message_seqs, seq)
        return "active" if self.run is None or kept <= self.run.first_message else "stopped"

    def is_visible(self, seq: int) -> bool:
        """Whether what the model sees goes back to this event: no later rewind has gone behind it."""
        return not any(to < seq < rewound for to, rewound in self.rewinds)

    def call_records(self) -> tuple[CallRecord, ...]:
        """Return the calls of the run that have a result, in call order; also those beside a call that waits."""
        beside = (call_record(state.result) for state in self.open.values() if state.result is not None)
        return (*(() if self.run is None else self.run.calls), *beside)

    def pending_approvals(self) -> tuple[Approval, ...]:
        """Return what waits for a person's word: this session's own requests, and those of sessions that carry out its calls."""
        own = (approval for approval in self.approvals.values() if approval.answer is None)
        return (*own, *(self._asked_below(ask) for state in self.suspended for ask in asks_of(state)))

    @property
    def suspended(self) -> list[CallState]:
        """Started calls without a result that wait for something."""
        return [state for state in self.open.values() if state.suspended is not None and state.result is None]

    @property
    def questions(self) -> list[CallState]:
        """The calls with which its run is paused that wait for somebody's answer, and not for approval or a time, in order."""
        if self.run is None or self.run.phase != "paused":
            return []
        waits = [(one, one.suspended) for one in self.suspended]
        return [one for one, what in waits if what is not None and not what.asks and what.due_at is None]

    @property
    def question(self) -> CallState | None:
        """The first of its `questions`; None without one."""
        return next(iter(self.questions), None)

    @property
    def carried_out(self) -> dict[str, list[str]]:
        """The sessions that carry out open calls of its run, by the id of the call. Such a call never waits or acts by itself."""
        found: dict[str, list[str]] = {}
        for child in () if self.run is None else self.run.children.values():
            if child.call_id in self.open:
                found.setdefault(child.call_id, []).append(child.session_id)
        return found

    @property
    def root_id(self) -> str:
        """The session that a person resumes: this one, or the one at the top of those that call each other."""
        return self.id if self.caller is None else self.caller.root_id or self.caller.parent_id

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the agents from the one that the top calls down to this session's; empty for a session of a person."""
        return () if self.caller is None else self.caller.path

    def open_doubts(self) -> tuple[Doubt, ...]:
        """Return the calls in doubt that a person has not resolved: those whose model was told, and those without a result.

        While a run is live, a call without a result is under way and in no doubt: only the caller knows whether one is.
        """
        below = self.carried_out  # an agent as a tool continues where it broke off
        open_ones = [
            state.doubt(self.id)
            for state in self.unanswered
            if state.started is not None and state.resolution is None and not state.started.effect.is_repeatable
            if state.suspended is None and state.call.id not in below
        ]
        return (*(doubt for doubt in self.doubts.values() if not doubt.resolution), *open_ones)

    def doubtful(self) -> tuple[Doubt | DoubtBelow, ...]:
        """Return the calls of unknown outcome that an equal call would repeat: its own, and those of agents that it called."""
        return (*self.doubts.values(), *(one for below in self.doubts_below.values() for one in below))

    def open_effects(self) -> list[CallState]:
        """Return the calls that may still act, or ask a person whether they may: those without a result that are not reads."""
        return [state for state in self.unanswered if not only_reads(state)]

    def untold_resolutions(self) -> list[ToolResolved]:
        """Return how doubts ended, where the model was told of the doubt and not yet of its end."""
        return [one for one in self.resolutions if resolution_id(one) not in self.message_ids]

    def _asked_below(self, ask: ApprovalRequested) -> Approval:
        return approval_of(ask, ask.session_id, self.root_id)


_SUMS = tuple(name for name in Standing.__slots__ if name not in ("__weakref__", "_transcript"))  # that one is a copy


def sums(standing: Standing) -> dict[str, Any]:
    """Return all that the events of a session add up to, by name. Two sessions with equal sums stand alike."""
    return {name: getattr(standing, name) for name in _SUMS}
