"""Cohere's Chat, version 2. One request, one response; retries and budgets are the runtime's."""

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any, Final

from treadle.fields import checked, explained
from treadle.ports import ModelPart, ModelRequest, Pricing
from treadle.providers.cohere.request import CohereRequests
from treadle.providers.cohere.response import CohereResponse
from treadle.providers.http.endpoint import Timeouts
from treadle.providers.http.reading import read_response
from treadle.providers.http.server import DEFAULT_TIMEOUTS, Key, Server, model_name

__all__ = ["Cohere", "Timeouts"]


class Cohere:
    """A model behind Cohere's Chat dialect, version 2.

    Example:
        Cohere("command-a-03-2025", api_key="...", options={"temperature": 0})

    What the model says before its calls, its `tool_plan`, is text. Citations stay with the text that they are about, as JSON in its
    `signature`, and go back to the model.

    Args:
        model: As the server knows it.
        base_url: Up to and without `chat`. Its query, if any, goes with every request.
        api_key: None for a server that wants none.
        price: What it costs, or None when nobody knows.
        stream: Whether to ask for a stream. Either form of answer is understood.
        options: Further fields of each request's body, such as `temperature`, `documents` or `thinking`; one that is None removes a field.
            Two are our own: `strict_tools: True` holds the model to the tools' schemas wherever the vendor can do that; `server_tools` are
            tools that the server runs by itself.
        headers: Further headers of each request.
        timeouts: How long one call may take.

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
    ) -> None:
        self.name: Final = model_name("cohere", model)
        """The dialect and model, such as `cohere:command-a-03-2025`."""
        self.price: Final = price
        """What it costs, or None when nobody knows."""
        self._server = Server(
            base_url,
            "chat",
            key=Key(value=api_key, header="Authorization", prefix="Bearer ", variable="COHERE_API_KEY"),
            headers=headers,
            timeouts=timeouts,
        )
        self._requests = CohereRequests(model, origin=self.name, options=options or {}, stream=stream)

    @explained
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
        """Send one request and yield the parts of the one response, `ModelEnd` last.

        Never retries. Closing the iterator closes the connection.

        Raises:
            ModelError: The call failed; the class says whether another attempt may help.
        """
        ask = partial(self._server.ask, self._requests.body(request))
        return read_response(ask, CohereResponse(self._requests.own_names(request)))
