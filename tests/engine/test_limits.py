"""Limits: the ten budgets, the closing request, the guards, and continuing afterwards."""

import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from loop_tools import Unpriced, counter_tool, echo_tool, failing_tool, lines
from treadle import Agent, Budget, ConfigurationError, Guards, Price, Tool, ToolContext, open_session, resolve_model
from treadle.budgets import budget_from
from treadle.errors import UnknownBudget
from treadle.messages import Usage
from treadle.ports import Model
from treadle.testing import FakeClock, Gate, MockProvider, ScriptedModel, Turn, call, parse_script, text
from treadle.tools import JsonObject

USED = {"input_tokens": 100, "output_tokens": 20}
ENDLESS = [call("echo", n=n) for n in range(40)]


def provider(*turns: object) -> MockProvider:
    return MockProvider(parse_script(msgspec.json.encode(list(turns)).decode(), where="test"))


def chat(mock: MockProvider, **words: object) -> Model:
    return resolve_model("openai-chat:m", base_url=mock.base_url, **words)  # type: ignore[arg-type]


def turn(name: str = "echo", **arguments: object) -> JsonObject:
    return {"calls": [{"name": name, "arguments": arguments}]}


@pytest.mark.row("L06", "B01", "B05")
@pytest.mark.parametrize(("on_limit", "requests"), [("report", 3), ("summarize", 4)])
async def test_the_turn_limit_stops_exactly_there(on_limit: str, requests: int) -> None:
    model = ScriptedModel(ENDLESS)

    result = await Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=3), on_limit=on_limit).run("go")  # type: ignore[arg-type]

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
async def test_the_story_of_the_tool_limit_is_told_as_seed_002_tells_it(tmp_path: Path) -> None:
    asked = "Keep searching for errors in every file"
    raw = [json.dumps({"pattern": "error", "path": path}) for path in SOURCES]
    turns = [{"calls": [{"id": f"call_grep{n}", "name": "grep", "arguments": a}]} for n, a in enumerate(raw, 1)]
    summary = "I was searching through files but reached the tool call limit (3 calls)."
    async with provider(*turns, {"text": summary}) as mock, open_session(tmp_path / "story.db", id="s") as session:
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
async def test_a_limit_inside_a_batch_runs_what_it_covers_and_answers_every_call(tmp_path: Path) -> None:
    rec = counter_tool(tmp_path / "rec")
    async with provider(
        {"calls": [{"name": "rec", "arguments": {"n": n}} for n in range(5)]}, {"text": "part"}
    ) as mock:
        result = await Agent(chat(mock), tools=[rec], budget=Budget(max_tool_calls=3)).run("go")

    assert lines(tmp_path / "rec") == 3
    told = [json.loads(m["content"]) for m in mock.requests[1].body["messages"] if m["role"] == "tool"]
    assert [one.get("type") for one in told] == [None, None, None, "skipped", "skipped"]
    assert [one.get("code") for one in told[3:]] == ["budget_exceeded"] * 2
    assert ["limit_reached" in one for one in told] == [False] * 4 + [True]
    assert mock.requests[1].body["tool_choice"] == "none"
    report = result.report()
    assert (report["budget"], report["used"], report["limit"]) == ("max_tool_calls", 3, 3)


@pytest.mark.row("L10")
async def test_a_call_in_the_closing_answer_is_not_run_and_nothing_more_is_asked(tmp_path: Path) -> None:
    rec = counter_tool(tmp_path / "rec")
    async with provider(*[turn("rec", n=n) for n in range(6)]) as mock:
        result = await Agent(chat(mock), tools=[rec], budget=Budget(max_tool_calls=3)).run("go")

    assert (lines(tmp_path / "rec"), len(mock.requests)) == (3, 4)
    assert result.tool_calls[-1].status == "skipped"
    assert not result.completed
    assert result.messages[-1].role == "tool"  # the call of the closing answer has its result too


@pytest.mark.row("L11")
async def test_a_stopped_run_goes_on_with_a_larger_budget_without_doing_anything_again(tmp_path: Path) -> None:
    rec = counter_tool(tmp_path / "rec")
    async with provider(
        *[turn("rec", n=n) for n in range(3)], {"text": "so far"}, turn("rec", n=3), {"text": "all"}
    ) as mock:
        agent = Agent(chat(mock), tools=[rec], budget=Budget(max_tool_calls=3))
        async with open_session(tmp_path / "a.db", id="s") as session:
            stopped = await agent.run("go", session=session)
        async with open_session(tmp_path / "a.db", id="s") as session:
            done = await agent.resume(session, budget=Budget(max_tool_calls=6))

    assert (stopped.reason, done.reason, done.text) == ("budget_exceeded", "completed", "all")
    assert lines(tmp_path / "rec") == len(set((tmp_path / "rec").read_text().splitlines())) == 4
    assert [request.body["tool_choice"] for request in mock.requests] == ["auto"] * 3 + ["none"] + ["auto"] * 2
    assert mock.refusals == []


