"""What is known of models: windows, limits, inputs and prices from one file, with a person's own facts before it."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from child import run_treadle

from treadle import Agent, Budget, ConfigurationError, Message, Price, Tool, ToolOutput, open_session, resolve_model
from treadle.messages import Media, Text, Usage
from treadle.ports import ModelFacts, asked_model, facts_of, window_of
from treadle.providers.known import known_facts, known_models
from treadle.resolve import driver_for, with_fallback
from treadle.testing import MockProvider, ScriptedModel, call, text

PICTURE = Media(media_type="image/png", base64="iVBORw0KGgo=")
ASKED = Message(role="user", parts=(Text("What is this?"), PICTURE))


@pytest.mark.row("R-FACTS")
@pytest.mark.parametrize(
    ("name", "model", "same_as"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("vertex", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("bedrock", "eu.anthropic.claude-opus-4-1-20250805-v1:0", "claude-opus-4-1"),
        ("openai", "gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai-chat", "gpt-5-mini", "gpt-5-mini"),
        ("vertex", "google/gemini-2.5-pro", "gemini-2.5-pro"),
    ],
)
def test_a_dated_id_and_one_behind_another_door_is_the_model_that_it_names(name, model, same_as):
    facts = known_facts(name, model)
    known = next(known for full, known in known_models().items() if full.partition(":")[2] == same_as)

    assert (facts.window, facts.output, facts.inputs) == (known.window, known.output, known.inputs)
    assert facts.window is not None


@pytest.mark.row("R-FACTS")
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("openai", "gpt-5-mini-audio"),
        ("openai", "gpt-4o-audio-preview"),
        ("openai", "gpt"),
        ("openai", ""),
        ("openai", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-55"),
        ("azure", "gpt-5-mini"),
        ("ollama", "gpt-5-mini"),
        ("bedrock", "arn:aws:bedrock:eu-west-1:1:application-inference-profile/x"),
        ("nobody", "x"),
    ],
)
def test_what_is_unknown_is_none_and_never_guessed(name, model):
    assert known_facts(name, model) == ModelFacts()


def test_prices_hold_at_the_vendors_own_door_alone():
    assert known_facts("anthropic", "claude-haiku-4-5").price == Price(
        input=Decimal(1), output=Decimal(5), cached_input=Decimal("0.1"), cache_write=Decimal("1.25")
    )
    assert known_facts("bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0").price is None
    assert known_facts("openai-chat", "gpt-4o").price is not None


@pytest.mark.parametrize("name", [name for name, facts in known_models().items() if facts.price is not None])
def test_our_prices_and_windows_are_those_of_the_list(name):
    genai_prices = pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    from genai_prices.data_snapshot import get_snapshot

    vendor, _, model = name.partition(":")
    facts = known_models()[name]
    found = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=10**6, output_tokens=10**6), model, provider_id=vendor
    )
    _, listed = get_snapshot().find_provider_model(model, None, vendor, None)

    assert facts.price is not None
    assert facts.price.cost(Usage(input_tokens=10**6, output_tokens=10**6)) == found.total_price
    assert facts.window is None or listed.context_window in (None, facts.window) or facts.window > 10**6


@pytest.mark.row("R-FACTS")
def test_a_vendors_model_knows_its_window_and_ones_own_facts_come_first():
    known = resolve_model("anthropic:claude-haiku-4-5", api_key="k")
    own = resolve_model("anthropic:claude-haiku-4-5", api_key="k", facts=ModelFacts(window=1_000, inputs=["text"]))

    assert window_of(known) == 200_000
    assert known.price is not None
    assert (window_of(own), facts_of(own).output, facts_of(own).inputs) == (1_000, 64_000, {"text"})
    assert asked_model(own) is own
    assert facts_of(ScriptedModel([text("ok")])) == ModelFacts(price=Price(input=0, output=0))


@pytest.mark.row("R-FACTS")
def test_a_server_of_ones_own_is_not_the_vendor_and_nothing_is_known_of_it():
    model = resolve_model("openai-chat:gpt-5-mini", base_url="http://127.0.0.1:9/v1")

    assert facts_of(model) == ModelFacts()
    assert model.price is None


@pytest.mark.row("R-FACTS-INPUTS")
async def test_an_input_that_the_model_does_not_accept_is_refused_before_any_request():
    async with MockProvider([text("A cat.")]) as server:
        model = resolve_model("openai-chat:words", base_url=server.base_url, facts=ModelFacts(inputs=["text", "pdf"]))
        result = await Agent(model).run(ASKED)

    assert server.requests == []
    assert result.reason == "model_error"
    assert result.message == (
        "openai-chat:words accepts text and pdf, and no image: the request holds image/png. Leave it out, or use a model that accepts it."
        " If the model does accept it, say so with resolve_model(..., facts=ModelFacts(inputs=[...]))."
    )


@pytest.mark.row("R-FACTS-INPUTS")
async def test_an_input_goes_out_where_it_is_accepted_and_where_nobody_knows():
    async with MockProvider([text("A cat."), text("A cat.")]) as server:
        for facts in (ModelFacts(inputs=["text", "image"]), None):
            model = resolve_model("openai-chat:eyes", base_url=server.base_url, facts=facts)
            assert (await Agent(model).run(ASKED)).text == "A cat."

    assert len(server.requests) == 2


@pytest.mark.row("R-FACTS-LEFT-OUT")
@pytest.mark.parametrize("dialect", ["openai-chat", "openai", "anthropic", "gemini", "bedrock"])
async def test_a_picture_that_a_tool_returns_is_left_out_and_the_model_is_told(dialect):
    async def run(arguments, ctx):
        return ToolOutput(data="here", media=(PICTURE,))

    look = Tool(name="look", description="Look.", parameters={}, effect="read", run=run)
    async with MockProvider([call("look"), call("look"), text("A cat.")]) as server:
        facts = ModelFacts(inputs=["text"])
        words = resolve_model(f"{dialect}:words", base_url=server.base_url, api_key="k", facts=facts)
        result = await Agent(words, tools=[look]).run("go")

    assert result.text == "A cat."
    second, third = (json.dumps(request.body) for request in server.requests[1:])
    told = f"[image/png was left out: {words.name} accepts text.]"
    assert (second.count(told), third.count(told)) == (1, 2)
    assert str(PICTURE.base64) not in third
    assert result.session.messages[2].results[0].media == (PICTURE,)  # the store is never changed


@pytest.mark.row("R-FACTS-LEFT-OUT")
async def test_a_session_goes_on_with_a_model_that_does_not_see_its_pictures_and_back_again():
    async with MockProvider([text("A cat."), text("I cannot see it."), text("Still a cat.")]) as server:
        eyes = resolve_model("openai-chat:eyes", base_url=server.base_url)
        words = resolve_model("openai-chat:words", base_url=server.base_url, facts=ModelFacts(inputs=["text", "pdf"]))
        async with open_session("memory:") as session:
            await Agent(eyes).run(ASKED, session=session)
            blind = await Agent(words).run("What is on it?", session=session)
            await Agent(eyes).run("And now?", session=session)

    assert blind.completed
    first, second, third = (json.dumps(request.body) for request in server.requests)
    assert str(PICTURE.base64) in first
    assert str(PICTURE.base64) in third
    assert str(PICTURE.base64) not in second
    assert "[image/png was left out: openai-chat:words accepts text and pdf.]" in second


@pytest.mark.row("R-FACTS-LEFT-OUT")
async def test_the_picture_of_the_task_at_hand_stays_behind_what_a_person_adds_while_it_is_worked_on():
    async def run(arguments, ctx):
        return "paid"

    pay = Tool(name="pay", description="Pay.", parameters={}, effect="unsafe", permission="ask", run=run)
    async with MockProvider([call("pay"), text("A cat.")]) as server:
        eyes = resolve_model("openai-chat:eyes", base_url=server.base_url)
        words = resolve_model("openai-chat:words", base_url=server.base_url, facts=ModelFacts(inputs=["text"]))
        async with open_session("memory:") as session:
            paused = await Agent(eyes, tools=[pay]).run(ASKED, session=session)
            await session.steer("Hurry.")
            await session.answer(paused.approvals[0].id, "allow")
            refused = await Agent(words, tools=[pay]).resume(session)
            seen = await Agent(eyes, tools=[pay]).resume(session)

    assert refused.reason == "model_error"  # with the way out: half a task helps nobody
    assert seen.text == "A cat."
    assert "Hurry." in json.dumps(server.requests[-1].body)


@pytest.mark.row("R-FACTS-LEFT-OUT")
async def test_after_a_task_that_was_refused_the_session_goes_on_without_its_picture():
    async with MockProvider([text("Then no cat.")]) as server:
        words = resolve_model("openai-chat:words", base_url=server.base_url, facts=ModelFacts(inputs=["text"]))
        async with open_session("memory:") as session:
            refused = await Agent(words).run(ASKED, session=session)
            again = await Agent(words).run("Without it, please.", session=session)

    assert refused.reason == "model_error"
    assert again.text == "Then no cat."


async def test_what_is_no_kind_of_input_is_let_through():
    words = resolve_model("openai-chat:words", base_url="http://127.0.0.1:9/v1", facts=ModelFacts(inputs=["text"]))
    odd = Message(role="user", parts=(Media(media_type="application/zip", base64="UEs="),))

    result = await Agent(words, budget=Budget(max_retries_per_model_call=0)).run(odd)

    assert "accepts text" not in result.message


@pytest.mark.parametrize(
    "words",
    [{"window": 0}, {"window": "many"}, {"output": -1}, {"inputs": ["smell"]}, {"inputs": "text"}, {"tools": 1}],
)
def test_facts_that_are_none_are_refused_with_their_name(words):
    with pytest.raises(ConfigurationError, match=next(iter(words))):
        ModelFacts(**words)


def test_a_model_without_tools_is_driven_by_react():
    model = resolve_model("ollama:gemma", facts=ModelFacts(tools=False))

    assert type(driver_for(model)).__name__ == "ReActDriver"


def test_of_several_models_the_one_whose_turn_it_is_says_what_it_can_do():
    first = resolve_model("openai-chat:a", base_url="http://127.0.0.1:9/v1", facts=ModelFacts(window=10))
    second = resolve_model("openai-chat:b", base_url="http://127.0.0.1:9/v1", facts=ModelFacts(window=20))

    assert window_of(asked_model(with_fallback(first, second))) == 10


@pytest.mark.row("R-FACTS")
def test_the_program_lists_what_is_known(tmp_path: Path):
    _, listed, _ = run_treadle(tmp_path, "models")
    _, one, _ = run_treadle(tmp_path, "models", "--json", "anthropic:claude-haiku-4-5-20251001")
    _, unknown, _ = run_treadle(tmp_path, "models", "--json", "ollama:x")

    assert "anthropic:claude-haiku-4-5" in listed
    assert "200,000" in listed
    assert json.loads(one)[0]["window"] == 200_000
    assert json.loads(one)[0]["price"]["input"] == "1"
    assert json.loads(unknown)[0]["window"] is None


@pytest.mark.row("R-FACTS")
def test_a_configuration_says_what_a_model_can_do(tmp_path: Path):
    (tmp_path / "own.toml").write_text('model = "ollama:x"\n[facts]\nwindow = 32768\ninputs = ["text"]\n')
    (tmp_path / "bad.toml").write_text('model = "ollama:x"\n[facts]\nwindow = "much"\n')

    _, shown, _ = run_treadle(tmp_path, "config", "show", "--json", "--config", "own.toml")
    code, _, errors = run_treadle(tmp_path, "config", "show", "--config", "bad.toml")

    assert json.loads(shown)["facts"]["value"]["window"] == 32_768
    assert (code, "window" in errors) == (2, True)
