"""Vendors: every name before the colon leads to a model, with the right address, key and fields."""

import asyncio
import os
import sys

import pytest

from treadle import Agent, resolve_model, tool
from treadle.errors import UnknownModel
from treadle.testing import MockProvider, Turn, call
from treadle.vendors import LOCAL_SERVERS, VENDORS


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "nothing"


@pytest.mark.row("W05")
@pytest.mark.parametrize("name", VENDORS)
def test_every_vendor_resolves_and_keeps_its_name(name: str) -> None:
    model = resolve_model(f"{name}:some/model:7b", base_url="http://127.0.0.1:9/v1")
    assert model.name == f"{name}:some/model:7b"


@pytest.mark.parametrize("name", LOCAL_SERVERS)
def test_a_server_on_this_machine_needs_no_key_and_no_address(name: str) -> None:
    assert resolve_model(f"{name}:m").name == f"{name}:m"


async def test_a_vendors_key_is_asked_for_by_its_own_variable() -> None:
    clean = {key: value for key, value in os.environ.items() if not key.endswith(("_API_KEY", "_BASE_URL"))}
    for name, variable in (("groq", b"GROQ_API_KEY"), ("gemini", b"GEMINI_API_KEY or GOOGLE_API_KEY"),
                           ("azure", b"AZURE_BASE_URL")):  # fmt: skip
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"from treadle import resolve_model; resolve_model('{name}:m')",
            env=clean, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, told = await child.communicate()
        assert variable in told


@pytest.mark.row("W05")
async def test_a_servers_quirks_are_fields_of_its_request() -> None:
    async with MockProvider([{"text": "hi"}]) as mock:
        for name in ("mistral", "ollama"):
            await Agent(resolve_model(f"{name}:m", base_url=mock.base_url)).run("go")
    assert ["stream_options" in request.body for request in mock.requests] == [False, True]


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


def test_an_unknown_name_lists_all_that_there_are() -> None:
    with pytest.raises(UnknownModel) as told:
        resolve_model("nobody:x")
    assert all(f"{name}:NAME" in str(told.value) for name in VENDORS)
