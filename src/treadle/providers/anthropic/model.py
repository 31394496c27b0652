"""Anthropic Messages, and every server that speaks it. One request, one response; retries and budgets are the runtime's."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from treadle.errors import ModelError
from treadle.fields import checked
from treadle.messages import Message, Usage
from treadle.ports import ModelEnd, ModelPart, ModelRequest, Pricing, TextCalls
from treadle.providers.anthropic.request import AnthropicRequests
from treadle.providers.anthropic.response import AnthropicResponse, InvokedResponse
from treadle.providers.http.client import CloudEndpoint
from treadle.providers.http.endpoint import Timeouts
from treadle.providers.http.model import DialectModel
from treadle.providers.http.reading import read_response
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name
from treadle.providers.payload import ThinkingTags

__all__ = ["Anthropic", "Timeouts"]

_VERSION = "2023-06-01"

_BETA = "anthropic-beta"

_MAX_PAUSES = 8
"""How often one response is let continue after the vendor paused it."""


class Anthropic(DialectModel):
    """A model behind the Anthropic Messages dialect.

    Example:
        Anthropic("claude-sonnet-4-5", api_key="...", options={"thinking": {"type": "enabled", "budget_tokens": 4096}})

    Options are further fields of each request's body, such as `temperature`; one that is None removes a field. Some mean more:
    `max_tokens` replaces our default; `server_tools` are the vendor's own, which run on its side; `cache_control` is what our cache markers
    say (`{"type": "ephemeral", "ttl": "1h"}`), and None sets none; `strict_tools: True` has the vendor hold the model to the schemas
    of those tools that its strict subset can express; `parallel_tool_calls: False` asks for one call at a time; a `container` of yours
    is in each request, while one that the vendor made is named as long as a call of its code waits there.

    Args:
        model: As the server knows it.
        base_url: With or without `/v1` at its end. Its query, if any, goes with every request.
        api_key: None for a server that wants none.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: See above.
        headers: Further headers of each request, such as `anthropic-beta`.
        timeouts: How long one call may take.
        thinking_tags: Reasoning that the server leaves in the text: `both` for what is between two tags at its beginning, such as
            `<think>` and `</think>`; `closing` where the opening one may be missing; `off` where all of it is the answer.
        text_calls: Calls that the server leaves in the text: `run` carries them out like any others; `tell` tells the model that they did
            not arrive; `off` takes them as the answer. None runs those in a model's markup, and tells the model of bare JSON.
        cloud_endpoint: How the dialect is spoken at a cloud's own address; None for the vendor's.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

    @checked
    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.anthropic.com/v1",
        api_key: str | None,
        price: Pricing | None = None,
        stream: bool = True,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        thinking_tags: ThinkingTags = "both",
        text_calls: TextCalls | None = None,
        cloud_endpoint: CloudEndpoint | None = None,
    ) -> None:
        cloud_endpoint = CloudEndpoint(name="anthropic") if cloud_endpoint is None else cloud_endpoint
        name = model_name(cloud_endpoint.name, model)
        if cloud_endpoint.is_framed:
            headers, options = _with_betas(headers or {}, options or {})
        server = Server(
            base_url,
            _path(base_url),
            key=Key(value=api_key, header="x-api-key", variable="ANTHROPIC_API_KEY"),
            own_headers={} if "anthropic_version" in cloud_endpoint.fields else {"anthropic-version": _VERSION},
            headers=headers,
            timeouts=timeouts,
            cloud_endpoint=cloud_endpoint,
        )
        self._reads = InvokedResponse if cloud_endpoint.is_framed else AnthropicResponse
        super().__init__(
            name,
            price,
            server,
            requests=AnthropicRequests(
                model, origin=name, options=options or {}, stream=stream, fields=cloud_endpoint.fields
            ),
            reader=self._reads,
            options=options,
            stream=stream,
            thinking_tags=thinking_tags,
            text_calls=text_calls,
        )

    @checked
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
        """Send one request and yield the parts of the one response, `ModelEnd` last.

        Never retries. A long turn of the vendor's own tools comes in several answers, each asked for in turn; they are one response.
        Closing the iterator closes the connection.

        Raises:
            ModelError: The call failed; the class says whether another attempt may help.
        """
        before: ModelEnd | None = None
        for pauses_left in reversed(range(_MAX_PAUSES + 1)):
            response = self._set_up(self._response(request))
            end = ModelEnd(parts=())
            try:
                async with aclosing(read_response(self._asking(request), response)) as parts:
                    async for part in parts:
                        if isinstance(part, ModelEnd):
                            end = part
                        else:
                            yield part
            except ModelError as error:
                if before is not None and before.usage is not None:
                    error.usage = before.usage + (error.usage or Usage())
                raise
            whole = end if before is None else _joined(before, end)
            if not (response.is_paused and pauses_left and end.parts):
                yield whole
                return
            said = Message(role="assistant", parts=end.parts, origin=self.name)
            request = msgspec.structs.replace(request, messages=(*request.messages, said))
            before = whole

    def _response(self, request: ModelRequest) -> AnthropicResponse:
        return self._reads(self._requests.tools.own_names(request.tools))


def _joined(first: ModelEnd, second: ModelEnd) -> ModelEnd:
    """Return two answers as one response: its end is the second's."""
    usage = None
    if first.usage is not None or second.usage is not None:
        usage = (first.usage or Usage()) + (second.usage or Usage())
    strays = first.has_strays or second.has_strays
    return msgspec.structs.replace(second, parts=(*first.parts, *second.parts), usage=usage, has_strays=strays)


def _with_betas(headers: Mapping[str, str], options: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """Move the betas that are switched on into the body: Bedrock does not read them in a header."""
    betas = [beta.strip() for name, value in headers.items() if name.lower() == _BETA for beta in str(value).split(",")]
    rest = {name: value for name, value in headers.items() if name.lower() != _BETA}
    return rest, {"anthropic_beta": betas, **options} if betas else options


def _path(base_url: str) -> str:
    """Return what comes after the base URL. The vendor's variable is set without `/v1`, as its own SDK wants it."""
    stem = re.split(r"[?#]", base_url.strip(), maxsplit=1)[0].rstrip("/")
    return "messages" if re.search(r"/v\d[^/]*(/messages)?$", stem) else "v1/messages"
