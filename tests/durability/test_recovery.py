"""What becomes of a call that had started without a result: by its effect, its check, a person, and what has changed since."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import DyingJournal
from treadle import (
    Agent,
    Budget,
    Done,
    Rejected,
    Session,
    Tool,
    ToolContext,
    ToolOutput,
    ask,
    deny,
    open_session,
    tool,
)
from treadle.errors import ConfigurationError, JournalError, NothingToResume, ToolDefinitionError
from treadle.events import ContractViolated, ToolFinished
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import JsonObject, NotDone, Unknown

NUMBER: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Acts:
    """A tool `act` and a list of what it did."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def tool(self, effect: Any = "unsafe", **words: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            self.keys.append(ctx.idempotency_key)
            return "done"

        words = {"permission": "allow", "timeout": 30.0 if "check" in words else None, **words}
        return Tool(name="act", description="Act.", parameters=NUMBER, effect=effect, run=run, **words)


@pytest.fixture
def acts() -> Acts:
    return Acts()


@pytest.fixture
def journal() -> DyingJournal:
    return DyingJournal(call_id="a")


async def break_off(journal: DyingJournal, tool: Tool, *, policy: Any = None, clock: FakeClock | None = None) -> None:
    """Run until the tool has acted, and end as if the process had been killed right then."""
    model = ScriptedModel([[call("act", id="a", n=1)], text("done")])
    async with open_session(journal, id="s", clock=clock) as session:
        with pytest.raises(JournalError, match="gone"):
            await Agent(model, tools=[tool], policy=policy).run("go", session=session)
    journal.dies = False


async def go_on(
    journal: DyingJournal, *tools: Tool, clock: FakeClock | None = None, **words: Any
) -> tuple[Any, Session]:
    async with open_session(journal, id="s", clock=clock) as session:
        done = await Agent(ScriptedModel([text("done")]), tools=tools, **words).resume(session)
        await check_session(session)
        return done, session


def told(done: Any) -> JsonObject:
    """What the model was told of the call."""
    content = next(part.content for message in done.messages for part in message.results)
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError:
        found = content
    return found if isinstance(found, dict) else {"type": "ok", "value": found}


async def doubts(session: Session) -> list[tuple[str | None, str | None]]:
    return [(event.asked, event.answer) for event in await session.events() if event.type == "tool.in_doubt"]


@pytest.mark.row("R04", "R05")
@pytest.mark.parametrize("effect", ["idempotent", "keyed"])
async def test_a_repeatable_call_runs_again_with_the_same_key(journal: DyingJournal, acts: Acts, effect: str) -> None:
    await break_off(journal, acts.tool(effect))
    done, session = await go_on(journal, acts.tool(effect))
    assert (done.reason, len(acts.keys), len(set(acts.keys))) == ("completed", 2, 1)
    assert await doubts(session) == []


@pytest.mark.row("R05")
async def test_without_a_check_and_a_person_the_model_is_told_that_nobody_knows(
    journal: DyingJournal, acts: Acts
) -> None:
    await break_off(journal, acts.tool())
    done, session = await go_on(journal, acts.tool())
    assert (done.reason, len(acts.keys)) == ("completed", 1)
    assert (told(done)["type"], told(done)["outcome"]) == ("outcome_unknown", "unknown")
    assert await doubts(session) == [(None, None)]
    with pytest.raises(NothingToResume):
        await go_on(journal, acts.tool())
    assert len(acts.keys) == 1


def answering(answer: Any) -> Callable[[JsonObject, ToolContext], Any]:
    async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
        assert arguments == {"n": 1}
        assert ctx.idempotency_key.startswith("tk_")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return check


@pytest.mark.row("R05")
@pytest.mark.parametrize(
    ("answer", "kind", "runs", "word"),
    [
        ("receipt 7", "ok", 1, "done"),
        (True, "ok", 1, "done"),
        (Done("receipt 7"), "ok", 1, "done"),
        (Done(None), "ok", 1, "done"),
        (Done(), "ok", 1, "done"),
        (Done, "ok", 1, "done"),
        (Done(False), "ok", 1, "done"),
        (NotDone, "ok", 2, "not_done"),
        (NotDone(), "ok", 2, "not_done"),
        (Unknown, "outcome_unknown", 1, "unknown"),
        (Unknown(), "outcome_unknown", 1, "unknown"),
        (RuntimeError("the service is down"), "outcome_unknown", 1, "unknown"),
        (SystemExit(3), "outcome_unknown", 1, "unknown"),
        (float("nan"), "unexpected_result_shape", 1, "done"),
    ],
)
async def test_the_tools_own_check_is_asked_first(
    journal: DyingJournal, acts: Acts, answer: Any, kind: str, runs: int, word: str
) -> None:
    clock = FakeClock(auto=True)
    await break_off(journal, acts.tool(), clock=clock)
    done, session = await go_on(journal, acts.tool(check=answering(answer)), clock=clock)
    assert (done.reason, told(done)["type"], len(acts.keys)) == ("completed", kind, runs)
    assert await doubts(session) == [("check", word)]
    assert len(set(acts.keys)) == 1
    [finished] = [event for event in await session.events() if isinstance(event, ToolFinished)]
    assert finished.result.attempts == 1


