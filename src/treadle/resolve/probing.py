"""Probing: what a model server of one's own says of its model, and what two small requests show. Kept in one file, by address and model.

llama.cpp says it at `/props`, Ollama at `/api/show` and `/api/ps`, LM Studio at `/api/v0/models`, vLLM in its list of models. What none of them
says is found out by asking the model itself.
"""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.drivers.text_calls import calls_in_text
from treadle.errors import ModelError
from treadle.fields import Documented
from treadle.messages import Text, ToolCall, user_message
from treadle.ports import Model, ModelEnd, ModelFacts, ModelRequest, ToolSpec
from treadle.providers.http.client import shared_client
from treadle.providers.http.endpoint import Endpoint, Timeouts, secrets_of
from treadle.providers.http.listings import number, objects
from treadle.redaction import redacted_logger
from treadle.sandboxes.own import state_folder

__all__ = ["ProbedModel", "ask_server", "keep", "kept", "probe"]

logger = redacted_logger(__name__)

_TIMEOUTS = Timeouts(connect_seconds=5, first_byte_seconds=30, idle_seconds=30, total_seconds=60)
_MAX_BYTES = 8 * 1024 * 1024
_SMALL_PARAMETERS = 4_000_000_000
"""A model of fewer parameters needs each step spelt out: docs/drivers.md."""

Calls = Literal["read", "text", "none"]


