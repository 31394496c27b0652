"""Model: what the models of all dialects are and do alike. A dialect's own class says how a request is written and an answer read."""

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Generic, Protocol, Self, TypeVar, runtime_checkable

from treadle.fields import checked, explained
from treadle.messages import Finish
from treadle.ports import ModelEnd, ModelPart, ModelRequest, Pricing, TextCalls
from treadle.providers.http.answer import Answer
from treadle.providers.http.endpoint import Endpoint
from treadle.providers.http.failures import finish_of
from treadle.providers.http.reading import Response, read_response, without_ending
from treadle.providers.http.server import Server
from treadle.providers.payload import ContentBlock, MessageBlocks, ThinkingTags, ToolSets

__all__ = ["BlockResponse", "DialectModel"]

_Response = TypeVar("_Response", bound=Response)


class Requests(Protocol):
    """Writes the requests of one dialect, for one model.

    It is made with the model's name as the server knows it; with the `origin` that messages of this model are marked with, since
    signatures, thinking and citations go back to no other; and with the person's options: further fields of the body, of which one
    that is None takes the field away, and some mean more, as the dialect's class of models says. It raises `ConfigurationError` for an
    option that is not valid JSON, is of another kind, or names a field that the request itself fills.
    """

    @property
    def tools(self) -> ToolSets: ...

    def body(self, request: ModelRequest) -> bytes: ...


@runtime_checkable
class Asked(Protocol):
    """What a model's requests go to: its server, or what stands in its place."""

    @property
    def endpoint(self) -> Endpoint: ...

    async def ask(self, body: bytes) -> Answer: ...


class DialectModel:
    """A model behind a server that speaks a dialect.

    Args:
        name: With the dialect before it.
        price: What it costs, or None when nobody knows.
        server: Where it is asked.
        requests: Writes the bodies of requests.
        reader: Makes what reads an answer, of our names of tools that were renamed for the wire.
        options: Further fields of each request's body.
        stream: Whether it is asked for a stream.
        thinking_tags: How reasoning that the server leaves in the text is told.
        text_calls: What happens to calls that the server leaves in the text; None for the default.
    """

    def __init__(
        self,
        name: str,
        price: Pricing | None,
        server: Server,
        *,
        requests: "Requests",
        reader: Callable[[Mapping[str, str]], Response],
        options: Mapping[str, Any] | None,
        stream: bool,
        thinking_tags: ThinkingTags,
        text_calls: TextCalls | None,
    ) -> None:
        self._thinking_tags = thinking_tags
        self._text_calls = text_calls
        self.name: Final = name
        """The dialect and model, such as `openai:gpt-5-mini`."""
        self.price: Final = price
        """What it costs, or None when nobody knows."""
        self._server: Asked = server
        self._requests = requests
        self._reader = reader
        self.asks_with: Final = {**(options or {}), "stream": stream}
        """The options of each request, and whether it asks for a stream."""

    @property
    def endpoint(self) -> Endpoint:
        """Where its requests go."""
        return self._server.endpoint

    @property
    def asks_at(self) -> tuple[str, int]:
        """The host and port of its server."""
        url = self._server.endpoint.url
        return url.host or "", url.port or 443

    @checked
    def through(self, asked: Asked) -> Self:
        """Return the same model, whose requests go elsewhere than to its server."""
        made = copy.copy(self)
        made._server = asked  # noqa: SLF001 - its own
        return made

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

    def _asking(self, request: ModelRequest) -> Callable[[], Awaitable[Answer]]:
        """Return what sends the request."""
        return partial(self._server.ask, self._requests.body(request))

    def _response(self, request: ModelRequest) -> Response:
        """Return what reads the answer."""
        return self._reader(self._requests.tools.own_names(request.tools))


# --- Block responses: what dialects whose messages are blocks share of one answer: which calls are ready, and how it
# ends.

_Block = TypeVar("_Block", bound=ContentBlock)


class BlockResponse(Response, Generic[_Block]):
    """Takes the data of each event, and gives the parts that it makes. A dialect's own class reads the events.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    reason_field: str
    """The field of a whole answer that has the reason, as the dialect spells it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._blocks: MessageBlocks[_Block] = MessageBlocks(names)
        self._reason = ""
        """Why the model stopped, in the dialect's word; empty until it is known."""

    def end(self) -> ModelEnd:
        """Return the whole message."""
        gathered = self._blocks.gathered(is_cut=self._is_cut)
        return ModelEnd(
            parts=gathered.parts,
            finish=finish_of(self._reason),
            usage=self.counted,
            cut_calls=gathered.cut,
            unnamed_calls=gathered.unnamed,
            is_retold=self._blocks.is_retold,
            has_strays=gathered.has_strays,
            finish_reason=self._reason or None,
        )

    def _take_blocks(self, blocks: Iterable[_Block]) -> list[ModelPart]:
        """Take the blocks of a whole answer. Raises `IncompleteStream` where it has neither a block nor a reason to stop."""
        parts = self._blocks.take_whole(blocks)
        if not self._reason and not self._blocks.all:
            raise without_ending(self.reason_field)
        if self._is_cut:
            self._blocks.doubt_last()
        self.is_empty = False
        self.is_done = self.is_whole = True
        return parts + self._ready()

    def _ready(self) -> list[ModelPart]:
        """Return the calls that have become complete, in call order."""
        return self._blocks.ready(has_ended=(self.is_whole or bool(self._reason)) and not self._is_cut)

    @property
    def _is_cut(self) -> bool:
        return finish_of(self._reason) is Finish.LENGTH
