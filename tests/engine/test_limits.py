"""Limits: the ten budgets, the closing request, the guards, and continuing afterwards."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from invariants import check_session
from loop_tools import Unpriced, chat, counter_tool, echo_tool, lines
from pipeline_tools import Recorder, act, read, results, statuses
from treadle import Agent, Budget, ConfigurationError, Price, Tool, ToolContext, open_session
from treadle.budgets import Guards, budget_from
from treadle.errors import UnknownBudget
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.messages import Usage
from treadle.testing import FakeClock, Gate, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

ENDLESS = [call("echo", n=n) for n in range(40)]


@pytest.mark.row("L06", "B01", "B05")
@pytest.mark.parametrize(("on_limit", "requests"), [("report", 3), ("summarize", 4)])
async def test_the_turn_limit_stops_exactly_there(on_limit, requests):
    model = ScriptedModel(ENDLESS)

    result = await Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=3), on_limit=on_limit).run("go")

    assert len(model.requests) == requests
    report = result.report()
    expected = {
        "status": "stopped", "reason": "step_limit_reached", "completed": False,
        "next_safe_action": "Ask the user whether to continue with a larger budget.",
        "budget": "max_model_turns", "used": 3, "limit": 3,
    }  # fmt: skip
    assert {key: report[key] for key in expected} == expected


SOURCES = {
    "src/main.c": 'src/main.c:12: log_error("Failed to initialize");',
    "src/config.c": "src/config.c:45: return CONFIG_ERROR;",
    "src/parser.c": "src/parser.c:78: parse_error(line, col);",
}


def story_grep() -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
        return {"output": SOURCES[arguments["path"]], "count": 1}

    schema = {"type": "object", "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}}}
    return Tool(name="grep", description="Search.", parameters=schema, effect="read", run=run)


@pytest.mark.row("L07", "W01", "Q01")
async def test_the_story_of_the_tool_limit_is_told_as_seed_002_tells_it(tmp_path):
    asked = "Keep searching for errors in every file"
    raw = [json.dumps({"pattern": "error", "path": path}) for path in SOURCES]
    turns = [call("grep", id=f"call_grep{n}", arguments=one) for n, one in enumerate(raw, 1)]
    summary = "I was searching through files but reached the tool call limit (3 calls)."
    async with MockProvider([*turns, summary]) as mock, open_session(tmp_path / "story.db", id="s") as session:
        agent = Agent(chat(mock), tools=[story_grep()], budget=Budget(max_tool_calls=3))
        result = await agent.run(asked, session=session)

    bodies = [request.body for request in mock.requests]
    limit = {"limit_reached": True, "limit_message": "Tool call limit reached (3). Stopping tool loop."}
    results = [{"output": output, "count": 1} for output in SOURCES.values()]
    expected: list[JsonObject] = [{"role": "user", "content": asked}]
    for number, (arguments, told) in enumerate(zip(raw, [*results[:2], {**results[2], **limit}], strict=True), 1):
        function = {"name": "grep", "arguments": arguments}
        spoken = {"id": f"call_grep{number}", "type": "function", "function": function}
        expected.append({"role": "assistant", "tool_calls": [spoken]})
        expected.append({"role": "tool", "tool_call_id": f"call_grep{number}", "content": told})
    for number, body in enumerate(bodies):
        assert [_parsed(message) for message in body["messages"]] == expected[: 1 + 2 * number]
        assert body["tool_choice"] == ("none" if number == 3 else "auto")
        assert body["tools"] == bodies[0]["tools"]
        assert (body["model"], body["stream"]) == ("m", True)
    assert (result.text, result.completed, result.reason) == (summary, False, "budget_exceeded")
    async with open_session(tmp_path / "story.db", id="s") as again:
        roles = [message.role for message in again.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"]
        assert json.loads(again.messages[6].results[0].content) == {**results[2], **limit}


def _parsed(message: JsonObject) -> JsonObject:
    """Tool contents are compared as JSON; an assistant's content may be absent or null."""
    kept = {key: value for key, value in message.items() if value is not None}
    return {**kept, "content": json.loads(kept["content"])} if message["role"] == "tool" else kept


