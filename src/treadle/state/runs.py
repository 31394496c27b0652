"""A run of a session, by its events."""

import warnings
from typing import Literal, Self

import msgspec

from treadle.budgets import Spent
from treadle.events import CallDecided, HookActed, RunFinished, RunPaused, RunResumed, RunStarted
from treadle.fields import Documented, checked, explained
from treadle.messages import Usage
from treadle.state.calls import CallRecord, ChildState, Denial
from treadle.tools import JsonObject

__all__ = ["RunState"]

_MOST_LOST = 50
"""Of so many processes that lost a run is remembered which they were."""

RunStatus = Literal["running", "paused", "stopped", "completed", "failed"]


class RunState(msgspec.Struct, Documented, kw_only=True):
    """One task's run: what it has used, done and become. Starts at zero with each new task."""

    id: str
    """Id of the run."""
    task: str
    """The task."""
    status: RunStatus = "running"
    """`running`, `paused`, `stopped`, `completed` or `failed`."""
    reason: str | None = None
    """Why it paused or ended; None while it runs."""
    profile: str | None = None
    """The agent's profile, such as `research`; None without one."""
    budget: JsonObject | None = None
    """Its limits, by name; None for those of the agent."""
    deadline: float | None = None
    """Seconds since 1970 at which the run must have ended."""
    spent: Spent = Spent()
    """What it has used so far."""
    calls: list[CallRecord] = msgspec.field(default_factory=list)
    """Its calls that have a result, in order."""
    children: dict[str, ChildState] = msgspec.field(default_factory=dict)
    """By session id."""
    denials: list[Denial] = msgspec.field(default_factory=list)
    """Its calls that were denied."""
    text: str = ""
    """The last text that the model gave."""
    origin: JsonObject | None = None
    """How whoever started it had set it up, as a JSON object of theirs."""
    agent: str = ""
    """Name of the agent that carries it out; empty for one without a name."""
    fingerprint: dict[str, str] = msgspec.field(default_factory=dict)
    """What tells that agent from one that has changed since, by part."""
    sent_instructions: str | None = None
    """The instructions, if they were written for this run: what it sends also after `resume`."""
    single_turn: bool = False
    """Whether the model may call tools in one response only, also after `resume`."""
    first_message: int = 0
    """Where in the session's messages the run begins."""
    steps: int = 0
    """Responses of the model, the closing one included."""
    has_closed: bool = False
    """Whether the closing request after a limit has been made."""
    was_cut: bool = False
    """Whether the output limit has cut a response."""
    continued: int = 0
    """How often hooks have made it continue at its end."""
    interrupted_by: CallDecided | HookActed | None = None
    """The decision that stops it for a person, until its end is recorded."""
    model_retries: int = 0
    """Model calls that were tried again."""
    advice: str = ""
    """What people can do about the model's server; empty where there is nothing to say."""
    cut_in_calls: int = 0
    """Responses in a row whose calls were cut off by the output limit."""
    acts: dict[str, Spent] = msgspec.field(default_factory=dict)
    """What was charged so far for each act apart from its own steps that continues."""
    offered: tuple[str, ...] | None = None
    """Names of the tools that the last request offered; None before the first."""
    tool_owners: dict[str, str] = msgspec.field(default_factory=dict)
    """The toolset that a tool belongs to, by the tool's name; an agent's own tools belong to none."""
    prefix: str = ""
    """Hash of what its last request began with: see `events.ModelStarted`."""
    warned: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    """The limits that it was warned of, by the name of the budget, each in its unit."""
    deaths: int = 0
    """How often in a row the process of the run has died, or lost the run, before it had got any further; -1 where its next
    beginning is not counted, because a person has let it continue."""
    worker: str = ""
    """The worker that runs it, or has run it last; empty for another process."""
    is_alone: bool = False
    """Whether that worker runs, or ran, nothing else meanwhile."""
    lost_by: tuple[str, ...] = ()
    """Whose deaths those were: workers, empty for other processes. The last ones, where there were many."""
    progress: int = 0
    """Responses and results that it had when it was last resumed."""
    segment_at: float = 0.0
    """When it was started or last resumed, in seconds since 1970."""
    last_at: float = 0.0
    """When its last event was recorded, in seconds since 1970."""
    tool_seconds: float = 0.0
    """How long its calls took, added up."""
    tool_wall_seconds: float = 0.0
    """How long any of its calls was under way: less than the sum where calls ran in parallel."""
    under_way: dict[str, float] = msgspec.field(default_factory=dict)
    """When each call started that is under way, by its id, in seconds since 1970."""
    busy_since: float = 0.0
    """When the first of those started, in seconds since 1970."""

    @classmethod
    @explained
    def begun(cls, event: RunStarted, *, first_message: int) -> Self:
        """Return the run that this event begins."""
        return cls(
            id=event.run_id,
            task=event.task,
            profile=event.profile,
            budget=event.budget,
            deadline=event.deadline,
            origin=event.origin,
            agent=event.agent,
            fingerprint=event.fingerprint,
            sent_instructions=event.sent_instructions,
            single_turn=event.single_turn,
            first_message=first_message,
            worker=event.worker,
            segment_at=event.at,
            last_at=event.at,
        )

    @property
    def phase(self) -> str:
        """The old name of `status`."""
        warnings.warn("Write run.status: `phase` goes.", DeprecationWarning, stacklevel=2)
        return self.status

    @explained
    def end(self, event: RunFinished | RunPaused) -> None:
        """Add its end, or its pause."""
        self.reason, self.interrupted_by = event.reason, None
        self.spent = msgspec.structs.replace(self.spent, wall_seconds=event.wall_seconds)
        if isinstance(event, RunFinished):
            self.text = event.text or self.text
        self.status = "paused" if isinstance(event, RunPaused) else event.status  # type: ignore[assignment]  # a Status

    @explained
    def resume(self, event: RunResumed) -> None:
        """Continue, with what the resumption brings."""
        self.lost_by, self.deaths = self.lost_now, self.deaths_now
        self.worker, self.is_alone, self.progress = event.worker, event.is_alone, self.steps + len(self.calls)
        if self.status == "running":  # the process died: its last event says how long it surely ran
            lived = max(self.last_at - self.segment_at, 0.0)
            self.spent = msgspec.structs.replace(self.spent, wall_seconds=self.spent.wall_seconds + lived)
        self.status, self.reason = "running", None
        self.budget = event.budget or self.budget
        self.deadline = self.deadline if event.deadline is None else event.deadline
        self.profile = event.profile or self.profile
        self.origin = event.origin or self.origin
        self.agent = event.agent or self.agent
        self.fingerprint = event.fingerprint or self.fingerprint
        self.sent_instructions = self.sent_instructions if event.sent_instructions is None else event.sent_instructions
        self.has_closed = False
        self.under_way.clear()
        self.cut_in_calls = 0
        # Invariant: both were stamped by one process. `resume` may happen on another machine, with another clock.
        self.segment_at = self.last_at = event.at

    @property
    def deaths_now(self) -> int:
        """How often in a row its process has died, or lost it, before it had got any further, if nobody runs it at this moment."""
        if self.status != "running":
            return 0
        return self.deaths + 1 if self._is_stuck else 1

    @property
    def lost_now(self) -> tuple[str, ...]:
        """Whose deaths `deaths_now` counts: a worker may still live, where it has lost the run with its journal."""
        if self.status != "running" or self.deaths < 0:
            return ()
        return (*self.lost_by, self.worker)[-_MOST_LOST:] if self._is_stuck else (self.worker,)

    @property
    def _is_stuck(self) -> bool:
        return self.steps + len(self.calls) == self.progress

    def forgive(self) -> None:
        """Count its deaths anew: a person lets it continue."""
        self.lost_by, self.deaths, self.progress = (), -1, self.steps + len(self.calls)

    def uncharge(self) -> None:
        """Charge the budget no longer for a call that it did not cover, from the moment at which the call is refused."""
        spent = self.spent
        self.spent = msgspec.structs.replace(
            spent, tool_calls=spent.tool_calls - 1, uncovered_calls=spent.uncovered_calls + 1
        )

    @checked
    def spend_beside(self, act: str, usage: Usage, cost: str | None) -> None:
        """Charge a request of an act apart from the run's own steps. It counts as no turn: it does not belong to the loop."""
        self.spent = self.spent.plus(usage, cost, turns=0, calls=0)
        self.acts[act] = self.acts.get(act, Spent()).plus(usage, cost, turns=0, calls=0)

    @checked
    def end_act(self, act: str, usage: Usage, cost: str | None) -> None:
        """Charge what an act has used in all and was not charged request by request."""
        charged = self.acts.pop(act, Spent())
        self.spent = self.spent.with_child(Spent().plus(usage, cost, turns=0, calls=0), charged)


def begin_call(run: RunState, call_id: str, at: float) -> None:
    """Measure a call from now."""
    run.busy_since = run.busy_since if run.under_way else at
    run.under_way[call_id] = at


def end_call(run: RunState, call_id: str, at: float) -> None:
    """Add what a call took. One that no living process has started took nothing."""
    if (began := run.under_way.pop(call_id, None)) is not None:
        run.tool_seconds += max(at - began, 0.0)
        run.tool_wall_seconds += 0.0 if run.under_way else max(at - run.busy_since, 0.0)
