"""Cohere, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.ports import ModelFacts, ModelRequest, ToolSpec
from treadle.providers.http.endpoint import with_version
from treadle.providers.http.listings import Listing, Page, number, objects
from treadle.providers.payload import (
    EncodedMessages,
    ToolSets,
    cited_in,
    data_url,
    flag_option,
    in_words,
    object_schema,
    opening,
    sendable_arguments,
    server_tools,
    to_json,
    user_content,
    wire_id,
    wire_name,
    with_schema,
)

__all__ = ["LISTING", "PROVIDER", "CohereRequests"]


# --- Cohere, outward: the messages of a history. Knows no request.

PROVIDER = "cohere"
"""Marks the items that only this dialect understands."""

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_PLAIN_ID = re.compile(r"[!-~]{1,256}")
"""The vendor's own ids begin with the name of the tool, so they may be long."""
_PLAN = "PLAN"
"""The type of a citation in what is said before calls."""
_NOTHING = "(no output)"
_SILENCE = "(empty message)"


class _CohereMessages:
    """Writes the messages for one model."""

    def __init__(self, *, origin: str, sends_thinking: bool) -> None:
        self._origin = origin
        self._sends_thinking = sends_thinking

    def encode(self, message: Message) -> bytes:
        """Return the wire's messages of one message, joined by commas; nothing for an assistant that said nothing."""
        match message.role:
            case "assistant":
                wire = self._assistant(message)
                return to_json(wire) if len(wire) > 1 else b""
            case "tool":
                return b",".join(map(to_json, _results(message.results)))
            case "user":
                content = user_content(message, text=_text, media=_media)
                is_blank = isinstance(content, str) and not content.strip()  # which is refused
                return to_json({"role": "user", "content": _SILENCE if is_blank else content})

    def _assistant(self, message: Message) -> _Wire:
        is_own = message.origin == self._origin
        said = list(self._said(message, is_own=is_own))
        wire: _Wire = {"role": "assistant"}
        if calls := [_call(call) for call in message.calls]:
            # The vendor takes no text along with calls: what was said there is the plan.
            if (plan := message.text).strip():
                wire["tool_plan"] = plan
            said = [(part, block) for part, block in said if not isinstance(part, Text)]
            wire["tool_calls"] = calls
        if said:
            wire["content"] = [block for _, block in said]
        if is_own and (cited := list(_citations(message, [part for part, _ in said]))):
            wire["citations"] = cited
        return wire

    def _said(self, message: Message, *, is_own: bool) -> Iterator[tuple[Part, _Wire]]:
        """Yield each part that is content, and its block."""
        for part in message.parts:
            match part:
                case Text() if part.text.strip():
                    yield part, _text(part.text)
                case Thinking() if is_own and self._sends_thinking and part.text:
                    yield part, {"type": "thinking", "thinking": part.text}
                case Opaque() if is_own and part.provider == PROVIDER:
                    yield part, part.payload
                case _:
                    pass


def _citations(message: Message, sent: list[Part]) -> Iterator[_Wire]:
    """Yield what is cited in what goes back. The place of a block that a citation names is the one in this request."""
    for part in message.parts:
        if not isinstance(part, Text | Thinking):
            continue
        place = next((place for place, one in enumerate(sent) if one is part), None)
        for cited in cited_in(part.signature):
            if place is not None or cited.get("type") == _PLAN:
                yield {**cited, "content_index": place} if "content_index" in cited and place is not None else cited


def _call(call: ToolCall) -> _Wire:
    function = {"name": wire_name(call.name), "arguments": sendable_arguments(call.arguments)}
    return {"id": _id(call.id), "type": "function", "function": function}


def _results(results: tuple[Result, ...]) -> Iterator[_Wire]:
    for result in results:
        yield {
            "role": "tool",
            "tool_call_id": _id(result.call_id),
            "content": result.content if result.content.strip() else _NOTHING,
        }
    # Tool messages carry text and documents only; and they must follow their calls without another message between them.
    if shown := [result for result in results if result.media]:
        yield {"role": "user", "content": [part for result in shown for part in _attachments(result)]}


def _attachments(result: Result) -> Iterator[_Wire]:
    yield _text(f"Attached to the result of {result.name} ({_id(result.call_id)}):")
    yield from map(_media, result.media)


def _text(text: str) -> _Wire:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Wire:
    """Return a picture. The dialect carries no other media: the model is told of them at least."""
    if media.media_type.startswith("image/") and (url := data_url(media) or media.url):
        return {"type": "image_url", "image_url": {"url": url}}
    return _text(in_words(media))


def _id(call_id: str) -> str:
    return wire_id(call_id, plain=_PLAIN_ID)