@pytest.mark.row("L09", "B09")
async def test_a_limit_inside_a_batch_runs_what_it_covers_and_answers_every_call(tmp_path):
    rec = counter_tool(tmp_path / "rec")
    async with MockProvider([[call("rec", n=n) for n in range(5)], "part"]) as mock:
        result = await Agent(chat(mock), tools=[rec], budget=Budget(max_tool_calls=3)).run("go")

    assert lines(tmp_path / "rec") == 3
    told = [json.loads(m["content"]) for m in mock.requests[1].body["messages"] if m["role"] == "tool"]
    assert [one.get("type") for one in told] == [None, None, None, "skipped", "skipped"]
    assert [one.get("code") for one in told[3:]] == ["budget_exceeded"] * 2
    assert ["limit_reached" in one for one in told] == [False] * 4 + [True]
    assert mock.requests[1].body["tool_choice"] == "none"
    report = result.report()
    assert (report["budget"], report["used"], report["limit"]) == ("max_tool_calls", 3, 3)


@pytest.mark.row("L19", "L20", "B17")
async def test_done_and_out_of_room_differ_in_flag_reason_and_event_and_name_the_profile():
    events: list[object] = []
    script = [call("echo", n=n) for n in range(6)] + [text("done")]
    small = Agent(
        ScriptedModel(script), tools=[echo_tool()], budget=Budget(max_model_turns=5), profile="qa", on_limit="report",
        subscribers=[events.append],
    )  # fmt: skip
    large = Agent(ScriptedModel(script), tools=[echo_tool()], budget=Budget(max_model_turns=30), profile="research")

    few, many = await small.run("go"), await large.run("go")

    assert (few.completed, many.completed) == (False, True)
    assert (few.report()["profile"], many.report()["profile"]) == ("qa", "research")
    reached = [(e.budget, e.used, e.limit, e.profile) for e in events if e.type == "budget.reached"]
    assert reached == [("max_model_turns", 5, 5, "qa")]


# --- the ten budgets
@pytest.mark.row("B02")
def test_a_misspelt_budget_is_an_error_that_names_the_nearest():
    assert len(Budget.__struct_fields__) == 10
    with pytest.raises(UnknownBudget, match="max_model_turns"):
        budget_from({"max_model_turn": 3})
    with pytest.raises(TypeError):
        Budget(max_turns=3)
    for wrong in (-1, 1.5, "3", True, float("nan")):
        with pytest.raises(ConfigurationError, match="max_tool_calls"):
            budget_from({"max_tool_calls": wrong})


@pytest.mark.row("B03", "B04", "B05")
@pytest.mark.parametrize(
    ("name", "limit"), [("max_input_tokens", 150), ("max_output_tokens", 15), ("max_total_cost", 0.0002)]
)
async def test_spending_in_the_second_step_forbids_the_third(name, limit):
    usage = Usage(input_tokens=100, output_tokens=10)
    async with MockProvider([Turn(calls=(call("echo", n=n),), usage=usage) for n in range(5)]) as mock:
        model = chat(mock, price=Price(input=1, output=0))
        result = await Agent(model, tools=[echo_tool()], budget=Budget(**{name: limit})).run("go")

    report = result.report()
    assert len(mock.requests) == 2
    assert (report["reason"], report["budget"], report["limit"]) == ("budget_exceeded", name, limit)
    assert Decimal(str(report["used"])) >= Decimal(str(limit))


@pytest.mark.row("B04")
@pytest.mark.parametrize(
    ("name", "limit"), [("max_input_tokens", 10), ("max_output_tokens", 10), ("max_total_cost", 0.0001)]
)
async def test_a_response_that_uses_a_budget_up_has_none_of_its_calls_carried_out(name, limit):
    recorder, budget = Recorder(), Budget(**{name: limit})
    spent = Turn(calls=(call("pay", n=1), call("pay", n=2)), usage=Usage(input_tokens=100, output_tokens=20))
    model = ScriptedModel([spent, text("done")], price=Price(input=1, output=1))
    result = await Agent(model, tools=[act(recorder, "pay")], budget=budget).run("go")

    assert (recorder.runs, statuses(result), len(model.requests)) == (0, ["skipped", "skipped"], 1)
    assert name in result.messages[2].results[0].content
    assert (result.reason, result.report()["budget"]) == ("budget_exceeded", name)


