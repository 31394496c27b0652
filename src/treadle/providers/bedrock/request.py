"""Bedrock Converse, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Result, Text, Thinking, ToolCall
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers.payload import (
    EncodedMessages,
    ToolSets,
    cited_in,
    flag_option,
    grouped,
    is_foreign,
    object_option,
    object_schema,
    opening,
    sendable_arguments,
    server_tools,
    strict_schema,
    to_json,
    turns_json,
    wire_id,
    wire_name,
)
from treadle.redaction import redacted_logger
from treadle.tools import JsonObject
from treadle.validation.schema import resolved

__all__ = ["PROVIDER", "BedrockRequests", "Family", "blocks_of", "input_schema", "is_provable"]


# --- Schemas of tools as Converse takes them. Knows no request.

_MAX_DEPTH = 16
_AT_ROOT = ("type", "properties", "required")


def input_schema(schema: Mapping[str, Any], *, is_plain: bool) -> JsonObject:
    """Return a tool's schema with an object at its root.

    Args:
        is_plain: Whether the root may hold nothing but type, properties and required. Definitions then stand where they are used; one
            that refers to itself ends as a free value.
    """
    root = object_schema(schema)
    if not is_plain:
        return root
    root = {"properties": {}, **root}
    written: JsonObject = _inlined({key: root[key] for key in _AT_ROOT if key in root}, root, 0)
    return written


def _inlined(value: Any, root: JsonObject, depth: int) -> Any:
    match value:
        case {"$ref": str()} if depth < _MAX_DEPTH:
            return _inlined(resolved(value, root), root, depth + 1)
        case {"$ref": str()}:
            return {key: item for key, item in value.items() if key != "$ref"}
        case dict():
            return {key: _inlined(item, root, depth + 1) for key, item in value.items()}
        case list():
            return [_inlined(item, root, depth + 1) for item in value]
        case _:
            return value


# --- Families: what the vendor takes for one family of models and refuses for another. Knows no request.


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What is special about the models of one maker."""

    caches: bool = False
    """Whether cache points are taken in instructions and messages."""
    caches_tools: bool = False
    """Whether they are taken among the tools."""
    takes_status: bool = False
    """Whether a result may say that it is an error."""
    plain_schemas: bool = False
    """Whether a tool's schema may hold nothing but type, properties and required at its root."""
    thinks_first: bool = False
    """Whether a turn that continues must hold the model's signed thinking, where thinking is on."""


_CLAUDE = Family(takes_status=True, thinks_first=True)
_NOVA = Family(takes_status=True, plain_schemas=True)
_FAMILIES = (
    # "Supported models" of docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html; the others answer 400 to a cache point.
    (
        re.compile(r"anthropic\.claude-(3-7|3-5-haiku|(opus|sonnet|haiku)-[4-9])"),
        msgspec.structs.replace(_CLAUDE, caches=True, caches_tools=True),
    ),
    (re.compile(r"anthropic\.claude"), _CLAUDE),
    (re.compile(r"amazon\.nova-(micro|lite|pro|premier)-"), msgspec.structs.replace(_NOVA, caches=True)),
    (re.compile(r"amazon\.nova"), _NOVA),
)


def _family_of(model: str) -> Family:
    """Return what a model takes. The id of a profile of one's own does not tell the model: it takes what all of them take."""
    return next((family for pattern, family in _FAMILIES if pattern.search(model)), Family())


# --- Bedrock Converse, outward: the content blocks of one message. Knows no request, and nothing of the other messages.

PROVIDER = "bedrock"
"""Marks the items that only this dialect understands."""