# --- Cohere, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session.

_OURS = frozenset({"messages", "model", "stream", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""
_OWN_WORDS = ("server_tools", "strict_tools")
_MAX_STRICT_FIELDS = 200
"""Fields of all tools together that the vendor holds a model to."""


class CohereRequests:
    """Writes request bodies for one model. `Requests` says what it is made with."""

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any], stream: bool) -> None:
        further = {name: value for name, value in options.items() if name not in _OWN_WORDS}
        self._opening = opening({"model": model, "stream": stream}, further, ours=_OURS)
        self._has_form = options.get("response_format") is not None
        self._has_documents = bool(options.get("documents"))
        self._is_strict = flag_option("strict_tools", options.get("strict_tools"), of="a Cohere model")
        self._server_tools = server_tools(
            options.get("server_tools"),
            example="{'type': 'web_search'}",
            is_function=lambda tool: tool.get("type") == "function",
        )
        messages = _CohereMessages(origin=origin, sends_thinking=not _is_off(options.get("thinking")))
        self._messages = EncodedMessages(messages.encode)
        self.tools: Final = ToolSets(partial(map, _tool), server_tools=self._server_tools)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least comes first, and the messages last: the bytes of one step begin those of the next."""
        head = [self._opening]
        if request.output_schema is not None and not self._tells_schema(request):
            form = {"type": "json_object", "json_schema": request.output_schema}
            head.append(b',"response_format":' + to_json(form))
        if tools := self.tools.listed(_offered(request)):
            head += [b',"tools":[', tools, b"]"]
            if self._is_strict and _can_be_strict(request.tools):
                head.append(b',"strict_tools":true')
            if request.tools and request.tool_choice != "auto":
                head.append(b',"tool_choice":"NONE"' if request.tool_choice == "none" else b',"tool_choice":"REQUIRED"')
        head.append(b',"messages":[')
        if (instructions := self._instructions_of(request)).strip():
            head.append(to_json({"role": "system", "content": instructions}))
        return self._messages.body(b"".join(head), request.messages, session_id=request.session_id)

    def _tells_schema(self, request: ModelRequest) -> bool:
        """Return whether the schema goes into the instructions: the vendor takes no form of answer along with tools or documents."""
        return bool(request.tools or self._server_tools or self._has_documents or self._has_form)

    def _instructions_of(self, request: ModelRequest) -> str:
        told = request.output_schema if self._tells_schema(request) else None
        return with_schema(request.instructions or "", told)


def _offered(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that the model is shown: one that is demanded by its name alone, since the dialect demands any."""
    if request.tool_choice in ("auto", "none", "required"):
        return request.tools
    return tuple(spec for spec in request.tools if spec.name == request.tool_choice)


def _tool(spec: ToolSpec) -> _Wire:
    schema = object_schema(spec.parameters)
    function = {
        "name": wire_name(spec.name),
        "description": spec.description,
        "parameters": {"properties": {}, **schema},
    }
    return {"type": "function", "function": function}


def _can_be_strict(tools: tuple[ToolSpec, ...]) -> bool:
    """Whether the vendor can hold the model to these tools: each has a parameter that is required, and there are not too many."""
    schemas = [object_schema(spec.parameters) for spec in tools]
    fields = sum(map(_fields, schemas))
    return fields <= _MAX_STRICT_FIELDS and all(schema.get("required") for schema in schemas)


def _fields(schema: Any) -> int:
    """Return how many properties a schema has, those of the objects in it included."""
    if isinstance(schema, list):
        return sum(map(_fields, schema))
    if not isinstance(schema, dict):
        return 0
    properties = schema.get("properties")
    return (len(properties) if isinstance(properties, dict) else 0) + sum(map(_fields, schema.values()))


def _is_off(thinking: Any) -> bool:
    """Whether the person has switched thinking off."""
    return isinstance(thinking, Mapping) and thinking.get("type") == "disabled"


# --- Cohere's list of models, in pages: those that chat. The vendor has it in version 1 of its API only.


def _read(value: Any) -> Page | None:
    listed = objects(value.get("models")) if isinstance(value, dict) else None
    if listed is None:
        return None
    rest = value.get("next_page_token")
    return Page(
        {
            one["name"]: ModelFacts(window=number(one.get("context_length")))
            for one in listed
            if isinstance(one.get("name"), str)
        },
        {"page_token": rest} if isinstance(rest, str) and rest else None,
    )


def _address(base_url: str) -> str:
    return re.sub(r"/v2(?=/?(\?|$))", "/v1", with_version(base_url, "/v2"))


LISTING = Listing(read=_read, address=_address, query={"endpoint": "chat", "page_size": "1000"})
