"""Bedrock Converse: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Piece,
    PieceKind,
    Refusal,
    arguments_text,
    aws_error,
    aws_exception,
    event_frame,
    exception_frame,
    finish_name,
    json_bytes,
    used_tokens,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = [
    "Converse",
    "check_converse_history",
    "check_converse_request",
    "converse_dialects",
    "converse_events",
    "malformed",
    "refuse",
]


# --- Refusing in Bedrock Converse: the two forms in which the vendor says no to a request.


def malformed(message: str) -> NoReturn:
    """Refuse a body of another form."""
    raise Refusal(f"Malformed input request: {message}, please reformat your input and try again.")


def refuse(message: str) -> NoReturn:
    """Refuse a value."""
    raise Refusal(message)


# --- Requests in Bedrock Converse: refuse a body that the vendor refuses. The messages are checked elsewhere.

_KINDS: Mapping[str, type] = {
    "messages": list,
    "system": list,
    "inferenceConfig": dict,
    "toolConfig": dict,
    "guardrailConfig": dict,
    "additionalModelRequestFields": object,
    "promptVariables": dict,
    "additionalModelResponseFieldPaths": list,
    "requestMetadata": dict,
    "performanceConfig": dict,
    "serviceTier": dict,
    "outputConfig": dict,
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FRACTIONS = ("temperature", "topP")
_MAX_CACHE_POINTS = 4
_MAX_SEQUENCES = 2_500


def check_converse_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        malformed("expected an object")
    for key, value in body.items():
        if key not in _KINDS:
            malformed(f"#: extraneous key [{key}] is not permitted")
        if not isinstance(value, _KINDS[key]):
            malformed(f"#/{key}: expected type: {_KINDS[key].__name__}")
    if "messages" not in body:
        refuse("The value at messages is missing: at least one message is required.")
    _check_inference(body.get("inferenceConfig", {}))
    points = _check_system(body.get("system", []))
    if "toolConfig" in body:
        points += _check_tools(body["toolConfig"])
        _check_forced(body)
    _check_output(body.get("outputConfig", {}))
    points += _points_of(body["messages"])
    if points > _MAX_CACHE_POINTS:
        refuse(f"A maximum of {_MAX_CACHE_POINTS} cache points may be provided. Found {points}.")
    return body


def _check_inference(config: JsonObject) -> None:
    for key in config:
        if key not in ("maxTokens", "stopSequences", *_FRACTIONS):
            malformed(f"#/inferenceConfig: extraneous key [{key}] is not permitted")
    limit = config.get("maxTokens", 1)
    if type(limit) is not int or limit < 1:
        refuse(
            "Value at 'inferenceConfig.maxTokens' failed to satisfy constraint: Member must have value greater than or equal to 1"
        )
    for key in _FRACTIONS:
        value = config.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            refuse(
                f"Value at 'inferenceConfig.{key}' failed to satisfy constraint: Member must have value less than or equal to 1"
            )
    sequences = config.get("stopSequences", [])
    if (
        not isinstance(sequences, list)
        or len(sequences) > _MAX_SEQUENCES
        or not all(isinstance(one, str) and one for one in sequences)
    ):
        refuse("Value at 'inferenceConfig.stopSequences' failed to satisfy constraint: Member must not be empty")


def _check_system(system: list[Any]) -> int:
    """Check the instructions; return how many cache points stand there."""
    points = 0
    for index, block in enumerate(system):
        kind, value = _union(block, ("text", "guardContent", "cachePoint"), f"system.{index}")
        if kind == "text" and (not isinstance(value, str) or not value.strip()):
            refuse(
                f"The text field in the SystemContentBlock object at system.{index} is blank. Add text to the text field, and try again."
            )
        if kind == "cachePoint":
            _check_point(value, f"system.{index}.cachePoint")
            points += 1
            if index == 0:
                refuse("system.0.cachePoint: a cache point must stand behind what is to be cached.")
    return points


def _check_tools(config: JsonObject) -> int:
    """Check the tools; return how many cache points stand among them."""
    for key in config:
        if key not in ("tools", "toolChoice"):
            malformed(f"#/toolConfig: extraneous key [{key}] is not permitted")
    tools = config.get("tools")
    if not isinstance(tools, list) or not tools:
        refuse(
            "Value at 'toolConfig.tools' failed to satisfy constraint: Member must have length greater than or equal to 1"
        )
    names: list[str] = []
    points = 0
    for index, tool in enumerate(tools):
        where = f"toolConfig.tools.{index}"
        kind, value = _union(tool, ("toolSpec", "systemTool", "cachePoint"), where)
        if kind == "toolSpec":
            names.append(_tool_name(value, f"{where}.toolSpec"))
        elif kind == "cachePoint":
            _check_point(value, f"{where}.cachePoint")
            points += 1
    if len(set(names)) < len(names):
        refuse("The toolConfig.tools contains duplicate tool names: every name must be unique.")
    if "toolChoice" in config:
        _check_choice(config["toolChoice"], names)
    return points


def _check_choice(choice: Any, names: list[str]) -> None:
    kind, value = _union(choice, ("auto", "any", "tool"), "toolConfig.toolChoice")
    if not isinstance(value, dict):
        malformed(f"#/toolConfig/toolChoice/{kind}: expected type: JSONObject")
    if kind == "tool" and value.get("name") not in names:
        refuse(f"The toolChoice names the tool {value.get('name')!r}, which is not in toolConfig.tools.")
    if kind != "tool" and value:
        malformed(f"#/toolConfig/toolChoice/{kind}: extraneous key [{next(iter(value))}] is not permitted")


def _tool_name(spec: Any, where: str) -> str:
    if not isinstance(spec, dict):
        malformed(f"#/{where}: expected type: JSONObject")
    for key in spec:
        if key not in ("name", "description", "inputSchema", "strict"):
            malformed(f"#/{where}: extraneous key [{key}] is not permitted")
    name = spec.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(
            f"Value {name!r} at '{where}.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
        )
    if "description" in spec and (not isinstance(spec["description"], str) or not spec["description"]):
        refuse(
            f"Value at '{where}.description' failed to satisfy constraint: Member must have length greater than or equal to 1"
        )
    if not isinstance(spec.get("strict", False), bool):
        malformed(f"#/{where}/strict: expected type: Boolean")
    held = spec.get("inputSchema")
    if not isinstance(held, dict) or list(held) != ["json"] or not isinstance(held["json"], dict):
        refuse(f"The {where}.inputSchema must hold the member json, an object.")
    if held["json"].get("type") != "object":
        refuse(f"The value at {where}.inputSchema.json.type must be one of the following: object.")
    if any(word in held["json"] for word in ("oneOf", "allOf", "anyOf")):
        refuse(f"{where}.inputSchema.json: input_schema does not support oneOf, allOf, or anyOf at the top level")
    return name


def _check_forced(body: JsonObject) -> None:
    fields = body.get("additionalModelRequestFields")
    thinking = (fields.get("thinking") or fields.get("reasoning_config")) if isinstance(fields, dict) else None
    is_on = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    if is_on and ({"any", "tool"} & body["toolConfig"].get("toolChoice", {}).keys()):
        refuse("The model returned the following errors: Thinking may not be enabled when tool_choice forces tool use.")


def _check_output(config: JsonObject) -> None:
    for key in config:
        if key not in ("textFormat", "effort"):
            malformed(f"#/outputConfig: extraneous key [{key}] is not permitted")
    match config.get("textFormat"):
        case None:
            return
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(schema)}}}:
            try:
                json.loads(schema)
            except ValueError:
                refuse("outputConfig.textFormat.structure.jsonSchema.schema is not valid JSON.")
        case _:
            refuse("outputConfig.textFormat must be of the type json_schema, with a schema as text.")


def _points_of(messages: list[Any]) -> int:
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    return sum(
        "cachePoint" in block
        for content in contents
        if isinstance(content, list)
        for block in content
        if isinstance(block, dict)
    )


def _check_point(point: Any, where: str) -> None:
    """Check one cache point."""
    if not isinstance(point, dict) or point.get("type") != "default" or point.get("ttl", "5m") not in ("5m", "1h"):
        refuse(f"Value at '{where}' failed to satisfy constraint: type must be default, and ttl 5m or 1h")


def _union(value: Any, members: tuple[str, ...], where: str) -> tuple[str, Any]:
    """Return the one member of a union that is set, and its value."""
    if not isinstance(value, dict):
        malformed(f"#/{where}: expected type: JSONObject")
    for key in value:
        if key not in members:
            malformed(f"#/{where}: extraneous key [{key}] is not permitted")
    if len(value) != 1:
        malformed(f"#/{where}: exactly one member of the union must be set, found {len(value)}")
    return next(iter(value.items()))


# --- Pairing in Bedrock Converse: refuse a history whose calls and results do not match. Repairs nothing.

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}")

_SPOKEN = {
    "user": frozenset(
        {"text", "image", "document", "video", "audio", "toolResult", "guardContent", "cachePoint", "searchResult"}
    ),
    "assistant": frozenset(
        {"text", "toolUse", "toolResult", "reasoningContent", "citationsContent", "cachePoint", "image"}
    ),
}
_SHOWN = frozenset({"text", "json", "image", "document", "video", "searchResult"})
"""What a result may hold."""
_FORMATS = {
    "image": frozenset({"png", "jpeg", "gif", "webp"}),
    "document": frozenset({"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}),
    "video": frozenset({"mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"}),
}


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
    if not isinstance(messages, list) or not messages:
        refuse("The messages field is empty. Add at least one message, and try again.")
    before = ""
    asked: list[str] = []
    seen: set[str] = set()
    names: list[str] = []
    for index, message in enumerate(messages):
        role, content = _message(message, index)
        if role == before:
            refuse(
                f"A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again. (messages.{index})"
            )
        if not before and role != "user":
            refuse(
                "A conversation must start with a user message. Try again with a conversation that starts with a user message."
            )
        kinds = [
            _check_block(block, role, f"messages.{index}.content.{place}", names) for place, block in enumerate(content)
        ]
        _check_company(kinds, index)
        if not has_tools and {"toolUse", "toolResult"} & set(kinds):
            refuse("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        if role == "user":
            _check_results(content, asked, index)
            asked = []
        else:
            asked = _calls(content, seen)
        before = role
    if len(set(names)) < len(names):
        refuse("Messages contain duplicate document file names. Rename the documents and try again.")
    if asked:
        refuse(
            f"Expected toolResult blocks at messages.{len(messages)}.content for the following Ids: {', '.join(asked)}"
        )


def _message(message: Any, index: int) -> tuple[str, list[Any]]:
    if not isinstance(message, dict) or message.keys() - {"role", "content"}:
        malformed(f"#/messages/{index}: only role and content are permitted")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        refuse(
            f"Value {role!r} at 'messages.{index}.role' failed to satisfy constraint: Member must satisfy enum value set: [user, assistant]"
        )
    if not isinstance(content, list) or not content:
        refuse(
            f"The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to the content field and try again."
        )
    return str(role), content


def _check_block(block: Any, role: str, where: str, names: list[str]) -> str:
    """Check one block; return its kind, and note the name of a document."""
    kind, value = _union_in_history(block, where)
    if kind not in _SPOKEN[role]:
        refuse(f"The {kind} block at {where} is not permitted in a message of the {role}.")
    match kind:
        case "text":
            _check_text(value, where)
        case "toolUse":
            _check_call(value, f"{where}.toolUse")
        case "toolResult" if role == "user":
            _check_result(value, f"{where}.toolResult", names)
        case "reasoningContent":
            _check_thought(value, f"{where}.reasoningContent")
        case "image" | "document" | "video":
            _check_media(kind, value, f"{where}.{kind}", names)
        case "cachePoint":
            _check_pairing_point(value, f"{where}.cachePoint")
    return kind


def _check_company(kinds: list[str], index: int) -> None:
    """Check what may not stand alone, or first."""
    if "document" in kinds and "text" not in kinds:
        refuse(f"The message at messages.{index} holds a document and no text. Add a text block, and try again.")
    if kinds[0] == "cachePoint":
        refuse(f"messages.{index}.content.0.cachePoint: a cache point must stand behind what is to be cached.")


def _check_text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        malformed(f"#/{where}/text: expected type: String")
    if not value.strip():
        refuse(
            f"The text field in the ContentBlock object at {where} is blank. Add text to the text field, and try again."
        )


def _check_call(value: Any, where: str) -> None:
    _check_members(value, {"toolUseId": str, "name": str, "input": dict}, frozenset({"type"}), where)
    _check_id(value["toolUseId"], where)
    if not _NAME.fullmatch(value["name"]):
        refuse(
            f"Value {value['name']!r} at '{where}.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
        )


def _check_result(value: Any, where: str, names: list[str]) -> None:
    _check_members(value, {"toolUseId": str, "content": list}, frozenset({"status", "type"}), where)
    _check_id(value["toolUseId"], where)
    if value.get("status", "success") not in ("success", "error"):
        refuse(
            f"Value at '{where}.status' failed to satisfy constraint: Member must satisfy enum value set: [success, error]"
        )
    for place, shown in enumerate(value["content"]):
        inside = f"{where}.content.{place}"
        kind, held = _union_in_history(shown, inside)
        if kind not in _SHOWN:
            refuse(f"The {kind} block at {inside} is not permitted in a result.")
        if kind == "text":
            _check_text(held, inside)
        elif kind in _FORMATS:
            _check_media(kind, held, f"{inside}.{kind}", names)


def _check_thought(value: Any, where: str) -> None:
    kind, held = _union_in_history(value, where)
    match kind:
        case "reasoningText":
            _check_members(held, {"text": str}, frozenset({"signature"}), f"{where}.{kind}")
            if not held.get("signature"):
                refuse(f"{where}.reasoningText.signature: Invalid `signature` in `thinking` block")
        case "redactedContent":
            _check_bytes(held, f"{where}.{kind}")
        case _:
            malformed(f"#/{where}: extraneous key [{kind}] is not permitted")


def _check_media(kind: str, value: Any, where: str, names: list[str]) -> None:
    needed: dict[str, type] = {"format": str, "source": dict, **({"name": str} if kind == "document" else {})}
    _check_members(value, needed, frozenset({"context", "citations"}), where)
    if value["format"] not in _FORMATS[kind]:
        refuse(
            f"Value {value['format']!r} at '{where}.format' failed to satisfy constraint: Member must satisfy enum value set: {sorted(_FORMATS[kind])}"
        )
    source, held = _union_in_history(value["source"], f"{where}.source")
    if source == "bytes":
        _check_bytes(held, f"{where}.source.bytes")
    elif source not in ("s3Location", "text", "content"):
        malformed(f"#/{where}/source: extraneous key [{source}] is not permitted")
    if kind == "document":
        if not _DOCUMENT_NAME.fullmatch(value["name"]):
            refuse(
                "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses, and square brackets. The name can't contain more than one consecutive whitespace character."
            )
        names.append(value["name"])


def _check_pairing_point(point: Any, where: str) -> None:
    if not isinstance(point, dict) or point.get("type") != "default" or point.get("ttl", "5m") not in ("5m", "1h"):
        refuse(f"Value at '{where}' failed to satisfy constraint: type must be default, and ttl 5m or 1h")


def _check_bytes(value: Any, where: str) -> None:
    try:
        held = b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        held = b""
    if not held:
        malformed(f"#/{where}: expected base64 that is not empty")


def _check_members(value: Any, needed: dict[str, type], others: frozenset[str], where: str) -> None:
    if not isinstance(value, dict):
        malformed(f"#/{where}: expected type: JSONObject")
    for name, kind in needed.items():
        if not isinstance(value.get(name), kind):
            malformed(f"#/{where}/{name}: expected type: {kind.__name__}")
    for name in value.keys() - needed.keys() - others:
        malformed(f"#/{where}: extraneous key [{name}] is not permitted")


def _check_id(call_id: str, where: str) -> None:
    if not _ID.fullmatch(call_id):
        refuse(
            f"Value {call_id!r} at '{where}.toolUseId' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.:-]+"
        )


# --- calls and results -----------------------------------------------------------------------------------------------


def _calls(content: list[JsonObject], seen: set[str]) -> list[str]:
    asked = [str(block["toolUse"]["toolUseId"]) for block in content if "toolUse" in block]
    for call_id in asked:
        if call_id in seen:
            refuse(f"messages: `tool_use` ids must be unique; found {call_id} twice")
        seen.add(call_id)
    answered = {block["toolResult"].get("toolUseId") for block in content if "toolResult" in block}
    return [call_id for call_id in asked if call_id not in answered]  # what the vendor ran itself is answered there


def _check_results(content: list[JsonObject], asked: list[str], index: int) -> None:
    given = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
    if len(given) > len(asked):
        refuse(
            f"The number of toolResult blocks at messages.{index}.content exceeds the number of toolUse blocks of previous turn."
        )
    missing = [call_id for call_id in asked if call_id not in given]
    if missing:
        refuse(f"Expected toolResult blocks at messages.{index}.content for the following Ids: {', '.join(missing)}")


def _union_in_history(value: Any, where: str) -> tuple[str, Any]:
    if not isinstance(value, dict) or len(value) != 1:
        malformed(f"#/{where}: exactly one member of the union must be set")
    return next(iter(value.items()))


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
        checked = check_converse_request(body)
        check_converse_history(checked.get("messages"), has_tools="toolConfig" in checked)
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        whole = {
            "metrics": {"latencyMs": 1},
            "output": {"message": {"content": _content(turn, ids), "role": "assistant"}},
            "stopReason": finish_name(turn, _FINISHES),
            "usage": None if turn.usage is None else _usage(turn, body),
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        if self._is_stream:
            pieces = tuple(_pieces(whole, turn))
            return Answer(pieces=pieces, content_type="application/vnd.amazon.eventstream", is_stream=True)
        if turn.error is not None:
            return Answer(pieces=(Piece(kind="whole", content=aws_error(turn.status, turn.error)),))
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(_parsed(whole))),))

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
    for made in turn.calls:
        call_id = next(ids) if made.id is UNSET else made.id
        named = {} if call_id is None else {"toolUseId": call_id}
        content.append({"toolUse": {"input": made.arguments, "name": made.name, **named}})
    return content


def _parsed(answer: JsonObject) -> JsonObject:
    """Return an answer with objects as input. One that is not valid JSON, which the vendor never sends whole, stays text."""
    message = answer["output"]["message"]
    content = [
        {"toolUse": {**block["toolUse"], "input": _object(block["toolUse"]["input"])}} if "toolUse" in block else block
        for block in message["content"]
    ]
    return {**answer, "output": {"message": {**message, "content": content}}}


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


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
