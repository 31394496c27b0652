"""Goals: work towards one objective over many steps, processes and days, until a command or function confirms that it is reached.

Not a second loop: a goal is a run of an agent that ends only as the goal allows. The model's claims decide nothing.
"""

import re
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.run import Run
from treadle.budgets import Budget, budget_from
from treadle.canonical import digest
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.spec import AgentSpec, RunResult
from treadle.errors import ConfigurationError, TreadleError, shown
from treadle.events import GoalChecked, GoalSet, ModelStarted
from treadle.fields import Documented, NamedOptions, check_fields, check_least, checked
from treadle.permissions.policies import ask, deny
from treadle.ports import CheckView, Hook, HookContext, asked_model, window_of
from treadle.redaction import Redactor
from treadle.resolve import memory_session
from treadle.sandboxes.processes import run_process
from treadle.sessions.session import Session
from treadle.stops import Status, Stop, StopReason
from treadle.tools import Done

__all__ = ["Goal", "GoalResult", "GoalWork", "StopRules", "load_goal", "run_goal"]


# --- Objectives: what a goal is, and what keeps one from being worked on: a part that is missing or vague, or a second
# objective.

_LEAST_WORDS = 3
_VAGUE = re.compile(
    r"\b(something|stuff|things|somehow|whatever|etc|tbd|todo|tba|various|misc|as needed|if possible|and so on|"
    r"better|nicer|improve everything|clean ?up everything|make progress|backlog|good enough|keep going|"
    r"what(?:ever)? (?:is|seems) (?:needed|necessary|right)|everything (?:is|works|that)|"
    r"works? (?:well|fine|properly|correctly|as expected)|"
    r"(?:improve|optimi[sz]e|enhance) (?:the )?(?:overall )?(?:quality|performance|code|codebase|project|app|application|system)|"
    r"(?:tidy|clean)(?:ing)? ?up (?:the |this |our |my )?(?:code|codebase|project|repo|repository)|"
    r"(?:handle|work on|work through|fix|address|resolve|deal with|take care of|do) (?:all|every|any)(?: of)?(?: the)?"
    r"(?: open| remaining| known| other)? (?:issues?|bugs?|tickets?|problems?|tasks?))\b|\?\?|^\s*\W*\s*$",
    re.IGNORECASE,
)
_VERBS = (
    "add analyse analyze archive book build change check clean close collect compare convert correct create delete deploy "
    "deliver describe design document draft email ensure extend extract file find fix implement import improve install integrate "
    "inform investigate list measure mend merge migrate move notify open optimise optimize order organise organize pay plan port prepare "
    "publish redesign reduce refactor release remove rename replace report research resolve review rewrite run schedule send "
    "set ship sort split start stop summarise summarize switch test train translate tidy update upgrade verify write"
)
_NEXT = r"(?:\band\b|\bthen\b|[;,&+/]|\balso\b|\bplus\b|\bas well as\b|\bafterwards\b|\bbefore that\b)"
_SECOND = re.compile(
    rf"{_NEXT}(?:\s+(?:also|then|afterwards|later|finally|after that))*,?\s+(?:{'|'.join(_VERBS.split())})\b",
    re.IGNORECASE,
)
_STATE = r"(?:is|are|has|have|pass|passes|exists?|works?|returns?|says?|holds?|runs?|builds?|succeeds?|reads|shows?)"
_SECOND_CLAUSE = re.compile(
    rf"\b{_STATE}\b.*(?:\band\b|;|&)\s+(?!(?:it|its|they|their|that|this|which|nothing)\b)(?:[\w.'-]+\s+){{1,4}}?{_STATE}\b",
    re.IGNORECASE,
)
_LIST_LINE = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+\S", re.MULTILINE)
_NUMBERED = re.compile(r"(?:^|\s)\(?(\d+|[a-d])[.)]\s+\S")
_VERB_LINE = re.compile(rf"^\s*(?:{'|'.join(_VERBS.split())})\b", re.IGNORECASE | re.MULTILINE)
_WORD = re.compile(r"\w{2,}")
_SENTENCE = re.compile(r"[.!?](?:\s+)(?=[A-Z])")


class StopRules(
    msgspec.Struct, Documented, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions
):
    """When the work on a goal stops although it is not reached, in addition to its budget. At least one rule is given."""

    false_claims: int | None = None
    """How many times in a row the model may claim to be done while the validation fails."""
    unchanged_checks: int | None = None
    """How many checkpoints in a row may find no change."""

    def __post_init__(self) -> None:
        check_fields("The stop rule", self)
        check_least("The stop rule", self, self.__struct_fields__, 1)


