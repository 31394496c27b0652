"""Model: what the models of all dialects are and do alike. A dialect's own class says how a request is written and an answer read."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from treadle.fields import explained
from treadle.ports import ModelPart, ModelRequest, Pricing, TextCalls
from treadle.providers.http.answer import Answer
from treadle.providers.http.reading import Response, read_response
from treadle.providers.http.server import Server
from treadle.providers.payload.thoughts import ThinkingTags

__all__ = ["DialectModel"]

_Response = TypeVar("_Response", bound=Response)


class DialectModel(ABC):
    """A model behind a server that speaks a dialect.

    Args:
        name: With the dialect before it.
        price: What it costs, or None when nobody knows.
        server: Where it is asked.
        options: Further fields of each request's body.
        stream: Whether it is asked for a stream.
        thinking_tags: How reasoning that the server leaves in the text is told.
        text_calls: What happens to calls that the server leaves in the text.
    """

    def __init__(
        self,
        name: str,
        price: Pricing | None,
        server: Server,
        options: Mapping[str, Any] | None,
        *,
        stream: bool,
        thinking_tags: ThinkingTags,
        text_calls: TextCalls,
    ) -> None:
        self._thinking_tags = thinking_tags
        self._text_calls = text_calls
        self.name: Final = name
        """The dialect and model, such as `openai:gpt-5-mini`."""
        self.price: Final = price
        """What it costs, or None when nobody knows."""
        self._server = server
        self.asks_with: Final = {**(options or {}), "stream": stream}
        """The options of each request, and whether it asks for a stream."""

    @property
    def asks_at(self) -> tuple[str, int]:
        """The host and port of its server."""
        url = self._server.endpoint.url
        return url.host or "", url.port or 443

    @explained
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
        """Send one request and yield the parts of the one response, `ModelEnd` last.

        Never retries, but once where the server refuses what the request can do without. Closing the iterator closes the connection.

        Raises:
            ModelError: The call failed; the class says whether another attempt may help.
        """
        return read_response(self._asking(request), self._set_up(self._response(request)))

    def _set_up(self, response: _Response) -> _Response:
        """Return what reads an answer, with the options of this model for its text."""
        response.thinking_tags, response.text_calls = self._thinking_tags, self._text_calls
        return response

    @abstractmethod
    def _asking(self, request: ModelRequest) -> Callable[[], Awaitable[Answer]]:
        """Return what sends the request."""

    @abstractmethod
    def _response(self, request: ModelRequest) -> Response:
        """Return what reads the answer."""
