"""Assembly: put the parts of one run together, from the description of its agent. Runs nothing."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from treadle.budgets import Meter, Spent
from treadle.engine.hooks import Hooks
from treadle.engine.interrupts import Interrupt
from treadle.engine.loop import Loop
from treadle.engine.model_calls.compacting import CheckView, Compacting
from treadle.engine.model_calls.proposal import Proposer
from treadle.engine.model_calls.requests import Requests
from treadle.engine.model_calls.reservations import Reservations
from treadle.engine.offering import Offering
from treadle.engine.rules.tries import Progress, Tries
from treadle.engine.scope import BatchTime, LateCalls, RunScope, Slots
from treadle.engine.spec import AgentSpec
from treadle.engine.tool_calls.attempts import Attempts, Invoker
from treadle.engine.tool_calls.checking import Checker
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.engine.tool_calls.execution import Actions, Conditions, DoneCondition, Execution
from treadle.engine.tool_calls.planning import Planner
from treadle.engine.tool_calls.recovery import Recovery
from treadle.events import Subscriber
from treadle.hooks import in_order
from treadle.permissions.denied import denied_files
from treadle.ports import Model, Moment, facts_of
from treadle.sessions.inbox import Inbox
from treadle.sessions.session import Session
from treadle.sessions.spending import Purse
from treadle.state import SessionState
from treadle.tools import Hiding

__all__ = ["Host", "assemble"]


_INHERITED = (Moment.BEFORE_REQUEST, Moment.AFTER_RESPONSE, Moment.BEFORE_TOOL, Moment.AFTER_TOOL)
"""Where the hooks of a run are called for the agents that carry out its calls, too."""


class Host:
    """A run, as the tools of it see it that are agents: what their runs are bound by.

    Args:
        about: Its agent as described.
        model: Its model, which the agents below it have where they name none.
        above: The run that called this one; None for a run that people started.
        watchers: Called with every event of the runs that carry out its calls.
    """

    def __init__(
        self,
        about: AgentSpec,
        model: Model,
        session: Session,
        *,
        offering: Offering,
        meter: Meter,
        interrupt: Interrupt,
        above: "Host | None",
        watchers: Sequence[Subscriber] = (),
    ) -> None:
        self.about = about
        self.model = model
        self.session = session
        self.offering = offering
        self.above = above
        self.watchers = watchers
        self.depth_left: int = about.max_depth if above is None else min(about.max_depth, above.depth_left - 1)
        """How many agents may still stand below it."""
        self.top: SessionState = session.state if above is None else above.top
        """The state of the session that a person runs: its mode holds for all that carry out its calls."""
        self.purse: Purse | None = _purse(about, session, None if above is None else above.purse)
        """What pays for its model calls besides its own budget."""
        self.meter = meter
        self.interrupt = interrupt
        self.bound: AgentSpec = _covering(about if above is None else above.bind(about))
        """Its agent, bound by the runs that called it."""
        self.states_above: tuple[SessionState, ...] = (
            () if above is None else (above.session.state, *above.states_above)
        )
        """The states of the sessions that called this one, the nearest first."""
        self.warns_of_price = about.unpriced == "warn"
        self._seconds_before = self.spent.wall_seconds

    @property
    def spent(self) -> Spent:
        """What the run has spent by its recorded events."""
        run = self.session.ledger.state.run
        return Spent() if run is None else run.spent

    def charged(self, child_id: str) -> Spent:
        """Return what of a child's spending is recorded in this run."""
        run = self.session.state.run
        child = None if run is None else run.children.get(child_id)
        return Spent() if child is None else child.spent

    def seconds_left(self) -> float | None:
        """Return the running time that is left to the run; None for no limit."""
        return self.meter.seconds_left(self._seconds_before + self.session.clock.monotonic() - self.interrupt.begun)

    def left(self) -> dict[str, int | float | Decimal]:
        """Return what is left of the limits of the run, by the name of each."""
        left = self.meter.left(self.spent)
        seconds = self.interrupt.seconds_left
        return left if seconds is None else {**left, "max_wall_time_seconds": seconds}

    def bind(self, about: AgentSpec) -> AgentSpec:
        """Return an agent as it is when this run calls it: nothing is allowed that is forbidden here."""
        own = self.bound
        return msgspec.structs.replace(
            about,
            policies_above=own.policies_above if own.policy is None else (own.policy, *own.policies_above),
            hooks=in_order(about.hooks + tuple(hook for hook in own.hooks if hook.at in _INHERITED)),
            sandbox=about.sandbox or own.sandbox,
            approver=about.approver or own.approver,
            approver_seconds=own.approver_seconds if about.approver is None else about.approver_seconds,
            in_doubt=about.in_doubt or own.in_doubt,
        )