class Goal(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """One objective, and the check that it is reached.

    Example:
        Goal(
            objective="All tests of the parser pass",
            done_condition="pytest ends with exit code 0",
            validation="pytest -q tests/parser",
            budget=Budget(max_model_turns=200, max_total_cost=5),
            checkpoint_every=10,
            plan=["Read the failing tests", "Fix the parser"],
            stop_rules=StopRules(false_claims=5),
        )

    Raises:
        ConfigurationError: A part is missing or vague, or there are two objectives. The message names all that is wrong.
    """

    objective: str
    """What to achieve: one thing."""
    done_condition: str
    """When it is reached, as a condition that can be checked."""
    validation: str
    """The command that checks it: exit code 0 means reached. Run by bash in the root folder, with the person's permissions."""
    budget: Budget
    """Its limits, over all resumes."""
    checkpoint_every: int
    """Steps from one checkpoint to the next."""
    plan: tuple[str, ...]
    """The initial plan."""
    stop_rules: StopRules
    """When it stops although it is not reached."""
    forbidden_actions: tuple[str, ...] = ()
    """Rules for calls that are denied, such as `shell(git push:*)`."""
    approval_required_for: tuple[str, ...] = ()
    """Rules for calls that a person is asked about, such as `write`."""
    validation_seconds: float = 600.0
    """How long the validation may take. If it does not end in time, it has not passed."""

    def __post_init__(self) -> None:
        check_fields("The goal's", self)
        for name in ("plan", "forbidden_actions", "approval_required_for"):
            msgspec.structs.force_setattr(self, name, tuple(getattr(self, name)))
        if faults := list(_faults_of(self)):
            raise ConfigurationError("This goal cannot be worked on: " + " ".join(faults))

    @property
    def digest(self) -> str:
        """What tells it from any other goal. Its budget may grow."""
        return digest([self.objective, self.done_condition, self.validation])

    @property
    def task(self) -> str:
        """What the model reads."""
        lines = [
            f"Reach this objective: {self.objective}",
            f"It is reached when: {self.done_condition}",
            f"This command decides that, and is run for you: {self.validation}",
            "Say that you are done only when you expect it to pass. If it fails, you see its output and continue.",
            "The plan so far:",
            *(f"{number}. {step}" for number, step in enumerate(self.plan, start=1)),
        ]
        if self.forbidden_actions:
            lines.append(f"Forbidden, and denied: {', '.join(self.forbidden_actions)}")
        return "\n".join(lines)


@checked
def load_goal(path: str | Path) -> Goal:
    """Read a goal from a TOML file.

    Example:
        goal = load_goal("goal.toml")

    Raises:
        ConfigurationError: The file cannot be read, a part is missing, unknown or vague, or there are two objectives.
    """
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:  # not TOML, not UTF-8, or not a file's name
        why = (exc.strerror if isinstance(exc, OSError) else None) or exc
        raise ConfigurationError(f"The goal file {str(path)!r} cannot be read: {why}.") from exc
    return _goal_from(found, str(path))


def _goal_from(found: dict[str, Any], where: str) -> Goal:
    fields = dict(found)
    try:
        if isinstance(budget := fields.get("budget"), dict):
            fields["budget"] = budget_from(budget)
        if isinstance(rules := fields.get("stop_rules"), dict):
            fields["stop_rules"] = StopRules(**rules)
        return Goal(**fields)
    except (ConfigurationError, TypeError) as error:  # a TypeError names a field that is missing or unknown
        raise ConfigurationError(f"The goal file {where!r} cannot be worked on: {error}") from error


def _faults_of(goal: Goal) -> Iterator[str]:
    """Yield what keeps a goal from being worked on."""
    for name in ("objective", "done_condition", "validation"):
        value: str = getattr(goal, name)
        if not value.strip():
            yield f"It has no {name}."
        elif name != "validation" and (len(_WORD.findall(value)) < _LEAST_WORDS or _VAGUE.search(value)):
            yield f"Its {name} is vague: {shown(value)}. Say what will be different, so that a stranger can check it."
    if _is_several(goal.objective):
        yield f"It has more than one objective: {shown(goal.objective)}. Give each a goal of its own."
    if not any(step.strip() for step in goal.plan):
        yield "It has no plan: name the first steps."
    if goal.checkpoint_every < 1:
        yield f"checkpoint_every is a whole number of steps of at least 1; got {goal.checkpoint_every}."
    if goal.stop_rules == StopRules():
        yield "It has no stop rules: StopRules(false_claims=5)."
    if goal.validation_seconds <= 0:
        yield f"validation_seconds is a number above 0; got {goal.validation_seconds}."


def _is_several(objective: str) -> bool:
    if len(_LIST_LINE.findall(objective)) > 1 or len([one for one in objective.split("\n\n") if one.strip()]) > 1:
        return True
    if len(_NUMBERED.findall(objective)) > 1 or len(_VERB_LINE.findall(objective)) > 1:
        return True
    is_joined = _SECOND.search(objective) or _SECOND_CLAUSE.search(objective)
    return bool(is_joined) or len(_SENTENCE.findall(objective.strip())) > 0


# --- Goals: work towards one objective over many steps, processes and days, until a command or function confirms that
# it is reached.

GoalStatus: TypeAlias = Literal["active", "paused", "completed", "blocked", "cancelled"]
Validate: TypeAlias = Callable[[], bool | tuple[bool, str] | Awaitable[bool | tuple[bool, str]]]
"""Return whether the goal is reached, with a comment. An exception counts as no."""

_REDACTOR = Redactor()
_OUTPUT_CHARS = 4_000
_COMPACT_SHARE = 0.7


class GoalResult(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The state of the work on a goal."""

    goal: Goal
    """The goal."""
    status: GoalStatus
    """`completed` only if the validation has passed; `paused` if it waits for a person; `blocked` if it cannot continue like this."""
    checks: tuple[GoalChecked, ...]
    """Every checkpoint so far, over all resumes: the progress log."""
    run: RunResult | None
    """How the run ended; None if the goal had been reached before."""

    @property
    def completed(self) -> bool:
        """Whether the validation has passed."""
        return self.status == "completed"

    @property
    def message(self) -> str:
        """One sentence about its state, for a person."""
        last = self.checks[-1] if self.checks else None
        if self.completed:
            return f"The goal is reached: {self.goal.validation} passed."
        found = (
            "was not run"
            if last is None
            else f"failed with exit code {last.exit_code}"
            if not last.passed
            else "passed"
        )
        why = "" if self.run is None else f" {self.run.message}"
        return f"The goal is {self.status}; its validation {found}.{why}"


@checked
async def run_goal(
    agent: Agent[Any, Any],
    goal: Goal,
    *,
    session: Session | None = None,
    root: str | Path = ".",
    deps: Any = None,  # Any: the application's own object
    validate: Validate | None = None,
) -> GoalResult:
    """Work on a goal until its validation passes, a limit or a stop rule ends it, or it waits for a person.

    Called again with the session, in any process, it continues from the last checkpoint: nothing is done twice. The agent's own
    policy, hooks and condition still apply; the goal can only tighten them.

    Example:
        async with open_session("agent.db", id="parser") as session:
            result = await run_goal(agent, load_goal("goal.toml"), session=session)

    Args:
        session: Where the work is recorded; None for a session in memory.
        root: The folder in which the validation runs.
        validate: Decides instead of the goal's command.

    Raises:
        ConfigurationError: The session has another goal.
        SessionHeld: The session is already running.
        JournalError: The session's store failed.
    """
    work = await GoalWork.begun(agent, goal, session=session, root=root, deps=deps, validate=validate)
    return work.result(None if work.run is None else await work.run.finish())


class GoalWork:
    """The work on one goal, if you want to watch its run. `run_goal` waits for its end instead.

    Example:
        work = await GoalWork.begun(agent, goal, session=session)
        if work.run is not None:
            async with work.run as run:
                async for event in run: ...
            print(work.result(run.result).message)
    """

    @checked
    def __init__(self, goal: Goal, session: Session, validate: Validate, *, window: int | None = None) -> None:
        self.goal = goal
        self.session = session
        self.run: Run[Any] | None = None
        """The run that continues with the goal; None if it is already reached."""
        self.checks: list[GoalChecked] = []
        """Every checkpoint so far, over all resumes."""
        self._life: Lifecycle | None = None
        self._is_known = False
        self._is_reached = False
        self._validate = validate
        self._window = window
        self._side_effects = 0
        self._steps = 0

    @classmethod
    @checked
    async def begun(
        cls,
        agent: Agent[Any, Any],
        goal: Goal,
        *,
        session: Session | None = None,
        root: str | Path = ".",
        deps: Any = None,  # Any: the application's own object
        validate: Validate | None = None,
    ) -> "GoalWork":
        """Read what the session has recorded, and create the run that continues. Arguments as for `run_goal`."""
        session = session if session is not None else await memory_session()
        check = validate or partial(_command_passes, goal, root)
        work = cls(goal, session, check, window=window_of(asked_model(agent.model)))
        await work._look_back()
        if not work._is_reached:
            work._begin_run(agent, deps)
        return work

    def _begin_run(self, agent: Agent[Any, Any], deps: Any) -> None:
        session, run = self.session, self.session.state.run

        async def opening() -> Session:
            return session

        task = None if self._is_known else self.goal.task
        if self._is_known and (run is None or run.status == "completed"):
            task = f"Continue: the objective has not been reached. {self.goal.task}"
        spec = self._held(agent._whole())  # noqa: SLF001 - one room
        self._life = Lifecycle(spec, agent.model, opening, task=task, deps=deps, budget=self.goal.budget)
        self.run = Run(self._life)

    async def _look_back(self) -> None:
        """Read what the session has recorded."""
        for event in await self.session.events():
            match event:
                case GoalSet():
                    if event.digest != self.goal.digest:
                        raise ConfigurationError(
                            f"Session {self.session.id!r} works on another goal: {event.objective}. "
                            "Use another session, or the goal as it was."
                        )
                    self._is_known = True
                case GoalChecked():
                    self.checks.append(event)
                    self._is_reached, self._steps = event.passed, event.step
                case ModelStarted() if event.act is None:
                    self._is_reached = False  # it continued anyway, and may have changed what was found
                case _:
                    pass
        self._side_effects = len(self.session.state.side_effects.done)

    def _held(self, spec: AgentSpec) -> AgentSpec:
        """Return the description of an agent whose runs end only as the goal allows."""
        goal, seconds = self.goal, self.goal.validation_seconds + 30
        rules = (
            *((deny(*goal.forbidden_actions, reason="The goal forbids it."),) if goal.forbidden_actions else ()),
            *((ask(*goal.approval_required_for),) if goal.approval_required_for else ()),
        )
        hooks = (
            *spec.hooks,
            Hook(at="session_start", run=self._begin, name="goal", priority=1_000_000),
            Hook(at="stop", run=self._claimed, name="goal", priority=-1_000_000, timeout=seconds),
        )
        return msgspec.structs.replace(
            spec,
            hooks=hooks,
            budget=goal.budget,
            # A run of an agent without these rules does not continue what began under them.
            fingerprint={**spec.fingerprint, "goal": goal.digest},
            guards=msgspec.structs.replace(spec.guards, continuations=None),
            done_when=self._looked_at,
            policies_above=(*spec.policies_above, *rules),
        )

    async def _begin(self, context: HookContext) -> None:
        if not self._is_known:
            goal = self.goal
            event = GoalSet(
                digest=goal.digest,
                objective=goal.objective,
                done_condition=goal.done_condition,
                validation=goal.validation,
            )
            await self.session.ledger.record(event, durable=True)
            self._is_known = True

    async def _looked_at(self, view: CheckView) -> Done | None:
        """Look at the goal every so many steps. The agent's own condition ends nothing: a goal is not reached by it."""
        step = view.state.step
        if step - self._steps < self.goal.checkpoint_every:
            return None
        check = await self._check("checkpoint", step)
        return Done({"goal": self.goal.objective, "validation": check.output}) if check.passed else None

    async def _claimed(self, context: HookContext) -> str | None:
        """Hold the model's claim to the validation: what that says is what the model sees next."""
        if self._is_reached and self.checks[-1].step == context.step:  # a checkpoint has just found it
            return None
        check = await self._check("claim", context.step)
        if check.passed:
            return None
        return (
            f"The objective has not been reached: {self.goal.validation} does not pass (exit code {check.exit_code}). "
            f"Its output:\n{check.output or '(nothing)'}\nContinue."
        )

    async def _check(self, trigger: str, step: int) -> GoalChecked:
        """Run the validation, answer the six questions, and record them."""
        passed, code, output = await _found(self._validate)
        output = _REDACTOR.text(output)
        state, meter = self.session.state, None if self._life is None else self._life.meter
        done = state.side_effects.done[self._side_effects :]
        self._side_effects, self._steps = len(state.side_effects.done), step
        spent = None if state.run is None else state.run.spent
        reached = None if meter is None or spent is None else meter.look(spent).reached
        check = GoalChecked(
            step=step,
            trigger=trigger,
            passed=passed,
            exit_code=code,
            output=output,
            evidence=tuple(_REDACTOR.text(f"{one.tool} {one.arguments}")[:200] for one in done),
            is_in_budget=reached is None,
            left={} if meter is None or spent is None else _left(meter.limits, spent),
            needs_approval=bool(state.pending_approvals()),
            should_compact=self._is_long(),
        )
        await self.session.ledger.record(check, durable=True)
        self.checks.append(check)
        self._is_reached = passed
        if not passed and (stop := self._ruled()) is not None and self._life is not None:
            self._life.stop(stop)
        return check

    def _is_long(self) -> bool:
        """Whether what the model is shown fills most of its window, at four characters a token."""
        chars = sum(len(part.content) for message in self.session.state.shown for part in message.results)
        return self._window is not None and chars / 4 > _COMPACT_SHARE * self._window

    def _ruled(self) -> Stop | None:
        """Return the end by a stop rule that holds now."""
        rules, checks = self.goal.stop_rules, self.checks
        claims = _tail([one for one in checks if one.trigger == "claim"], lambda one: not one.passed)
        same = _tail(checks, lambda one: not one.evidence and one.output == checks[-1].output)
        for name, count in (("false_claims", claims), ("unchanged_checks", same)):
            limit = getattr(rules, name)
            if limit is not None and count >= limit:
                message = f"The stop rule {name} of the goal holds: {count} of {limit}."
                return Stop(
                    reason=StopReason.REPEATED_FAILURES, message=message, details={"rule": name, "count": count}
                )
        return None

    @checked
    def result(self, run: RunResult | None) -> GoalResult:
        """Return how the goal stands. A run that says it is completed completes nothing where the validation said no."""
        return GoalResult(goal=self.goal, status=self._status(run), checks=tuple(self.checks), run=run)

    def _status(self, run: RunResult | None) -> GoalStatus:
        if self._is_reached and (run is None or run.completed):
            return "completed"
        if run is None or run.status is Status.PAUSED:
            return "paused"
        return "cancelled" if run.reason is StopReason.CANCELLED else "blocked"


def _tail(checks: list[GoalChecked], holds: Callable[[GoalChecked], bool]) -> int:
    count = 0
    for one in reversed(checks):
        if not holds(one):
            break
        count += 1
    return count


def _left(limits: Mapping[str, Any], spent: Any) -> dict[str, str]:
    used = {
        "max_model_turns": spent.model_turns,
        "max_tool_calls": spent.tool_calls,
        "max_input_tokens": spent.usage.input_tokens,
        "max_output_tokens": spent.usage.output_tokens,
        "max_total_cost": spent.cost,
    }
    return {name: str(max(limit - used[name], 0)) for name, limit in limits.items() if used.get(name) is not None}


async def _found(validate: Validate) -> tuple[bool, int | None, str]:
    """Ask the validation. Whatever it raises, and whatever is not a plain yes, is a no."""
    try:
        answer: Any = validate()
        if isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - a stranger's code: that it fails proves nothing
        return False, None, f"The validation failed: {type(error).__name__}: {error}"[:_OUTPUT_CHARS]
    if isinstance(answer, _Ran):
        return answer.passed, answer.code, answer.output
    if isinstance(answer, tuple) and len(answer) == 2:
        return answer[0] is True, None, str(answer[1])[-_OUTPUT_CHARS:]
    return answer is True, None, ""


class _Ran(msgspec.Struct, frozen=True, kw_only=True):
    passed: bool
    code: int | None
    output: str


async def _command_passes(goal: Goal, root: str | Path) -> Any:
    """Run the goal's command. One that cannot be started, or does not end in time, has not passed."""
    try:
        ran = await run_process(
            # pipefail: `pytest | tail` would pass whatever pytest says.
            ["bash", "-o", "pipefail", "-c", goal.validation],
            cwd=root,
            timeout=goal.validation_seconds,
            max_bytes=20_000,
        )
    except (OSError, TreadleError) as error:
        return _Ran(passed=False, code=None, output=f"The validation could not be run: {error}")
    said = (ran.stdout + ran.stderr)[-_OUTPUT_CHARS:]
    if ran.timed_out:
        return _Ran(
            passed=False, code=None, output=f"It did not end within {goal.validation_seconds:g} seconds.\n{said}"
        )
    return _Ran(passed=ran.exit_code == 0, code=ran.exit_code, output=said)