@pytest.mark.row("L19", "L20", "B17")
async def test_done_and_out_of_room_differ_in_flag_reason_and_event_and_name_the_profile() -> None:
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
    reached = [(e.budget, e.used, e.limit, e.profile) for e in events if e.type == "budget.reached"]  # type: ignore[attr-defined]
    assert reached == [("max_model_turns", 5, 5, "qa")]


# --- the ten budgets


@pytest.mark.row("B02")
def test_a_misspelt_budget_is_an_error_that_names_the_nearest() -> None:
    assert len(Budget.__struct_fields__) == 10
    with pytest.raises(UnknownBudget, match="max_model_turns"):
        budget_from({"max_model_turn": 3})
    with pytest.raises(TypeError):
        Budget(max_turns=3)  # type: ignore[call-arg]
    for wrong in (-1, 1.5, "3", True, float("nan")):
        with pytest.raises(ConfigurationError, match="max_tool_calls"):
            budget_from({"max_tool_calls": wrong})


@pytest.mark.row("B03", "B04", "B05")
@pytest.mark.parametrize(
    ("budget", "name", "limit"),
    [
        (Budget(max_input_tokens=150), "max_input_tokens", 150),
        (Budget(max_output_tokens=15), "max_output_tokens", 15),
        (Budget(max_total_cost=0.0002), "max_total_cost", 0.0002),
    ],
)
async def test_spending_in_the_second_step_forbids_the_third(budget: Budget, name: str, limit: float) -> None:
    usage = {"input_tokens": 100, "output_tokens": 10}
    turns = [{**turn(n=n), "usage": usage} for n in range(5)]
    async with provider(*turns) as mock:
        model = chat(mock, price=Price(input=1, output=0))
        result = await Agent(model, tools=[echo_tool()], budget=budget).run("go")

    assert len(mock.requests) == 2
    report = result.report()
    assert (report["reason"], report["budget"], report["limit"]) == ("budget_exceeded", name, limit)
    assert Decimal(str(report["used"])) >= Decimal(str(limit))


@pytest.mark.row("B04")
@pytest.mark.parametrize("name", ["max_input_tokens", "max_output_tokens", "max_total_cost"])
async def test_a_response_that_uses_a_budget_up_has_none_of_its_calls_carried_out(name: str) -> None:
    done: list[int] = []

    async def pay(arguments: JsonObject, ctx: ToolContext) -> str:
        done.append(arguments["n"])
        return "paid"

    tool = Tool(name="pay", description="Pay.", parameters={}, effect="unsafe", permission="allow", run=pay)
    turns = [{"calls": [{"name": "pay", "arguments": {"n": n}} for n in (1, 2)], "usage": USED}, {"text": "done"}]
    async with provider(*turns) as mock:
        model = chat(mock, price=Price(input=1, output=1))
        limit = 0.0001 if name == "max_total_cost" else 10
        result = await Agent(model, tools=[tool], budget=Budget(**{name: limit})).run("go")

    assert done == []
    assert [call.status for call in result.tool_calls] == ["skipped", "skipped"]
    assert name in result.messages[2].results[0].content
    assert (result.reason, result.report()["budget"]) == ("budget_exceeded", name)
    assert len(mock.requests) == 1


@pytest.mark.row("B03")
def test_money_is_exact() -> None:
    price = Price(input=0.1, output=0.3, cached_input=0.01)
    usage = Usage(input_tokens=3, output_tokens=1, cached_input_tokens=1)
    assert price.cost(usage) == Decimal("0.00000051")


@pytest.mark.row("B03")
async def test_a_cost_limit_without_a_price_is_refused_before_any_request() -> None:
    model = Unpriced([text("x")])
    with pytest.raises(ConfigurationError, match="max_total_cost"):
        await Agent(model, budget=Budget(max_total_cost=1)).run("go")
    assert model.requests == []