_Block: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_IMAGES = {"image/gif": "gif", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/png": "png", "image/webp": "webp"}
_VIDEOS = {
    "video/mp4": "mp4",
    "video/mpeg": "mpeg",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/x-matroska": "mkv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_DOCUMENTS = {
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
_STRANGE = re.compile(r"[^a-zA-Z0-9()\[\]-]+")
"""What no document's name may hold; single blanks may stand between the words."""


def blocks_of(message: Message, *, origin: str, family: Family) -> list[_Block]:
    """Return the blocks of a message: results in call order for a step, none for an assistant that said nothing.

    Args:
        origin: Signatures, thinking and the provider's own items go back to the model that made them and to no other.
        family: What the model takes.
    """
    match message.role:
        case "assistant":
            return list(_assistant(message, is_own=message.origin == origin))
        case "tool":
            return [_result(result, family) for result in message.results]
        case "user":
            return _user(message)


def is_provable(part: Thinking) -> bool:
    """Whether the vendor takes a thought back: a signed one, or one that it sealed. Models that sign none refuse theirs."""
    return bool(part.signature) or isinstance(part.payload, dict)


def _assistant(message: Message, *, is_own: bool) -> Iterator[_Block]:
    for part in message.parts:
        match part:
            case Text() if part.text.strip():  # a text of blanks is refused
                yield _said(part, is_own=is_own)
            case Thinking() if is_own and is_provable(part):
                yield _thinking(part)
            case ToolCall():
                arguments = msgspec.json.decode(sendable_arguments(part.arguments))
                yield {"toolUse": {"toolUseId": _id(part.id), "name": wire_name(part.name), "input": arguments}}
            case Opaque() if is_own and part.provider == PROVIDER:
                yield part.payload
            case _:
                pass


def _said(part: Text, *, is_own: bool) -> _Block:
    """Return a text, with what it cites where this model wrote it."""
    if cited := cited_in(part.signature) if is_own else []:
        return {"citationsContent": {"content": [{"text": part.text}], "citations": cited}}
    return {"text": part.text}


def _thinking(part: Thinking) -> _Block:
    if part.payload is not None:
        payload: _Block = part.payload
        return payload
    return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}


def _result(result: Result, family: Family) -> _Block:
    content = [_told(result.content)] if result.content.strip() else []
    # An error may hold text only.
    show = _mention if result.is_error else _media
    content += [show(media, salt=f"{result.call_id}/{place}") for place, media in enumerate(result.media)]
    block: _Block = {"toolUseId": _id(result.call_id), "content": content or [{"text": "(no output)"}]}
    if result.is_error and family.takes_status:
        block["status"] = "error"
    return {"toolResult": block}


def _told(content: str) -> _Block:
    """Return what a tool said: an object as JSON, in the tool's own bytes, and anything else as text."""
    if content.lstrip().startswith("{"):
        try:
            encoded = content.encode()
            if isinstance(msgspec.json.decode(encoded), dict):
                return {"json": msgspec.Raw(encoded)}
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    return {"text": content}


def _user(message: Message) -> list[_Block]:
    blocks: list[_Block] = []
    for place, part in enumerate(message.parts):
        match part:
            case Text() if part.text.strip():
                blocks.append({"text": part.text})
            case Media():
                blocks.append(_media(part, salt=f"{message.text}/{place}"))
            case _:
                pass
    if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
        blocks.append({"text": "(The document is attached.)"})  # a document may not stand alone
    # A user's turn may not be empty, and dropping it would change who speaks.
    return blocks or [{"text": "(empty message)"}]


def _media(media: Media, *, salt: str) -> _Block:
    kind = media.media_type.partition(";")[0].strip().lower()
    source = _source(media)
    if source is None:
        return _mention(media, salt=salt)
    if kind in _IMAGES:
        return {"image": {"format": _IMAGES[kind], "source": source}}
    if kind in _VIDEOS:
        return {"video": {"format": _VIDEOS[kind], "source": source}}
    if kind in _DOCUMENTS:
        return {"document": {"format": _DOCUMENTS[kind], "name": _name(media, salt), "source": source}}
    return _mention(media, salt=salt)


def _mention(media: Media, *, salt: str) -> _Block:
    """Tell the model of what it cannot be shown."""
    return {"text": f"[{media.media_type}: {media.url or media.name or 'not shown'}]"}


def _source(media: Media) -> _Block | None:
    """Return where a file is; None for an address outside of the vendor's own store, which it does not fetch."""
    if media.base64:
        return {"bytes": media.base64}
    if media.url is not None and media.url.startswith("s3://"):
        return {"s3Location": {"uri": media.url}}
    return None


def _name(media: Media, salt: str) -> str:
    """Return a document's name in the letters that the vendor takes; no two documents of a request may share one."""
    said = _STRANGE.sub(" ", (media.name or "document").rpartition(".")[0] or media.name or "document").strip()
    digest = hashlib.sha256(f"{salt}/{media.name}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{said[:100] or 'document'} {digest[:12]}"


def _id(call_id: str) -> str:
    return wire_id(call_id, plain=_PLAIN_ID)


# --- Bedrock Converse, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session.

logger = redacted_logger(__name__)

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "modelId", "model", "stream", "system", "toolConfig", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""
_INFERENCE = frozenset({"maxTokens", "stopSequences", "temperature", "topP"})
"""Options that the vendor wants inside `inferenceConfig`."""
_THINKING = ("thinking", "reasoning_config")
"""What Claude's thinking is called among the model's own fields."""

_EARLIER = b'{"text":"(earlier messages are left out)"}'
"""What comes before a window on a longer history that begins with the model: the vendor wants the person to speak first."""
_IN_WORDS = "Answer in words now. Do not call any tool."
"""The dialect has no tool choice `none`, and wants the tools of a history declared."""


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The person's options, those of them sorted out that are more than fields of the body."""

    fields: Mapping[str, Any]
    model_fields: Mapping[str, Any]
    """The model's own fields, in addition to those of the dialect."""
    output_config: Mapping[str, Any]
    server_tools: bytes
    """The vendor's own tools, written without the brackets."""
    cache_point: bytes
    """A cache point, written; nothing for no caching."""
    caches_tools: bool
    is_strict: bool

    @property
    def thinks_by_hand(self) -> bool:
        """Whether Claude thinks with a budget: then it is forced to no tool, and wants each turn to begin with thinking."""
        said = (self.model_fields.get(name) for name in _THINKING)
        return any(isinstance(one, Mapping) and one.get("type") == "enabled" for one in said)


class BedrockRequests:
    """Writes request bodies for one model. `Requests` says what it is made with."""

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any]) -> None:
        self._origin = origin
        self._family = _family_of(model)
        self._options = _sorted_out(options, self._family)
        self._openings = {thinks: self._open(thinks=thinks) for thinks in (False, True)}
        self._messages = EncodedMessages(self._encode)
        self.tools: Final = ToolSets(partial(map, self._tool), server_tools=self._options.server_tools)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least comes first, and the messages last: the bytes of one step begin those of the next."""
        thinks_by_hand = self._options.thinks_by_hand and not is_foreign(
            request.messages, origin=self._origin, is_provable=is_provable
        )
        thinks = thinks_by_hand or not self._options.thinks_by_hand
        head = [self._openings[thinks]]
        if output := self._output(request):
            head += [b',"outputConfig":', to_json(output)]
        instructions = self._instructions(request)
        if tools := self._all_tools(request, is_last=not instructions):
            choice = self._choice(request, thinks_by_hand=thinks_by_hand)
            head += [b',"toolConfig":{"tools":[', tools, b"]"]
            head += [b',"toolChoice":', to_json(choice), b"}"] if choice else [b"}"]
        if instructions:
            head += [b',"system":[', b",".join(instructions), b"]"]
        written = b"".join((*head, b',"messages":[', b",".join(self._turns(request.messages)), b"]}"))
        return b"{" + written[2:] if written.startswith(b"{,") else written

    def _open(self, *, thinks: bool) -> bytes:
        own = self._options.model_fields
        kept = own if thinks else {name: value for name, value in own.items() if name not in _THINKING}
        return opening({}, {**self._options.fields, "additionalModelRequestFields": kept or None}, ours=_OURS)

    def _encode(self, message: Message) -> bytes:
        return to_json(blocks_of(message, origin=self._origin, family=self._family))[1:-1]

    def _turns(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the wire's messages, with the marks of the vendor's cache."""
        turns = grouped(messages, self._messages, earlier=_EARLIER)
        if self._options.cache_point:
            # The end of the request before is marked too: that is what the vendor has cached.
            for role, blocks_of_turn in turns[-3:]:
                if role == b"user":
                    blocks_of_turn.append(self._options.cache_point)
        return turns_json(turns)

    def _output(self, request: ModelRequest) -> _Wire:
        config = dict(self._options.output_config)
        if request.output_schema is not None:
            schema = strict_schema(request.output_schema) or request.output_schema
            written = {"name": "answer", "schema": to_json(schema).decode()}
            config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": written}}
        return config

    def _instructions(self, request: ModelRequest) -> list[bytes]:
        """Return the blocks of the instructions, a cache point behind what stays the same."""
        blocks = []
        if request.instructions and request.instructions.strip():
            blocks.append(to_json({"text": request.instructions}))
            blocks += [self._options.cache_point] if self._options.cache_point else []
        if request.tool_choice == "none" and (request.tools or _called(request.messages)):
            blocks.append(to_json({"text": _IN_WORDS}))
        return blocks

    def _all_tools(self, request: ModelRequest, *, is_last: bool) -> bytes:
        """Return the tools without the brackets, the vendor's own last. Every request whose history holds calls must declare some."""
        tools = [self.tools.listed(request.tools)]
        if not request.tools and (called := _called(request.messages)):
            tools.append(to_json([_gone(name) for name in called])[1:-1])
        if is_last and self._options.caches_tools and any(tools):
            tools.append(self._options.cache_point)
        return b",".join(filter(None, tools))

    def _tool(self, spec: ToolSpec) -> _Wire:
        tool: _Wire = {"name": wire_name(spec.name)}
        if spec.description.strip():
            tool["description"] = spec.description
        if self._options.is_strict and (schema := strict_schema(spec.parameters)) is not None:
            return {"toolSpec": {**tool, "inputSchema": {"json": schema}, "strict": True}}
        schema = input_schema(spec.parameters, is_plain=self._family.plain_schemas)
        return {"toolSpec": {**tool, "inputSchema": {"json": schema}}}

    def _choice(self, request: ModelRequest, *, thinks_by_hand: bool) -> _Wire | None:
        choice = _tool_choice(request.tool_choice) if request.tools else None
        if choice is not None and thinks_by_hand:
            logger.warning(
                "%s: tool_choice %r is sent as auto, since the vendor forces no tool while the model thinks with a budget.",
                self._origin,
                request.tool_choice,
            )
            return None
        return choice


def _called(messages: Iterable[Message]) -> list[str]:
    """Return the names of the tools that a history calls, each once."""
    return list(dict.fromkeys(wire_name(call.name) for message in messages for call in message.calls))


def _gone(name: str) -> _Wire:
    return {
        "toolSpec": {
            "name": name,
            "description": "This tool is no longer available.",
            "inputSchema": {"json": {"type": "object", "properties": {}}},
        }
    }


def _tool_choice(choice: ToolChoice) -> _Wire | None:
    """Return the choice in the vendor's words; None for its default, which is to let the model choose."""
    match choice:
        case "auto" | "none":
            return None
        case "required":
            return {"any": {}}
        case _:
            return {"tool": {"name": wire_name(choice)}}


_OF = "a Bedrock model"


def _sorted_out(options: Mapping[str, Any], family: Family) -> _Options:
    opening({}, options, ours=_OURS)  # raises where an option is not valid JSON, or one of ours
    rest = dict(options)
    inference = {
        **object_option("inferenceConfig", rest.pop("inferenceConfig", None), of=_OF),
        **{name: rest.pop(name) for name in _INFERENCE & rest.keys()},
    }
    inference = {name: value for name, value in inference.items() if value is not None}
    usual = {"type": "default"} if family.caches else None
    cache = object_option("cachePoint", rest.pop("cachePoint", usual), of=_OF)
    own = object_option("additionalModelRequestFields", rest.pop("additionalModelRequestFields", None), of=_OF)
    return _Options(
        model_fields={name: value for name, value in own.items() if value is not None},
        output_config=object_option("outputConfig", rest.pop("outputConfig", None), of=_OF),
        server_tools=server_tools(
            rest.pop("server_tools", None),
            example="{'systemTool': {'name': 'nova_grounding'}}",
            is_function=lambda tool: "systemTool" not in tool,
        ),
        cache_point=to_json({"cachePoint": {"type": "default", **cache}}) if cache else b"",
        caches_tools=bool(cache) and (family.caches_tools or family == Family()),
        is_strict=flag_option("strict_tools", rest.pop("strict_tools", None), of=_OF),
        fields={**rest, "inferenceConfig": inference or None},
    )