def _purse(about: AgentSpec, session: Session, above: Purse | None) -> Purse | None:
    """Return what pays for an agent: the budgets of its callers, and its own."""
    known = () if above is None else above.budgets
    own = [one for one in about.tenant_budgets if one not in known]
    if not own:
        return above
    return Purse(session.journal, session.clock, session.randomness, (*known, *own), session.ledger.metadata)


def _covering(about: AgentSpec) -> AgentSpec:
    """Return an agent in whose sandbox no program reads what a rule denies reading."""
    if about.sandbox is None or not isinstance(about.sandbox, Hiding):  # `isinstance` of a Protocol is slow
        return about
    denied = denied_files((about.policy, *about.policies_above))
    return msgspec.structs.replace(about, sandbox=about.sandbox.hiding(denied)) if denied else about


def assemble(host: Host, *, inbox: Inbox, deps: Any) -> Loop:  # Any: the application's own object
    """Return the loop of one run, with all that it needs.

    Args:
        deps: What tools find in `ctx.deps`.
    """
    session, offering = host.session, host.offering
    meter, interrupt = host.meter, host.interrupt
    about = host.bound
    assert about.driver is not None
    hooks = Hooks(
        about.hooks,
        ledger=session.ledger,
        top=host.top,
        interrupt=interrupt,
        continuations=about.guards.continuations,
    )
    scope = RunScope(
        about=about,
        offering=offering,
        states=(session.state, *host.states_above),
        ledger=session.ledger,
        interrupt=interrupt,
        meter=meter,
        model=host.model,
        hooks=hooks,
        slots=Slots(meter.budget.max_parallel_tool_calls),
        late=LateCalls(session.abandoned, ledger=session.ledger),
        batch_time=None if about.batch_seconds is None else BatchTime(session.ledger.clock, about.batch_seconds),
    )
    reservations = Reservations(meter, interrupt, host.purse)
    execution, early = _execution(scope, host, reservations, deps)
    driver = about.driver.bind(host.model, offering.current.tools, _Executor(offering))
    requests = Requests(scope, Compacting(scope, reservations))
    proposer = Proposer(scope, driver=driver, requests=requests, reservations=reservations, early=early)
    return Loop(scope, inbox=inbox, proposer=proposer, execution=execution, early=early)


def _execution(scope: RunScope, host: Host, reservations: Reservations, deps: Any) -> tuple[Execution, EarlyCalls]:
    """Return what carries the calls of a run out, and what starts some of them early."""
    about, guards, polling = scope.about, scope.about.guards, scope.offering.polling
    checker = Checker(scope)
    decide = Actions(scope, checker).decide
    attempts = Attempts(scope, Invoker(scope, deps=deps, decide=decide, host=host, left=host.left))
    tries = Tries(guards, polling=polling, is_small=bool(facts_of(scope.model).small))
    progress = Progress(None if guards.repeats is None else guards.no_progress, polling=polling)
    early = EarlyCalls(scope, checker=checker, attempts=attempts, tries=tries, progress=progress)
    ends = about.done_when
    done = None if ends is None else DoneCondition(scope, ends, CheckView(host.session, scope, reservations))
    execution = Execution(
        scope,
        recovery=Recovery(scope, checker=checker, attempts=attempts),
        planner=Planner(scope, checker=checker, early=early, tries=tries, progress=progress),
        attempts=attempts,
        early=early,
        conditions=Conditions(scope, done=done, tries=tries, progress=progress),
    )
    return execution, early


class _Executor:
    """What a driver may know of the executor."""

    def __init__(self, offering: Offering) -> None:
        self._offering = offering

    def offers(self, name: str) -> bool:
        return self._offering.current.find(name) is not None
