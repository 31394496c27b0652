"""Chat Completions, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import pairwise
from operator import is_
from typing import Any, Final, TypeAlias

from treadle.budgets import Price
from treadle.messages import Media, Message, Result, Text, Thinking, ToolCall
from treadle.ports import ModelFacts, ModelRequest, ToolChoice, ToolSpec
from treadle.providers.http.listings import Listing, Page, number, objects
from treadle.providers.payload import (
    EncodedMessages,
    ToolSets,
    data_url,
    flag_option,
    id_pattern,
    in_words,
    object_schema,
    opening,
    sendable_arguments,
    server_tools,
    strict_schema,
    to_json,
    user_content,
    wire_id,
    wire_name,
)

__all__ = ["LISTING", "ChatRequests"]


# --- Chat Completions, outward: the messages of a history, as one server takes them. Knows no request.

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class _ChatMessages:
    """Writes the messages for one model, each once."""

    def __init__(self, *, origin: str, thinking_field: str | None, call_id: str | None, bridge: str | None) -> None:
        self._origin = origin
        self._thinking_field = thinking_field
        self._plain_id = id_pattern(call_id)
        self._silence = bridge or ""
        self._bridge = Message(role="assistant", parts=(Text(bridge),)) if bridge else None
        self._encoded = EncodedMessages(self._encode)

    def body(self, head: bytes, messages: Sequence[Message], *, session_id: str) -> bytes:
        """Return the body of a request: its head, the messages and its end. See `EncodedMessages.body`."""
        sent = messages if self._bridge is None else list(_bridged(messages, self._bridge))
        return self._encoded.body(head, sent, session_id=session_id)

    def _encode(self, message: Message) -> bytes:
        match message.role:
            case "user":
                return to_json({"role": "user", "content": user_content(message, text=_text, media=_media)})
            case "assistant":
                return to_json(self._assistant(message))
            case "tool":
                return b",".join(map(to_json, self._results(message.results)))

    def _assistant(self, message: Message) -> _Wire:
        is_own = message.origin == self._origin
        wire: _Wire = {"role": "assistant"}
        calls = [self._call(call, is_own=is_own) for call in message.calls]
        # Content may be absent only along with calls.
        if (text := message.text) or not calls:
            wire["content"] = text or self._silence
        thoughts = [part for part in message.parts if isinstance(part, Thinking)] if is_own else []
        if self._thinking_field is not None:
            # Who wants it refuses a message without it, whoever wrote that; an empty one is taken.
            wire[self._thinking_field] = "".join(thought.text for thought in thoughts)
        if details := [detail for thought in thoughts for detail in _details(thought)]:
            wire["reasoning_details"] = details
        if calls:
            wire["tool_calls"] = calls
        return wire

    def _call(self, call: ToolCall, *, is_own: bool) -> _Wire:
        function = {"name": wire_name(call.name), "arguments": sendable_arguments(call.arguments)}
        wire: _Wire = {"id": self._id(call.id), "type": "function", "function": function}
        if call.signature is not None and is_own:
            # Gemini's compatible endpoint refuses a history whose calls have lost their signatures.
            wire["extra_content"] = {"google": {"thought_signature": call.signature}}
        return wire

    def _results(self, results: tuple[Result, ...]) -> Iterator[_Wire]:
        for result in results:
            yield {"role": "tool", "tool_call_id": self._id(result.call_id), "content": result.content}
        # Tool messages carry text only; and they must follow their calls without another message between them.
        shown = [result for result in results if result.media]
        if shown and self._bridge is not None:
            yield self._assistant(self._bridge)
        if shown:
            yield {"role": "user", "content": [part for result in shown for part in self._attachments(result)]}

    def _attachments(self, result: Result) -> Iterator[_Wire]:
        yield _text(f"Attached to the result of {result.name} ({self._id(result.call_id)}):")
        for media in result.media:
            yield _media(media)

    def _id(self, call_id: str) -> str:
        return wire_id(call_id, plain=self._plain_id)


def _bridged(messages: Sequence[Message], bridge: Message) -> Iterator[Message]:
    """Yield the messages, with the bridge wherever a user's would follow results."""
    yield from messages[:1]
    for earlier, later in pairwise(messages):
        if earlier.role == "tool" and later.role == "user":
            yield bridge
        yield later


def _details(thought: Thinking) -> list[Any]:
    """Return the gateway's own form of a thought, as it came; nothing where it came without."""
    match thought.payload:
        case {"reasoning_details": list(details)}:
            return details
        case _:
            return []