async def forgotten_await() -> str:
    return "receipt 7"


class Vague:
    """A value that does not say whether it is true."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.row("ST03")
@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (None, "None"), (False, "False"), (0, "0"), ("", "''"), ([], "[]"), ({}, "{}"), (ToolOutput(), "ToolOutput"),
        (Vague(), "Vague"), (forgotten_await, "coroutine"),
    ],
)  # fmt: skip
async def test_a_check_that_says_nothing_breaks_its_contract_and_the_doubt_stays(
    journal: DyingJournal, acts: Acts, answer: Any, value: str
) -> None:
    async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
        return answer() if answer is forgotten_await else answer

    await break_off(journal, acts.tool())
    done, session = await go_on(journal, acts.tool(check=check))
    violations = [event for event in await session.events() if isinstance(event, ContractViolated)]
    assert (done.reason, told(done)["type"], len(acts.keys)) == ("completed", "outcome_unknown", 1)
    assert await doubts(session) == [("check", "unknown")]
    assert [(one.call_id, one.details[0]["field"], one.details[0]["value"]) for one in violations] == [
        ("a", "check", value)
    ]


def _decorated(check: Any) -> Tool:
    @tool(effect="unsafe", timeout=None, check=check)
    def pay(n: int) -> str:
        """Pay."""
        return "paid"

    return pay


@pytest.mark.row("ST02")
@pytest.mark.parametrize("make", [lambda check: Acts().tool(check=check, timeout=None), _decorated])
def test_a_check_without_a_time_limit_is_refused_where_it_is_declared(make: Callable[[Any], Tool]) -> None:
    with pytest.raises(ToolDefinitionError, match=r"a check needs a timeout"):
        make(answering(NotDone))


async def test_what_a_check_returns_is_held_to_the_tools_contract(journal: DyingJournal, acts: Acts) -> None:
    schema = {"type": "object", "required": ["receipt"]}
    await break_off(journal, acts.tool())
    done, _ = await go_on(journal, acts.tool(check=answering({"paid": "canary"}), output_schema=schema))
    assert told(done)["type"] == "unexpected_result_shape"
    assert "canary" not in str(told(done))


MINUTE, HOUR, YEAR = 60.0, 3600.0, 31_557_600.0


@pytest.mark.row("R05", "SF6", "ST02", "KF1")
@pytest.mark.parametrize("ahead", [0.0, 10.0, MINUTE, HOUR, YEAR, -10.0, -MINUTE, -HOUR, -YEAR])
async def test_what_is_absent_runs_only_after_the_whole_time_limit_whatever_the_heirs_clock_says(
    journal: DyingJournal, acts: Acts, ahead: float
) -> None:
    clock = FakeClock(auto=True)
    asked: list[float] = []

    async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
        asked.append(clock.monotonic())
        return NotDone

    await break_off(journal, acts.tool(timeout=30.0), clock=clock)
    clock.shift(ahead)
    begun = clock.monotonic()
    done, _ = await go_on(journal, acts.tool(timeout=30.0, check=check), clock=clock)
    assert (done.reason, len(acts.keys)) == ("completed", 2)
    assert [at - begun for at in asked] == [0.0, 30.0]


@pytest.mark.row("ST02")
@pytest.mark.parametrize("ahead", [YEAR, -YEAR])
async def test_running_time_is_not_measured_between_the_clocks_of_two_machines(
    journal: DyingJournal, acts: Acts, ahead: float
) -> None:
    clock = FakeClock()
    await break_off(journal, acts.tool("keyed"), clock=clock)
    clock.shift(ahead)
    done, session = await go_on(journal, acts.tool("keyed"), clock=clock)
    assert session.state.run is not None
    assert (done.reason, session.state.run.spent.wall_seconds) == ("completed", 0.0)


async def test_a_wait_for_the_time_limit_is_bounded_by_the_run_and_then_nobody_knows(
    journal: DyingJournal, acts: Acts
) -> None:
    clock = FakeClock(auto=True)
    await break_off(journal, acts.tool(timeout=3000.0), clock=clock)
    async with open_session(journal, id="s", clock=clock) as session:
        agent = Agent(ScriptedModel([text("done")]), tools=[acts.tool(timeout=3000.0, check=answering(NotDone))])
        done = await agent.resume(session, budget=Budget(max_wall_time_seconds=60))
        await check_session(session)
    assert (done.reason, len(acts.keys), told(done)["type"]) == ("budget_exceeded", 1, "outcome_unknown")


@pytest.mark.row("R10", "F04")
async def test_a_refusal_after_a_crash_says_that_the_attempt_before_it_may_have_acted(journal: DyingJournal) -> None:
    async def refuses(arguments: JsonObject, ctx: ToolContext) -> Any:
        raise Rejected({"why": "closed"})

    keyed = Acts().tool("keyed", key=lambda arguments: "k")
    await break_off(journal, keyed)
    done, session = await go_on(journal, msgspec.structs.replace(keyed, run=refuses))

    [finished] = [event for event in await session.events() if isinstance(event, ToolFinished)]
    assert (finished.result.status, finished.result.may_have_acted) == ("rejected", True)
    assert "An earlier attempt may have taken effect" in told(done)["message"]


@pytest.mark.row("R05", "L27")
async def test_a_run_that_is_cancelled_while_a_check_looks_asks_nobody(journal: DyingJournal, acts: Acts) -> None:
    async with open_session(journal, id="s") as session:

        async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
            await session.cancel()
            await asyncio.Event().wait()

        pay = acts.tool(check=check)
        model = ScriptedModel([call("act", n=1, id="a")])
        with pytest.raises(JournalError):
            await Agent(model, tools=[pay]).run("go", session=session)
        journal.dies = False
        done = await Agent(ScriptedModel([text("done")]), tools=[pay], in_doubt="ask").resume(session)

        assert (done.reason, told(done)["type"]) == ("cancelled", "outcome_unknown")
        assert not [event for event in await session.events() if event.type == "approval.requested"]


# --- a person


@pytest.mark.row("R05", "P06")
@pytest.mark.parametrize(("answer", "runs", "kind"), [("allow", 2, "ok"), ("deny", 1, "outcome_unknown")])
async def test_a_person_may_be_asked_and_the_answer_is_kept(
    journal: DyingJournal, acts: Acts, answer: Any, runs: int, kind: str
) -> None:
    await break_off(journal, acts.tool())
    paused, session = await go_on(journal, acts.tool(), in_doubt="ask")
    assert (paused.reason, len(acts.keys)) == ("approval_required", 1)
    [approval] = paused.approvals
    assert (approval.rule, approval.arguments) == ("in doubt", {"n": 1})
    again, _ = await go_on(journal, acts.tool(), in_doubt="ask")
    assert [one.id for one in again.approvals] == [approval.id], "asked once"
    await session.answer(approval.id, answer)
    done, session = await go_on(journal, acts.tool(), in_doubt="ask")
    assert (done.reason, len(acts.keys), told(done)["type"]) == ("completed", runs, kind)
    assert len(set(acts.keys)) == 1
    assert len(await doubts(session)) == 1


@pytest.mark.row("R05", "P06")
@pytest.mark.parametrize("edited", [None, {"n": 2}])
async def test_whoever_consented_is_asked_unless_the_agent_says_otherwise_or_they_had_put_in_the_arguments(
    journal: DyingJournal, acts: Acts, edited: JsonObject | None
) -> None:
    """A second consent to arguments of one's own could not say to which of the two it was given."""
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([[call("act", id="a", n=1)], text("x")]), tools=[acts.tool()], policy=ask("act"))
        paused = await agent.run("go", session=session)
        await session.answer(paused.approvals[0].id, "allow", arguments=edited)
        with pytest.raises(JournalError):
            await agent.resume(session)
    journal.dies = False
    if edited is None:
        asked, _ = await go_on(journal, acts.tool(), policy=ask("act"))
        assert asked.reason == "approval_required"
    done, _ = await go_on(journal, acts.tool(), policy=ask("act"), in_doubt="tell" if edited is None else "ask")
    assert (done.reason, len(acts.keys), told(done)["type"]) == ("completed", 1, "outcome_unknown")


