"""Gemini's generateContent and streamGenerateContent. One request, one response; retries and budgets are the runtime's."""

from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from treadle.errors import ConfigurationError
from treadle.ports import ModelPart, ModelRequest, Pricing
from treadle.providers._endpoint import secrets_of
from treadle.providers._failures import read_failure
from treadle.providers._gemini_request import GeminiRequests
from treadle.providers._gemini_response import GeminiResponse
from treadle.providers._http import Endpoint, Timeouts, shared_client
from treadle.providers._reading import read_response

__all__ = ["Gemini", "Timeouts"]

_DEFAULT_TIMEOUTS = Timeouts()
_VERSION = "/v1beta"


class Gemini:
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
            `temperature`, may stand by themselves; `server_tools` are the vendor's own, beside ours; one that is None goes away.
        headers: Further headers of each request.
        timeouts: How long one call may take.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

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
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
    ) -> None:
        if not model.strip():
            raise ConfigurationError(
                "The model's name is empty. Write gemini:NAME, with the name that the server knows."
            )
        self._name = f"gemini:{model}"
        self._price = price
        api_key = api_key.strip() if api_key else None
        self._has_key = bool(api_key)
        self._endpoint = Endpoint(
            _with_version(base_url),
            _path(model, stream=stream),
            headers=_headers(api_key, headers),
            timeouts=timeouts,
            secrets=secrets_of(api_key, headers),
        )
        if stream:
            # Without it the vendor sends one JSON list, which has no event to start early on.
            self._endpoint.url = self._endpoint.url.update_query(alt="sse")
        self._requests = GeminiRequests(model, origin=self._name, options=options or {})

    @property
    def name(self) -> str:
        """The dialect and model, such as `gemini:gemini-2.5-flash`."""
        return self._name

    @property
    def price(self) -> Pricing | None:
        """What it costs, or None when nobody knows."""
        return self._price

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Send one request and yield the parts of the one response, `ModelEnd` last.

        Never retries. Closing the iterator closes the connection.

        Raises:
            ModelError: The call failed; the class says whether another attempt may help.
        """
        answer = await shared_client.send(self._endpoint, self._requests.body(request))
        with closing(answer):
            if not 200 <= answer.status < 300:
                raise await read_failure(answer, key_advice=self._key_advice)
            async for part in read_response(answer, GeminiResponse(self._requests.own_names(request))):
                yield part

    @property
    def _key_advice(self) -> str:
        if self._has_key:
            return "Check the API key (api_key=, or the variable that it was read from, such as GEMINI_API_KEY) and what it may use."
        return "No API key was sent: set api_key=, or GEMINI_API_KEY."


def _path(model: str, *, stream: bool) -> str:
    place = model if "/" in model else f"models/{model}"
    return f"{place}:{'streamGenerateContent' if stream else 'generateContent'}"


def _with_version(base_url: str) -> str:
    """Return the address with the API's version: people and the vendor's SDKs write the host alone."""
    try:
        parts = urlsplit(base_url.strip())
    except ValueError:
        return base_url  # the endpoint says what is wrong with it
    if not parts.netloc or parts.path.strip("/"):
        return base_url
    return urlunsplit(parts._replace(path=_VERSION))


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    made = {"Content-Type": "application/json"}
    if api_key:
        made["x-goog-api-key"] = api_key
    return made | dict(headers or {})
