"""Vendors of Chat Completions: what each refuses, in which words it tells that, and how it tells limits and tokens."""

import json
from typing import Any

import pytest
from chat_server import DONE, answer, chunk, event, json_answer, serving

from treadle import Agent, resolve_model
from treadle.errors import ConfigurationError, ModelError, ModelRejected, ModelUnavailable
from treadle.messages import user_message
from treadle.ports import ModelEnd, ModelPart, ModelRequest, ToolSpec
from treadle.providers.openai_chat import OpenAIChat
from treadle.tools import JsonObject

GO = user_message("go")
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
FREE = ToolSpec(name="free", description="Free.", parameters={"type": "object", "properties": {}})
HELLO = chunk(content="Hello") + chunk("stop") + DONE


async def asked(
    name: str, *scripts: bytes, request: ModelRequest | None = None, **options: Any
) -> tuple[list[ModelPart], list[JsonObject]]:
    """Ask a server of a vendor's kind; return the parts, and the bodies that it was sent."""
    async with serving(*scripts) as server:
        model = resolve_model(f"{name}:m", base_url=server.url, api_key="k", options=options)
        parts = [part async for part in model.stream(request or ModelRequest(messages=(GO,)))]
    return parts, [json.loads(one.body) for one in server.requests]


async def failure(name: str, error: Any, status: int, **headers: str) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await asked(name, json_answer(error, status=status, headers=headers))
    return raised.value


def wants(choice: str) -> ModelRequest:
    return ModelRequest(messages=(GO,), tools=(LOOK, FREE), tool_choice=choice)


# --- demanded calls


REFUSALS = [
    ("deepseek", "deepseek-reasoner does not support this tool_choice"),
    ("deepseek", "Thinking mode does not support this tool_choice"),
    ("moonshot", "tool_choice 'required' is incompatible with thinking enabled"),
    ("alibaba", "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required or object in thinking mode"),
    ("alibaba", 'tool_choice is one of the strings that should be ["none", "auto"]'),
]  # fmt: skip


@pytest.mark.row("P-ROWS")
@pytest.mark.parametrize(("name", "words"), REFUSALS)
async def test_a_server_that_refuses_a_demanded_call_is_asked_again_without_the_demand(name: str, words: str) -> None:
    refused = json_answer({"error": {"message": words}}, status=400)

    parts, bodies = await asked(name, refused, answer(HELLO), request=wants("required"))

    assert isinstance(parts[-1], ModelEnd)
    assert [body["tool_choice"] for body in bodies] == ["required", "auto"]


@pytest.mark.row("P-ROWS")
async def test_what_was_refused_once_is_not_demanded_again() -> None:
    refused = json_answer({"error": {"message": "this model does not support tool_choice"}}, status=400)
    async with serving(refused, answer(HELLO), answer(HELLO)) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        for choice in ("look", "required"):
            assert [part async for part in model.stream(wants(choice))]

    bodies = [json.loads(one.body) for one in server.requests]
    assert [body["tool_choice"] for body in bodies[1:]] == ["auto", "auto"]
    assert [[tool["function"]["name"] for tool in body["tools"]] for body in bodies[1:]] == [["look"], ["free", "look"]]


@pytest.mark.row("P-ROWS")
@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_only_a_demand_is_left_out(choice: str) -> None:
    refused = json_answer({"error": {"message": "tool_choice is not supported"}}, status=400)

    with pytest.raises(ModelRejected, match="tool_choice"):
        await asked("deepseek", refused, answer(HELLO), request=wants(choice))


@pytest.mark.row("P-ROWS")
async def test_zai_is_told_no_choice_but_auto_and_no_stream_options() -> None:
    _, [body] = await asked("zai", answer(HELLO), request=wants("required"))

    assert body["tool_choice"] == "auto"
    assert "stream_options" not in body


# --- rows


@pytest.mark.row("P-ROWS")
async def test_moonshot_gets_the_reasoning_back_and_tells_its_cached_tokens() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "cached_tokens": 7}
    stream = (
        chunk(reasoning_content="Hm")
        + chunk(content="Hello")
        + chunk("stop")
        + event({"choices": [], "usage": usage})
        + DONE
    )
    async with serving(answer(stream), answer(HELLO)) as server:
        agent = Agent(resolve_model("moonshot:m", base_url=server.url))
        first = await agent.run("go")
        await agent.run("and on", session=first.session)

    assert first.usage.cached_input_tokens == 7
    assert json.loads(server.requests[1].body)["messages"][1]["reasoning_content"] == "Hm"


@pytest.mark.row("P-ROWS")
async def test_perplexitys_model_is_driven_by_text() -> None:
    from treadle.drivers.react import ReActDriver
    from treadle.resolve import driver_for

    assert isinstance(driver_for(resolve_model("perplexity:sonar", api_key="k")), ReActDriver)


# --- failures


@pytest.mark.row("P-ROWS")
@pytest.mark.parametrize(
    ("name", "status", "error", "kind", "match"),
    [
        ("xai", 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: k***. You can obtain an API key from https://console.x.ai."}, ModelRejected, "XAI_API_KEY"),
        ("llamacpp", 500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}, ModelRejected, "Start llama-server with --jinja"),
        ("zai", 429, {"error": {"code": "1302", "message": "High concurrency usage of this API"}}, ModelUnavailable, "concurrency"),
        ("cloudflare", 429, {"success": False, "errors": [{"code": 3036, "message": "You have used up your daily free allocation of 10,000 neurons"}]}, ModelUnavailable, "daily free allocation"),
        ("cloudflare", 400, {"success": False, "errors": [{"code": 5007, "message": "No such model @cf/x or task"}], "result": None}, ModelRejected, "No such model"),
        ("huggingface", 402, {"error": "You have exceeded your monthly included credits"}, ModelRejected, "no credit"),
        ("databricks", 403, {"error_code": "PERMISSION_DENIED", "message": "Invalid access token."}, ModelRejected, "DATABRICKS_TOKEN"),
    ],
)  # fmt: skip
async def test_a_failure_is_told_by_its_class(
    name: str, status: int, error: Any, kind: type[ModelError], match: str
) -> None:
    told = await failure(name, error, status)

    assert type(told) is kind, told
    assert match in str(told)


@pytest.mark.row("P-ROWS")
async def test_a_limit_of_a_gateway_says_when_it_is_full_again() -> None:
    told = await failure("together", {"error": {"message": "slow"}}, 429, **{"x-ratelimit-reset": "1.5"})

    assert told.retry_after_seconds == 1.5


# --- addresses


@pytest.mark.row("P-ROWS")
@pytest.mark.parametrize(
    ("name", "variable"), [("databricks", "DATABRICKS_HOST"), ("cloudflare", "CLOUDFLARE_ACCOUNT_ID")]
)
def test_an_address_that_needs_an_account_says_which_variable_holds_it(name: str, variable: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{variable}, or {name.upper()}_BASE_URL, or base_url"):
        resolve_model(f"{name}:m", api_key="k")
