"""V01, the central invariant: every proposed call gets exactly one result, whatever model, tools, people and clocks do."""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from invariants import check_pairs, check_session
from treadle import (
    Agent,
    Budget,
    Decision,
    Guards,
    Rejected,
    Session,
    Tool,
    ToolContext,
    ToolOutput,
    Transient,
    open_session,
    resolve_model,
)
from treadle.errors import ContextOverflow, ModelRejected, ModelUnavailable
from treadle.events import AnyEvent, ToolAttemptFailed
from treadle.journals.memory import MemoryJournal
from treadle.messages import Media, ToolCall
from treadle.ports import Clock, Journal, Timer
from treadle.testing import FakeClock, FaultyJournal, FixedRandomness, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, ToolResult

EFFECTS = ("read", "idempotent", "keyed", "unsafe")

NUMBERED: JsonObject = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "additionalProperties": False}  # fmt: skip

BEHAVIOURS = (
    "ok", "text", "none", "bytes", "media", "long", "nan", "cycle", "set", "surrogate", "shape", "face",
    "value", "runtime", "timeout", "connection", "file", "transient", "patience", "rejected", "odd rejection",
    "exit", "interrupt", "group", "base group", "cancelled", "stop", "wordless", "hang", "stubborn", "mutate",
)  # fmt: skip


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def behave(word: str) -> Any:
    """Return or raise what a tool might."""
    cycle: list[Any] = []
    cycle.append(cycle)
    values: dict[str, Any] = {
        "ok": {"n": 1},
        "text": "fine",
        "none": None,
        "bytes": b"\x00\xff",
        "media": Media(media_type="image/png", base64="AAAA"),
        "long": "word " * 200_000,
        "nan": {"n": float("nan")},
        "cycle": cycle,
        "set": {1, 2},
        "surrogate": "\ud800",
        "shape": {"other": "shape"},
        "face": ToolOutput(data="fine", display=5),
    }
    errors: dict[str, BaseException] = {
        "value": ValueError("\ud800 bad"),
        "runtime": RuntimeError("x" * 100_000),
        "timeout": TimeoutError(),
        "connection": ConnectionResetError("reset"),
        "file": FileNotFoundError(2, "No such file", "/secret/place"),
        "transient": Transient("later"),
        "patience": Transient("much later", retry_after_seconds=5000),
        "rejected": Rejected({"error": "NO"}),
        "odd rejection": Rejected({"error": "\ud800"}, code=404),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "group": ExceptionGroup("two", [ValueError("a"), ConnectionError("b")]),
        "base group": BaseExceptionGroup("two", [SystemExit(1)]),
        "cancelled": asyncio.CancelledError(),
        "stop": StopIteration(),
        "wordless": Wordless(),
    }
    if word in errors:
        raise errors[word]
    return values[word]


