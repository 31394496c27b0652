"""Responses, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from treadle.canonical import digest
from treadle.errors import ConfigurationError, shown
from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.ports import ModelFacts, ModelRequest, ToolChoice, ToolSpec
from treadle.providers.http.listings import Listing, Page, objects
from treadle.providers.payload import (
    EncodedMessages,
    ToolSets,
    arguments_text,
    call_arguments,
    data_url,
    decode,
    held_in,
    in_words,
    name_or_nothing,
    object_schema,
    objects_in,
    opening,
    sendable_arguments,
    server_tools,
    strict_schema,
    text_or_nothing,
    to_json,
    user_content,
    wire_id,
    wire_name,
)

__all__ = [
    "LISTING",
    "PROVIDER",
    "Item",
    "ResponsesRequests",
    "is_refusal",
    "left_to_the_client",
    "message_text",
    "parts_of",
    "read_item",
    "state_marker",
    "thinking_text",
]


# --- Responses, inward: one output item to the parts of a message. Does no I/O, and knows no event.

_WireItem: TypeAlias = dict[str, Any]  # Any: a JSON object of the wire

PROVIDER = "openai"
"""What this dialect's opaque parts are marked with."""


class _Raw(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"null")


_raws = msgspec.json.Decoder(_Raw)
_objects = msgspec.json.Decoder(dict[str, Any])


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One output item as it came."""

    value: _WireItem
    arguments: str = ""
    """The text of a function call's arguments: what the model wrote, even where a server sends an object for it."""

    @property
    def kind(self) -> str:
        return text_or_nothing(self.value.get("type"))

    @property
    def id(self) -> str:
        return text_or_nothing(self.value.get("id"))

    @property
    def call_id(self) -> str:
        """What names a function call, whatever its item's id; nothing for another item."""
        return text_or_nothing(self.value.get("call_id")) if self.kind == "function_call" else ""

    @property
    def name(self) -> str:
        return name_or_nothing(self.value.get("name"))

    @property
    def is_open(self) -> bool:
        """Whether the item itself says that it is not whole."""
        return self.value.get("status") in ("incomplete", "in_progress")


def read_item(raw: msgspec.Raw) -> Item:
    """Read an item.

    Raises:
        ModelResponseInvalid: It is not a JSON object.
    """
    data = bytes(raw)
    value = decode(data, _objects)
    is_call = value.get("type") == "function_call"
    return Item(value=value, arguments=arguments_text(decode(data, _raws).arguments) if is_call else "")


def parts_of(item: Item, names: Mapping[str, str], position: int) -> list[Part]:
    """Return the parts that an item makes."""
    value = item.value
    match item.kind:
        case "":
            return []
        case "message":
            return _message_parts(value)
        case "reasoning":
            return [Thinking(text=thinking_text(value), payload=value)]
        case "function_call":
            name = item.name
            call_id = item.call_id or item.id or f"call_{position}"
            rest = _without(value, "type", "call_id", "name", "arguments")
            return [
                ToolCall(
                    id=call_id,
                    name=names.get(name, name),
                    arguments=call_arguments([item.arguments]),
                    signature=_signature(rest),
                )
            ]
        case "image_generation_call":
            return [Opaque(provider=PROVIDER, payload=value), *_image(value)]
        case _:
            return [Opaque(provider=PROVIDER, payload=value)]


def message_text(value: Mapping[str, Any]) -> str:
    """Return the words of a message, those of a refusal included."""
    return "".join(
        text_or_nothing(piece.get("text")) or text_or_nothing(piece.get("refusal"))
        for piece in objects_in(value.get("content"))
    )


def is_refusal(value: Mapping[str, Any]) -> bool:
    return any(piece.get("type") == "refusal" for piece in objects_in(value.get("content")))


def thinking_text(value: Mapping[str, Any]) -> str:
    """Return the summary of the reasoning, or, from servers that show it, the reasoning itself."""
    summaries = [text_or_nothing(piece.get("text")) for piece in objects_in(value.get("summary"))]
    shown = [text_or_nothing(piece.get("text")) for piece in objects_in(value.get("content"))]
    return "\n\n".join(filter(None, summaries)) or "".join(shown)