@pytest.mark.row("B03")
async def test_a_cost_limit_without_a_price_is_refused_before_any_request():
    model = Unpriced([text("x")])
    with pytest.raises(ConfigurationError, match="max_total_cost"):
        await Agent(model, budget=Budget(max_total_cost=1)).run("go")
    assert model.requests == []


async def test_a_scripted_model_costs_what_it_says_and_nothing_by_default():
    turn_ = Turn(text="x", usage=Usage(input_tokens=1000, output_tokens=10))
    free = await Agent(ScriptedModel([turn_]), budget=Budget(max_total_cost=1)).run("go")
    dear = Agent(
        ScriptedModel([[call("look")], turn_], price=Price(input=1, output=10)), budget=Budget(max_total_cost="0.0001")
    )

    assert (free.completed, free.report()["cost"]) == (True, "0")
    assert (await dear.run("go")).reason == "budget_exceeded"


@pytest.mark.row("B07", "PF20")
async def test_without_usage_from_the_server_the_estimate_is_marked_and_the_cap_still_trips():
    turns = [Turn(calls=(call("echo", n=n, pad="x" * 400),), usage=None) for n in range(9)]
    async with MockProvider(turns) as mock:
        result = await Agent(chat(mock), tools=[echo_tool()], budget=Budget(max_input_tokens=600)).run("go")

    assert result.report()["usage"]["estimated"] is True
    assert result.report()["budget"] == "max_input_tokens"
    assert len(mock.requests) < 9


@pytest.mark.row("B06", "B03", "B05")
async def test_wall_time_cuts_into_a_running_tool():
    clock, entered = FakeClock(), Gate()

    async def hang(arguments: JsonObject, ctx: ToolContext) -> None:
        entered.open()
        await Gate().wait()

    limits = Budget(max_wall_time_seconds=60, max_model_turns=1)  # in a last turn nothing starts early
    async with open_session("memory:", clock=clock) as session:
        agent = Agent(ScriptedModel([call("hang")]), tools=[read(hang, "hang", timeout=None)], budget=limits)
        async with agent.stream("go", session=session) as run:
            await entered.wait()
            clock.advance(60)

    report = run.result.report()
    assert (report["reason"], report["budget"]) == ("budget_exceeded", "max_wall_time_seconds")
    assert [one["status"] for one in report["tool_calls"]] == ["timeout"]


@pytest.mark.row("B06", "PF6")
async def test_wall_time_cuts_into_a_silent_stream():
    clock, never = FakeClock(), Gate()
    model = ScriptedModel([Turn(text="a b c", gate=never)])
    agent = Agent(model, budget=Budget(max_wall_time_seconds=60))
    async with open_session("memory:", clock=clock) as session, agent.stream("go", session=session) as run:
        async for event in run:
            if event.type == "model.started":
                clock.advance(61)

    assert run.result.report()["budget"] == "max_wall_time_seconds"
    assert not run.result.completed


@pytest.mark.row("B03", "B12", "PF2")
async def test_model_retries_are_counted_and_their_limit_is_named():
    clock = FakeClock(auto=True)
    model = ScriptedModel([Turn(status=503)])
    events: list[str] = []
    async with open_session("memory:", clock=clock) as session:
        agent = Agent(model, budget=Budget(max_retries_per_model_call=2), subscribers=[lambda e: events.append(e.type)])
        report = (await agent.run("go", session=session)).report()

    assert len(model.requests) == 3
    assert (report["reason"], report["budget"], report["used"], report["limit"]) == (
        "model_error", "max_retries_per_model_call", 2, 2,
    )  # fmt: skip
    assert events.count("model.failed") == 3


@pytest.mark.row("B14")
async def test_no_request_is_made_when_there_is_no_time():
    model = ScriptedModel([text("x")])
    result = await Agent(model, budget=Budget(max_wall_time_seconds=0)).run("go")
    assert (result.reason, len(model.requests)) == ("budget_exceeded", 0)


