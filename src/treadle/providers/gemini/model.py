"""Gemini's generateContent and streamGenerateContent. One request, one response; retries and budgets are the runtime's."""

from collections.abc import Mapping
from typing import Any

from treadle.fields import checked
from treadle.ports import Pricing, TextCalls
from treadle.providers.gemini.request import GeminiRequests
from treadle.providers.gemini.response import GeminiResponse
from treadle.providers.http.client import CloudEndpoint
from treadle.providers.http.endpoint import Timeouts, with_version
from treadle.providers.http.model import DialectModel
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name
from treadle.providers.payload import ThinkingTags

__all__ = ["Gemini", "Timeouts"]

_VERSION = "/v1beta"


class Gemini(DialectModel):
    """A model behind the Gemini dialect.

    Example:
        Gemini("gemini-3-pro-preview", api_key="...", options={"temperature": 0, "thinkingConfig": {"includeThoughts": True}})
        Gemini("gemini-2.5-flash", api_key="...", options={"server_tools": [{"googleSearch": {}}]})

    Args:
        model: As the server knows it. One with a slash, such as `tunedModels/mine`, is a path of its own; else it is in `models/`.
        base_url: Up to and without `models`. A host alone gets `/v1beta`. Its query, if any, goes with every request.
        api_key: None for a server that wants none.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: Further fields of each request's body, such as `safetySettings`. Fields of `generationConfig`, such as
            `temperature`, may stand by themselves; `server_tools` are the vendor's own, in addition to ours; one that is None goes away.
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
        base_url: str = "https://generativelanguage.googleapis.com/v1beta",
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
        cloud_endpoint = CloudEndpoint(name="gemini") if cloud_endpoint is None else cloud_endpoint
        name = model_name(cloud_endpoint.name, model)
        server = Server(
            with_version(base_url, _VERSION) if cloud_endpoint.path is None else base_url,
            _path(model, stream=stream),
            key=Key(value=api_key, header="x-goog-api-key", variable="GEMINI_API_KEY"),
            headers=headers,
            timeouts=timeouts,
            cloud_endpoint=cloud_endpoint,
            version=_VERSION,
        )
        super().__init__(
            name,
            price,
            server,
            requests=GeminiRequests(model, origin=name, options=options or {}),
            reader=GeminiResponse,
            options=options,
            stream=stream,
            thinking_tags=thinking_tags,
            text_calls=text_calls,
        )
        if stream:
            # Without it the vendor sends one JSON list, which has no event to start early on.
            self._server.endpoint.url = self._server.endpoint.url.update_query(alt="sse")


def _path(model: str, *, stream: bool) -> str:
    place = model if "/" in model else f"models/{model}"
    return f"{place}:{'streamGenerateContent' if stream else 'generateContent'}"
