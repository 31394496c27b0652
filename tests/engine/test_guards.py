"""Guards against work that leads nowhere, words on limits that come near, single turns, and tools that a run needs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from invariants import check_session
from loop_tools import ANYTHING, echo_tool
from pipeline_tools import Recorder, act, read, types
from treadle import Agent, Budget, ConfigurationError, Price, Tool, ToolContext, ask, deny, open_session
from treadle.budgets import Guards
from treadle.events import BudgetWarned, CallDecided, MessageAdded
from treadle.messages import Usage
from treadle.ports import SessionView, ToolsetContext
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

NEAR = ['{"q": "Earl  Grey"}', '{"q":"earl grey"}', '{ "q" : " EARL GREY " }', '{"q": "Earl\\tGrey"}']


class Counted:
    """A tool that notes its calls."""

    def __init__(self, answer: Any = None, *, effect: str = "read", name: str = "look", **words: Any) -> None:
        self.calls: list[JsonObject] = []
        self.answer = answer
        self.tool = Tool(name=name, description="Look.", parameters=ANYTHING, effect=effect, run=self._run, **words)

    async def _run(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        self.calls.append(arguments)
        answer = self.answer(arguments) if callable(self.answer) else self.answer
        if isinstance(answer, Exception):
            raise answer
        return arguments if answer is None else answer


def near_calls(count: int, name: str = "look") -> list[Any]:
    return [call(name, arguments=NEAR[number % len(NEAR)]) for number in range(count)]


async def told(result: Any) -> list[str]:
    """Return what the runtime has told the model, in order."""
    events = await result.session.events()
    return [event.message.text for event in events if isinstance(event, MessageAdded) and event.source == "runtime"]


# --- the end by a guard
ENDED_BY: dict[str, tuple[str, list[Any]]] = {
    "repeats": ("repeated_tool_call", [call("look", n=1)] * 3),
    "failures": ("repeated_failures", [call("fail", n=number) for number in range(2)]),
    "denials": ("repeated_failures", [call("deny", n=number) for number in range(2)]),
    "invalid_json": ("invalid_call_limit", [call("look", arguments="{" + "n" * number) for number in range(2)]),
    "invalid_arguments": ("invalid_call_limit", [call("look", arguments=f"[{number}]") for number in range(2)]),
    "no_progress": ("repeated_failures", [call("look", arguments=one) for one in NEAR[:3]]),
}

ALL = Guards(repeats=3, failures=2, denials=2, invalid_json=2, invalid_arguments=2, no_progress=2)


@pytest.mark.row("FAULTS-15")
@pytest.mark.parametrize("guard", ENDED_BY)
@pytest.mark.parametrize("means", ["left", "at the limit of turns too", "used up", "not to be used"])
async def test_a_run_that_a_guard_ends_asks_for_a_last_answer_as_at_a_limit(guard, means):
    reason, calls = ENDED_BY[guard]
    tools = [Counted().tool, Counted(RuntimeError("down"), name="fail", retries=0).tool, Counted(name="deny").tool]
    last = Turn(calls=(calls[-1],), usage=Usage(input_tokens=1000))
    model = ScriptedModel([*calls[:-1], last, text("What I know.")])
    budget = Budget(
        max_model_turns=len(calls) if means == "at the limit of turns too" else None,
        max_input_tokens=1000 if means == "used up" else None,
    )
    on_limit: Any = "report" if means == "not to be used" else "summarize"
    agent = Agent(model, tools=tools, policy=deny("deny"), guards=ALL, budget=budget, on_limit=on_limit)
    result = await agent.run("Find it")

    asks = means in ("left", "at the limit of turns too")
    assert result.reason in ((reason, "budget_exceeded") if means == "used up" else (reason,))
    assert not result.completed
    assert result.text == ("What I know." if asks else "")
    assert [request.tool_choice for request in model.requests] == ["auto"] * len(calls) + ["none"] * asks
    assert model.requests[-1].tools == model.requests[0].tools
    await check_session(result.session)


# --- nothing new
@pytest.mark.row("L13")
async def test_nearly_equal_calls_that_bring_nothing_new_are_told_then_held_back_and_end_with_an_answer():
    look = Counted()
    model = ScriptedModel([*near_calls(7), text("I found nothing more.")])
    result = await Agent(model, tools=[look.tool]).run("Find it")

    assert len(look.calls) == 6
    assert (result.reason, result.completed, result.text) == ("repeated_failures", False, "I found nothing more.")
    assert result.stop.details == {"guard": "no_progress", "count": 6, "limit": 6, "tool": "look"}
    assert [one.status for one in result.tool_calls] == ["ok"] * 6 + ["skipped"]
    (reminder,) = await told(result)
    assert "without new results" in reminder
    sent = [[message.text for message in request.messages if message.role == "user"] for request in model.requests]
    assert [reminder in texts for texts in sent] == [False] * 4 + [True] * 4
    assert [request.tool_choice for request in model.requests] == ["auto"] * 7 + ["none"]
    decided = [event.rule for event in await result.session.events() if isinstance(event, CallDecided)]
    assert decided[-1] == "guard no_progress"
    await check_session(result.session)


@pytest.mark.row("L13")
@pytest.mark.parametrize("numbers", [["1", "1.0", "1e0", "10e-1"], ["0.1", "1e-1", "0.10", "0.1000000000000000055"]])
async def test_the_form_of_a_number_makes_no_difference(numbers):
    look = Counted("none")
    model = ScriptedModel([call("look", arguments=f'{{"n": {one}}}') for one in numbers * 2])
    result = await Agent(model, tools=[look.tool], guards=Guards(no_progress=4), on_limit="report").run("Find it")
    assert result.reason in ("repeated_failures", "repeated_tool_call")  # some forms are the very same argument
    assert len(look.calls) <= 4


@pytest.mark.row("L13")
async def test_honest_work_is_not_stopped():
    exists = Counted("false", name="exists")
    state = {"version": 0}

    def edit(arguments: JsonObject) -> Any:
        state["version"] += 1
        return "ok"

    edits = Counted(edit, effect="unsafe", name="edit", permission="allow")
    tests = Counted("3 failed, 9 passed: " + "x" * 300, name="tests")
    reads = Counted(lambda _: f"version {state['version']}", name="reads")
    poll = Counted("waiting", name="poll", polling=True)
    responses = [call("exists", path=f"file{number}") for number in range(12)]
    responses += [call(name, n=number) for number in range(8) for name in ("edit", "tests")]
    for number in range(8):
        responses += [call("edit", n=number, again=True), call("reads")]
    responses += near_calls(12, "poll")
    tools = [exists.tool, edits.tool, tests.tool, reads.tool, poll.tool]
    model = ScriptedModel([*responses, text("Done.")])
    result = await Agent(model, tools=tools, budget=Budget(max_model_turns=500)).run("Mend it")
    assert result.completed
    assert not [one for one in result.tool_calls if one.status != "ok"]
    assert await told(result) == []


@pytest.mark.row("L13")
@pytest.mark.parametrize("guards", [Guards(no_progress=None), Guards(repeats=None)])
async def test_the_guard_can_be_switched_off(guards):
    look = Counted()
    result = await Agent(ScriptedModel([*near_calls(10), text("Done.")]), tools=[look.tool], guards=guards).run("Go")
    assert result.completed


# --- limits that come near
@pytest.mark.row("B16")
@pytest.mark.row("B18")
async def test_a_limit_that_comes_near_is_an_event_and_the_model_reads_it_at_the_end_of_the_next_request():
    model = ScriptedModel([*[call("echo", n=number) for number in range(9)], text("Done.")])
    result = await Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=10)).run("Go")
    warned = [event for event in await result.session.events() if isinstance(event, BudgetWarned)]
    assert [(event.budget, event.used, event.limit) for event in warned] == [("max_model_turns", 8, 10)]
    (reminder,) = await told(result)
    assert "8 of 10 responses" in reminder
    assert [model.requests[8].messages[-1].text == reminder, len(model.requests[7].messages)] == [True, 15]
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.instructions, after.tools) == (before.instructions, before.tools)
    await check_session(result.session)


@pytest.mark.row("B18")
async def test_a_limit_is_told_once_also_after_a_restart_and_anew_where_it_has_grown(tmp_path):
    def agent(*turns: Any, limit: int) -> Agent:
        return Agent(ScriptedModel(turns), tools=[echo_tool()], budget=Budget(max_tool_calls=limit), on_limit="report")

    async with open_session(tmp_path / "a.db", id="s") as session:
        await agent(*[call("echo", n=number) for number in range(5)], limit=5).run("Go", session=session)
    async with open_session(tmp_path / "a.db", id="s") as session:
        more = [call("echo", n=number) for number in range(5, 10)]
        result = await agent(*more, text("Done."), limit=5).resume(session, budget=Budget(max_tool_calls=11))
        assert result.completed
        warned = [event for event in await session.events() if isinstance(event, BudgetWarned)]
    assert [(event.used, event.limit) for event in warned] == [(4, 5), (9, 11)]


@pytest.mark.row("B18")
@pytest.mark.parametrize("part", [0, 1, -0.5, "much", True])
def test_a_part_of_a_limit_that_is_none_is_refused(part):
    with pytest.raises(ConfigurationError, match="budget_warning"):
        Guards(budget_warning=part)


async def test_the_words_on_limits_can_be_switched_off():
    model = ScriptedModel([*[call("echo", n=number) for number in range(4)], text("Done.")])
    agent = Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=5), guards=Guards(budget_warning=None))
    assert await told(await agent.run("Go")) == []


# --- a single turn
@pytest.mark.row("G02")
@pytest.mark.row("G01")
async def test_a_single_turn_is_an_answer_or_one_round_of_calls_and_then_the_answer():
    model = ScriptedModel([[call("echo", n=1), call("echo", n=2)], text("One and two.")])
    agent = Agent(model, tools=[echo_tool()])
    result = await agent.run("Look", single_turn=True)
    assert (result.reason, result.completed, result.text) == ("completed", True, "One and two.")
    assert [request.tool_choice for request in model.requests] == ["auto", "none"]
    assert model.requests[1].tools == model.requests[0].tools
    assert (await Agent(ScriptedModel([text("Hello.")])).run("Hi", single_turn=True)).text == "Hello."


@pytest.mark.row("G02")
async def test_a_second_round_of_calls_is_refused_and_nothing_of_it_runs():
    look = Counted()
    model = ScriptedModel([call("look", n=1), call("look", n=2), call("look", n=3), text("Never.")])
    result = await Agent(model, tools=[look.tool]).run("Look", single_turn=True)
    assert look.calls == [{"n": 1}]
    assert (result.reason, result.completed, len(model.requests)) == ("no_final_answer_or_tool_call", False, 3)
    await check_session(result.session)


@pytest.mark.row("G01", "G02")
async def test_a_single_turn_that_waits_for_a_person_is_one_after_resume_too(tmp_path):
    look = Counted()
    model = ScriptedModel([call("look", n=1), call("look", n=2), call("look", n=3), text("Never.")])
    agent = Agent(model, tools=[look.tool], policy=ask("look"))
    async with open_session(tmp_path / "j.db", id="s") as session:
        paused = await agent.run("Look", session=session, single_turn=True)
        await session.answer(paused.approvals[0].id, "allow")
    async with open_session(tmp_path / "j.db", id="s") as session:
        result = await agent.resume(session)
    assert look.calls == [{"n": 1}]
    assert (paused.reason, result.reason) == ("approval_required", "no_final_answer_or_tool_call")
    assert [request.tool_choice for request in model.requests] == ["auto", "none", "none"]


# --- what a run needs
class Backend:
    """A toolset that may refuse at its start, or break off in the middle."""

    name = "backend"

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.calls = 0

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncGenerator["Backend"]:
        if self.refuses:
            raise ConnectionRefusedError("nobody listens")
        yield self

    def tools(self, session: SessionView) -> list[Tool]:
        if self.refuses:
            raise ConnectionError("gone")
        return [self._tool]

    @property
    def _tool(self) -> Tool:
        return Tool(name="ask", description="", parameters=ANYTHING, effect="read", run=self._ask)

    async def _ask(self, arguments: JsonObject, ctx: ToolContext) -> str:
        self.calls += 1
        self.refuses = True
        return "once"


@pytest.mark.row("L17")
@pytest.mark.parametrize("required", ["backend", "missing"])
async def test_a_run_without_a_toolset_that_it_needs_asks_no_model(required):
    model = ScriptedModel([text("Never.")])
    result = await Agent(model, tools=[Backend(refuses=True)], required=[required]).run("Go")
    assert (result.reason, result.completed, len(model.requests)) == ("tool_unavailable", False, 0)
    assert required in result.message


@pytest.mark.row("L17")
async def test_a_run_ends_when_a_toolset_that_it_needs_is_lost_and_resumes_when_it_is_back():
    backend = Backend()
    model = ScriptedModel([call("ask"), text("Done."), text("Done.")])
    agent = Agent(model, tools=[backend], required=["ask"])
    result = await agent.run("Go")
    assert (result.reason, backend.calls) == ("tool_unavailable", 1)
    backend.refuses = False
    result = await agent.resume(result.session)
    assert result.completed


@pytest.mark.row("L17")
@pytest.mark.parametrize("effect", ["read", "idempotent", "unsafe"])
async def test_a_call_of_a_required_tool_that_cannot_reach_its_service_is_not_tried_again(effect):
    look = Counted(ConnectionRefusedError("nobody listens"), effect=effect, permission="allow", retries=5)
    model = ScriptedModel([[call("look", n=1), call("look", n=2)], text("Never.")])
    result = await Agent(model, tools=[look.tool], required=["look"], budget=Budget(max_parallel_tool_calls=1)).run(
        "Go"
    )
    assert (result.reason, len(model.requests)) == ("tool_unavailable", 1)
    assert look.calls in ([{"n": 1}], [{"n": 1}, {"n": 2}])  # never a second attempt
    await check_session(result.session)


@pytest.mark.row("B18")
@pytest.mark.parametrize(("part", "tokens"), [(0.8, 800_000), (0.5, 500_000), (0.3, 300_000)])
async def test_a_cost_of_exactly_the_part_of_its_limit_is_told(part, tokens):
    turn = Turn(calls=(call("look"),), usage=Usage(input_tokens=tokens))
    model = ScriptedModel([turn, text("Done.")], price=Price(input=1, output=0))
    limited = Budget(max_total_cost=1)
    agent = Agent(model, tools=[read(Recorder())], budget=limited, guards=Guards(budget_warning=part))
    result = await agent.run("go")

    (warned,) = await types(result, "budget.warned")
    assert (warned.budget, float(warned.used), warned.limit) == ("max_total_cost", part, 1)


@pytest.mark.row("B18")
@pytest.mark.parametrize(
    ("limit", "used"),
    [("max_tool_calls", 1), ("max_input_tokens", 100), ("max_output_tokens", 40), ("max_wall_time_seconds", 8)],
)
async def test_a_limit_is_told_as_soon_as_exactly_its_part_is_used(limit, used):
    clock = FakeClock()

    async def look(arguments: Any, ctx: Any) -> str:
        clock.advance(8)
        return "seen"

    turn = Turn(calls=(call("look"),), usage=Usage(input_tokens=100, output_tokens=40))
    budget, guards = Budget(**{limit: 2 * used}), Guards(budget_warning=0.5)
    async with open_session("memory:", clock=clock) as session:
        agent = Agent(ScriptedModel([turn, text("Done.")]), tools=[read(look)], budget=budget, guards=guards)
        result = await agent.run("go", session=session)
        (warned,) = await types(result, "budget.warned")

    assert (warned.budget, warned.used, warned.limit) == (limit, used, 2 * used)


@pytest.mark.row("B18")
async def test_the_seconds_of_a_run_before_its_pause_count_for_what_is_told():
    clock = FakeClock()

    async def takes_three(arguments: Any, ctx: Any) -> str:
        clock.advance(3)
        return "seen"

    tools = [read(takes_three), act(Recorder())]
    words: Any = {
        "policy": ask("act"),
        "budget": Budget(max_wall_time_seconds=10),
        "guards": Guards(budget_warning=0.5),
    }
    async with open_session("memory:", clock=clock) as session:
        paused = await Agent(ScriptedModel([call("look"), call("act")]), tools=tools, **words).run(
            "go", session=session
        )
        await session.answer(paused.approvals[0].id, "allow")
        result = await Agent(ScriptedModel([call("look"), text("Done.")]), tools=tools, **words).resume(session)
        (warned,) = await types(result, "budget.warned")

    assert (warned.budget, warned.used, warned.limit) == ("max_wall_time_seconds", 6, 10)