def test_a_wrong_word_for_calls_in_doubt_is_told() -> None:
    with pytest.raises(ConfigurationError, match="in_doubt"):
        Agent("demo", in_doubt="repeat")  # type: ignore[arg-type]


# --- what has changed since


WIDER: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}, "to": {"default": "bob"}}}
CHANGES: dict[str, Callable[[Tool], dict[str, Any]]] = {
    "its tool is gone": lambda tool: {"tools": []},
    "policy forbids it": lambda tool: {"policy": deny("act")},
    "it means another one": lambda tool: {"tools": [msgspec.structs.replace(tool, parameters=WIDER)]},
    "it has another effect": lambda tool: {"tools": [Acts().tool("unsafe" if tool.effect == "keyed" else "keyed")]},
}


@pytest.mark.row("R05")
@pytest.mark.parametrize("effect", ["keyed", "unsafe"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_started_call_of_which_something_has_changed_is_told_as_unknown(
    journal: DyingJournal, acts: Acts, change: str, effect: str
) -> None:
    await break_off(journal, acts.tool(effect))
    words = {"tools": [acts.tool(effect)], **CHANGES[change](acts.tool(effect))}
    done, session = await go_on(journal, *words.pop("tools"), **words)
    assert (done.reason, told(done)["type"], len(acts.keys)) == ("completed", "outcome_unknown", 1)
    assert await doubts(session) == [(None, None)]


@pytest.mark.row("R05", "ST02")
@pytest.mark.parametrize(("before", "after"), [(10.0, 60.0), (60.0, 10.0)])
async def test_not_done_is_believed_after_the_longer_of_the_time_limits_then_and_now(
    journal: DyingJournal, acts: Acts, before: float, after: float
) -> None:
    asked: list[float] = []

    async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
        asked.append(clock.monotonic())
        return NotDone

    await break_off(journal, acts.tool(check=check, timeout=before))
    clock = FakeClock(auto=True)
    done, _ = await go_on(journal, acts.tool(check=check, timeout=after), clock=clock)
    assert (done.reason, len(acts.keys)) == ("completed", 2)
    assert asked == pytest.approx([asked[0], asked[0] + 60.0], abs=0.3)


@pytest.mark.row("ST04", "R05")
@pytest.mark.parametrize(("outcome", "status"), [(Done("paid"), "ok"), (NotDone, "outcome_unknown")])
async def test_what_a_person_has_said_of_a_doubt_holds_though_the_run_is_cancelled(
    journal: DyingJournal, acts: Acts, outcome: Any, status: str
) -> None:
    await break_off(journal, acts.tool())
    async with open_session(journal, id="s") as session:
        await session.resolve("a", outcome, by="ada", reason="Seen.")
        await session.cancel()
    done, _ = await go_on(journal, acts.tool())
    assert (done.reason, len(acts.keys)) == ("cancelled", 1)
    assert [one.status for one in done.tool_calls] == [status]


async def test_a_new_task_in_place_of_a_resume_leaves_no_call_open_and_runs_none(
    journal: DyingJournal, acts: Acts
) -> None:
    await break_off(journal, acts.tool())
    async with open_session(journal, id="s") as session:
        done = await Agent(ScriptedModel([text("new")]), tools=[acts.tool()]).run("another task", session=session)
        await check_session(session)
        assert await doubts(session) == [(None, None)]
    assert (done.text, len(acts.keys), told(done)["type"]) == ("new", 1, "outcome_unknown")


@pytest.mark.row("P08")
async def test_siblings_that_finished_never_run_again_and_those_that_never_started_do(
    journal: DyingJournal, tmp_path: Path
) -> None:
    ran: list[str] = []

    def tool(name: str, effect: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> str:
            ran.append(name)
            return name

        return Tool(name=name, description="Act.", parameters=NUMBER, effect=effect, permission="allow", run=run)

    tools = [tool("first", "unsafe"), tool("act", "unsafe"), tool("last", "unsafe")]
    model = ScriptedModel([[call("first", id="f"), call("act", id="a"), call("last", id="l")], text("done")])
    async with open_session(journal, id="s") as session:
        with pytest.raises(JournalError):
            await Agent(model, tools=tools).run("go", session=session)
    journal.dies = False
    done, _ = await go_on(journal, *tools)
    assert ran == ["first", "act", "last"]
    assert [one.status for one in done.tool_calls] == ["ok", "outcome_unknown", "ok"]


# --- larger budgets


@pytest.mark.row("B15")
async def test_a_larger_budget_goes_on_from_the_stop_and_repeats_nothing(acts: Acts, tmp_path: Path) -> None:
    turns = [[call("act", n=n)] for n in range(6)]
    agent = Agent(ScriptedModel([*turns, text("done")]), tools=[acts.tool()], on_limit="report")
    async with open_session(tmp_path / "a.db", id="s") as session:
        stopped = await agent.run("go", session=session, budget=Budget(max_tool_calls=3))
        assert (stopped.reason, len(acts.keys)) == ("budget_exceeded", 3)
        done = await agent.resume(session, budget=Budget(max_tool_calls=10))
        await check_session(session)
    assert done.reason == "completed"
    assert len(acts.keys) == len(set(acts.keys)) == 6
