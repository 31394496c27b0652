"""The suite: plays each scenario against a subject, in each dialect, and judges what came over the wire, the ledger and the exits."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.conformance.checks import accepted, ended
from treadle.conformance.evidence import Evidence, Exit, executions_in, request_of
from treadle.conformance.scenario import DIALECTS, Act, DialectName, Scenario
from treadle.conformance.service import served_tools
from treadle.conformance.subjects import About, Running, Subject
from treadle.fields import Documented
from treadle.testing import MockProvider, Script, Turn

__all__ = ["Outcome", "Report", "Verdict", "run_suite"]

Outcome: TypeAlias = Literal["holds", "fails", "not offered"]

_SECONDS = 20.0
"""How long one process of a subject may take. No scenario needs more than two."""
_MOST_REQUESTS = 40
"""A loop that asks more often than so in one scenario does not end."""
_MOST_SHOWN = 20_000
"""Characters of a request's body that the report keeps."""
_API_KEY = "sk-conformance-1f6d"


class Verdict(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What one scenario came to in one dialect."""

    scenario: str
    """Its id."""
    group: str
    """The first part of it."""
    dialect: DialectName
    """The provider's dialect."""
    severity: str
    """How bad a failure is."""
    outcome: Outcome
    """`not offered` if the subject does not claim what the scenario needs."""
    faults: tuple[str, ...] = ()
    """What was wrong."""
    missing: tuple[str, ...] = ()
    """What the subject would have to offer."""
    evidence: Mapping[str, Any] = {}
    """What was judged: requests, refusals, executions, exits."""


class Report(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What the suite found out about one subject."""

    subject: About
    """Its name, version and what it offers."""
    verdicts: tuple[Verdict, ...]
    """One for each scenario and dialect, in the order of the scenarios."""

    def count(self, outcome: Outcome) -> int:
        """Return how many verdicts have this outcome."""
        return sum(one.outcome == outcome for one in self.verdicts)


async def run_suite(
    subject: Subject,
    scenarios: Sequence[Scenario],
    *,
    dialects: Sequence[DialectName] = DIALECTS,
    side_by_side: int = 8,
    seconds: float = _SECONDS,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> Report:
    """Run scenarios against a subject.

    Args:
        subject: The program to judge.
        scenarios: What to run.
        dialects: The provider's dialects. One that the subject does not offer is `not offered`.
        side_by_side: How many trials run at one time.
        seconds: How long one process of the subject may take.
        on_verdict: Called with each verdict as it comes.
    """
    places = asyncio.Semaphore(side_by_side)

    async def judged(scenario: Scenario, dialect: DialectName) -> Verdict:
        missing = _missing(scenario, dialect, subject.about.offers)
        if missing:
            verdict = _verdict(scenario, dialect, "not offered", missing=missing)
        else:
            async with places:
                verdict = await _Trial(subject, scenario, dialect, seconds).judged()
        if on_verdict is not None:
            on_verdict(verdict)
        return verdict

    async with subject:
        verdicts = await asyncio.gather(
            *(judged(one, dialect) for one in scenarios for dialect in dialects if dialect in one.dialects)
        )
    return Report(subject=subject.about, verdicts=tuple(verdicts))


def _missing(scenario: Scenario, dialect: DialectName, offers: frozenset[str]) -> tuple[str, ...]:
    if left_out := {f"-{scenario.group}", f"-{scenario.id}"} & offers:
        return (left_out.pop()[1:],)
    elsewhere = {_next(dialect)} if any(act.is_elsewhere for act in scenario.acts) else set()
    return tuple(sorted((scenario.needs | {dialect} | elsewhere) - offers))


def _next(dialect: DialectName) -> DialectName:
    return DIALECTS[(DIALECTS.index(dialect) + 1) % len(DIALECTS)]


def _verdict(scenario: Scenario, dialect: DialectName, outcome: Outcome, **about: Any) -> Verdict:
    return Verdict(
        scenario=scenario.id,
        group=scenario.group,
        dialect=dialect,
        severity=scenario.severity,
        outcome=outcome,
        **about,
    )


class _Trial:
    """One scenario in one dialect."""

    def __init__(self, subject: Subject, scenario: Scenario, dialect: DialectName, seconds: float) -> None:
        self._subject = subject
        self._scenario = scenario
        self._dialect = dialect
        self._seconds = seconds
        self._turns = Script(scenario.turns_in(dialect)).turns
        self._asked = 0
        self._played = 0
        self._proposed: dict[str, int] = {}
        self._received: Sequence[Any] = ()
        self._kill_at: int | None = None
        self._running: Running | None = None

    async def judged(self) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            evidence = await self._evidence(Path(folder))
        faults = tuple(fault for check in (ended, accepted, *self._scenario.right) if (fault := check(evidence)))
        shown = _shown(evidence)
        return _verdict(self._scenario, self._dialect, "fails" if faults else "holds", faults=faults, evidence=shown)

    async def _evidence(self, folder: Path) -> Evidence:
        exits = []
        async with (
            MockProvider(self._respond, api_key=_API_KEY, lenient_arguments=True) as provider,
            self._service(folder) as addresses,
        ):
            self._received = provider.requests
            for number, act in enumerate(self._scenario.acts):
                place = folder / str(number)
                place.mkdir()
                job = {**self._job(act, provider.base_url, folder), **addresses}
                exits.append(await self._carry_out(act, job, place))
        return Evidence(
            dialect=self._dialect,
            requests=tuple(request_of(one) for one in provider.requests if one.method == "POST"),
            refusals=tuple(str(one) for one in provider.refusals),
            executions=tuple(executions_in(folder / "ledger")),
            exits=tuple(exits),
            proposed=self._proposed,
            is_in_texts="texts" in self._subject.about.offers,
        )

    @contextlib.asynccontextmanager
    async def _service(self, folder: Path) -> AsyncIterator[Mapping[str, str]]:
        """Serve the tools to a subject that finds them over HTTP."""
        if not self._subject.wants_service:
            yield {}
            return

        def process() -> int:
            assert self._running is not None
            return self._running.pid

        tools = msgspec.to_builtins(self._scenario.tools)
        async with served_tools(tools, str(folder / "ledger"), process) as addresses:
            yield addresses._asdict()

    def _respond(self, body: Any) -> Turn:
        """Play the next turn. A request at which the process is killed takes none."""
        self._asked += 1
        if self._asked == self._kill_at or self._asked > _MOST_REQUESTS:
            assert self._running is not None
            self._running.kill()
            return Turn(text="Nobody reads this.")
        turn = self._turns[min(self._played, len(self._turns) - 1)]
        self._played += 1
        for call in turn.calls:
            if isinstance(call.id, str):
                self._proposed.setdefault(call.id, len(self._received))
        return turn

    def _job(self, act: Act, base_url: str, folder: Path) -> dict[str, Any]:
        scenario = self._scenario
        state = folder / "state"
        state.mkdir(exist_ok=True)
        return {
            "action": act.action,
            "prompt": act.prompt,
            "system": "You are a careful assistant.",
            "dialect": _next(self._dialect) if act.is_elsewhere else self._dialect,
            "base_url": base_url,
            "root_url": base_url.removesuffix("/v1"),
            "api_key": _API_KEY,
            "model": "mock",
            "stream": "stream" in self._subject.about.offers,
            "state": str(state),
            "session": "conformance",
            "keeps_state": len(scenario.acts) > 1,
            "max_steps": 20,
            "max_attempts": 3,
            "tool_timeout": None,
            "model_timeout": None,
            "max_result_chars": None,
            "decisions": list(act.decisions),
            "ledger": str(folder / "ledger"),
            "tools": msgspec.to_builtins(scenario.tools),
            **scenario.options,
        }

    async def _carry_out(self, act: Act, job: Mapping[str, Any], place: Path) -> Exit:
        self._kill_at = act.is_killed_at
        self._running = running = await self._subject.start(job, place)
        try:
            code: int | None = await asyncio.wait_for(running.wait(), self._seconds)
        except TimeoutError:
            code = None
        finally:
            running.kill()  # and what it has left behind
        return _exit_of(place, None if self._asked > _MOST_REQUESTS else code)


def _exit_of(place: Path, code: int | None) -> Exit:
    printed = _read(place / "stdout").strip().rpartition("\n")[2]
    outcome: Any = {}
    with contextlib.suppress(ValueError):
        outcome = json.loads(printed)
    if not isinstance(outcome, dict):
        outcome = {}
    answer = outcome.get("answer")
    return Exit(
        code=code,
        was_killed=code == -9,
        answer=None if answer is None else str(answer),
        outcome=outcome,
        errors=_read(place / "stderr")[-4_000:],
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _shown(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as JSON, long requests cut."""
    requests = [
        {
            "status": one.status,
            "body": one.body if len(text := json.dumps(one.body)) <= _MOST_SHOWN else text[:_MOST_SHOWN],
        }
        for one in evidence.requests
    ]
    return {
        "requests": requests,
        "refusals": list(evidence.refusals),
        "executions": msgspec.to_builtins(evidence.executions),
        "exits": msgspec.to_builtins(evidence.exits),
    }