def _text(text: str) -> _Wire:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Wire:
    data = data_url(media)
    if media.media_type.startswith("image/") and (url := data or media.url):
        return {"type": "image_url", "image_url": {"url": url}}
    if media.media_type in _AUDIO_FORMATS and media.base64 is not None:
        audio = {"data": media.base64, "format": _AUDIO_FORMATS[media.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if data is not None:
        return {"type": "file", "file": {"filename": media.name or "attachment", "file_data": data}}
    # The dialect has no file by address: the model is told of it at least.
    return _text(in_words(media))


# --- Chat Completions, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session.

_OURS = frozenset({"messages", "model", "stream", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_CHOICES = ("auto", "none", "required")
_OWN_WORDS = ("server_tools", "strict_tools")


class ChatRequests:
    """Writes request bodies for one model. `Requests` says what it is made with."""

    def __init__(
        self,
        model: str,
        *,
        origin: str,
        options: Mapping[str, Any],
        stream: bool,
        thinking_field: str | None = None,
        call_id: str | None = None,
        bridge: str | None = None,
        named_choice: bool = True,
        forced_choice: bool = True,
    ) -> None:
        further = {name: value for name, value in options.items() if name not in _OWN_WORDS}
        self._opening = opening(_fields(model, stream=stream), further, ours=_OURS)
        self._has_parallel_option = "parallel_tool_calls" in options
        self._messages = _ChatMessages(origin=origin, thinking_field=thinking_field, call_id=call_id, bridge=bridge)
        self._named_choice = named_choice
        self.forces_choice = forced_choice
        """Whether calls are demanded; false once the server has refused it."""
        self.is_strict: Final = flag_option("strict_tools", options.get("strict_tools"), of="a Chat Completions model")
        self.tools: Final = ToolSets(
            partial(map, partial(_tool, is_strict=self.is_strict)),
            server_tools=server_tools(
                options.get("server_tools"),
                example="{'type': 'openrouter:web_search'}",
                is_function=lambda tool: tool.get("type") == "function",
            ),
        )
        self._asked: tuple[object, ...] = (None,) * 6
        self._head = b""

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least comes first, and the messages last: the bytes of one step begin those of the next."""
        asked = (
            request.instructions,
            request.tools,
            request.tool_choice,
            request.output_schema,
            request.parallel_tool_calls,
            self.forces_choice,
        )
        if not all(map(is_, asked, self._asked)):
            self._asked, self._head = asked, self._written_head(request)
        return self._messages.body(self._head, request.messages, session_id=request.session_id)

    def _written_head(self, request: ModelRequest) -> bytes:
        """Return what comes before the messages, up to the instructions."""
        head = [self._opening]
        if request.output_schema is not None:
            head.append(b',"response_format":' + to_json(self._response_format(request.output_schema)))
        choice = request.tool_choice
        is_alone = not (self._named_choice and self.forces_choice) and choice not in _CHOICES
        if tools := self._only(choice, request.tools) if is_alone else self.tools.listed(request.tools):
            head += [b',"tools":[', tools, b"]"]
            said = "required" if is_alone else choice
            said = "auto" if said == "required" and not self.forces_choice else said
            head += [b',"tool_choice":', to_json(_tool_choice(said))]
            if not request.parallel_tool_calls and not self._has_parallel_option:
                head.append(b',"parallel_tool_calls":false')
        head.append(b',"messages":[')
        if request.instructions:
            head.append(to_json({"role": "system", "content": request.instructions}))
        return b"".join(head)

    def demands(self, request: ModelRequest) -> bool:
        """Return whether a request demands a call."""
        return bool(request.tools) and self.forces_choice and request.tool_choice not in ("auto", "none")

    def _only(self, name: str, tools: tuple[ToolSpec, ...]) -> bytes:
        return self.tools.of(tuple(spec for spec in tools if spec.name == name)).encoded[1:-1]

    def _response_format(self, schema: Mapping[str, Any]) -> _Wire:
        output: _Wire = {"name": "output", "schema": schema}
        if self.is_strict and (strict := strict_schema(schema)) is not None:
            output |= {"schema": strict, "strict": True}
        return {"type": "json_schema", "json_schema": output}


def _fields(model: str, *, stream: bool) -> _Wire:
    fields: _Wire = {"model": model, "stream": stream}
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return fields


def _tool(spec: ToolSpec, *, is_strict: bool) -> _Wire:
    schema = object_schema(spec.parameters)
    function: _Wire = {"name": wire_name(spec.name), "description": spec.description, "parameters": schema}
    if is_strict and (strict := strict_schema(schema, nullable=True)) is not None:
        function |= {"parameters": strict, "strict": True}
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | _Wire:
    if choice in _CHOICES:
        return choice
    return {"type": "function", "function": {"name": wire_name(choice)}}


# --- OpenAI's list of models, and those of the servers that speak as it does: some say windows and prices, each in a
# field of its own.

_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len")
"""Where Groq, OpenRouter and Together, Mistral and LM Studio, and vLLM tell the window."""
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


def _read(value: Any) -> Page | None:
    """Read a list, which Together sends bare. Null is the list of a server without a model."""
    bare = value.get("data", value.get("models")) if isinstance(value, dict) else value
    if bare is None and isinstance(value, dict) and "data" in value:
        bare = []
    listed = objects(bare)
    if listed is None:
        return None
    return Page({one["id"]: _facts(one) for one in listed if isinstance(one.get("id"), str)})


def _facts(model: dict[str, Any]) -> ModelFacts:
    meta = model.get("meta")
    served = number(meta.get("n_ctx")) if isinstance(meta, dict) else None  # llama.cpp
    window = next((found for name in _WINDOWS if (found := number(model.get(name)))), served)
    output = next((found for name in _OUTPUTS if (found := number(model.get(name)))), None)
    return ModelFacts(window=window, output=output, price=_price(model.get("pricing")))


def _price(pricing: Any) -> Price | None:
    """Return what OpenRouter and Vercel ask, who tell it for one token, as text."""
    if not isinstance(pricing, dict):
        return None
    told = pricing.get("prompt", pricing.get("input")), pricing.get("completion", pricing.get("output"))
    if not all(isinstance(one, str) for one in told):
        return None
    try:
        prompt, completion = (Decimal(str(one)) * 1_000_000 for one in told)
        return Price(input=prompt, output=completion) if min(prompt, completion) >= 0 else None
    except (InvalidOperation, ValueError):
        return None


LISTING = Listing(read=_read)