async def test_a_scripted_model_costs_what_it_says_and_nothing_by_default() -> None:
    turn_ = Turn(text="x", usage=Usage(input_tokens=1000, output_tokens=10))
    free = await Agent(ScriptedModel([turn_]), budget=Budget(max_total_cost=1)).run("go")
    dear = Agent(
        ScriptedModel([[call("look")], turn_], price=Price(input=1, output=10)), budget=Budget(max_total_cost="0.0001")
    )  # type: ignore[arg-type]

    assert (free.completed, free.report()["cost"]) == (True, "0")
    assert (await dear.run("go")).reason == "budget_exceeded"


@pytest.mark.row("B03")
async def test_the_cost_of_an_unpriced_model_is_null_and_of_a_priced_one_exact() -> None:
    turn_ = Turn(text="x", usage=Usage(input_tokens=1000, output_tokens=10))
    unpriced = await Agent(Unpriced([turn_])).run("go")
    priced = await Agent(ScriptedModel([turn_], price=Price(input=1, output=10))).run("go")
    assert (unpriced.report()["cost"], priced.report()["cost"]) == (None, "0.0011")


@pytest.mark.row("B07", "PF20")
async def test_without_usage_from_the_server_the_estimate_is_marked_and_the_cap_still_trips() -> None:
    turns = [{**turn(n=n, pad="x" * 400), "usage": None} for n in range(9)]
    async with provider(*turns) as mock:
        result = await Agent(chat(mock), tools=[echo_tool()], budget=Budget(max_input_tokens=600)).run("go")

    assert result.report()["usage"]["estimated"] is True
    assert result.report()["budget"] == "max_input_tokens"
    assert len(mock.requests) < 9


@pytest.mark.row("B07")
async def test_cached_tokens_count_and_are_told() -> None:
    usage = {"input_tokens": 100, "output_tokens": 1, "cached_input_tokens": 80}
    async with provider({"text": "x", "usage": usage}) as mock:
        report = (await Agent(chat(mock)).run("go")).report()
    assert (report["usage"]["input_tokens"], report["usage"]["cached_input_tokens"]) == (100, 80)
    assert report["usage"]["estimated"] is False


@pytest.mark.row("B06", "B03", "B05")
async def test_wall_time_cuts_into_a_running_tool() -> None:
    clock, entered = FakeClock(), Gate()

    async def hang(arguments: JsonObject, ctx: ToolContext) -> None:
        entered.open()
        await Gate().wait()

    tool = Tool(name="hang", description="Hang.", parameters={"type": "object"}, effect="read", timeout=None, run=hang)
    async with open_session("memory:", clock=clock) as session:
        agent = Agent(
            ScriptedModel([call("hang")]), tools=[tool], budget=Budget(max_wall_time_seconds=60, max_model_turns=1)
        )
        async with agent.stream("go", session=session) as run:  # in a last turn nothing starts early
            await entered.wait()
            clock.advance(60)

    report = run.result.report()
    assert (report["reason"], report["budget"]) == ("budget_exceeded", "max_wall_time_seconds")
    assert [one["status"] for one in report["tool_calls"]] == ["timeout"]


@pytest.mark.row("B06", "PF6")
async def test_wall_time_cuts_into_a_silent_stream() -> None:
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
async def test_model_retries_are_counted_and_their_limit_is_named() -> None:
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


@pytest.mark.row("B03")
async def test_tool_retries_end_with_that_call_and_not_with_the_run() -> None:
    async with open_session("memory:", clock=FakeClock(auto=True)) as session:
        model = ScriptedModel([call("fail"), text("it fails")])
        fail = msgspec.structs.replace(failing_tool(error=ConnectionError), retries=None)
        result = await Agent(model, tools=[fail], budget=Budget(max_retries_per_tool_call=1)).run("go", session=session)

    assert result.completed
    assert [(one.status, one.attempts) for one in result.tool_calls] == [("failed", 2)]


@pytest.mark.row("B14")
async def test_no_request_is_made_when_there_is_no_time() -> None:
    model = ScriptedModel([text("x")])
    result = await Agent(model, budget=Budget(max_wall_time_seconds=0)).run("go")
    assert (result.reason, len(model.requests)) == ("budget_exceeded", 0)


# --- guards