class ProbedModel(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What was found out about a model and its server. None means unknown."""

    window: int | None = None
    """Tokens of request and response together, as the server has loaded the model."""
    parameters: int | None = None
    """The model's parameters."""
    slots: int | None = None
    """Requests that the server answers at the same time."""
    tools: bool | None = None
    """Whether the server says that the model can call tools."""
    calls: Calls | None = None
    """How a call arrived: `read` by the server, left in the `text`, or `none` came."""
    schemas: bool | None = None
    """Whether the server held the model to a JSON Schema."""
    prompt_tokens_per_second: int | None = None
    """How fast the server read a prompt."""

    @property
    def facts(self) -> ModelFacts:
        """What follows for the model."""
        small = None if self.parameters is None else self.parameters < _SMALL_PARAMETERS
        is_unable = self.tools is False and self.calls != "read"
        return ModelFacts(
            window=self.window,
            tools=False if is_unable else None,
            small=small or None,
            slots=self.slots,
            prompt_tokens_per_second=self.prompt_tokens_per_second,
        )


# --- Asked of the server.


async def ask_server(server: str, model: str, base_url: str, *, api_key: str | None = None) -> ProbedModel:
    """Return what a server says of itself and of a model. What it does not say stays unknown; an error of it says nothing.

    Args:
        server: The name before the colon of the model's name, such as `ollama`.
        model: As the server knows it.
    """
    ask = _Asking(base_url, api_key)
    read: Callable[[_Asking, str], Awaitable[ProbedModel]] = _READERS.get(server, _ask_listing)
    return await read(ask, model)


class _Asking:
    """Asks one server for small pieces of JSON."""

    def __init__(self, base_url: str, api_key: str | None) -> None:
        self._root = re.sub(r"/v\d+/?$", "", base_url.rstrip("/"))
        self._key = api_key

    async def json(self, path: str, body: Any = None) -> dict[str, Any]:  # Any: JSON of a server
        """Return an object; empty where the server has none at this path."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        endpoint = Endpoint(self._root, path, headers=headers, timeouts=_TIMEOUTS, secrets=secrets_of(self._key, None))
        sent = None if body is None else msgspec.json.encode(body)
        try:
            with closing(await shared_client.send(endpoint, sent)) as answer:
                found = msgspec.json.decode(await answer.read_rest(max_bytes=_MAX_BYTES))
                return found if answer.status == 200 and isinstance(found, dict) else {}
        except (ModelError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            logger.debug("%s says nothing at %s: %s", endpoint.shown, path, error)
            return {}

    async def row(self, path: str, model: str) -> dict[str, Any]:
        """Return the model's own row of a list; the only one where a server has one model under a name of its own."""
        rows = objects((await self.json(path)).get("data")) or []
        named = [row for row in rows if row.get("id") == model]
        return next(iter(named or (rows if len(rows) == 1 else [])), {})


async def _ask_llamacpp(ask: _Asking, model: str) -> ProbedModel:
    props, row = await ask.json("props"), await ask.row("v1/models", model)
    meta, caps = _object(row, "meta"), _object(props, "chat_template_caps")
    served = number(_object(props, "default_generation_settings").get("n_ctx"))
    tools = caps.get("supports_tools")
    return ProbedModel(
        window=served or number(meta.get("n_ctx")),
        parameters=number(meta.get("n_params")),
        slots=number(props.get("total_slots")),
        tools=tools if isinstance(tools, bool) else None,
    )


async def _ask_ollama(ask: _Asking, model: str) -> ProbedModel:
    """`/api/show` says what the model was made for, and its file; `/api/ps` with how large a window it is loaded."""
    shown, running = await ask.json("api/show", {"model": model}), await ask.json("api/ps")
    facts, able = _object(shown, "model_info"), shown.get("capabilities")
    loaded = next((one for one in objects(running.get("models")) or [] if _is_named(one, model)), {})
    own = re.search(r"^\s*num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    return ProbedModel(
        window=number(loaded.get("context_length")) or (int(own[1]) if own else None),
        parameters=number(facts.get("general.parameter_count")),
        tools="tools" in able if isinstance(able, list) else None,
    )


async def _ask_lmstudio(ask: _Asking, model: str) -> ProbedModel:
    row = await ask.row("api/v0/models", model)
    able = row.get("capabilities")
    is_loaded = row.get("state") == "loaded"
    return ProbedModel(
        window=number(row.get("loaded_context_length")) if is_loaded else None,
        tools="tool_use" in able if isinstance(able, list) else None,
    )


async def _ask_listing(ask: _Asking, model: str) -> ProbedModel:
    return ProbedModel(window=number((await ask.row("v1/models", model)).get("max_model_len")))


_READERS = {"llamacpp": _ask_llamacpp, "ollama": _ask_ollama, "lmstudio": _ask_lmstudio}


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _is_named(loaded: Mapping[str, Any], model: str) -> bool:
    """Whether a loaded model is this one: Ollama writes the tag `latest` where a person leaves it out."""
    return model in (name := str(loaded.get("name")), name.removesuffix(":latest"))


# --- Asked of the model.

_WORD = "ultramarine"
_ADD = ToolSpec(
    name="add",
    description="Return the sum of two integers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
_ANSWER = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": [_WORD]}},
    "required": ["colour"],
    "additionalProperties": False,
}


async def probe(model: Model) -> ProbedModel:
    """Send two small requests: one with a tool, and one with a schema that no model would follow by itself.

    Raises:
        ModelError: The server does not answer the second, plain request either.
    """
    adding = ModelRequest(messages=(user_message("Use the tool add to add 17 and 25."),), tools=(_ADD,))
    called, seconds = await _attempted(model, adding)
    asked = (user_message("Which colour has grass? Answer with a JSON object."),)
    try:
        held, _ = await _end_of(model, ModelRequest(messages=asked, output_schema=_ANSWER))
    except ModelError:
        held, _ = await _end_of(model, ModelRequest(messages=asked))
    read = 0 if called is None or called.usage is None else called.usage.input_tokens
    return ProbedModel(
        calls=None if called is None else _calls_of(called),
        schemas=_text_of(held).replace(" ", "").replace("\n", "") == f'{{"colour":"{_WORD}"}}',
        prompt_tokens_per_second=max(1, int(read / seconds)) if read and seconds > 0 else None,
    )


async def _attempted(model: Model, request: ModelRequest) -> tuple[ModelEnd | None, float]:
    try:
        return await _end_of(model, request)
    except ModelError as error:  # such as of llama.cpp without --jinja
        logger.debug("%s does not take tools: %s", model.name, error)
        return None, 0


async def _end_of(model: Model, request: ModelRequest) -> tuple[ModelEnd, float]:
    """Return the end of an answer, and the seconds until its first part: the server had read the prompt by then."""
    begun, seconds = time.monotonic(), 0.0
    async for part in model.stream(request):
        seconds = seconds or time.monotonic() - begun
        if isinstance(part, ModelEnd):
            return part, seconds
    return ModelEnd(parts=()), seconds


def _calls_of(end: ModelEnd) -> Calls:
    if any(isinstance(part, ToolCall) for part in end.parts):
        return "read"
    return "text" if calls_in_text(_text_of(end), (_ADD,)) else "none"


def _text_of(end: ModelEnd) -> str:
    return "".join(part.text for part in end.parts if isinstance(part, Text))


# --- Kept, so that each server is asked once: `servers.json` in the person's folder of state.


def merged(first: ProbedModel, second: ProbedModel) -> ProbedModel:
    """Return what the first says, and the second where the first says nothing."""
    own = {name: value for name in first.__struct_fields__ if (value := getattr(first, name)) is not None}
    return msgspec.structs.replace(second, **own)


def kept(name: str, base_url: str) -> ProbedModel | None:
    """Return what was found out about a model at an address; None where it was not probed."""
    return _read().get(_key(name, base_url))


async def keep(name: str, base_url: str, found: ProbedModel) -> Path:
    """Keep what was found out, in place of what was kept before. Return the file.

    Raises:
        OSError: It cannot be written.
    """
    return await asyncio.to_thread(_write, {_key(name, base_url): found})


def _write(new: Mapping[str, ProbedModel]) -> Path:
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_name(f"{file.name}.{os.getpid()}")
    whole.write_bytes(msgspec.json.format(msgspec.json.encode({**_read(), **new})))
    whole.replace(file)
    return file


def _read() -> dict[str, ProbedModel]:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=dict[str, ProbedModel])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _file() -> Path:
    return state_folder(os.environ) / "servers.json"


def _key(name: str, base_url: str) -> str:
    """Return what one model at one address is kept under: without user name, password and query."""
    shown = Endpoint(base_url, "", headers={}, timeouts=_TIMEOUTS).shown
    return f"{name} {shown.rstrip('/')}"