def _message_parts(value: _WireItem) -> list[Part]:
    content = objects_in(value.get("content"))
    is_plain = len(content) == 1 and content[0].get("type") == "output_text"
    rest = _without(value, "type", "role", "content") if is_plain else _without(value, "type", "role")
    if is_plain and (annotations := content[0].get("annotations")):
        rest["annotations"] = annotations
    said = message_text(value)
    return [Text(said, _signature(rest))] if said else []


def _image(value: Mapping[str, Any]) -> Iterator[Part]:
    result = value.get("result")
    if isinstance(result, str) and result:
        kind = text_or_nothing(value.get("output_format")) or "png"
        yield Media(media_type=f"image/{kind}", base64=result)


def _without(value: _WireItem, *names: str) -> _WireItem:
    return {name: one for name, one in value.items() if name not in names}


def _signature(rest: _WireItem) -> str | None:
    return to_json(rest).decode() if rest else None


# --- Responses, outward: the messages of a history as input items. Sends nothing, and repairs only what the vendor
# refuses.

_WireHistory: TypeAlias = dict[str, Any]  # Any: a JSON object of the wire

_PLAIN_ID = re.compile(r"[!-~]{1,64}")
"""What the vendor takes here; Chat Completions takes 40 characters.."""
_MARKER = "treadle.response"
_COMPUTER = "computer_call"
"""Never sent back: a picture of a screen is the only answer that a computer's call takes, and nobody here has one."""

_PROGRAM = ("program", "program_output")
"""What the vendor's code container is given, and what it gives."""

_NOT_RUN = "Not executed: this client runs function tools only."
_NOT_RUN_BY_A_SHELL: _WireHistory = {"stdout": "", "stderr": _NOT_RUN, "outcome": {"type": "exit", "exit_code": 126}}
_ANSWERS: Mapping[Any, tuple[str, _WireHistory]] = {
    "custom_tool_call": ("call_id", {"type": "custom_tool_call_output", "output": _NOT_RUN}),
    "local_shell_call": ("id", {"type": "local_shell_call_output", "output": _NOT_RUN}),
    "apply_patch_call": ("call_id", {"type": "apply_patch_call_output", "status": "failed", "output": _NOT_RUN}),
    "shell_call": ("call_id", {"type": "shell_call_output", "output": [_NOT_RUN_BY_A_SHELL]}),
    "mcp_approval_request": (
        "approval_request_id",
        {"type": "mcp_approval_response", "approve": False, "reason": _NOT_RUN},
    ),
}
"""What each item that asks its client to act is answered with, and where its id goes."""


