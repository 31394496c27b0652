"""OpenAI Responses, and every server that speaks it. One request, one response; retries and budgets are the runtime's."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from typing import Any

from treadle.errors import ConfigurationError, ModelError, ModelRejected
from treadle.ports import ModelPart, ModelRequest, Pricing
from treadle.providers._endpoint import secrets_of
from treadle.providers._failures import read_failure
from treadle.providers._http import Answer, Endpoint, Timeouts, shared_client
from treadle.providers._reading import read_response
from treadle.providers._responses_request import ResponsesRequests
from treadle.providers._responses_response import ResponsesResponse

__all__ = ["OpenAIResponses", "Timeouts"]

_DEFAULT_TIMEOUTS = Timeouts()

_NO_SEALED_REASONING = re.compile(r"encrypted content is not supported|reasoning\.encrypted_content", re.IGNORECASE)
_FORGOTTEN = frozenset({400, 404})


class OpenAIResponses:
    """A model behind the Responses dialect.

    By default the server keeps nothing: each request carries all items, the model's own reasoning among them, sealed. With the option
    `state="server"` the server keeps the responses, and each request carries what is new; where the server has forgotten,
    the same request goes out once more with all items.

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
    ) -> None:
        if not model.strip():
            raise ConfigurationError(
                "The model's name is empty. Write openai:NAME, with the name that the server knows."
            )
        self._name = f"openai:{model}"
        self._price = price
        api_key = api_key.strip() if api_key else None
        self._has_key = bool(api_key)
        self._endpoint = Endpoint(
            base_url,
            "responses",
            headers=_headers(api_key, headers),
            timeouts=timeouts,
            secrets=secrets_of(api_key, headers),
        )
        self._requests = ResponsesRequests(model, origin=self._name, options=options or {}, stream=stream)

    @property
    def name(self) -> str:
        """The dialect and model, such as `openai:gpt-5-mini`."""
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
        answer = await self._send(request)
        after = len(request.messages) if self._requests.is_stateful else None
        with closing(answer):
            response = ResponsesResponse(self._requests.own_names(request), after=after)
            async for part in read_response(answer, response):
                yield part

    async def _send(self, request: ModelRequest) -> Answer:
        """Return the answer. A request that was refused for what it can do without goes out again without it."""
        resumes = self._requests.can_resume(request)
        while True:
            asks_sealed = self._requests.wants_encrypted
            answer = await shared_client.send(self._endpoint, self._requests.body(request, resumes=resumes))
            if 200 <= answer.status < 300:
                return answer
            with closing(answer):
                failure = await read_failure(answer, key_advice=self._key_advice)
            if asks_sealed and _refuses_sealed(failure):
                self._requests.wants_encrypted = False
            elif resumes and isinstance(failure, ModelRejected) and failure.status in _FORGOTTEN:
                resumes = False
            else:
                raise failure

    @property
    def _key_advice(self) -> str:
        if self._has_key:
            return "Check the API key (api_key=, or the variable that it was read from, such as OPENAI_API_KEY) and what it may use."
        return "No API key was sent: set api_key=, or OPENAI_API_KEY."


def _refuses_sealed(failure: ModelError) -> bool:
    return failure.status == 400 and _NO_SEALED_REASONING.search(str(failure)) is not None


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    made = {"Content-Type": "application/json"}
    if api_key:
        made["Authorization"] = f"Bearer {api_key}"
    return made | dict(headers or {})
