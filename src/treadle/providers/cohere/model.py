"""Cohere's Chat, version 2. One request, one response; retries and budgets are the runtime's."""

from collections.abc import Mapping
from typing import Any

from treadle.fields import checked
from treadle.ports import Pricing, TextCalls
from treadle.providers.cohere.request import CohereRequests
from treadle.providers.cohere.response import CohereResponse
from treadle.providers.http.endpoint import Timeouts, with_version
from treadle.providers.http.model import DialectModel
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name
from treadle.providers.payload import ThinkingTags

__all__ = ["Cohere", "Timeouts"]


_VERSION = "/v2"


class Cohere(DialectModel):
    """A model behind Cohere's Chat dialect, version 2.

    Example:
        Cohere("command-a-03-2025", api_key="...", options={"temperature": 0})

    What the model says before its calls, its `tool_plan`, is text. Citations stay with the text that they are about, as JSON in its
    `signature`, and go back to the model.

    Args:
        model: As the server knows it.
        base_url: Up to and without `chat`. A host alone gets the version, `/v2`. Its query, if any, goes with every request.
        api_key: None for a server that wants none.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: Further fields of each request's body, such as `temperature`, `documents` or `thinking`; one that is None removes a field.
            Two are our own: `strict_tools: True` holds the model to the tools' schemas wherever the vendor can do that; `server_tools` are
            tools that the server runs by itself.
        headers: Further headers of each request.
        timeouts: How long one call may take.
        thinking_tags: Reasoning that the server leaves in the text: `both` for what is between two tags at its beginning, such as
            `<think>` and `</think>`; `closing` where the opening one may be missing; `off` where all of it is the answer.
        text_calls: Calls that the server leaves in the text: `run` carries them out like any others; `tell` tells the model that they did
            not arrive; `off` takes them as the answer. None runs those in a model's markup, and tells the model of bare JSON.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

    @checked
    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.cohere.com/v2",
        api_key: str | None,
        price: Pricing | None = None,
        stream: bool = True,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        thinking_tags: ThinkingTags = "both",
        text_calls: TextCalls | None = None,
    ) -> None:
        name = model_name("cohere", model)
        server = Server(
            with_version(base_url, _VERSION),
            "chat",
            key=Key(value=api_key, header="Authorization", prefix="Bearer ", variable="COHERE_API_KEY"),
            headers=headers,
            timeouts=timeouts,
            version=_VERSION,
        )
        super().__init__(
            name,
            price,
            server,
            requests=CohereRequests(model, origin=name, options=options or {}, stream=stream),
            reader=CohereResponse,
            options=options,
            stream=stream,
            thinking_tags=thinking_tags,
            text_calls=text_calls,
        )
