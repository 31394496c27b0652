"""Bedrock Converse: what the dialect takes, and how it says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Fault,
    Piece,
    PieceKind,
    Refusal,
    arguments_text,
    arguments_value,
    aws_error,
    aws_exception,
    called,
    event_frame,
    exception_frame,
    finish_name,
    json_bytes,
    read,
    used_tokens,
    whole,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = [
    "Converse",
    "check_converse_history",
    "check_converse_request",
    "converse_dialects",
    "converse_events",
]


# --- What the vendor takes, declared.

_Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_.:-]{1,64}\Z")]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]
_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Unset: TypeAlias = msgspec.UnsetType

_MAX_CACHE_POINTS = 4
_DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}")


class _Object(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """An object of the vendor's: it takes no further field."""


class _Union(_Object):
    """An object with exactly one of its fields."""

    def __post_init__(self) -> None:
        count = sum(getattr(self, name) is not UNSET for name in self.__struct_fields__)
        if count != 1:
            raise ValueError(f"exactly one member of the union must be set, found {count}")
        if isinstance(text := getattr(self, "text", UNSET), str) and not text.strip():
            raise ValueError("The text field is blank. Add text to the text field, and try again.")


class _Point(_Object):
    type: Literal["default"]
    ttl: Literal["5m", "1h"] = "5m"


class _Source(_Union):
    bytes: str | _Unset = UNSET
    s3_location: Any = msgspec.field(name="s3Location", default=UNSET)
    text: Any = UNSET
    content: Any = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bytes is not UNSET:
            _check_bytes(self.bytes)


class _Image(_Object):
    format: Literal["png", "jpeg", "gif", "webp"]
    source: _Source


class _Video(_Object):
    format: Literal["mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"]
    source: _Source


class _Document(_Object):
    format: Literal["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"]
    name: str
    source: _Source
    context: Any = None
    citations: Any = None

    def __post_init__(self) -> None:
        if not _DOCUMENT_NAME.fullmatch(self.name):
            raise ValueError(
                "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses, "
                "and square brackets. The name can't contain more than one consecutive whitespace character."
            )


class _ReasoningText(_Object):
    text: str
    signature: str = ""

    def __post_init__(self) -> None:
        if not self.signature:
            raise ValueError("signature: Invalid `signature` in `thinking` block")


class _Reasoning(_Union):
    reasoning_text: _ReasoningText | _Unset = UNSET
    redacted_content: str | _Unset = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.redacted_content is not UNSET:
            _check_bytes(self.redacted_content)


class _ToolUse(_Object):
    tool_use_id: _Id
    name: _Name
    input: JsonObject
    type: Any = None


class _Media(_Union):
    text: str | _Unset = UNSET
    image: _Image | _Unset = UNSET
    document: _Document | _Unset = UNSET
    video: _Video | _Unset = UNSET
    search_result: Any = UNSET


class _Shown(_Media):
    json: Any = UNSET


class _ToolResult(_Object):
    tool_use_id: _Id
    content: list[_Shown]
    status: Literal["success", "error"] = "success"
    type: Any = None


class _UserBlock(_Media):
    audio: Any = UNSET
    tool_result: _ToolResult | _Unset = UNSET
    guard_content: Any = UNSET
    cache_point: _Point | _Unset = UNSET


class _AssistantBlock(_Union):
    text: str | _Unset = UNSET
    image: _Image | _Unset = UNSET
    tool_use: _ToolUse | _Unset = UNSET
    tool_result: JsonObject | _Unset = UNSET  # what the vendor ran itself
    reasoning_content: _Reasoning | _Unset = UNSET
    citations_content: Any = UNSET
    cache_point: _Point | _Unset = UNSET


class _User(_Object, tag_field="role", tag="user"):
    content: Annotated[list[_UserBlock], msgspec.Meta(min_length=1)]


class _Assistant(_Object, tag_field="role", tag="assistant"):
    content: Annotated[list[_AssistantBlock], msgspec.Meta(min_length=1)]


