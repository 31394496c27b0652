"""What model servers of one's own say of themselves, what a probe shows, and what follows for the model.

The servers answer only what those of the name answer, in the shapes that they answer in, and refuse everything else.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from child import run_treadle

from treadle.drivers import NativeDriver, ReActDriver
from treadle.errors import ConfigurationError, ModelUnavailable
from treadle.messages import user_message
from treadle.ports import Capability, ModelEnd, ModelFacts, ModelRequest
from treadle.providers.http.endpoint import Timeouts
from treadle.resolve import driver_for, probe_model, resolve_model
from treadle.resolve.probing import ProbedModel

LLAMA_PROPS = {
    "default_generation_settings": {"params": {"seed": 4294967295, "max_tokens": -1}, "n_ctx": 8192},
    "total_slots": 1,
    "model_alias": "/models/small.gguf",
    "modalities": {"vision": False, "video": False, "audio": False},
    "endpoint_slots": True,
    "chat_template": "{%- if tools %}...",
    "chat_template_caps": {"supports_parallel_tool_calls": True, "supports_tool_calls": True, "supports_tools": True},
}
LLAMA_MODELS = {
    "object": "list",
    "data": [
        {"id": "/models/small.gguf", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 8192, "n_ctx_train": 32768, "n_params": 630167424}}
    ],
}  # fmt: skip
OLLAMA_SHOWN = {
    "license": "...",
    "parameters": 'num_ctx                        16384\nstop                           "<|im_end|>"',
    "template": "{{ .Prompt }}",
    "details": {"format": "gguf", "family": "qwen2", "parameter_size": "494.03M", "quantization_level": "Q4_K_M"},
    "model_info": {
        "general.architecture": "qwen2",
        "general.parameter_count": 494032768,
        "qwen2.context_length": 32768,
    },
    "capabilities": ["completion", "tools"],
}
OLLAMA_RUNNING = {"models": [{"name": "m:latest", "model": "m:latest", "size": 1, "context_length": 4096}]}
LMSTUDIO_MODELS = {
    "object": "list",
    "data": [
        {"id": "m", "object": "model", "type": "llm", "state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096, "capabilities": ["tool_use"]},
        {"id": "other", "object": "model", "type": "llm", "state": "not-loaded", "max_context_length": 32768},
    ],
}  # fmt: skip
VLLM_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 8096}]}

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}
IN_MARKUP = '<tool_call>\n{"name": "add", "arguments": {"a": 17, "b": 25}}\n</tool_call>'


@dataclass
class Server:
    """A server that has some paths, and answers requests for a chat as it is told."""

    pages: Mapping[str, Any]
    says: Mapping[str, Any] = field(default_factory=lambda: {"content": None, "tool_calls": [CALL]})
    """The message that answers a request with tools."""
    enforces: bool = True
    """Whether it holds the model to a schema."""
    gate: asyncio.Event | None = None
    """What each answer waits for."""
    arrived: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    asked: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if request.path == "/v1/chat/completions":
            return await self._chat(await request.json())
        if request.path == "/api/show":
            assert await request.json() == {"model": "m"}
        page = self.pages.get(request.path)
        return web.json_response({"error": "not found"}, status=404) if page is None else web.json_response(page)

    async def _chat(self, body: Mapping[str, Any]) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.arrived.put_nowait(body["messages"][-1]["content"])
        if self.gate is not None:
            await self.gate.wait()
        self.at_once -= 1
        schema = body.get("response_format")
        said = {"content": '{"colour": "ultramarine"}' if self.enforces and schema else "Green."}
        choice = {"index": 0, "message": {"role": "assistant", **(self.says if body.get("tools") else said)}}
        usage = {"prompt_tokens": 200, "completion_tokens": 9, "total_tokens": 209}
        return web.json_response({"id": "x", "choices": [{**choice, "finish_reason": "stop"}], "usage": usage})


@contextlib.asynccontextmanager
async def running(server: Server) -> AsyncIterator[Server]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    """What is kept in this test is kept in a folder of its own."""
    before = os.environ.get("TREADLE_HOME")
    os.environ["TREADLE_HOME"] = str(tmp_path / "home")
    yield tmp_path / "home"
    del os.environ["TREADLE_HOME"]
    if before is not None:
        os.environ["TREADLE_HOME"] = before


LLAMACPP = {"/props": LLAMA_PROPS, "/v1/models": LLAMA_MODELS}
SAID = [
    ("llamacpp", LLAMACPP, {"window": 8192, "parameters": 630167424, "slots": 1, "tools": True}),
    (
        "ollama",
        {"/api/show": OLLAMA_SHOWN, "/api/ps": OLLAMA_RUNNING},
        {"window": 4096, "parameters": 494032768, "tools": True},
    ),
    (
        "ollama",
        {"/api/show": OLLAMA_SHOWN, "/api/ps": {"models": []}},
        {"window": 16384, "parameters": 494032768, "tools": True},
    ),
    ("lmstudio", {"/api/v0/models": LMSTUDIO_MODELS}, {"window": 4096, "tools": True}),
    ("vllm", {"/v1/models": VLLM_MODELS}, {"window": 8096}),
    ("llamacpp", {}, {}),
    ("ollama", {"/api/show": ["x"], "/api/ps": {"models": "none"}}, {}),
    ("lmstudio", {"/api/v0/models": {"data": [7, {"id": "m", "loaded_context_length": -1, "state": "loaded"}]}}, {}),
]


@pytest.mark.parametrize(("dialect", "pages", "expected"), SAID)
async def test_each_server_is_asked_for_what_it_says_of_itself(
    dialect: str, pages: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    async with running(Server(pages)) as server:
        found = await probe_model(f"{dialect}:m", base_url=server.url)

    shown = {"calls": "read", "schemas": True}
    assert {name: getattr(found, name) for name in found.__struct_fields__ if name != "prompt_tokens_per_second"} == {
        **dict.fromkeys(("window", "parameters", "slots", "tools")),
        **expected,
        **shown,
    }


@pytest.mark.parametrize(
    ("says", "calls"),
    [
        ({"content": None, "tool_calls": [CALL]}, "read"),
        ({"content": IN_MARKUP}, "text"),
        ({"content": "17 and 25 are 42."}, "none"),
    ],
)
async def test_a_small_request_shows_where_a_call_arrives(says: Mapping[str, Any], calls: str) -> None:
    async with running(Server({}, says, enforces=False)) as server:
        found = await probe_model("vllm:m", base_url=server.url)

    assert (found.calls, found.schemas) == (calls, False)


async def test_what_was_found_out_is_kept_and_the_server_is_not_asked_again(home: Path) -> None:
    async with running(Server(LLAMACPP)) as server:
        before = resolve_model("llamacpp:m", base_url=server.url)
        await probe_model("llamacpp:m", base_url=server.url)
        asked = len(server.asked)
        model = resolve_model("llamacpp:m", base_url=server.url)
        elsewhere = resolve_model("llamacpp:m", base_url="http://127.0.0.1:9/v1")

    facts = model.facts
    assert (facts.window, facts.small, facts.slots) == (8192, True, 1)
    assert facts.prompt_tokens_per_second > 0
    assert len(server.asked) == asked
    assert elsewhere.facts == before.facts == ModelFacts()
    assert list(json.loads((home / "servers.json").read_text())) == [f"llamacpp:m {server.url}"]


async def test_given_facts_override_what_was_found_out() -> None:
    async with running(Server(LLAMACPP)) as server:
        await probe_model("llamacpp:m", base_url=server.url)
        model = resolve_model("llamacpp:m", base_url=server.url, facts=ModelFacts(window=1000, small=False))

    assert (model.facts.window, model.facts.small) == (1000, False)


@pytest.mark.parametrize(
    ("dialect", "enforces", "driver"),
    [
        ("ollama", True, ReActDriver),
        ("ollama", False, NativeDriver),
        ("llamacpp", True, ReActDriver),
        ("llamacpp", False, NativeDriver),
    ],
)
async def test_a_small_model_is_held_to_a_schema_where_the_probe_has_shown_that_the_server_can(
    dialect: str, enforces: bool, driver: type
) -> None:
    pages = {**LLAMACPP, "/api/show": OLLAMA_SHOWN, "/api/ps": OLLAMA_RUNNING}
    async with running(Server(pages, enforces=enforces)) as server:
        await probe_model(f"{dialect}:m", base_url=server.url)
        model = resolve_model(f"{dialect}:m", base_url=server.url)

    assert isinstance(driver_for(model), driver)
    assert (Capability.JSON_SCHEMA in model.capabilities) is enforces


async def test_a_model_whose_template_has_no_tools_is_driven_by_text() -> None:
    shown = {**OLLAMA_SHOWN, "capabilities": ["completion"]}
    async with running(Server({"/api/show": shown}, {"content": "42"})) as server:
        await probe_model("ollama:m", base_url=server.url)
        model = resolve_model("ollama:m", base_url=server.url)

    assert model.facts.tools is False
    assert isinstance(driver_for(model), ReActDriver)


async def test_a_damaged_file_of_what_was_kept_is_no_file(home: Path) -> None:
    home.mkdir()
    (home / "servers.json").write_text("{", encoding="utf-8")
    async with running(Server(LLAMACPP)) as server:
        assert resolve_model("llamacpp:m", base_url=server.url).facts == ModelFacts()
        await probe_model("llamacpp:m", base_url=server.url)

        assert resolve_model("llamacpp:m", base_url=server.url).facts.window == 8192


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 2)])
async def test_a_server_gets_as_many_requests_at_once_as_it_has_slots(slots: int, most: int) -> None:
    gate = asyncio.Event()
    async with running(Server({}, gate=gate)) as server:
        model = resolve_model("llamacpp:m", base_url=server.url, stream=False, facts=ModelFacts(slots=slots))
        other = resolve_model("llamacpp:n", base_url=server.url, stream=False, facts=ModelFacts(slots=slots))
        asking = [asyncio.ensure_future(_answer_of(one, f"q{at}")) for at, one in enumerate([model, other, model])]
        first = [await server.arrived.get() for _ in range(slots)]
        gate.set()
        await asyncio.gather(*asking)

    assert first == ["q0", "q1"][:slots]
    assert server.most_at_once == most


async def test_a_request_that_is_given_up_while_it_waits_leaves_the_slot_to_others() -> None:
    gate = asyncio.Event()
    async with running(Server({}, gate=gate)) as server:
        model = resolve_model("llamacpp:m", base_url=server.url, stream=False, facts=ModelFacts(slots=1))
        held = asyncio.ensure_future(_answer_of(model, "held"))
        await server.arrived.get()
        waiting = asyncio.ensure_future(_answer_of(model, "waiting"))
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        await asyncio.wait([waiting])
        gate.set()
        await held
        await _answer_of(model, "next")

    assert server.asked == ["/v1/chat/completions"] * 2


async def _answer_of(model: Any, text: str) -> ModelEnd:
    parts = [part async for part in model.stream(ModelRequest(messages=(user_message(text),)))]
    return parts[-1]


def test_a_long_prompt_has_more_time_at_a_server_whose_speed_is_known() -> None:
    slow = Timeouts(first_byte_seconds=100, total_seconds=600, prompt_tokens_per_second=10)

    assert slow.of(b"x" * 400) == slow
    assert slow.of(b"x" * 40_000).first_byte_seconds == 2000
    assert slow.of(b"x" * 40_000).total_seconds == 4000
    assert Timeouts().of(b"x" * 10_000_000) == Timeouts()
    with pytest.raises(ConfigurationError, match="a number of tokens above 0"):
        Timeouts(prompt_tokens_per_second=0)


async def test_what_cannot_be_probed_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="not on a server of your own"):
        await probe_model("openai:gpt-5-mini")
    with pytest.raises(ModelUnavailable):
        await probe_model("ollama:m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigurationError, match="'slots' is a whole number above 0"):
        ModelFacts(slots=0)


def test_the_program_probes_a_model(tmp_path: Path) -> None:
    named, _, errors = run_treadle(tmp_path, "models", "probe")
    two, _, more = run_treadle(tmp_path, "models", "openai", "ollama:m")
    unreached, _, _ = run_treadle(tmp_path, "models", "probe", "ollama:m", "--base-url", "http://127.0.0.1:9/v1")

    assert (named, two, unreached) == (2, 2, 1)
    assert "treadle models probe llamacpp:NAME" in errors
    assert "treadle models probe ollama:m" in more


async def test_the_program_prints_what_it_found_out_and_keeps_it(tmp_path: Path) -> None:
    async with running(Server(LLAMACPP)) as server:
        probing = ("models", "probe", "llamacpp:m", "--base-url", server.url)
        code, printed, said = await asyncio.to_thread(run_treadle, tmp_path, *probing)
        _, written, _ = await asyncio.to_thread(run_treadle, tmp_path, *probing, "--json")

    lines = dict(line.rsplit(maxsplit=1) for line in printed.splitlines())
    assert code == 0
    assert (lines["window"], lines["slots"], lines["calls"], lines["schemas"]) == ("8,192", "1", "read", "yes")
    assert "Kept for -m llamacpp:m" in said
    assert json.loads(written)["parameters"] == 630167424


def test_what_follows_from_nothing_is_nothing() -> None:
    assert ProbedModel().facts == ModelFacts()
