"""OpenAI Responses, and every server that speaks it. One request, one response; retries and budgets are the runtime's."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from treadle.errors import ModelError, ModelRejected
from treadle.fields import checked
from treadle.ports import ModelRequest, Pricing, TextCalls
from treadle.providers.http.answer import Answer
from treadle.providers.http.client import CloudEndpoint
from treadle.providers.http.endpoint import Timeouts
from treadle.providers.http.model import DialectModel
from treadle.providers.http.reading import Response
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name
from treadle.providers.openai_responses.request import ResponsesRequests
from treadle.providers.openai_responses.response import ResponsesResponse
from treadle.providers.payload import ThinkingTags

__all__ = ["OpenAIResponses", "Timeouts"]

_NO_SEALED_REASONING = re.compile(r"encrypted content is not supported|reasoning\.encrypted_content", re.IGNORECASE)
_FORGOTTEN = frozenset({400, 404})


class OpenAIResponses(DialectModel):
    """A model behind the Responses dialect.

    By default the server keeps nothing: each request carries all items, the model's own reasoning among them, sealed. With the option
    `state="server"` the server keeps the responses, and each request carries what is new; where the server has forgotten,
    the same request goes out again with all items.

    Example:
        OpenAIResponses("gpt-5-mini", api_key="...", options={"reasoning": {"effort": "low"}})
        OpenAIResponses("gpt-5-mini", api_key="...", options={"server_tools": [{"type": "web_search"}]})

    Args:
        model: As the server knows it.
        base_url: Up to and without `responses`. Its query, if any, goes with every request.
        api_key: None for a server that wants none.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: Further fields of each request's body, such as `reasoning`. One that is None removes a field. Two are our own:
            `state`, `client` or `server`; and `server_tools`, the tools that the server runs by itself.
        headers: Further headers of each request.
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
        base_url: str = "https://api.openai.com/v1",
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
        cloud_endpoint = CloudEndpoint(name="openai") if cloud_endpoint is None else cloud_endpoint
        name = model_name(cloud_endpoint.name, model)
        server = Server(
            base_url,
            "responses",
            key=Key(value=api_key, header="Authorization", prefix="Bearer ", variable="OPENAI_API_KEY"),
            headers=headers,
            timeouts=timeouts,
            cloud_endpoint=cloud_endpoint,
        )
        self._requests: ResponsesRequests
        super().__init__(
            name,
            price,
            server,
            requests=ResponsesRequests(model, origin=name, options=options or {}, stream=stream),
            reader=ResponsesResponse,
            options=options,
            stream=stream,
            thinking_tags=thinking_tags,
            text_calls=text_calls,
        )

    def _asking(self, request: ModelRequest) -> Callable[[], Awaitable[Answer]]:
        return partial(self._ask, request)

    def _response(self, request: ModelRequest) -> Response:
        after = len(request.messages) if self._requests.is_stateful else None
        return ResponsesResponse(
            self._requests.tools.own_names(request.tools),
            after=after,
            own_arguments=partial(self._requests.tools.own_arguments, request.tools),
        )

    async def _ask(self, request: ModelRequest) -> Answer:
        """Return the answer. A request that was refused for what it can do without goes out again without it."""
        resumes = self._requests.can_resume(request)
        while True:
            asks_sealed = self._requests.wants_encrypted
            try:
                return await self._server.ask(self._requests.body(request, resumes=resumes))
            except ModelError as failure:
                if asks_sealed and _refuses_sealed(failure):
                    self._requests.wants_encrypted = False
                elif resumes and isinstance(failure, ModelRejected) and failure.status in _FORGOTTEN:
                    resumes = False
                else:
                    raise


def _refuses_sealed(failure: ModelError) -> bool:
    return failure.status == 400 and _NO_SEALED_REASONING.search(str(failure)) is not None
