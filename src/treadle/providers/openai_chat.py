"""OpenAI Chat Completions, and every server that speaks it. One request, one response; retries and budgets are the runtime's."""

from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from typing import Any

from treadle.errors import ConfigurationError
from treadle.ports import ModelPart, ModelRequest, Pricing
from treadle.providers._chat_request import ChatRequests
from treadle.providers._chat_response import ChatResponse
from treadle.providers._endpoint import secrets_of
from treadle.providers._failures import read_failure
from treadle.providers._http import Endpoint, Timeouts, shared_client
from treadle.providers._reading import read_response

__all__ = ["OpenAIChat", "Timeouts"]

_DEFAULT_TIMEOUTS = Timeouts()


class OpenAIChat:
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
            `{"stream_options": None}` for a server that refuses it.
        headers: Further headers of each request.
        timeouts: How long one call may take.
        thinking_field: Where the model's earlier reasoning goes back to it, for servers that want it: `reasoning_content` or
            `reasoning`. None keeps it.
        dialect: The word before the colon of its name: what the server is called.

    Raises:
        ConfigurationError: One of these cannot be used.
    """

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
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        thinking_field: str | None = None,
        dialect: str = "openai-chat",
    ) -> None:
        if not model.strip():
            raise ConfigurationError(
                "The model's name is empty. Write openai-chat:NAME, with the name that the server knows."
            )
        self._name = f"{dialect}:{model}"
        self._price = price
        api_key = api_key.strip() if api_key else None
        self._has_key = bool(api_key)
        self._endpoint = Endpoint(
            base_url,
            "chat/completions",
            headers=_headers(api_key, headers),
            timeouts=timeouts,
            secrets=secrets_of(api_key, headers),
        )
        self._requests = ChatRequests(
            model, origin=self._name, options=options or {}, stream=stream, thinking_field=thinking_field
        )

    @property
    def name(self) -> str:
        """The dialect and model, such as `openai-chat:gpt-5-mini`."""
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
            async for part in read_response(answer, ChatResponse(self._requests.own_names(request))):
                yield part

    @property
    def _key_advice(self) -> str:
        if self._has_key:
            return "Check the API key (api_key=, or the variable that it was read from, such as OPENAI_API_KEY) and what it may use."
        return "No API key was sent: set api_key=, or OPENAI_API_KEY."


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    made = {"Content-Type": "application/json"}
    if api_key:
        made["Authorization"] = f"Bearer {api_key}"
    return made | dict(headers or {})