@pytest.mark.row("B03", "L06")
@pytest.mark.parametrize(("on_limit", "choices"), [("summarize", ["auto", "none"]), ("report", ["auto"])])
async def test_a_limit_of_no_calls_stops_at_the_first_call_and_leaves_room_for_an_answer(on_limit, choices):
    recorder, none = Recorder(), Budget(max_tool_calls=0)
    model = ScriptedModel([call("look"), text("I may call nothing.")])
    result = await Agent(model, tools=[read(recorder)], budget=none, on_limit=on_limit).run("go")
    answered = await Agent(ScriptedModel([text("Four.")]), tools=[read(recorder)], budget=none).run("2+2")

    assert ([request.tool_choice for request in model.requests], recorder.runs) == (choices, 0)
    report = result.report()
    assert (report["budget"], report["used"], report["limit"]) == ("max_tool_calls", 0, 0)
    assert answered.completed


ONE = Budget(max_model_turns=1)


@pytest.mark.row("L10")
async def test_no_summary_is_asked_for_where_nothing_was_done():
    model = ScriptedModel([text("never")])
    result = await Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=0)).run("go")

    assert (result.reason, len(model.requests)) == ("step_limit_reached", 0)


@pytest.mark.row("L10")
async def test_the_notice_of_a_limit_stands_with_the_last_result_before_it_and_with_no_other():
    model = ScriptedModel([[call("echo", x=1), call("echo", x=2)], call("echo", x=3), text("never")])
    result = await Agent(model, tools=[echo_tool()], budget=ONE).run("go")

    told = [isinstance(one, dict) and "limit_reached" in one for one in results(result)]
    assert told == [False, True, False]


@pytest.mark.row("L10", "N08")
async def test_the_limit_stays_the_reason_where_the_answer_to_its_closing_request_is_refused():
    model = ScriptedModel([call("echo", x=1), Turn(text="I will not.", finish="recitation")])
    result = await Agent(model, tools=[echo_tool()], budget=ONE, guards=Guards(finish_reasons=("recitation",))).run(
        "go"
    )

    assert result.reason == "step_limit_reached"


class Commits(MemoryJournal):
    """A journal that notes the types of events in each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[list[str]] = []

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self.all.append([event.type for event in events])
        await super().append(session_id, events, state=state, durable=durable)


async def test_an_answer_is_stored_with_what_the_model_is_told_that_it_lacks_or_with_the_end_of_its_run():
    journal = Commits()
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with open_session(journal, id="s") as session:
        result = await Agent(ScriptedModel([text("three"), text('{"n": 3}')]), output=schema).run("go", session=session)

    assert result.completed
    assert [kinds for kinds in journal.all if "model.finished" in kinds] == [
        ["model.finished", "message.added"],
        ["model.finished", "run.finished"],
    ]


@pytest.mark.row("L10")
async def test_a_closing_request_that_is_answered_with_more_of_the_same_is_no_reason_for_another():
    calls = [call("look", q=q) for q in ("errors", "Errors", "ERRORS", "errors ", " errors")]
    result = await Agent(ScriptedModel(calls), tools=[read(Recorder())], guards=Guards(no_progress=2)).run("go")

    assert (result.reason, result.steps) == ("repeated_failures", 4)
    stop = {"guard": "no_progress", "count": 2, "limit": 2, "tool": "look"}
    assert result.stop.details == {**stop, "closing_request": {"reason": "repeated_failures", **stop, "count": 3}}


# --- the end of a run
@pytest.mark.row("L10", "L06")
@pytest.mark.parametrize("budget", [Budget(max_model_turns=2), Budget(max_tool_calls=2)], ids=["turns", "calls"])
async def test_what_the_closing_response_calls_is_never_carried_out(budget):
    recorder = Recorder()
    model = ScriptedModel([call("look", n=1), call("look", n=2), call("pay", n=3), text("never")])

    result = await Agent(model, tools=[read(Recorder()), act(recorder, "pay")], budget=budget).run("go")

    assert recorder.runs == 0
    assert statuses(result) == ["ok", "ok", "skipped"]
    assert "the run is at its limit" in results(result)[2]["message"]
    assert (result.completed, len(model.requests)) == (False, 3)
    await check_session(result.session)
