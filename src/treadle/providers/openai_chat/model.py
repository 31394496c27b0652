"""OpenAI Chat Completions, and every server that speaks it. One request, one response; retries and budgets are the runtime's."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from treadle.errors import ModelRejected
from treadle.fields import checked
from treadle.ports import ModelRequest, Pricing, TextCalls
from treadle.providers.http.answer import Answer
from treadle.providers.http.client import CloudEndpoint
from treadle.providers.http.endpoint import Timeouts
from treadle.providers.http.model import DialectModel
from treadle.providers.http.reading import Response
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name
from treadle.providers.openai_chat.request import ChatRequests
from treadle.providers.openai_chat.response import ChatResponse
from treadle.providers.payload import ThinkingTags
from treadle.redaction import redacted_logger

__all__ = ["OpenAIChat", "Timeouts"]

logger = redacted_logger(__name__)

_REFUSED = "not support|unsupported|incompatible|only support|not allowed|should be"
_NO_FORCED_CHOICE = re.compile(f"tool_choice.*({_REFUSED})|({_REFUSED}).*tool_choice", re.IGNORECASE | re.DOTALL)
"""What DeepSeek, Moonshot and Alibaba say to a demanded call while the model thinks."""


class OpenAIChat(DialectModel):
    """A model behind the Chat Completions dialect.

    Example:
        OpenAIChat("gpt-5-mini", api_key="...", options={"reasoning_effort": "low"})
        OpenAIChat("qwen3", base_url="http://127.0.0.1:8080/v1", api_key=None)

    Args:
        model: As the server knows it.
        base_url: Up to and without `chat/completions`. Its query, if any, goes with every request.
        api_key: None for a server that wants none.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: Further fields of each request's body, such as `temperature`. One that is None removes a field:
            `{"stream_options": None}` for a server that refuses it. Two are our own: `server_tools`, the tools that the server runs by
            itself; and `strict_tools: True`, which has it hold the model to each schema that has a strict form. There an optional
            property may be null; that null never reaches the tool.
        headers: Further headers of each request.
        timeouts: How long one call may take.
        thinking_tags: Reasoning that the server leaves in the text: `both` for what is between two tags at its beginning, such as
            `<think>` and `</think>`; `closing` where the opening one may be missing; `off` where all of it is the answer.
        text_calls: Calls that the server leaves in the text: `run` carries them out like any others; `tell` tells the model that they did
            not arrive; `off` takes them as the answer. None runs those in a model's markup, and tells the model of bare JSON.
        thinking_field: Where the model's earlier reasoning goes back to it, for servers that want it in every message of the
            model, be it empty: `reasoning_content` or `reasoning`. None keeps it.
        call_id: A regular expression of the ids of calls that the server takes, where those are other than the dialect's:
            `[a-zA-Z0-9]{9}` for Mistral's own, and for its templates elsewhere. An id that does not fit is written anew.
        bridge: What the model is made to say, such as `Ok.`, between results and a message of the user, and where it said
            nothing, for servers that refuse either. None for those that do not.
        named_choice: Whether the server lets a tool be demanded by its name. Where it does not, that tool is shown alone and any
            is demanded.
        forced_choice: Whether the server lets a call be demanded at all. Where it does not, the model chooses; a server that refuses a
            demand, as some do while the model thinks, is asked again without it.
        key_header: What carries the key: `Authorization`, as a bearer, or another header, as it is.
        key_variable: Where people set the key, for advice.
        dialect: The word before the colon of its name: what the server is called.
        cloud_endpoint: How the dialect is spoken at a cloud's own address, whose words then hold; None for any other server.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

    @checked
    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None,
        price: Pricing | None = None,
        stream: bool = True,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        thinking_tags: ThinkingTags = "both",
        text_calls: TextCalls | None = None,
        thinking_field: str | None = None,
        call_id: str | None = None,
        bridge: str | None = None,
        named_choice: bool = True,
        forced_choice: bool = True,
        key_header: str = "Authorization",
        key_variable: str = "OPENAI_API_KEY",
        dialect: str = "openai-chat",
        cloud_endpoint: CloudEndpoint | None = None,
    ) -> None:
        name = model_name(dialect if cloud_endpoint is None else cloud_endpoint.name, model)
        prefix = "Bearer " if key_header.lower() == "authorization" else ""
        server = Server(
            base_url,
            "chat/completions",
            key=Key(value=api_key, header=key_header, prefix=prefix, variable=key_variable),
            headers=headers,
            timeouts=timeouts,
            cloud_endpoint=cloud_endpoint,
        )
        self._requests: ChatRequests
        super().__init__(
            name,
            price,
            server,
            requests=ChatRequests(
                model,
                origin=name,
                options=options or {},
                stream=stream,
                thinking_field=thinking_field,
                call_id=call_id,
                bridge=bridge,
                named_choice=named_choice,
                forced_choice=forced_choice,
            ),
            reader=ChatResponse,
            options=options,
            stream=stream,
            thinking_tags=thinking_tags,
            text_calls=text_calls,
        )

    def _asking(self, request: ModelRequest) -> Callable[[], Awaitable[Answer]]:
        return partial(self._ask, request)

    def _response(self, request: ModelRequest) -> Response:
        tools, requests = request.tools, self._requests
        own_arguments = partial(requests.tools.own_arguments, tools) if requests.is_strict else None
        return ChatResponse(requests.tools.own_names(tools), own_arguments=own_arguments)

    def _ask(self, request: ModelRequest) -> Awaitable[Answer]:
        if self._requests.demands(request):
            return self._ask_demanding(request)
        return self._server.ask(self._requests.body(request))

    async def _ask_demanding(self, request: ModelRequest) -> Answer:
        """Return the answer. A request that was refused because it demands a call goes out again without the demand."""
        try:
            return await self._server.ask(self._requests.body(request))
        except ModelRejected as failure:
            if _NO_FORCED_CHOICE.search(str(failure)) is None:
                raise
            logger.warning("%s: the server lets no call be demanded (%s); the model chooses.", self.name, failure)
            self._requests.forces_choice = False
            return await self._server.ask(self._requests.body(request))
