"""OpenAI Chat Completions, and every server that speaks it. One request, one response; retries and budgets are the runtime's."""

from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from typing import Any

from treadle.budgets import Price
from treadle.errors import ConfigurationError, IncompleteStream, ModelError, ModelResponseInvalid
from treadle.ports import ModelPart, ModelRequest
from treadle.providers._chat_request import ChatRequests
from treadle.providers._chat_response import ChatError, ChatResponse
from treadle.providers._failures import event_failure, not_the_protocol, read_failure
from treadle.providers._http import Answer, Endpoint, Timeouts, shared_client
from treadle.providers._sse import SseReader

__all__ = ["OpenAIChat", "Timeouts"]

_DEFAULT_TIMEOUTS = Timeouts()

_USAGE_SECONDS = 5.0
"""How long to wait, after the finish reason, for the usage and `[DONE]`: some servers send neither and hold the line."""

_BLANKS = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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

    Raises:
        ConfigurationError: One of these cannot be used.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None,
        price: Price | None = None,
        stream: bool = True,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        thinking_field: str | None = None,
    ) -> None:
        if not model.strip():
            raise ConfigurationError(
                "The model's name is empty. Write openai-chat:NAME, with the name that the server knows."
            )
        self._name = f"openai-chat:{model}"
        self._price = price
        api_key = api_key.strip() if api_key else None
        self._has_key = bool(api_key)
        self._endpoint = Endpoint(
            base_url,
            "chat/completions",
            headers=_headers(api_key, headers),
            timeouts=timeouts,
            secrets=_secrets(api_key, headers),
        )
        self._requests = ChatRequests(
            model, origin=self._name, options=options or {}, stream=stream, thinking_field=thinking_field
        )

    @property
    def name(self) -> str:
        """The dialect and model, such as `openai-chat:gpt-5-mini`."""
        return self._name

    @property
    def price(self) -> Price | None:
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
            response = ChatResponse(self._requests.own_names(request))
            try:
                async for part in _read(answer, response):
                    yield part
            except ChatError as exc:
                raise event_failure(exc.error, self._endpoint) from None  # its words are in the new error, redacted

    @property
    def _key_advice(self) -> str:
        if self._has_key:
            return "Check the API key (api_key=, or the variable that it was read from, such as OPENAI_API_KEY) and what it may use."
        return "No API key was sent: set api_key=, or OPENAI_API_KEY."


async def _read(answer: Answer, response: ChatResponse) -> AsyncIterator[ModelPart]:
    head = await _beginning(answer)
    # Decided by the first byte, not by the content type: servers answer either request in either form, and label it freely.
    if head.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS)[:1] in (b"{", b"[", b"<"):
        for part in _take_whole(head + await answer.read_rest(), answer, response):
            yield part
    else:
        async for part in _read_events(head, answer, response):
            yield part
    yield response.end()


async def _beginning(answer: Answer) -> bytes:
    """Read up to the first byte that is no blank."""
    head = b""
    while piece := await answer.read():
        head += piece
        if head.removeprefix(_BYTE_ORDER_MARK).strip(_BLANKS) and not _BYTE_ORDER_MARK.startswith(head):
            break
    return head


def _take_whole(body: bytes, answer: Answer, response: ChatResponse) -> list[ModelPart]:
    try:
        return response.add_whole(body.removeprefix(_BYTE_ORDER_MARK))
    except ModelResponseInvalid as exc:
        raise not_the_protocol(body, answer) from exc


async def _read_events(head: bytes, answer: Answer, response: ChatResponse) -> AsyncIterator[ModelPart]:
    reader, piece = SseReader(), head
    while piece:
        for event in reader.feed(piece):
            for part in response.add(event.data):
                yield part
        piece = await _next(answer, response)
    for part in _take_last(reader, response):
        yield part
    if not response.is_whole:
        raise _incomplete(head, answer, response)


async def _next(answer: Answer, response: ChatResponse) -> bytes:
    """Read on. What breaks after the terminal breaks nothing: only the usage may be missing."""
    if response.is_done:
        await answer.drain()
        return b""
    if response.is_whole:
        answer.hasten(_USAGE_SECONDS)
    try:
        return await answer.read()
    except ModelError:
        if response.is_whole:
            return b""
        raise


def _take_last(reader: SseReader, response: ChatResponse) -> list[ModelPart]:
    """Take an event without its blank line, where it is whole by itself: half a JSON object is none."""
    event = reader.finish()
    if event is None:
        return []
    try:
        return response.add(event.data)
    except ModelResponseInvalid:
        return []


def _incomplete(head: bytes, answer: Answer, response: ChatResponse) -> ModelError:
    if response.is_empty and answer.content_type != "text/event-stream":
        return not_the_protocol(head, answer)
    return IncompleteStream(
        f"The stream of {answer.endpoint.shown} ended without a finish reason or [DONE]: the response is incomplete."
    )


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    made = {"Content-Type": "application/json"}
    if api_key:
        made["Authorization"] = f"Bearer {api_key}"
    return made | dict(headers or {})


def _secrets(api_key: str | None, headers: Mapping[str, str] | None) -> list[str]:
    """Name what messages must not show: the key, and every header that the person set."""
    values = list((headers or {}).values())
    return [api_key or "", *values, *(value.partition(" ")[2] for value in values)]