class Workshop:
    """Tools of every effect, sync and async, that behave as the script says, and count what they really did."""

    def __init__(self, behaviours: Sequence[str], clock: Clock) -> None:
        self.done: Counter[str] = Counter()
        self.release = threading.Event()
        self._behaviours = behaviours
        self._clock = clock
        self._number = 0

    def tools(self) -> list[Tool]:
        shape = {"type": ["object", "string", "null"], "properties": {"other": False}}
        words = {"description": "", "parameters": NUMBERED, "output_schema": shape, "timeout": 5}
        kinds = (("async", self._run), ("sync", self._run_sync))
        return [Tool(name=f"{one}_{kind}", effect=one, run=run, **words) for one in EFFECTS for kind, run in kinds]

    def _next(self, ctx: ToolContext) -> str:
        self.done[ctx.idempotency_key] += 1
        self._number += 1
        return self._behaviours[self._number % len(self._behaviours)]

    async def _run(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        word = self._next(ctx)
        ctx.progress("under way")
        if word == "hang":
            await asyncio.Event().wait()
        if word == "stubborn":
            return await self._ignore_cancellation()
        if word == "mutate":
            arguments["n"] = ctx
            return "mutated"
        return behave(word)

    async def _ignore_cancellation(self) -> str:
        over = asyncio.Event()
        self._clock.call_later(60, over.set)
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()
        return "late"

    def _run_sync(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        word = self._next(ctx)
        if word in ("hang", "stubborn"):
            self.release.wait(30)
            return "late"
        if word == "mutate":
            arguments.clear()
            return "mutated"
        return behave(word)

    def hear(self, event: AnyEvent) -> None:
        if isinstance(event, ToolAttemptFailed):
            self.release.set()  # a blocking tool that was given up ends


class Meddler:
    """An interceptor that raises, lies, rewrites or blocks."""

    def __init__(self, before: str, after: str) -> None:
        self._before = before
        self._after = after

    def before(self, call: ToolCall) -> Any:
        match self._before:
            case "raise":
                raise RuntimeError("before")
            case "garbage":
                return "garbage"
            case "invalid":
                return msgspec.structs.replace(call, arguments='{"n": 99}')
            case "rewrite":
                return msgspec.structs.replace(call, arguments='{"n": 7}')
            case "deny":
                return Decision(kind="deny", reason=None)
            case _:
                return call

    def after(self, call: ToolCall, result: ToolResult) -> Any:
        match self._after:
            case "raise":
                raise RuntimeError("after")
            case "garbage":
                return None
            case "broken":
                return msgspec.structs.replace(result, content="\ud800")
            case _:
                return result


class Ruler:
    """A policy that is drawn by lot: it allows, denies, asks, raises or talks nonsense."""

    def __init__(self, words: Sequence[str], *, is_async: bool) -> None:
        self._words = words
        self._is_async = is_async
        self._number = 0

    def decide(self, call: Any, session: Any) -> Any:
        call.arguments["n"] = "changed by the policy"
        return self._later() if self._is_async else self._now()

    async def _later(self) -> Any:
        await asyncio.sleep(0)
        return self._now()

    def _now(self) -> Any:
        self._number += 1
        match self._words[self._number % len(self._words)]:
            case "raise":
                raise RuntimeError("policy")
            case "garbage":
                return "allow"
            case "none":
                return None
            case word:
                return Decision(kind=word, reason="\ud800" if word == "deny" else "")


class SlowJournal:
    """A journal that lets others run before and after each append, as a database does."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def append(self, *args: Any, **words: Any) -> None:
        await asyncio.sleep(0)
        await self._journal.append(*args, **words)
        await asyncio.sleep(0)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One drawn world."""

    turns: list[Any]
    behaviours: list[str]
    policy: list[str] | None = None
    is_policy_async: bool = False
    before: str = ""
    after: str = ""
    budget: dict[str, Any] = {}
    guards: bool = False
    on_limit: str = "summarize"
    cancel_at: int | None = None
    kill_at: int | None = None
    answers: list[str] = []
    is_slow: bool = False
    resumes: int = 2


names = st.sampled_from([f"{effect}_{kind}" for effect in EFFECTS for kind in ("async", "sync")])

arguments = st.one_of(
    st.integers(0, 9).map(lambda n: f'{{"n": {n}}}'),
    st.sampled_from(["", "{}", '{"n": 99}', '{"n": 1,}', '{"n": NaN}', '{"n": 1, "n": 2}', '{"x": 1}', "[1]", "null",
                     '{"n": 1e400}', '{"n": ', '{"n": "\ud800"}', "[" * 10_000, '{"n": ' + "1" * 5000 + "}"]),
)  # fmt: skip

ids = st.one_of(st.none(), st.just("call_0"), st.just(""), st.just("i" * 60), st.just("é ☃"), st.just("\ud800"))

calls = st.builds(
    lambda name, raw, given: call(name, arguments=raw, id=given),
    st.one_of(names, names, names, st.sampled_from(["grpe", "READ_async", "", "\ud800", "n" * 150])),
    arguments,
    ids,
)

errors = st.sampled_from(
    [
        ModelUnavailable("503", status=503),
        ModelUnavailable("slow down", retry_after_seconds=3),
        ModelRejected("400", status=400),
        ContextOverflow("long"),
    ]
)

turns = st.one_of(
    st.lists(calls, min_size=1, max_size=8),
    st.lists(calls, min_size=1, max_size=8),
    st.lists(calls, min_size=1, max_size=4).map(lambda made: [text("I look. \ud800"), *made]),
    st.builds(
        lambda made, cut: Turn(calls=tuple(made), text="I look.", cut=cut),
        st.lists(calls, min_size=1, max_size=4),
        st.sampled_from(["mid-arguments", "before-terminal", "mid-text", 2, 40]),
    ),
    st.builds(lambda made: Turn(calls=tuple(made), finish="length"), st.lists(calls, min_size=1, max_size=4)),
    st.builds(lambda made: Turn(calls=tuple(made), finish="content_filter"), st.lists(calls, min_size=1, max_size=3)),
    errors,
    st.just(text("")),
)

budgets = st.fixed_dictionaries(
    {},
    optional={
        "max_model_turns": st.integers(1, 4),
        "max_tool_calls": st.integers(0, 9),
        "max_parallel_tool_calls": st.integers(1, 3),
        "max_wall_time_seconds": st.integers(1, 40),
        "max_output_tokens": st.integers(1, 300),
        "max_tool_result_chars": st.sampled_from([1, 30, 200]),
        "max_retries_per_tool_call": st.integers(0, 2),
        "max_retries_per_model_call": st.integers(0, 2),
    },
)

words = st.sampled_from(["allow", "allow", "allow", "deny", "ask", "sandbox", "raise", "garbage", "none"])

scenarios = st.builds(
    Scenario,
    turns=st.lists(turns, min_size=1, max_size=4),
    behaviours=st.lists(st.sampled_from(BEHAVIOURS), min_size=1, max_size=12),
    policy=st.one_of(st.just(["allow"]), st.lists(words, min_size=1, max_size=5), st.none()),
    is_policy_async=st.booleans(),
    before=st.sampled_from(["", "", "", "raise", "garbage", "invalid", "rewrite", "deny"]),
    after=st.sampled_from(["", "", "raise", "garbage", "broken"]),
    budget=budgets,
    guards=st.booleans(),
    on_limit=st.sampled_from(["summarize", "report"]),
    cancel_at=st.one_of(st.none(), st.integers(1, 40)),
    kill_at=st.one_of(st.none(), st.none(), st.integers(1, 40)),
    answers=st.lists(st.sampled_from(["allow", "deny", "edit", "edit badly"]), max_size=6),
    is_slow=st.booleans(),
)

# Not shrunk: an example that hangs would be tried again and again. What is drawn is small, and printed.
QUIET = settings(
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class World:
    """Carries out one scenario."""

    def __init__(self, scenario: Scenario, *, clock: Clock, model: Any, journal: Journal | None = None) -> None:
        self.scenario = scenario
        self.model = model
        self._clock = clock
        self._journal = journal
        self._workshop = Workshop(scenario.behaviours, clock)
        self._heard = 0
        self._cancel: Callable[[], Any] = lambda: None
        self._kill: Callable[[], Any] = lambda: None

    def agent(self) -> Agent:
        about = self.scenario
        policy = None if about.policy is None else Ruler(about.policy, is_async=about.is_policy_async)
        limits = {"max_wall_time_seconds": None, "max_model_turns": 8, **about.budget}
        none = Guards(repeats=None, failures=None, invalid_json=None, invalid_arguments=None)
        return Agent(
            self.model,
            tools=self._workshop.tools(),
            policy=policy,
            interceptors=[Meddler(about.before, about.after)],
            budget=Budget(**limits),
            guards=Guards() if about.guards else none,
            on_limit=about.on_limit,
            subscribers=[self._hear, self._workshop.hear],
        )

    def _hear(self, event: AnyEvent) -> None:
        self._heard += 1
        if self._heard == self.scenario.cancel_at:
            self._cancel()
        if self._heard == self.scenario.kill_at:
            self._kill()

    async def play(self) -> None:
        self._before = asyncio.all_tasks()
        journal: Journal = self._journal or MemoryJournal()
        journal = SlowJournal(journal) if self.scenario.is_slow else journal
        async with open_session(journal, clock=self._clock, randomness=FixedRandomness()) as session:
            try:
                await self._play(session)
            finally:
                self._workshop.release.set()
            await self._until_quiet()
            await check_session(session)
            self.check_requests()
            self._check_effects(session)

    async def _play(self, session: Session) -> None:
        agent = self.agent()
        await self._carry_out(agent.stream("go", session=session))
        answers = iter(self.scenario.answers)
        for _ in range(self.scenario.resumes):
            if session.state.phase == "completed":
                return
            for approval in session.state.pending_approvals():
                await _answer(session, approval.id, next(answers, "deny"))
            await self._carry_out(agent.stream_resume(session))

    async def _carry_out(self, run: Any) -> None:
        async def consume() -> None:
            async with run:
                async for _ in run:
                    pass

        consuming = asyncio.create_task(consume())
        self._cancel, self._kill = run.cancel, consuming.cancel
        await asyncio.wait([consuming])
        if not consuming.cancelled():
            consuming.result()

    async def _until_quiet(self) -> None:
        """Wait for calls that were left behind: they record their late ends."""
        others = asyncio.all_tasks() - self._before
        if others and isinstance(self.model, ScriptedModel):  # connections of a real provider stay open
            await asyncio.wait(others, timeout=10)

    def check_requests(self) -> None:
        if isinstance(self.model, ScriptedModel):
            for request in self.model.requests:
                check_pairs(request.messages)

    def _check_effects(self, session: Session) -> None:
        """Whatever the events say: no unsafe call has really been carried out twice."""
        records = {state.key for state in _started(session)}
        assert all(self._workshop.done[key] <= 1 for key in records)


def _started(session: Session) -> list[Any]:
    journal: Any = session.journal
    shelf = journal._journal if isinstance(journal, SlowJournal | FaultyJournal) else journal
    shelf = shelf._journal if isinstance(shelf, SlowJournal | FaultyJournal) else shelf
    return [
        event
        for event in shelf._shelves[session.id].events
        if event.type == "tool.started" and event.effect == "unsafe"
    ]


async def _answer(session: Session, approval_id: str, word: str) -> None:
    edited: JsonObject | None = {"edit": {"n": 3}, "edit badly": {"n": "three"}}.get(word)
    await session.answer(approval_id, "deny" if word == "deny" else "allow", arguments=edited)


def scripted(scenario: Scenario) -> ScriptedModel:
    return ScriptedModel([*scenario.turns, text("Done.")])


@pytest.mark.row("V01", "P01", "R02", "R03", "S03", "TF1", "TF4", "MF1", "MF2", "MF3", "MF4")
@settings(QUIET, max_examples=75)
@given(scenarios)
@example(Scenario(turns=[[call("read_async"), call("unsafe_async")]], behaviours=["hang"], policy=["allow"]))
@example(Scenario(turns=[[call("unsafe_async"), call("unsafe_sync")]], behaviours=["stubborn"], policy=["allow"]))
def test_every_call_gets_exactly_one_result_whatever_happens(scenario):
    async def play() -> None:
        await World(scenario, clock=FakeClock(auto=True), model=scripted(scenario)).play()

    asyncio.run(asyncio.wait_for(play(), 5))


http_turns = st.lists(
    st.one_of(
        st.lists(calls, min_size=1, max_size=6),
        st.builds(
            lambda made, cut, by: Turn(calls=tuple(made), text="I look.", cut=cut, cut_by=by),
            st.lists(calls, min_size=1, max_size=4),
            st.sampled_from(["mid-arguments", "before-terminal", 40, 400]),
            st.sampled_from(["close", "clean"]),
        ),
        st.builds(lambda made: Turn(calls=tuple(made), interleave=True, pieces=4), st.lists(calls, min_size=2, max_size=4)),
    ),
    min_size=1,
    max_size=3,
).filter(lambda drawn: "\\ud800" not in ascii(drawn))  # fmt: skip


@pytest.mark.row("V01", "V09", "F02")
@settings(QUIET, max_examples=12)
@given(scenarios, http_turns)
def test_every_call_gets_exactly_one_result_over_http(scenario, turns):
    """The strict provider refuses every history whose calls and results do not match."""

    async def play() -> None:
        async with MockProvider([*turns, text("Done.")]) as provider:
            model = resolve_model("openai-chat:mock", base_url=provider.base_url)
            quick = msgspec.structs.replace(scenario, behaviours=["ok", "value", "rejected", "nan"], is_slow=False)
            await World(quick, clock=QuickClock(), model=model).play()
            assert provider.refusals == []

    asyncio.run(asyncio.wait_for(play(), 60))


class QuickClock:
    """The machine's clock, but every delay is a thousand times shorter: sockets are real, and pauses are not waited for."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        pause = seconds if seconds >= 5 else seconds / 1000
        return asyncio.get_running_loop().call_later(pause, callback)