@pytest.mark.row("L12", "MF6")
async def test_the_third_equal_call_in_a_row_is_not_run_and_ends_the_run(tmp_path: Path) -> None:
    rec = counter_tool(tmp_path / "rec")
    events: list[object] = []
    raw = ['{"a":1,"b":2}', '{"b":2,"a":1}', '{"a": 1.0, "b":2}']
    model = ScriptedModel([call("rec", arguments=one) for one in raw] + [text("never")])

    result = await Agent(model, tools=[rec], subscribers=[events.append], on_limit="report").run("go")

    assert lines(tmp_path / "rec") == 2
    report = result.report()
    assert (report["reason"], report["completed"]) == ("repeated_tool_call", False)
    assert (report["details"]["tool"], report["details"]["count"]) == ("rec", 3)
    noticed = [e.count for e in events if e.type == "repeat.noticed"]  # type: ignore[attr-defined]
    assert noticed == [2, 3]
    assert [one.status for one in result.tool_calls] == ["ok", "ok", "skipped"]
    assert result.messages[-1].role == "tool"


@pytest.mark.row("L12")
async def test_equal_calls_count_only_when_nothing_stands_between_them(tmp_path: Path) -> None:
    rec = counter_tool(tmp_path / "rec")
    apart = [call("rec", x=1), call("rec", x=2), call("rec", x=1), call("rec", x=2), call("rec", x=1), text("done")]

    spread = await Agent(ScriptedModel(apart), tools=[rec]).run("go")

    assert spread.completed
    assert lines(tmp_path / "rec") == 5


@pytest.mark.row("L14", "L12")
async def test_failures_of_any_tools_in_a_row_end_the_run_by_their_own_reason() -> None:
    tools = [failing_tool(name) for name in "abcd"]
    model = ScriptedModel([call(name, n=name) for name in "abcd"])

    result = await Agent(model, tools=tools, guards=Guards(failures=3), on_limit="report").run("go")

    assert (result.reason, len(result.tool_calls)) == ("repeated_failures", 3)
    assert result.report()["details"]["count"] == 3


@pytest.mark.row("L14")
async def test_a_success_between_failures_begins_the_count_anew() -> None:
    model = ScriptedModel(
        [call("fail", n=1), call("fail", n=2), call("echo"), call("fail", n=3), call("fail", n=4), text("x")]
    )
    result = await Agent(model, tools=[failing_tool(), echo_tool()], guards=Guards(failures=3)).run("go")
    assert result.completed


@pytest.mark.row("F01", "F03", "MF1")
@pytest.mark.parametrize(("broken", "guard"), [('{"a":1,}', "invalid_json"), ('{"n": "many"}', "invalid_arguments")])
async def test_three_invalid_calls_in_a_row_end_the_run_each_class_counted_by_itself(
    tmp_path: Path, broken: str, guard: str
) -> None:
    strict = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    rec = msgspec.structs.replace(counter_tool(tmp_path / "rec"), parameters=strict)
    other = '{"n": "many"}' if guard == "invalid_json" else '{"a":1,}'
    endless = ScriptedModel([call("rec", arguments=broken)])
    mixed = ScriptedModel(
        [call("rec", arguments=a) for a in (broken, broken, other, other, '{"n":1}', broken)] + [text("x")]
    )

    stopped = await Agent(endless, tools=[rec], on_limit="report").run("go")
    done = await Agent(mixed, tools=[rec]).run("go")

    assert (stopped.reason, len(endless.requests)) == ("invalid_call_limit", 3)
    assert stopped.report()["details"]["class"] == guard
    assert done.completed
    assert lines(tmp_path / "rec") == 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3"])
def test_a_guard_is_a_whole_number_of_one_or_more(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="repeats"):
        Guards(repeats=wrong)  # type: ignore[arg-type]


@pytest.mark.row("B03", "L06")
@pytest.mark.parametrize(("on_limit", "choices"), [("summarize", ["auto", "none"]), ("report", ["auto"])])
async def test_a_limit_of_no_calls_stops_at_the_first_call(tmp_path: Path, on_limit: str, choices: list[str]) -> None:
    rec = counter_tool(tmp_path / "rec")
    agent_words = {"tools": [rec], "budget": Budget(max_tool_calls=0), "on_limit": on_limit}
    async with provider(turn("rec"), {"text": "I may call nothing."}) as mock:
        result = await Agent(chat(mock), **agent_words).run("go")  # type: ignore[arg-type]

    assert [request.body["tool_choice"] for request in mock.requests] == choices
    assert lines(tmp_path / "rec") == 0
    report = result.report()
    assert (report["budget"], report["used"], report["limit"]) == ("max_tool_calls", 0, 0)


@pytest.mark.row("B03")
async def test_a_limit_of_no_calls_leaves_room_for_an_answer() -> None:
    result = await Agent(ScriptedModel([text("Four.")]), tools=[echo_tool()], budget=Budget(max_tool_calls=0)).run(
        "2+2"
    )

    assert result.completed
