"""Fallback, breakers and prices: a model that keeps failing is left alone, another answers, and money is told exactly."""

import json
from decimal import Decimal

import pytest

from loop_tools import Unpriced
from treadle import Agent, Budget, ConfigurationError, Tool, ToolContext, open_session, resolve_model
from treadle.concurrency import Breaker
from treadle.messages import Usage
from treadle.providers.fallback import FallbackModel
from treadle.providers.prices import list_price
from treadle.resolve import with_fallback
from treadle.testing import FakeClock, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject
from treadle.toolsets.wrappers import guarded_by_breaker

BUSY = Turn(status=529)


def echo(**words: object) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
        return arguments

    return Tool(name="echo", description="Echo.", parameters={}, effect="read", run=run, **words)  # type: ignore[arg-type]


@pytest.mark.row("R09", "M15")
async def test_after_three_failures_another_model_goes_on_with_a_history_that_it_accepts() -> None:
    clock = FakeClock(auto=True)
    first = ScriptedModel([call("echo", x=1), BUSY], name="first")
    async with MockProvider([{"text": "from the second"}]) as mock, open_session("memory:", clock=clock) as session:
        second = resolve_model("openai-chat:second", base_url=mock.base_url)
        model = FallbackModel([first, second], clock=clock, failures=3)
        result = await Agent(model, tools=[echo()]).run("go", session=session)

    assert (result.text, mock.refusals, len(first.requests)) == ("from the second", [], 4)
    assert [message.origin for message in result.messages] == [None, "first", None, "openai-chat:second"]
    assert [message["role"] for message in mock.requests[0].body["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.row("R08", "R09")
async def test_a_model_left_alone_is_tried_again_once_and_comes_back_when_it_is_well() -> None:
    clock = FakeClock(auto=True)
    first = ScriptedModel([BUSY, BUSY, BUSY, text("first again")], name="first")
    second = ScriptedModel([text("second")], name="second")
    agent = Agent(FallbackModel([first, second], clock=clock, failures=2, open_seconds=30))
    async with open_session("memory:", clock=clock) as session:
        texts = []
        for _ in range(2):
            texts.append((await agent.run("go", session=session)).text)
        clock.advance(31)
        texts.append((await agent.run("go", session=session)).text)  # the one trial fails: shut again
        clock.advance(31)
        texts.append((await agent.run("go", session=session)).text)

    assert texts == ["second", "second", "second", "first again"]
    assert len(first.requests) == 4


@pytest.mark.row("R08")
async def test_when_all_models_are_shut_the_error_is_typed_and_says_when_one_is_tried_again() -> None:
    clock = FakeClock(auto=True)
    model = FallbackModel([ScriptedModel([BUSY], name="only")], clock=clock, failures=1, open_seconds=500)
    async with open_session("memory:", clock=clock) as session:
        result = await Agent(model).run("go", session=session)

    assert (result.reason, result.report()["details"]["error"]) == ("model_error", "ModelUnavailable")
    assert "not asked for another" in result.message
    with pytest.raises(ConfigurationError, match="at least one"):
        with_fallback()


@pytest.mark.row("R07", "R09")
async def test_a_refused_request_does_not_count_against_the_model() -> None:
    clock = FakeClock()
    first = ScriptedModel([Turn(status=400), text("fine")], name="first")
    agent = Agent(FallbackModel([first, ScriptedModel([text("other")])], clock=clock, failures=1))
    async with open_session("memory:", clock=clock) as session:
        assert (await agent.run("go", session=session)).reason == "model_error"
        assert (await agent.run("again", session=session)).text == "fine"


@pytest.mark.row("R08")
def test_a_breaker_lets_one_trial_through_while_it_is_half_open() -> None:
    breaker = Breaker(failures=2, open_seconds=10)
    assert breaker.begin(0)
    breaker.failed(0)
    assert breaker.begin(1)
    breaker.failed(1)
    assert not breaker.begin(2)
    assert breaker.seconds_until_trial(2) == 9
    assert breaker.begin(11)
    assert not breaker.begin(11)  # another one while the trial is under way
    breaker.gave_up()
    assert breaker.begin(11)
    breaker.failed(12)
    assert not breaker.begin(21)
    assert breaker.begin(22)
    breaker.succeeded()
    assert breaker.begin(22)
    assert breaker.begin(22)


@pytest.mark.row("R08")
@pytest.mark.parametrize("is_sync", [True, False])
async def test_a_tool_that_keeps_failing_is_answered_at_once_until_its_trial(is_sync: bool) -> None:
    clock, ran = FakeClock(auto=not is_sync), []

    def act() -> str:
        ran.append(1)
        if len(ran) <= 2:
            raise RuntimeError("down")
        return "up"

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return act()

    inner = Tool(
        name="t", description="d", parameters={}, effect="read", retries=0, run=(lambda a, c: act()) if is_sync else run
    )
    tool = guarded_by_breaker(inner, clock=clock, failures=2, open_seconds=60)
    async with open_session("memory:", clock=clock) as session:
        model = ScriptedModel([call("t", n=n) for n in range(3)] + [text("pause")] + [call("t", n=9), text("done")])
        agent = Agent(model, tools=[tool])
        first = await agent.run("go", session=session)
        clock.advance(61)
        second = await agent.run("go", session=session)

    assert [one.status for one in first.tool_calls] == ["failed", "failed", "rejected"]
    told = json.loads(first.messages[6].results[0].content)
    assert (told["code"], told["details"][0]["retry_after"]) == ("circuit_open", 60)
    assert [one.status for one in second.tool_calls] == ["ok"]
    assert len(ran) == 3


# --- prices


@pytest.mark.row("B08")
async def test_list_prices_are_exact_and_cached_tokens_have_their_own() -> None:
    price = list_price("openai", "gpt-5-mini")
    assert price is not None
    whole = price.cost(Usage(input_tokens=1_000_000))
    assert price.cost(Usage(input_tokens=1_000_000, cached_input_tokens=1_000_000)) < whole
    assert price.cost(Usage(input_tokens=3, output_tokens=7)) * 1000 == price.cost(
        Usage(input_tokens=3000, output_tokens=7000)
    )
    assert isinstance(whole, Decimal)
    assert list_price("openai", "no-such-model-as-this") is None
    assert list_price("script", "gpt-5-mini") is None


@pytest.mark.row("B08", "W09")
def test_tokens_written_to_the_cache_cost_what_the_list_says() -> None:
    price = list_price("anthropic", "claude-sonnet-4-5")
    assert price is not None

    usage = Usage(input_tokens=6_100, cached_input_tokens=5_000, cache_written_tokens=1_000, output_tokens=50)

    assert price.cost(usage) == Decimal("0.0063")


@pytest.mark.row("B08")
@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=3, cached_input_tokens=5),
        Usage(input_tokens=10, cached_input_tokens=5, cache_written_tokens=8),
    ],
)
def test_a_server_that_counts_more_cached_tokens_than_it_was_sent_breaks_no_run(usage: Usage) -> None:
    price = list_price("anthropic", "claude-sonnet-4-5")

    assert price is not None
    assert price.cost(usage) > 0