class _History(_Object):
    messages: Annotated[list[_User | _Assistant], msgspec.Meta(min_length=1)]


class _Inference(_Object):
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | _Unset = UNSET
    temperature: _Share | _Unset = UNSET
    top_p: _Share | _Unset = UNSET
    stop_sequences: Annotated[list[_Words], msgspec.Meta(max_length=2_500)] | _Unset = UNSET


class _SystemBlock(_Union):
    text: str | _Unset = UNSET
    guard_content: Any = UNSET
    cache_point: _Point | _Unset = UNSET


class _InputSchema(_Object):
    json: JsonObject

    def __post_init__(self) -> None:
        if self.json.get("type") != "object":
            raise ValueError("json.type must be one of the following: object.")
        if any(word in self.json for word in ("oneOf", "allOf", "anyOf")):
            raise ValueError("json: input_schema does not support oneOf, allOf, or anyOf at the top level")


class _ToolSpec(_Object):
    name: _Name
    input_schema: _InputSchema
    description: _Words | _Unset = UNSET
    strict: bool = False


class _Tool(_Union):
    tool_spec: _ToolSpec | _Unset = UNSET
    system_tool: Any = UNSET
    cache_point: _Point | _Unset = UNSET


class _Nothing(_Object):
    pass


class _Named(_Object):
    name: str


class _Choice(_Union):
    auto: _Nothing | _Unset = UNSET
    any: _Nothing | _Unset = UNSET
    tool: _Named | _Unset = UNSET


class _ToolConfig(_Object):
    tools: Annotated[list[_Tool], msgspec.Meta(min_length=1)]
    tool_choice: _Choice | _Unset = UNSET


class _JsonSchema(msgspec.Struct):
    schema: str

    def __post_init__(self) -> None:
        try:
            json.loads(self.schema)
        except ValueError:
            raise ValueError("schema is not valid JSON.") from None


class _Structure(_Object):
    json_schema: _JsonSchema


class _TextFormat(_Object):
    type: Literal["json_schema"]
    structure: _Structure


class _Output(_Object):
    text_format: _TextFormat | None = None
    effort: Any = None


class _Request(_History):
    system: list[_SystemBlock] = []
    inference_config: _Inference | _Unset = UNSET
    tool_config: _ToolConfig | _Unset = UNSET
    output_config: _Output | _Unset = UNSET
    additional_model_request_fields: Any = None
    guardrail_config: JsonObject | _Unset = UNSET
    prompt_variables: JsonObject | _Unset = UNSET
    additional_model_response_field_paths: list[Any] | _Unset = UNSET
    request_metadata: JsonObject | _Unset = UNSET
    performance_config: JsonObject | _Unset = UNSET
    service_tier: JsonObject | _Unset = UNSET


def _check_bytes(value: str) -> None:
    try:
        held = b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        held = b""
    if not held:
        raise ValueError("expected base64 that is not empty")


_LIMITS = {
    ">=": "Member must have value greater than or equal to",
    "<=": "Member must have value less than or equal to",
    "length >=": "Member must have length greater than or equal to",
    "length <=": "Member must have length less than or equal to",
}


def _refusal(fault: Fault) -> Refusal:
    """Say a fault in the vendor's words, of which it has two forms."""
    place = ".".join(map(str, fault.path))
    above = "/".join(map(str, fault.path[:-1]))
    match fault.kind:
        case "missing":
            return _malformed(f"#/{above}: required key [{fault.path[-1]}] not found")
        case "unknown":
            return _malformed(f"#/{above}: extraneous key [{fault.path[-1]}] is not permitted")
        case "type":
            return _malformed(f"#/{place.replace('.', '/')}: expected type: {fault.expected[0]}")
        case "limit":
            constraint = f"{_LIMITS[fault.limit]} {fault.bound.removesuffix('.0')}"
        case "pattern":
            constraint = f"Member must satisfy regular expression pattern: {fault.bound}"
        case "value":
            constraint = "Member must satisfy enum value set"
        case _:
            return Refusal(f"{place}: {fault.words}")
    return Refusal(f"Value {fault.shown} at '{place}' failed to satisfy constraint: {constraint}")


