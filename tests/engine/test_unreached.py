"""The engine at its edges: what tools, checks and models rarely do, and what is told of it."""

import asyncio
from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, act, content, on_fake_clock, read, results, run_calls, statuses, types
from treadle import Agent, ConfigurationError, Rejected, ToolContext, ToolOutput, allow, open_session
from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.failures import message_of, traceback_of
from treadle.events import RunStarted
from treadle.ports import Decision
from treadle.stops import Stop, StopReason
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text


class Hostile(Exception):
    """An error that raises something else when it is asked what it says."""

    def __init__(self, raises: BaseException) -> None:
        super().__init__()
        self._raises = raises

    def __str__(self) -> str:
        raise self._raises


def test_an_error_that_cannot_be_read_says_nothing_but_a_person_s_interrupt_is_not_swallowed() -> None:
    assert message_of(Hostile(SystemExit(3))) == ""
    assert message_of(ValueError("why")) == "why"
    with pytest.raises(KeyboardInterrupt):
        message_of(Hostile(KeyboardInterrupt()))
    assert traceback_of(Rejected({"error": "no"})) is None
    assert "ValueError: why" in (traceback_of(ValueError("why")) or "")


def test_whoever_asks_for_the_end_after_it_is_told_at_once_and_once() -> None:
    interrupt, told = Interrupt(FakeClock()), []
    interrupt.on_trip(lambda: told.append("before"))
    assert told == []

    interrupt.trip(Stop(reason=StopReason.CANCELLED, message="x"))
    interrupt.trip(Stop(reason=StopReason.CANCELLED, message="y"))
    interrupt.on_trip(lambda: told.append("after"))

    assert told == ["before", "after"]


@pytest.mark.parametrize(
    ("raised", "message", "details"),
    [
        (Rejected({"error": "The account is closed.", "account": 7}, code="closed"), "The account is closed.", {"error": "The account is closed.", "account": 7}),
        (Rejected({"account": 7}), "act was refused by its own check: see `details`.", {"account": 7}),
        (Rejected({"error": 7}), "act was refused by its own check: see `details`.", {"error": 7}),
        (Rejected("closed"), "act was refused by its own check: see `details`.", "closed"),
    ],
)  # fmt: skip
async def test_what_a_tool_s_own_check_refuses_is_told_in_its_words(
    raised: Rejected, message: str, details: Any
) -> None:
    def validate(arguments: Any) -> None:
        raise raised

    ran = Recorder()
    result = await run_calls(call("act"), tools=[act(ran, validate=validate)])

    (told,) = results(result)
    assert statuses(result) == ["invalid_arguments"]
    assert (told["message"], told["details"]) == (message, [details])
    assert ran.runs == 0


class Unreadable:
    """An object that cannot be looked at."""

    def __init__(self, raises: type[BaseException]) -> None:
        self._raises = raises

    def __iter__(self) -> Any:
        raise self._raises


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (ToolOutput(data=1, artifact="text"), "artifact must be bytes: got 'text'"),  # type: ignore[arg-type]
        (ToolOutput(data=1, facts={"a": {1}}), "facts must be a JSON object"),
        (ToolOutput(data=1, display=3), "display must be text and media a tuple of Media"),  # type: ignore[arg-type]
    ],
)
async def test_an_output_with_a_face_that_cannot_be_stored_is_of_the_wrong_shape(
    output: ToolOutput, problem: str
) -> None:
    result = await run_calls(call("look"), tools=[read(Recorder(output))])

    (told,) = results(result)
    assert statuses(result) == ["unexpected_result_shape"]
    assert problem in str(told)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a summary", "a summary\n[The whole is the artifact "),
        ({"n": 1}, None),
        ("{no json", "{no json\n[The whole is the artifact "),
    ],
)
async def test_an_artifact_that_a_tool_gives_is_named_beside_its_value(value: Any, shown: str | None) -> None:
    result = await run_calls(call("look"), tools=[read(Recorder(ToolOutput(data=value, artifact=b"all of it")))])

    (part,) = (one for message in result.messages for one in message.results)
    if shown is None:
        assert set(content(result)) == {"n", "artifact"}
    else:
        assert part.content.startswith(shown)
    async with result.session as session:
        (name,) = session.state.artifacts
        assert name in part.content


@pytest.mark.parametrize("told", [None, "all"])
async def test_a_check_that_may_not_be_asked_leaves_the_outcome_unknown(told: Any) -> None:
    async def lost(arguments: Any, ctx: Any) -> Any:
        raise ConnectionResetError("reset")

    async def check(arguments: Any, ctx: ToolContext) -> Any:
        raise RuntimeError("no idea")

    async with on_fake_clock() as session:
        tools = [act(lost, retries=0, check=check if told else None)]
        result = await run_calls(call("act"), tools=tools, session=session)

    assert statuses(result) == ["outcome_unknown"]


