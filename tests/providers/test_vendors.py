"""Vendors: every name before the colon leads to a model, with the right address, key and fields."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from chat_server import DONE, answer, chunk, event, json_answer, serving
from child import run_python

from treadle import Agent, Budget, ToolOutput, resolve_model, tool
from treadle.errors import ConfigurationError, ModelError, ModelRejected, ModelUnavailable, UnknownModel
from treadle.messages import Media, user_message
from treadle.ports import ModelEnd, ModelPart, ModelRequest, ToolSpec
from treadle.providers import Timeouts
from treadle.providers.openai_chat import OpenAIChat
from treadle.providers.vendors import LOCAL_SERVERS, VENDORS
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "nothing"


@tool(effect="read")
async def photograph() -> ToolOutput:
    """Take a picture."""
    return ToolOutput(data="here", media=(Media(media_type="image/png", base64="iVBORw0K"),))


def mistral_refuses(body: Any) -> Iterator[str]:
    """Yield what Mistral refuses in a history, in its words."""
    for earlier, later in pairwise(body["messages"]):
        if (earlier["role"], later["role"]) == ("tool", "user"):
            yield "Unexpected role 'user' after role 'tool'"
    for message in body["messages"]:
        if message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls"):
            yield "Assistant message must have either content or tool_calls, but not none."
        ids = [made["id"] for made in message.get("tool_calls", ())]
        ids += [message["tool_call_id"]] if message["role"] == "tool" else []
        for call_id in ids:
            if not re.fullmatch("[a-zA-Z0-9]{9}", call_id):
                yield f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."


@pytest.mark.row("W05")
@pytest.mark.parametrize("name", VENDORS)
def test_every_vendor_resolves_and_keeps_its_name(name: str) -> None:
    model = resolve_model(f"{name}:some/model:7b", base_url="http://127.0.0.1:9/v1")
    assert model.name == f"{name}:some/model:7b"


@pytest.mark.parametrize("name", LOCAL_SERVERS)
def test_a_server_on_this_machine_needs_no_key_and_no_address(name: str) -> None:
    assert resolve_model(f"{name}:m").name == f"{name}:m"


async def resolved(name: str, code: str, **variables: str) -> str:
    """Resolve a model in a process that has these variables alone, and return what the code says of it."""
    script = f"import asyncio\nfrom treadle import *\nmodel = resolve_model('{name}:m')\n{code}"
    return "".join(await run_python(script, **variables))


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("groq", "GROQ_API_KEY"),
        ("gemini", "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("azure", "AZURE_BASE_URL"),
        ("cohere", "COHERE_API_KEY or CO_API_KEY"),
    ],
)
async def test_a_vendors_key_is_asked_for_by_its_own_variable(name: str, variables: str) -> None:
    assert variables in await resolved(name, "")


@pytest.mark.parametrize(
    ("name", "variable"),
    [("azure", "AZURE_API_KEY"), ("azure", "AZURE_OPENAI_API_KEY"), ("vllm", "VLLM_API_KEY"),
     ("llamacpp", "LLAMACPP_API_KEY"), ("groq", "GROQ_API_KEY"), ("openai-chat", "OPENAI_API_KEY"),
     ("gemini", "GEMINI_API_KEY"), ("gemini", "GOOGLE_API_KEY")],
)  # fmt: skip
async def test_a_key_is_read_from_the_vendors_variable_and_sent_as_the_vendor_wants_it(
    name: str, variable: str
) -> None:
    async with MockProvider(["hi"]) as mock:
        address = {f"{name.partition('-')[0].upper()}_BASE_URL": mock.base_url}
        told = await resolved(name, "asyncio.run(Agent(model).run('go'))", **address, **{variable: "sk-1"})

    headers = mock.requests[0].headers
    carrier = {"azure": "api-key", "gemini": "x-goog-api-key"}.get(name, "authorization")
    assert (told, headers.get(carrier)) == ("", "Bearer sk-1" if carrier == "authorization" else "sk-1")
    assert ("authorization" in headers) == (carrier == "authorization")


@pytest.mark.parametrize(
    ("name", "words"), [("groq", "GROQ_API_KEY"), ("vllm", "VLLM_API_KEY"), ("ollama", "api_key=.")]
)
async def test_a_server_that_refuses_an_absent_key_is_told_with_its_own_variable(name: str, words: str) -> None:
    async with MockProvider(["hi"], api_key="sk-1") as mock:
        result = await Agent(resolve_model(f"{name}:m", base_url=mock.base_url)).run("go")

    assert words in result.message
    assert "OPENAI" not in result.message


@pytest.mark.parametrize("name", VENDORS)
async def test_headers_and_time_limits_reach_every_vendors_adapter(name: str) -> None:
    async with MockProvider([Turn(text="hi", gate="never"), "hi"]) as mock:
        patient = Timeouts(first_byte_seconds=0.05)
        model = resolve_model(f"{name}:m", base_url=mock.base_url, headers={"X-Team": "a"}, timeouts=patient)
        result = await Agent(model, budget=Budget(max_retries_per_model_call=0)).run("go")

    assert mock.requests[0].headers["x-team"] == "a"
    assert "within 0.05 s" in result.message


@pytest.mark.row("W05")
async def test_a_servers_quirks_are_fields_of_its_request() -> None:
    async with MockProvider([{"text": "hi"}]) as mock:
        for name in ("mistral", "ollama"):
            await Agent(resolve_model(f"{name}:m", base_url=mock.base_url)).run("go")
    assert ["stream_options" in request.body for request in mock.requests] == [False, True]


@pytest.mark.parametrize("words", [{"timeouts": 5}, {"headers": {"X-Team": 5}}, {"headers": {"X Team": "a"}}])
def test_a_header_or_a_time_limit_that_is_none_is_refused(words: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"timeouts must be|headers must be|not a name of an HTTP header"):
        resolve_model("vllm:m", **words)


@pytest.mark.row("V15")
@pytest.mark.parametrize(
    "name", [name for name, vendor in VENDORS.items() if "OpenAIChat" in vendor.adapter and not vendor.capabilities]
)
async def test_strict_schemas_are_sent_where_the_vendor_has_them(name: str) -> None:
    has_strict = name in ("openai-chat", "azure")
    async with MockProvider(["hi"]) as mock:
        for options in ({}, {"strict_tools": not has_strict}):
            await Agent(resolve_model(f"{name}:m", base_url=mock.base_url, options=options), tools=[look]).run("go")

    told = [request.body["tools"][0]["function"].get("strict", False) for request in mock.requests]
    assert told == [has_strict, not has_strict]


@pytest.mark.row("W05", "W06")
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("name", "sent_back"), [("deepseek", "I look first."), ("groq", None)])
async def test_reasoning_goes_back_to_the_server_that_refuses_a_call_without_it(
    name: str, sent_back: str | None, is_streamed: bool
) -> None:
    async with MockProvider([Turn(thinking="I look first.", calls=(call("look"),)), "done"]) as mock:
        model = resolve_model(f"{name}:m", base_url=mock.base_url, stream=is_streamed)
        result = await Agent(model, tools=[look]).run("go")

    spoken = mock.requests[1].body["messages"][1]
    assert (result.text, spoken.get("reasoning_content")) == ("done", sent_back)


@pytest.mark.row("W05", "M15")
async def test_deepseek_goes_on_with_a_conversation_whose_reasoning_was_not_its_own() -> None:
    async with MockProvider([Turn(thinking="Hm.", calls=(call("look"),)), "seen", call("look"), "done"]) as mock:
        models = [resolve_model(f"{name}:m", base_url=mock.base_url) for name in ("anthropic", "deepseek")]
        first = await Agent(models[0], tools=[look]).run("go")
        second = await Agent(models[1], tools=[look]).run("and again", session=first.session)

    spoken = [message for message in mock.requests[-1].body["messages"] if message["role"] == "assistant"]
    assert second.text == "done"
    assert [message["reasoning_content"] for message in spoken] == ["", "", ""]


@pytest.mark.row("W05", "M15")
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_mistral_takes_the_ids_of_others_and_those_that_were_made_here(is_streamed: bool) -> None:
    turns = [call("look", id="toolu_01VLwCjyU7u928EqHmMRvow8"), "seen", call("look", id="D681PevKs")]
    async with MockProvider([*turns, call("look", id="D681PevKs"), "done"]) as mock:
        models = [
            resolve_model(f"{name}:m", base_url=mock.base_url, stream=is_streamed) for name in ("anthropic", "mistral")
        ]
        first = await Agent(models[0], tools=[look]).run("go")
        second = await Agent(models[1], tools=[look]).run("and again", session=first.session)

    sent = mock.requests[-1].body["messages"]
    ids = [made["id"] for message in sent for made in message.get("tool_calls", ())]
    assert (second.text, [*mistral_refuses(mock.requests[-1].body)]) == ("done", [])
    assert (len(set(ids)), ids[1]) == (3, "D681PevKs")
    assert ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]


@pytest.mark.row("W05", "T12")
async def test_mistral_is_shown_a_picture_of_a_tool() -> None:
    async with MockProvider([call("photograph"), "a cat"]) as mock:
        result = await Agent(resolve_model("mistral:m", base_url=mock.base_url), tools=[photograph]).run("go")

    sent = mock.requests[-1].body
    assert (result.text, [*mistral_refuses(sent)]) == ("a cat", [])
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.row("W05")
async def test_mistral_takes_a_task_after_a_run_that_ended_at_its_results() -> None:
    async with MockProvider([[call("look"), call("photograph")], "done"]) as mock:
        model = resolve_model("mistral:m", base_url=mock.base_url)
        stopped = await Agent(model, tools=[look, photograph], budget=Budget(max_model_turns=1)).run("go")
        result = await Agent(model, tools=[look, photograph]).run("and now?", session=stopped.session)

    sent = mock.requests[-1].body
    roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "user"]
    assert (stopped.completed, result.text, [*mistral_refuses(sent)]) == (False, "done", [])
    assert [message["role"] for message in sent["messages"]] == roles


@pytest.mark.row("W05", "PF15")
async def test_mistral_goes_on_after_an_answer_of_nothing() -> None:
    async with MockProvider([Turn(finish="content_filter"), "done"]) as mock:
        agent = Agent(resolve_model("mistral:m", base_url=mock.base_url))
        refused = await agent.run("go")
        result = await agent.run("and now?", session=refused.session)

    assert (refused.reason, result.text) == ("refused", "done")
    assert [*mistral_refuses(mock.requests[-1].body)] == []


@pytest.mark.row("W05")
async def test_lm_studio_is_shown_the_one_tool_that_is_demanded_by_name() -> None:
    async with MockProvider([call("look"), "done"]) as mock:
        for name in ("lmstudio", "vllm"):
            model = resolve_model(f"{name}:m", base_url=mock.base_url)
            await Agent(model, tools=[look, photograph], tool_choice="look").run("go")

    named, plain = mock.requests[0].body, mock.requests[2].body
    assert (named["tool_choice"], [tool["function"]["name"] for tool in named["tools"]]) == ("required", ["look"])
    assert plain["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert len(mock.requests[1].body["tools"]) == 2


def test_an_unknown_name_lists_all_that_there_are() -> None:
    with pytest.raises(UnknownModel) as told:
        resolve_model("nobody:x")
    assert all(f"{name}:NAME" in str(told.value) for name in VENDORS)


# --- what each vendor of Chat Completions refuses, and how it says so ------------------------------------------------


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