def _malformed(message: str) -> Refusal:
    return Refusal(f"Malformed input request: {message}, please reformat your input and try again.")


# --- The rules that no field can declare.


def check_converse_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request that the vendor takes.

    Raises:
        Refusal: The vendor refuses it.
    """
    request = read(body, _Request, _refusal)
    tools = request.tool_config.tools if request.tool_config is not UNSET else []
    choice = request.tool_config.tool_choice if request.tool_config is not UNSET else UNSET
    names = [tool.tool_spec.name for tool in tools if tool.tool_spec is not UNSET]
    if len(set(names)) < len(names):
        raise Refusal("The toolConfig.tools contains duplicate tool names: every name must be unique.")
    if choice is not UNSET and choice.tool is not UNSET and choice.tool.name not in names:
        raise Refusal(f"The toolChoice names the tool {choice.tool.name!r}, which is not in toolConfig.tools.")
    if choice is not UNSET and choice.auto is UNSET and _thinks(request.additional_model_request_fields):
        raise Refusal(
            "The model returned the following errors: Thinking may not be enabled when tool_choice forces tool use."
        )
    _check_first(request.system, "system")
    contents: list[Sequence[Any]] = [tools, request.system, *(message.content for message in request.messages)]
    points = sum(block.cache_point is not UNSET for blocks in contents for block in blocks)
    if points > _MAX_CACHE_POINTS:
        raise Refusal(f"A maximum of {_MAX_CACHE_POINTS} cache points may be provided. Found {points}.")
    _check_messages(request.messages, has_tools=request.tool_config is not UNSET)
    return cast("JsonObject", body)


def _check_first(blocks: Sequence[Any], where: str) -> None:
    if blocks and blocks[0].cache_point is not UNSET:
        raise Refusal(f"{where}.0.cachePoint: a cache point must stand behind what is to be cached.")


def _thinks(fields: Any) -> bool:
    thinking = (fields.get("thinking") or fields.get("reasoning_config")) if isinstance(fields, dict) else None
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


@checked
def check_converse_history(messages: Any, *, has_tools: bool = True) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_converse_history([{"role": "user", "content": [{"text": "go"}]}])
        >>> check_converse_history([{"role": "assistant", "content": [{"text": "go"}]}])
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: A conversation must start with a user message. Try again with a conversation that starts with a user message.

    Args:
        messages: The value of `messages`.
        has_tools: Whether the request declares tools.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    _check_messages(read({"messages": messages}, _History, _refusal).messages, has_tools=has_tools)


def _check_messages(messages: list[_User | _Assistant], *, has_tools: bool) -> None:
    """Check who speaks when, and that each call has its result in the message after it."""
    if not isinstance(messages[0], _User):
        raise Refusal(
            "A conversation must start with a user message. Try again with a conversation that starts with a user message."
        )
    asked: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if index and type(message) is type(messages[index - 1]):
            raise Refusal(
                f"A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again. (messages.{index})"
            )
        _check_first(message.content, f"messages.{index}.content")
        if isinstance(message, _User):
            _check_user(message, asked, index)
            asked = []
        else:
            asked = _calls(message, seen)
    _check_documents(messages)
    if asked:
        raise Refusal(
            f"Expected toolResult blocks at messages.{len(messages)}.content for the following Ids: {', '.join(asked)}"
        )
    blocks = [block for message in messages if isinstance(message, _User) for block in message.content]
    if not has_tools and (seen or any(block.tool_result is not UNSET for block in blocks)):
        raise Refusal("The toolConfig field must be defined when using toolUse and toolResult content blocks.")


def _calls(message: _Assistant, seen: set[str]) -> list[str]:
    """Return the ids of the calls that wait for a result: the vendor answers what it ran itself in the same message."""
    asked = [block.tool_use.tool_use_id for block in message.content if block.tool_use is not UNSET]
    for call_id in asked:
        if call_id in seen:
            raise Refusal(f"messages: `tool_use` ids must be unique; found {call_id} twice")
        seen.add(call_id)
    own = {block.tool_result.get("toolUseId") for block in message.content if block.tool_result is not UNSET}
    return [call_id for call_id in asked if call_id not in own]


def _check_user(message: _User, asked: list[str], index: int) -> None:
    given = [block.tool_result.tool_use_id for block in message.content if block.tool_result is not UNSET]
    if len(given) > len(asked):
        raise Refusal(
            f"The number of toolResult blocks at messages.{index}.content exceeds the number of toolUse blocks of previous turn."
        )
    if missing := [call_id for call_id in asked if call_id not in given]:
        raise Refusal(
            f"Expected toolResult blocks at messages.{index}.content for the following Ids: {', '.join(missing)}"
        )


def _check_documents(messages: list[_User | _Assistant]) -> None:
    names: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, _User):
            continue
        spoken = [block.document.name for block in message.content if block.document is not UNSET]
        results = [block.tool_result.content for block in message.content if block.tool_result is not UNSET]
        names += spoken
        names += [block.document.name for shown in results for block in shown if block.document is not UNSET]
        if spoken and all(block.text is UNSET for block in message.content):
            raise Refusal(
                f"The message at messages.{index} holds a document and no text. Add a text block, and try again."
            )
    if len(set(names)) < len(names):
        raise Refusal("Messages contain duplicate document file names. Rename the documents and try again.")


# --- Bedrock Converse: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket.

_FINISHES = {
    Finish.STOP: "end_turn",
    Finish.CALLS: "tool_use",
    Finish.LENGTH: "max_tokens",
    Finish.REFUSED: "content_filtered",
}
_SIGNATURE = "bW9jaw=="
_PATH = re.compile(r"/model/(?P<model>[^/]+)/converse(-stream)?$")
_MODEL = re.compile(r"([A-Za-z0-9._~-]|%[0-9A-F]{2}){1,2048}")
"""The id of a model as one segment of a path: what is reserved there is percent-encoded."""


class Converse:
    """The dialect of `POST /model/{model}/converse`, and of its streamed sister.

    Args:
        is_stream: Whether it is the streamed one: the path says so, not the body.
    """

    def __init__(self, *, is_stream: bool) -> None:
        self.path = "/converse-stream" if is_stream else "/converse"
        self._is_stream = is_stream

    def with_head(self, path: str, headers: Mapping[str, str]) -> "Converse":
        found = _PATH.search(path)
        if found is None or not _MODEL.fullmatch(found["model"]):
            raise Refusal("The provided model identifier is invalid.")
        return self

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        return check_converse_request(body)

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        answer: JsonObject = {
            "metrics": {"latencyMs": 1},
            "output": {"message": {"content": _content(turn, ids), "role": "assistant"}},
            "stopReason": finish_name(turn, _FINISHES),
            "usage": None if turn.usage is None else _usage(turn, body),
        }
        answer = {name: value for name, value in answer.items() if value is not None}
        if self._is_stream:
            pieces = tuple(_pieces(answer, turn))
            return Answer(pieces=pieces, content_type="application/vnd.amazon.eventstream", is_stream=True)
        if turn.error is not None:
            return Answer(pieces=(Piece(kind="whole", content=aws_error(turn.status, turn.error)),))
        return whole(_parsed(answer))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return aws_error(status, error)


def converse_dialects() -> list[Converse]:
    """Return both sisters."""
    return [Converse(is_stream=is_stream) for is_stream in (True, False)]


def converse_events(answer: JsonObject, *, pieces: int = 3) -> bytes:
    """Return the stream that says an answer which was sent whole.

    Example:
        >>> converse_events({"output": {"message": {"content": []}}, "stopReason": "end_turn"}).count(b"messageStop")
        1

    Args:
        answer: A whole answer's JSON object.
        pieces: Fragments of each text and of each call's arguments.
    """
    return b"".join(piece.content for piece in _pieces(answer, Turn(pieces=pieces)))


def _content(turn: Turn, ids: Iterator[str]) -> list[JsonObject]:
    """Return the blocks of a turn; the input of a call is its raw text."""
    content: list[JsonObject] = []
    if turn.thinking is not None:
        content.append({"reasoningContent": {"reasoningText": {"text": turn.thinking, "signature": _SIGNATURE}}})
    content += ({"text": text} for text in (turn.text, turn.refusal) if text)
    for made, named in called(turn, ids, "toolUseId"):
        content.append({"toolUse": {"input": made.arguments, "name": made.name, **named}})
    return content


def _parsed(answer: JsonObject) -> JsonObject:
    """Return an answer with objects as input. One that is not valid JSON, which the vendor never sends whole, stays text."""
    message = answer["output"]["message"]
    content = [
        {"toolUse": {**block["toolUse"], "input": arguments_value(block["toolUse"]["input"])}}
        if "toolUse" in block
        else block
        for block in message["content"]
    ]
    return {**answer, "output": {"message": {**message, "content": content}}}


def _pieces(answer: JsonObject, turn: Turn) -> Iterator[Piece]:
    """Yield the events of an answer, in order."""

    def piece(kind: PieceKind, event: str, payload: JsonObject, *, call: int | None = None) -> Piece:
        content = event_frame(event, json_bytes(payload))
        return Piece(kind=kind, content=content, call=call, is_last=call is not None and event == "contentBlockStop")

    yield piece("start", "messageStart", {"role": "assistant", "p": "abcd"})
    call = -1
    for index, block in enumerate(answer["output"]["message"]["content"]):
        call += "toolUse" in block
        kind = _piece_kind(block)
        for event, payload in _block_events(block, turn.pieces):
            position = call if kind == "call" else None
            yield piece(kind, event, {"contentBlockIndex": index, **payload, "p": "ab"}, call=position)
    if turn.error is not None:
        yield Piece(kind="error", content=exception_frame(*aws_exception(turn.status, turn.error)))
        return
    if "stopReason" in answer:
        yield piece("finish", "messageStop", {"stopReason": answer["stopReason"], "p": "abc"})
    if "usage" in answer:
        yield piece("done", "metadata", {"metrics": {"latencyMs": 1}, "usage": answer["usage"], "p": "a"})


def _piece_kind(block: JsonObject) -> PieceKind:
    if "toolUse" in block:
        return "call"
    return "thinking" if "reasoningContent" in block else "text"


def _block_events(block: JsonObject, pieces: int) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of a block. Only a call has a start."""
    deltas: list[JsonObject] = []
    match block:
        case {"toolUse": call}:
            yield "contentBlockStart", {"start": {"toolUse": {key: call[key] for key in call if key != "input"}}}
            deltas += ({"toolUse": {"input": part}} for part in ["", *fragments(arguments_text(call["input"]), pieces)])
        case {"reasoningContent": {"reasoningText": thought}}:
            deltas += ({"reasoningContent": {"text": part}} for part in fragments(thought["text"], pieces))
            if "signature" in thought:
                deltas.append({"reasoningContent": {"signature": thought["signature"]}})
        case {"reasoningContent": sealed}:
            deltas.append({"reasoningContent": sealed})
        case {"citationsContent": cited}:
            deltas += ({"text": part} for one in cited["content"] for part in fragments(one["text"], pieces))
            deltas += ({"citation": one} for one in cited["citations"])
        case {"text": text}:
            deltas += ({"text": part} for part in ["", *fragments(text, pieces)])
    yield from (("contentBlockDelta", {"delta": delta}) for delta in deltas)
    yield "contentBlockStop", {}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["messages"])
    return {
        "cacheReadInputTokens": used.cached_input_tokens,
        "cacheWriteInputTokens": used.cache_written_tokens,
        "inputTokens": used.input_tokens - used.cached_input_tokens - used.cache_written_tokens,
        "outputTokens": used.output_tokens,
        "totalTokens": used.input_tokens + used.output_tokens,
    }