def left_to_the_client(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return those items of a response that ask its client to act, in a way that this one does not.

    A shell's call may be the server's own: then its output is in the same response.
    """
    known = [(text_or_nothing(item.get("type")), text_or_nothing(item.get("call_id")), item) for item in items]
    answered = {(kind, call_id) for kind, call_id, _ in known}
    asking = [one for one in known if one[0] in _ANSWERS or one[0] == _COMPUTER]
    return [item for kind, call_id, item in asking if (f"{kind}_output", call_id) not in answered]


def _callers_in(message: Message) -> dict[str, _WireHistory]:
    """Return, by the id of each call that a program of the model made and not the model itself, which program that was."""
    rests = {part.id: _rest(part.signature, is_linked=True) for part in message.calls if part.signature is not None}
    callers = {call_id: rest.get("caller") for call_id, rest in rests.items()}
    return {
        call_id: caller
        for call_id, caller in callers.items()
        if isinstance(caller, dict) and caller.get("type") != "direct"
    }


def _items_of(
    message: Message, *, is_own: bool, is_stored: bool, callers: Mapping[str, _WireHistory] = MappingProxyType({})
) -> Iterator[_WireHistory]:
    """Return the input items that say a message."""
    match message.role:
        case "user":
            yield {"role": "user", "content": user_content(message, text=_text, media=_media)}
        case "tool":
            for result in message.results:
                caller = callers.get(result.call_id)
                yield _result(result) if caller is None else {**_result(result), "caller": caller}
        case "assistant" if is_own:
            yield from _own(message, is_stored=is_stored)
        case "assistant":
            yield from _foreign(message)


def _own(message: Message, *, is_stored: bool) -> Iterator[_WireHistory]:
    parts = _without_tail(message.parts)
    payloads = [part.payload for part in parts if isinstance(part, Opaque) and isinstance(part.payload, dict)]
    # An item that followed reasoning is refused with its id and without the reasoning, so both go or neither does. A program always
    # goes back: its calls and their results name it.
    is_linked = any(payload.get("type") in _PROGRAM for payload in payloads) or all(
        _can_return(part.payload, is_stored=is_stored) for part in parts if isinstance(part, Thinking)
    )
    unanswered = left_to_the_client(payloads)
    ids: set[str] = set()
    for part in parts:
        match part:
            case Thinking(payload=dict()) if is_linked:
                yield part.payload
            case Text():
                yield _said(part, _rest(part.signature, is_linked=is_linked))
            case ToolCall():
                rest = _rest(part.signature, is_linked=is_linked)
                if (
                    own := text_or_nothing(rest.get("id"))
                ) in ids:  # the server gave two calls one id, and refuses it twice
                    del rest["id"]
                elif own:
                    ids.add(own)
                yield _call(part, rest)
            case Opaque(provider=provider, payload=dict()) if provider == PROVIDER and is_linked:
                yield from _opaque(part.payload, is_unanswered=part.payload in unanswered)


def _without_tail(parts: Sequence[Part]) -> list[Part]:
    """Leave out our own marker, and reasoning that nothing follows (the response was cut off): the vendor refuses it alone."""
    kept = [part for part in parts if not _is_marker(part)]
    while kept and isinstance(kept[-1], Thinking):
        kept.pop()
    return kept


def _is_marker(part: Part) -> bool:
    return isinstance(part, Opaque) and isinstance(part.payload, dict) and part.payload.get("type") == _MARKER


def _foreign(message: Message) -> Iterator[_WireHistory]:
    for part in message.parts:
        match part:
            case Text(text=text) if text:
                yield {"role": "assistant", "content": text}
            case ToolCall():
                yield _call(part, {})


def _can_return(payload: Any, *, is_stored: bool) -> bool:
    if not isinstance(payload, dict):
        return False
    return (is_stored and "id" in payload) or bool(payload.get("encrypted_content") or payload.get("content"))


def _rest(signature: str | None, *, is_linked: bool) -> _WireHistory:
    rest = held_in(signature)
    return rest if is_linked else {name: value for name, value in rest.items() if name != "id"}


def _said(part: Text, rest: _WireHistory) -> _WireHistory:
    if "id" not in rest:
        return {"role": "assistant", "content": part.text}
    plain = {"type": "output_text", "text": part.text, "annotations": rest.pop("annotations", [])}
    content = rest.pop("content", None) or [plain]
    return {"type": "message", "role": "assistant", **rest, "content": content}


def _call(call: ToolCall, rest: _WireHistory) -> _WireHistory:
    return {
        "type": "function_call",
        **rest,
        "call_id": wire_id(call.id, plain=_PLAIN_ID),
        "name": wire_name(call.name),
        "arguments": sendable_arguments(call.arguments),
    }


def _opaque(payload: _WireHistory, *, is_unanswered: bool) -> Iterator[_WireHistory]:
    """Return a server's item, with the answer that it waits for where it asked its client to act."""
    kind = payload.get("type")
    if kind == _COMPUTER:
        return
    yield payload
    if is_unanswered:
        key, answer = _ANSWERS[kind]
        yield {key: payload.get("id" if key in ("id", "approval_request_id") else "call_id"), **answer}


def _result(result: Result) -> _WireHistory:
    # The dialect has no flag for errors: the content says it.
    output: str | list[_WireHistory] = result.content
    if result.media:
        output = [*([_text(result.content)] if result.content else []), *map(_media, result.media)]
    return {"type": "function_call_output", "call_id": wire_id(result.call_id, plain=_PLAIN_ID), "output": output}


def _text(text: str) -> _WireHistory:
    return {"type": "input_text", "text": text}


def _media(media: Media) -> _WireHistory:
    data = data_url(media)
    kind = media.media_type.partition("/")[0]
    if kind == "image" and (url := data or media.url):
        return {"type": "input_image", **_at("image_url", url), "detail": "auto"}
    if kind not in ("image", "audio", "video"):
        if data is not None:
            return {"type": "input_file", "filename": media.name or "attachment", "file_data": data}
        if media.url is not None:
            return {"type": "input_file", **_at("file_url", media.url)}
    # The vendor refuses the whole request for a sound or a film: the model is told of it at least.
    return _text(in_words(media))


def _at(key: str, url: str) -> _WireHistory:
    """Say where the content is. `file-...` is not an address but the vendor's name of a file that was uploaded to it."""
    return {"file_id": url} if url.startswith("file-") else {key: url}


def state_marker(response_id: str, after: int) -> Opaque:
    """Return the part that remembers which stored response a message is, and how many messages led to it."""
    return Opaque(provider=PROVIDER, payload={"type": _MARKER, "id": response_id, "after": after})


def _state_id(message: Message, position: int) -> str | None:
    """Return the id of the stored response that this message is, or None.

    One that is at another position follows another history than the server's: it was cut or compacted since.
    """
    for part in message.parts:
        match part:
            case Opaque(payload={"type": "treadle.response", "id": str(response_id), "after": int(after)}):
                return response_id if after == position else None
    return None


# --- Responses, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session.

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({
    *("model", "input", "instructions", "stream", "tools", "tool_choice"),
    *("previous_response_id", "conversation", "background"),
})  # fmt: skip
"""Fields of the body that come from the request, or that would change whose memory and whose time it runs on."""

_ENCRYPTED = "reasoning.encrypted_content"
_OWN_WORDS = ("state", "server_tools", "text")

_MOST_CALLERS = 10_000
"""Of calls that programs made, so many are remembered, in all sessions of the model."""


class ResponsesRequests:
    """Writes request bodies for one model. `Requests` says what it is made with."""

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any], stream: bool) -> None:
        self._origin = origin
        self.is_stateful = _is_stateful(options.get("state", "client"))
        self.wants_encrypted = True
        """Whether reasoning is asked for in its sealed form. Models that do not reason refuse the wish."""
        fields = {"model": model, "stream": stream, "store": self.is_stateful, "include": [_ENCRYPTED]}
        further = {name: value for name, value in options.items() if name not in _OWN_WORDS}
        include = further.get("include", fields["include"])
        self._opening = opening(fields, further, ours=_OURS)
        self._plain_opening = opening(fields, {**further, "include": _without_encrypted(include)}, ours=_OURS)
        self._text = _checked_text(options.get("text"))
        self._has_parallel_option = "parallel_tool_calls" in options
        self._has_cache_key = "prompt_cache_key" in options
        self._is_stored = bool(options.get("store", self.is_stateful))
        self._messages = EncodedMessages(self._encode)
        self._callers: dict[str, _Wire] = {}
        self.tools: Final = ToolSets(
            partial(map, _tool),
            server_tools=server_tools(
                options.get("server_tools"),
                example="{'type': 'web_search'}",
                is_function=lambda tool: tool.get("type") == "function",
            ),
        )

    def body(self, request: ModelRequest, *, resumes: bool = False) -> bytes:
        """Return the body. What changes least comes first, and the input last: the bytes of one step begin those of the next.

        Args:
            resumes: Whether to send only what is new since the last response that the server keeps.
        """
        head = [self._opening if self.wants_encrypted else self._plain_opening]
        head += self._written_text(request)
        head += self._written_tools(request)
        if request.instructions:
            head += [b',"instructions":', to_json(request.instructions)]
        messages = request.messages
        if resumes and (kept := self._kept(request)) is not None:
            position, response_id = kept
            messages = request.messages[position + 1 :]
            self._note_callers(request.messages[position])
            head += [b',"previous_response_id":', to_json(response_id)]
        if request.session_id and not self._has_cache_key:
            # A digest: a session's id may name a person. The same for all requests of a session, whose cache lies on one machine then.
            head += [b',"prompt_cache_key":', to_json(digest(request.session_id)[:32])]
        head.append(b',"input":[')
        return self._messages.body(b"".join(head), messages, session_id=request.session_id)

    def can_resume(self, request: ModelRequest) -> bool:
        """Whether the server keeps a response that this request continues from."""
        return self._kept(request) is not None

    def _kept(self, request: ModelRequest) -> tuple[int, str] | None:
        """Return position and id of the last message that the server keeps, where something new follows it."""
        if not self.is_stateful:
            return None
        for position in range(len(request.messages) - 2, -1, -1):
            message = request.messages[position]
            if message.origin == self._origin and message.role == "assistant":
                response_id = _state_id(message, position)
                return None if response_id is None else (position, response_id)
        return None

    def _encode(self, message: Message) -> bytes:
        is_own = message.origin == self._origin
        if is_own:
            self._note_callers(message)
        items = _items_of(message, is_own=is_own, is_stored=self._is_stored, callers=self._callers)
        return b",".join(to_json(item) for item in items)

    def _note_callers(self, message: Message) -> None:
        """Remember which calls a program of the model made, for their results, which come in the next message."""
        self._callers |= _callers_in(message)
        while len(self._callers) > _MOST_CALLERS:
            del self._callers[next(iter(self._callers))]

    def _written_text(self, request: ModelRequest) -> list[bytes]:
        text = self._text
        if request.output_schema is not None:
            text = {**text, "format": _output_format(request.output_schema)}
        return [b',"text":', to_json(text)] if text else []

    def _written_tools(self, request: ModelRequest) -> list[bytes]:
        if not (written := self.tools.listed(request.tools)):
            return []
        head = [b',"tools":[', written, b"]", b',"tool_choice":', to_json(_tool_choice(request.tool_choice))]
        if not request.parallel_tool_calls and not self._has_parallel_option:
            head.append(b',"parallel_tool_calls":false')
        return head


