"""Assembly: put the parts of one run together, from the description of its agent. Runs nothing."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from treadle.answers import Answers
from treadle.attempts import Attempts
from treadle.budgets import Budget, Meter
from treadle.calling import Calling
from treadle.checking import Checker
from treadle.early import EarlyCalls
from treadle.events import Subscriber
from treadle.execution import Execution
from treadle.guards import Guards
from treadle.inbox import Inbox
from treadle.loop import Loop
from treadle.planning import Planner
from treadle.ports import Compiler, Driver, Interceptor, Model, Policy
from treadle.proposal import Proposer
from treadle.recovery import InDoubt, Recovery
from treadle.requests import Requests
from treadle.runtime.interrupts import Interrupt
from treadle.runtime.tries import Tries
from treadle.session import Session
from treadle.toolbox import Toolbox

if TYPE_CHECKING:
    from treadle.runtime.validation.typed import Typed

__all__ = ["Description", "assemble"]


class Description(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything about an agent but its model."""

    toolbox: Toolbox
    instructions: str | None
    instructions_digest: str
    """What tells changed instructions from those before, without repeating either; empty for none."""
    policy: Policy | None
    driver: Driver | None
    """None as long as the model has not been asked which it needs."""
    budget: Budget
    profile: str | None
    compiler: Compiler
    tool_choice: str
    output: "Typed | None"
    guards: Guards
    on_limit: Literal["summarize", "report"]
    unpriced: Literal["refuse", "warn"]
    in_doubt: InDoubt | None
    approval_seconds: float
    subscribers: tuple[Subscriber, ...]
    interceptors: tuple[Interceptor, ...]


def assemble(
    about: Description,
    model: Model,
    session: Session,
    *,
    inbox: Inbox,
    interrupt: Interrupt,
    budget: Budget,
    deps: Any,  # Any: the application's own object
) -> Loop:
    """Return the loop of one run, with all that it needs.

    Args:
        budget: What holds for this run.
        deps: What tools find in `ctx.deps`.
    """
    assert about.driver is not None
    parts = _parts(about, session, interrupt, budget, deps)
    driver = about.driver.bind(model, about.toolbox.visible(session), _Offer(about.toolbox, session))
    proposer = Proposer(
        ledger=session.ledger,
        driver=driver,
        model=model,
        early=parts.early,
        interrupt=interrupt,
        budget=budget,
        refused_as=about.guards.finish_reasons,
    )
    requests = Requests(
        ledger=session.ledger,
        session=session,
        toolbox=about.toolbox,
        compiler=about.compiler,
        instructions=about.instructions,
        tool_choice=about.tool_choice,
        output_schema=None if about.output is None else about.output.schema,
        is_parallel=budget.max_parallel_tool_calls != 1,
    )
    return Loop(
        ledger=session.ledger,
        inbox=inbox,
        proposer=proposer,
        execution=parts.execution,
        early=parts.early,
        answers=Answers(output=about.output),
        meter=Meter(budget),
        interrupt=interrupt,
        requests=requests,
        on_limit=about.on_limit,
    )


class _Parts(NamedTuple):
    """What carries calls out."""

    early: EarlyCalls
    execution: Execution


def _parts(about: Description, session: Session, interrupt: Interrupt, budget: Budget, deps: Any) -> _Parts:
    ledger, toolbox = session.ledger, about.toolbox
    checker = Checker(toolbox=toolbox, policy=about.policy, interceptors=about.interceptors, session=session)
    calling = Calling(ledger=ledger, interrupt=interrupt, deps=deps, abandoned=session.abandoned)
    attempts = Attempts(
        ledger=ledger,
        toolbox=toolbox,
        interrupt=interrupt,
        calling=calling,
        budget=budget,
        interceptors=about.interceptors,
    )
    tries = Tries(about.guards, polling=[tool.name for tool in toolbox if tool.polling])
    early = EarlyCalls(ledger=ledger, checker=checker, attempts=attempts, tries=tries)
    execution = Execution(
        ledger=ledger,
        recovery=Recovery(
            ledger=ledger,
            checker=checker,
            attempts=attempts,
            interrupt=interrupt,
            in_doubt=about.in_doubt,
            approval_seconds=about.approval_seconds,
        ),
        planner=Planner(
            ledger=ledger,
            checker=checker,
            early=early,
            interrupt=interrupt,
            tries=tries,
            approval_seconds=about.approval_seconds,
        ),
        attempts=attempts,
        calling=calling,
        early=early,
        interrupt=interrupt,
        tries=tries,
        result_chars=budget.max_tool_result_chars,
    )
    return _Parts(early, execution)


class _Offer:
    """What a driver may know of the executor."""

    def __init__(self, toolbox: Toolbox, session: Session) -> None:
        self._toolbox = toolbox
        self._session = session

    def offers(self, name: str) -> bool:
        return self._toolbox.find(name, self._session) is not None
