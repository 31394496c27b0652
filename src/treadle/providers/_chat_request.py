"""Chat Completions, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any, TypeAlias

from treadle.messages import Media, Message, Result, Text, Thinking, ToolCall
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers._bodies import ToolSets, opening, sendable_arguments, server_tools
from treadle.providers._encoded import EncodedMessages, to_json
from treadle.providers._names import wire_id, wire_name

__all__ = ["ChatRequests"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "model", "stream", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatRequests:
    """Writes request bodies for one model.

    Args:
        model: As the server knows it.
        origin: What messages of this model are marked with; signatures and thinking go back to no other.
        options: Further fields of the body; one that is None takes the field away. `server_tools` are tools that the server runs
            by itself, beside ours.
        stream: Whether to ask for a stream.
        thinking_field: Where earlier reasoning goes back, or None to keep it.

    Raises:
        ConfigurationError: An option is no JSON, or names a field that the request itself fills.
    """

    def __init__(
        self, model: str, *, origin: str, options: Mapping[str, Any], stream: bool, thinking_field: str | None
    ) -> None:
        self._origin = origin
        self._thinking_field = thinking_field
        further = {name: value for name, value in options.items() if name != "server_tools"}
        self._opening = opening(_fields(model, stream=stream), further, ours=_OURS)
        self._server_tools = server_tools(
            options.get("server_tools"),
            example="{'type': 'openrouter:web_search'}",
            is_function=lambda tool: tool.get("type") == "function",
        )
        self._has_parallel_option = "parallel_tool_calls" in options
        self._messages = EncodedMessages(self._encode)
        self._tools = ToolSets(_tool)
        self._asked: tuple[object, ...] = (None,) * 5
        self._head = b""

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least stands first, and the messages last: the bytes of one step begin those of the next."""
        asked = (
            request.instructions,
            request.tools,
            request.tool_choice,
            request.output_schema,
            request.parallel_tool_calls,
        )
        if not all(map(is_, asked, self._asked)):
            self._asked, self._head = asked, self._written_head(request)
        return self._messages.body(self._head, request.messages, session_id=request.session_id)

    def _written_head(self, request: ModelRequest) -> bytes:
        """Return what stands before the messages, up to the instructions."""
        head = [self._opening]
        if request.output_schema is not None:
            head.append(b',"response_format":' + to_json(_response_format(request.output_schema)))
        if tools := self._all_tools(request):
            head += [b',"tools":', tools]
            head += [b',"tool_choice":', to_json(_tool_choice(request.tool_choice))]
            if not request.parallel_tool_calls and not self._has_parallel_option:
                head.append(b',"parallel_tool_calls":false')
        head.append(b',"messages":[')
        if request.instructions:
            head.append(to_json({"role": "system", "content": request.instructions}))
        return b"".join(head)

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._tools.of(request.tools).own_names if request.tools else {}

    def _all_tools(self, request: ModelRequest) -> bytes:
        """Return the tools as a JSON array, the server's own last; nothing where there are none."""
        ours = self._tools.of(request.tools).encoded if request.tools else b""
        if not self._server_tools:
            return ours
        return b"".join((ours[:-1] + b"," if ours else b"[", self._server_tools, b"]"))

    def _encode(self, message: Message) -> bytes:
        match message.role:
            case "user":
                return to_json({"role": "user", "content": _user_content(message)})
            case "assistant":
                return to_json(self._assistant(message))
            case "tool":
                return b",".join(map(to_json, _results(message.results)))

    def _assistant(self, message: Message) -> _Wire:
        is_own = message.origin == self._origin
        wire: _Wire = {"role": "assistant"}
        calls = [_call(call, is_own=is_own) for call in message.calls]
        # Content may be absent only beside calls.
        if (text := message.text) or not calls:
            wire["content"] = text
        if self._thinking_field is not None and is_own:
            thought = "".join(part.text for part in message.parts if isinstance(part, Thinking))
            if thought:
                wire[self._thinking_field] = thought
        if calls:
            wire["tool_calls"] = calls
        return wire


def _fields(model: str, *, stream: bool) -> _Wire:
    fields: _Wire = {"model": model, "stream": stream}
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return fields


def _response_format(schema: Mapping[str, Any]) -> _Wire:
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}


def _tool(spec: ToolSpec) -> _Wire:
    function = {"name": wire_name(spec.name), "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | _Wire:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": wire_name(choice)}}


def _call(call: ToolCall, *, is_own: bool) -> _Wire:
    function = {"name": wire_name(call.name), "arguments": sendable_arguments(call.arguments)}
    wire: _Wire = {"id": wire_id(call.id), "type": "function", "function": function}
    if call.signature is not None and is_own:
        # Gemini's compatible endpoint refuses a history whose calls have lost their signatures.
        wire["extra_content"] = {"google": {"thought_signature": call.signature}}
    return wire


def _results(results: tuple[Result, ...]) -> Iterator[_Wire]:
    for result in results:
        yield {"role": "tool", "tool_call_id": wire_id(result.call_id), "content": result.content}
    # Tool messages carry text only; and they must follow their calls without another message between them.
    shown = [result for result in results if result.media]
    if shown:
        yield {"role": "user", "content": [part for result in shown for part in _attachments(result)]}


def _attachments(result: Result) -> Iterator[_Wire]:
    yield _text(f"Attached to the result of {result.name} ({wire_id(result.call_id)}):")
    for media in result.media:
        yield _media(media)


def _user_content(message: Message) -> str | list[_Wire]:
    if not any(isinstance(part, Media) for part in message.parts):
        return message.text
    return [
        _text(part.text) if isinstance(part, Text) else _media(part)
        for part in message.parts
        if isinstance(part, Text | Media)
    ]


def _text(text: str) -> _Wire:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Wire:
    data = f"data:{media.media_type};base64,{media.base64}" if media.base64 is not None else None
    if media.media_type.startswith("image/") and (url := data or media.url):
        return {"type": "image_url", "image_url": {"url": url}}
    if media.media_type in _AUDIO_FORMATS and media.base64 is not None:
        audio = {"data": media.base64, "format": _AUDIO_FORMATS[media.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if data is not None:
        return {"type": "file", "file": {"filename": media.name or "attachment", "file_data": data}}
    # The dialect has no file by address: the model is told of it at least.
    return _text(f"[{media.media_type}: {media.url or media.name or 'no content'}]")