def _is_stateful(state: Any) -> bool:
    if state not in ("client", "server"):
        raise ConfigurationError(
            f"The option state must be 'client' (all items in each request) or 'server' (the server keeps them); got {shown(state)}."
        )
    return bool(state == "server")


def _without_encrypted(include: Any) -> list[Any] | None:
    if not isinstance(include, list | tuple):
        return None
    return [one for one in include if one != _ENCRYPTED] or None


def _checked_text(text: Any) -> _Wire:
    if text is not None and not isinstance(text, Mapping):
        raise ConfigurationError(
            f"The option text must be an object such as {{'verbosity': 'low'}}; got {shown(text)}."
        )
    opening({}, {"text": text}, ours=frozenset())  # plain JSON, or a clear refusal
    return dict(text or {})


def _output_format(schema: Mapping[str, Any]) -> _Wire:
    strict = strict_schema(schema)
    return {
        "type": "json_schema",
        "name": "output",
        "schema": schema if strict is None else strict,
        "strict": strict is not None,
    }


def _tool(spec: ToolSpec) -> _Wire:
    schema = object_schema(spec.parameters)
    strict = strict_schema(schema, nullable=True)
    return {
        "type": "function",
        "name": wire_name(spec.name),
        "description": spec.description,
        "parameters": schema if strict is None else strict,
        "strict": strict is not None,  # left out it would mean true
    }


def _tool_choice(choice: ToolChoice) -> str | _Wire:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": wire_name(choice)}


# --- OpenAI's list of models, for those that are asked by Responses.


def _read(value: Any) -> Page | None:
    listed = objects(value.get("data")) if isinstance(value, dict) else None
    if listed is None:
        return None
    return Page({one["id"]: ModelFacts() for one in listed if isinstance(one.get("id"), str)})


LISTING = Listing(read=_read)