async def test_an_action_is_denied_by_the_runtime_where_its_decision_cannot_be_carried_out() -> None:
    class Rewrites:
        def before(self, one: Any) -> Any:
            return msgspec.structs.replace(one, arguments='{"path": "b"}') if one.name == "delete" else one

        def after(self, one: Any, result: Any) -> Any:
            return result

    async def run(_: Any, ctx: ToolContext) -> Any:
        decision = await ctx.decide("delete", {"path": "a"})
        return [decision.kind, decision.scope, decision.by]

    agent = Agent(
        ScriptedModel([call("act"), text("Done.")]), tools=[act(run)], policy=allow("*"), interceptors=[Rewrites()]
    )
    result = await agent.run("go")

    (decided,) = await types(result, "action.decided")
    assert content(result) == [decided.decision, decided.scope, decided.by]
    assert (decided.decision, decided.scope, decided.by) == ("deny", "runtime", "runtime")


@pytest.mark.parametrize("name", ["", 7, "a\nb", "x" * 257])
async def test_an_action_needs_a_name(name: Any) -> None:
    caught = []

    async def run(_: Any, ctx: ToolContext) -> Any:
        try:
            await ctx.decide(name, {})
        except ConfigurationError as error:
            caught.append(str(error))
        return "x"

    await run_calls(call("act"), tools=[act(run)])

    assert len(caught) == 1
    assert "must be" in caught[0]


async def test_ids_that_two_calls_of_a_response_share_with_earlier_ones_are_replaced_by_new_ones() -> None:
    turns = [
        Turn(calls=(call("look", id="call_2_1", n=1), call("look", id="call_2_1_2", n=2))),
        Turn(calls=(call("look", id="call_2_1", n=3), call("look", id="", n=4))),
    ]
    async with open_session("memory:") as session:
        result = await Agent(ScriptedModel([*turns, text("x")]), tools=[read(Recorder())]).run("go", session=session)

    assert [one.id for one in result.tool_calls] == ["call_2_1", "call_2_1_2", "call_2_1_3", "call_2_2"]


async def test_a_compactor_that_cannot_say_whether_it_is_due_shortens_nothing() -> None:
    class Broken:
        def is_due(self, need: Any, tokens: int) -> bool:
            raise ValueError("no idea")

        async def compact(self, context: Any) -> Any:
            raise AssertionError("not due")

    model = ScriptedModel([call("look", n=1), text("done")], window=100_000)
    result = await Agent(model, tools=[read(Recorder())], compactor=Broken()).run("Go")

    assert result.completed
    assert await types(result, "context.compacted") == []


async def test_a_run_in_which_two_tools_are_cut_waits_for_both() -> None:
    both, started, ended = asyncio.Event(), [], []

    async def look(arguments: Any, ctx: ToolContext) -> Any:
        started.append(arguments["n"])
        if len(started) == 2:
            both.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(arguments["n"])

    agent = Agent(ScriptedModel([[call("look", n=1), call("look", n=2)]]), tools=[read(look)])
    run = agent.stream("go")
    ending = asyncio.create_task(run.finish())
    await both.wait()
    run.cancel()
    result = await ending

    assert result.reason == "cancelled"
    assert sorted(ended) == [1, 2]


class Tracer:
    """A subscriber that traces calls, and cannot say in which context one runs."""

    def __call__(self, event: Any) -> None:
        pass

    def call_context(self, session_id: str, call_id: str) -> Any:
        raise ValueError("no context")


async def test_a_tracer_that_fails_stops_no_call() -> None:
    ran = Recorder()

    result = await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(ran)], subscribers=[Tracer()]).run("go")

    assert (result.completed, ran.runs) == (True, 1)


@pytest.mark.parametrize("arguments", [{"n": {1}}, {1: 2}, {"n": float("nan")}])
async def test_arguments_of_an_approver_that_are_not_json_are_not_carried_out(arguments: Any) -> None:
    ran = Recorder()

    class Approves:
        async def approve(self, approval: Any, session: Any) -> Any:
            return Decision(kind="allow", arguments=arguments)

    result = await run_calls(call("act"), tools=[act(ran, permission="ask")], approver=Approves())

    assert ran.runs == 0
    assert not result.completed or statuses(result) != ["ok"]


async def test_a_listener_s_interrupt_reaches_the_person() -> None:
    def stops(event: Any) -> None:
        if event.type == "run.started":
            raise KeyboardInterrupt

    async with open_session("memory:") as session:
        session.ledger.subscribers.append(stops)
        with pytest.raises(KeyboardInterrupt):
            await session.ledger.record(RunStarted(task="go"))