@pytest.mark.row("B08")
@pytest.mark.parametrize(
    ("dialect", "model"),
    [
        ("groq", "llama-3.3-70b-versatile"),
        ("deepseek", "deepseek-chat"),
        ("mistral", "mistral-large-latest"),
        ("openrouter", "anthropic/claude-sonnet-4.5"),
    ],
)
def test_the_vendors_that_the_list_knows_have_a_price(dialect: str, model: str) -> None:
    price = resolve_model(f"{dialect}:{model}", api_key="k").price

    assert price is not None
    assert price.cost(Usage(input_tokens=1_000_000)) > 0


@pytest.mark.row("B08")
def test_a_vendors_model_has_its_list_price_and_a_server_of_ones_own_has_none() -> None:
    assert resolve_model("openai-chat:gpt-5-mini", api_key="x", base_url="https://api.openai.com/v1").price is not None
    assert resolve_model("openai-chat:gpt-5-mini", base_url="http://127.0.0.1:1/v1").price is None


@pytest.mark.row("B08")
async def test_an_unknown_price_is_refused_or_let_pass_as_one_says(caplog: pytest.LogCaptureFixture) -> None:
    budget = Budget(max_total_cost=0.001)
    with pytest.raises(ConfigurationError, match="unpriced='warn'"):
        await Agent(Unpriced([text("x")]), budget=budget).run("go")
    result = await Agent(Unpriced([text("x")]), budget=budget, unpriced="warn").run("go")
    assert (result.completed, result.report()["cost"]) == (True, None)
    assert "The limit cannot be enforced" in caplog.text
    with pytest.raises(ConfigurationError, match="unpriced"):
        Agent("demo", unpriced="never")  # type: ignore[arg-type]


# --- telling the model about parallel calls


@pytest.mark.row("S19")
async def test_descriptions_of_reads_say_that_calls_may_be_parallel_and_no_others_do() -> None:
    tools = [
        echo(),
        Tool(name="act", description="Act.", parameters={}, run=echo().run),
        Tool(name="own", description="May be issued in parallel.", parameters={}, effect="read", run=echo().run),
    ]
    model = ScriptedModel([text("x")])
    await Agent(model, tools=tools).run("go")
    await Agent(model, tools=tools, parallel_hint=False).run("go")

    hinted, plain = ([spec.description for spec in request.tools] for request in model.requests)
    assert hinted == ["Act.", "Echo.\n\nThis call is independent and may be issued in parallel with others.",
                      "May be issued in parallel."]  # fmt: skip
    assert plain == ["Act.", "Echo.", "May be issued in parallel."]


@pytest.mark.row("S18")
@pytest.mark.parametrize(("limit", "sent"), [(1, False), (2, None)])
async def test_one_call_at_a_time_is_told_on_the_wire(limit: int, sent: bool | None) -> None:
    async with MockProvider([{"text": "x"}]) as mock:
        model = resolve_model("openai-chat:m", base_url=mock.base_url)
        await Agent(model, tools=[echo()], budget=Budget(max_parallel_tool_calls=limit)).run("go")
    assert mock.requests[0].body.get("parallel_tool_calls") is sent
