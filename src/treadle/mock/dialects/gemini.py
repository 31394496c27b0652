"""Gemini: what the dialect takes, and how it says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    arguments_value,
    bracketed,
    called,
    error_fields,
    event_lines,
    json_bytes,
    read,
    too_deep,
    used_tokens,
    whole,
)
from treadle.mock.script import Turn, finish_of, fragments
from treadle.tools import JsonObject

__all__ = ["STAND_IN_SIGNATURES", "GenerateContent", "check_gemini_history", "check_gemini_request", "gemini_dialects"]


# --- What the vendor takes, declared.

STAND_IN_SIGNATURES = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""What the vendor takes in place of a signature."""

_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}\Z")]
_Penalty: TypeAlias = Annotated[float, msgspec.Meta(ge=-2, le=2)]
_Unset: TypeAlias = msgspec.UnsetType

_SNAKE = re.compile(r"_([a-z])")
_DATA = frozenset({"args", "response", "parametersJsonSchema", "responseJsonSchema", "labels", "default", "example"})
"""What holds the names of others: they keep their spelling."""


class _Object(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """An object of the vendor's: it takes no further field."""


class _Blob(msgspec.Struct, rename="camel"):
    mime_type: _Words
    data: _Words


class _File(msgspec.Struct, rename="camel"):
    file_uri: _Words


class _Call(msgspec.Struct):
    name: _Name
    args: JsonObject = {}
    id: str = ""


class _Response(msgspec.Struct):
    name: _Name
    response: JsonObject
    id: str = ""

    def __post_init__(self) -> None:
        for node in _nodes_of_data(self.response):  # the vendor reads any `$ref` as the name of one of its files
            if type(node.get("$ref")) is str:
                raise ValueError(f"The referenced name `{node['$ref']}` does not match to a display_name in parts.")


class _Asides(_Object):
    thought: Any = None
    thought_signature: Any = None
    video_metadata: Any = None
    media_resolution: Any = None
    part_metadata: Any = None


class _Part(_Asides):
    """One of its own fields, and any of those aside."""

    text: str | _Unset = UNSET
    inline_data: _Blob | _Unset = UNSET
    file_data: _File | _Unset = UNSET
    function_call: _Call | _Unset = UNSET
    function_response: _Response | _Unset = UNSET
    executable_code: JsonObject | _Unset = UNSET
    code_execution_result: JsonObject | _Unset = UNSET
    tool_call: JsonObject | _Unset = UNSET
    tool_response: JsonObject | _Unset = UNSET

    def __post_init__(self) -> None:
        if len(self.kinds()) > 1:
            raise ValueError(f"(oneof), oneof field 'data' is already set. Cannot set '{self.kinds()[1]}'")
        if not self.kinds() or (self.text == "" and self.thought_signature is None):
            raise ValueError("required oneof field 'data' must have one initialized field")

    def kinds(self) -> list[str]:
        own = (name for name in self.__struct_fields__ if name not in _Asides.__struct_fields__)
        return [name for name in own if getattr(self, name) is not UNSET]


class _Content(_Object):
    parts: Annotated[list[_Part], msgspec.Meta(min_length=1)]
    role: Literal["user", "model", "function"] = "user"

    def __post_init__(self) -> None:
        users = {"text", "inline_data", "file_data", "function_response"}
        for [kind] in (part.kinds() for part in self.parts):
            is_response = kind == "function_response"
            allowed = {"user": kind in users, "function": is_response, "model": not is_response}
            if not allowed[self.role]:
                raise ValueError(f"Please use a valid role: {kind} cannot stand in a content of the role {self.role}.")


class _History(msgspec.Struct):
    contents: Annotated[list[_Content], msgspec.Meta(min_length=1)]


class _OpenApi(_Object):
    """A schema of `parameters`, which is not a JSON Schema."""

    type: str = ""
    properties: "dict[str, _OpenApi] | None" = None
    items: "_OpenApi | None" = None
    any_of: "list[_OpenApi]" = []
    format: Any = None
    title: Any = None
    description: Any = None
    nullable: Any = None
    enum: Any = None
    max_items: Any = None
    min_items: Any = None
    required: Any = None
    min_properties: Any = None
    max_properties: Any = None
    min_length: Any = None
    max_length: Any = None
    pattern: Any = None
    example: Any = None
    default: Any = None
    property_ordering: Any = None
    minimum: Any = None
    maximum: Any = None


class _Declaration(_Object):
    name: _Name
    description: str = ""
    parameters: _OpenApi | _Unset = UNSET
    parameters_json_schema: Any = UNSET
    response: Any = None
    response_json_schema: Any = None
    behavior: Any = None

    def __post_init__(self) -> None:
        if self.parameters is not UNSET and self.parameters_json_schema is not UNSET:
            raise ValueError("only one of parameters and parameters_json_schema may be set.")
        if self.parameters_json_schema is not UNSET:
            _check_json_schema(self.parameters_json_schema)


class _Tool(_Object):
    function_declarations: list[_Declaration] = []
    google_search: Any = None
    google_search_retrieval: Any = None
    code_execution: Any = None
    url_context: Any = None
    computer_use: Any = None
    google_maps: Any = None
    file_search: Any = None
    mcp_servers: Any = None
    enterprise_web_search: Any = None
    retrieval: Any = None


class _Calling(_Object):
    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"] = "AUTO"
    allowed_function_names: list[str] = []
    stream_function_call_arguments: Any = None

    def __post_init__(self) -> None:
        if self.allowed_function_names and self.mode not in ("ANY", "VALIDATED"):
            raise ValueError("Allowed function names can only be set when the mode is ANY or VALIDATED.")


class _ToolConfig(_Object):
    function_calling_config: _Calling | None = None
    retrieval_config: Any = None
    include_server_side_tool_invocations: Any = None


class _TextPart(msgspec.Struct):
    text: str


class _Instruction(_Object):
    parts: Annotated[list[_TextPart], msgspec.Meta(min_length=1)] | _TextPart  # one may stand without its list
    role: Any = None


class _Generation(_Object):
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: Annotated[float, msgspec.Meta(ge=1)] | None = None
    max_output_tokens: Annotated[float, msgspec.Meta(ge=1)] | None = None
    candidate_count: Annotated[float, msgspec.Meta(ge=1, le=8)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    logprobs: Annotated[float, msgspec.Meta(ge=0, le=20)] | None = None
    seed: float | None = None
    response_mime_type: Literal["text/plain", "application/json", "text/x.enum"] | None = None
    response_schema: Any = None
    response_json_schema: Any = None
    stop_sequences: Any = None
    response_modalities: Any = None
    response_logprobs: Any = None
    speech_config: Any = None
    thinking_config: Any = None
    media_resolution: Any = None
    image_config: Any = None
    audio_timestamp: Any = None
    enable_enhanced_civic_answers: Any = None
    routing_config: Any = None
    model_selection_config: Any = None

    def __post_init__(self) -> None:
        if self.response_schema is not None and self.response_json_schema is not None:
            raise ValueError("Only one of response_schema and response_json_schema may be set.")
        has_schema = self.response_schema is not None or self.response_json_schema is not None
        if has_schema and self.response_mime_type not in ("application/json", "text/x.enum"):
            raise ValueError(
                "Setting response_schema is only supported when response mime type is `application/json` or `text/x.enum`."
            )


class _Request(_Object):
    contents: Any = None
    tools: list[_Tool] | _Tool | None = None
    tool_config: _ToolConfig | None = None
    system_instruction: _Instruction | None = None
    generation_config: _Generation | None = None
    safety_settings: Any = None
    cached_content: Any = None
    labels: Any = None
    service_tier: Any = None
    store: Any = None
    model: Any = None


_TYPES = {
    "str": "TYPE_STRING",
    "float": "TYPE_NUMBER",
    "array": "list",
    "object": "type.googleapis.com/google.protobuf.Struct",
}


def _refusal(fault: Fault) -> Refusal:
    """Say a fault in the vendor's words."""
    place, name = bracketed(fault.path), str(fault.path[-1]) if fault.path else ""
    if place == "contents" and not fault.got:
        return Refusal("* GenerateContentRequest.contents: contents is not specified")
    match fault.kind:
        case "unknown":
            above = f" at '{bracketed(fault.path[:-1])}'" if fault.path[:-1] else ""
            return Refusal(f'Invalid JSON payload received. Unknown name "{name}"{above}: Cannot find field.')
        case "type" | "value" if place:
            kind = _TYPES.get(fault.expected[0], fault.expected[0]) or "TYPE_ENUM"
            return Refusal(f"Invalid value at '{place}' ({kind}), {fault.shown}")
        case "type":
            return Refusal("Invalid JSON payload received. Expected an object.")
        case _:
            return Refusal(f"* GenerateContentRequest.{place}: {_field_words(fault, name)}")


def _field_words(fault: Fault, name: str) -> str:
    if fault.kind == "missing" or fault.limit == "length >=":
        return f"{name[0].upper()}{name[1:]} cannot be empty."
    if fault.kind == "limit":
        return f"{name} must be in the range {fault.limit} {fault.bound.removesuffix('.0')}."
    if fault.kind == "pattern":
        return (
            "[FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
            "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
        )
    return fault.words


def _in_camel_case(value: Any) -> Any:
    """Return a value with its fields in camel case, which the vendor takes beside its own snake case."""
    try:
        return _camel(value)
    except RecursionError:
        raise too_deep() from None


def _camel(value: Any, key: str = "") -> Any:
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict) or key in _DATA:
        return value
    if key == "properties":  # their names are not the vendor's
        return {name: _camel(one) for name, one in value.items()}
    named = {_SNAKE.sub(lambda found: found[1].upper(), str(name)): one for name, one in value.items()}
    return {name: _camel(one, name) for name, one in named.items()}


# --- The rules that no field can declare.


def check_gemini_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request in camel case, all but its contents checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    named = _in_camel_case(body)
    request = read(named, _Request, _refusal)
    tools = [request.tools] if isinstance(request.tools, _Tool) else request.tools or []
    names = [declaration.name for tool in tools for declaration in tool.function_declarations]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise Refusal(f"Duplicate function declaration found: {name}")
    calling = request.tool_config.function_calling_config if request.tool_config is not None else None
    if calling is not None and not names:
        raise Refusal("Function calling config is set without function_declarations.")
    for name in calling.allowed_function_names if calling is not None else ():
        if name not in names:
            raise Refusal(f"Allowed function name {json.dumps(name)} is not among the function declarations.")
    return cast("JsonObject", named)


def _check_json_schema(schema: Any) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError("schema at top-level must be type object")
    for node in _nodes(schema):
        if "$ref" in node and node.keys() - {"$ref", "description", "default", "$defs"}:
            raise ValueError(
                f"$ref '{node['$ref']}' was set alongside unsupported fields. If a schema node has $ref set, then only "
                "description and default can be set alongside it."
            )
        if "$ref" in node and str(node["$ref"]).rpartition("/")[2] not in schema.get("$defs", {}):
            raise ValueError("reference to undefined schema")


def _nodes(schema: Any) -> Iterable[JsonObject]:
    """Yield every sub-schema. Names of properties are not keywords."""
    if isinstance(schema, list):
        for one in schema:
            yield from _nodes(one)
    if not isinstance(schema, dict):
        return
    yield schema
    for word, value in schema.items():
        if word in ("properties", "patternProperties", "$defs") and isinstance(value, dict):
            for one in value.values():
                yield from _nodes(one)
        elif word in ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf", "not"):
            yield from _nodes(value)


def _nodes_of_data(value: Any) -> Iterable[JsonObject]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _nodes_of_data(one)


@checked
def check_gemini_history(
    contents: Any,  # Any: JSON of strangers
    *,
    signed: Collection[str] = (),
    wants_signatures: bool = False,
) -> None:
    """Check the `contents` of one request as the vendor does.

    Example:
        >>> check_gemini_history([{"role": "user", "parts": [{"text": "go"}]}])
        >>> check_gemini_history([])
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: * GenerateContentRequest.contents: contents is not specified

    Args:
        contents: The value of `contents`.
        signed: Ids of calls that were given with a signature: they must come back with one.
        wants_signatures: Whether the first call of each step since the person last spoke must have a signature, whoever made
            it, as Gemini 3 wants it.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    declared = read({"contents": _in_camel_case(contents)}, _History, _refusal).contents
    open_calls: list[_Call] = []
    previous = ""
    for index, content in enumerate(declared):
        calls = [part.function_call for part in content.parts if part.function_call is not UNSET]
        responses = [part.function_response for part in content.parts if part.function_response is not UNSET]
        _check_turn(calls, responses, open_calls, previous)
        _check_answers(responses, open_calls)
        first = _first_call(
            content
        )  # only the first is ever signed: an id that comes again behind it means another call
        if first is not None and first[0].id in signed and not first[1].thought_signature:
            raise _unsigned(first[0], f"contents[{index}]")
        open_calls, previous = calls, content.role
    if previous == "model":
        raise Refusal("Please ensure that multiturn requests end with a user turn or a function response turn.")
    if wants_signatures:
        _check_open_turn(declared)


def _check_turn(calls: list[_Call], responses: list[_Response], open_calls: list[_Call], previous: str) -> None:
    if calls and previous not in ("user", "function"):
        raise Refusal(
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        )
    if responses and not open_calls:
        raise Refusal("Please ensure that function response turn comes immediately after a function call turn.")
    if len(responses) != len(open_calls):
        raise Refusal(
            "Please ensure that the number of function response parts is equal to the number of function call parts of the "
            "function call turn."
        )
    ids = [call.id for call in calls if call.id]
    if len(set(ids)) < len(ids):
        raise Refusal("Please ensure that function call ids are unique in their turn.")


def _check_answers(responses: list[_Response], open_calls: list[_Call]) -> None:
    """Match by id where both sides have ids, else by order and name."""
    by_id = {call.id: call for call in open_calls if call.id}
    for place, response in enumerate(responses):
        if response.id and response.id not in by_id:
            raise Refusal(
                f"Please ensure that the id `{response.id}` of a function response is that of an unanswered function call."
            )
        call = by_id.pop(response.id) if response.id else open_calls[place]
        if call.name != response.name:
            raise Refusal(
                f"Please ensure that function response `{response.name}` answers function call `{call.name}`."
            )


def _first_call(content: _Content) -> tuple[_Call, _Part] | None:
    calls = ((part.function_call, part) for part in content.parts if part.function_call is not UNSET)
    return next(calls, None)


def _check_open_turn(contents: list[_Content]) -> None:
    """Only the turn that continues is looked at, and in each of its steps the first call only."""
    for index, content in reversed(list(enumerate(contents))):
        if content.role == "user" and any(part.function_response is UNSET for part in content.parts):
            return
        first = _first_call(content)
        if first is not None and not first[1].thought_signature:
            raise _unsigned(first[0], f"contents[{index}]")


def _unsigned(call: _Call, where: str) -> Refusal:
    return Refusal(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and "
        f"missing thought_signature may lead to degraded model performance. Additional data, function call "
        f"`default_api:{call.name}`, {where}."
    )


# --- Gemini: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket.

_FINISHES = {Finish.STOP: "STOP", Finish.CALLS: "STOP", Finish.LENGTH: "MAX_TOKENS", Finish.REFUSED: "SAFETY"}
_OLDER = re.compile(r"/(gemini-[12][.-]|gemma-)")
"""The models that want no signatures."""
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GenerateContent:
    """The dialect of `POST /v1beta/models/{model}:generateContent`, and of its streamed sister.

    Like Gemini 3 it gives every call an id, signs the first call of a response, and refuses a history that lost the signature.

    Args:
        is_stream: Whether it is the streamed one: the path says so, not the body.
        signed: Ids of the calls that were signed; both sisters share it.
        wants_signatures: Whether the model wants signatures of calls that others made, too: the path says so.
    """

    def __init__(self, *, is_stream: bool, signed: set[str], wants_signatures: bool = True) -> None:
        self.path = ":streamGenerateContent" if is_stream else ":generateContent"
        self._is_stream = is_stream
        self._signed = signed
        self._wants_signatures = wants_signatures

    def with_head(self, path: str, headers: Mapping[str, str]) -> "GenerateContent":
        wants = _OLDER.search(path) is None
        return GenerateContent(is_stream=self._is_stream, signed=self._signed, wants_signatures=wants)

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_gemini_request(body)
        check_gemini_history(checked.get("contents"), signed=self._signed, wants_signatures=self._wants_signatures)
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        calls: list[JsonObject] = [
            {"functionCall": {"name": made.name, "args": arguments_value(made.arguments), **named}}
            for made, named in called(turn, ids)
        ]
        if calls and (call_id := calls[0]["functionCall"].get("id")):
            self._signed.add(call_id)
            calls[0]["thoughtSignature"] = base64.b64encode(f"signature of {call_id}".encode()).decode()
        head: JsonObject = {"modelVersion": "mock", "responseId": f"mock-{number}"}
        if turn.usage is not None:
            head["usageMetadata"] = _usage(turn, body)
        if self._is_stream:
            return _streamed(turn, head, calls)
        return whole(_whole(turn, head, calls))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": _error(status, error)})


def gemini_dialects() -> list[GenerateContent]:
    """Return both sisters."""
    signed: set[str] = set()
    return [GenerateContent(is_stream=is_stream, signed=signed) for is_stream in (True, False)]


def _error(status: int, error: str | JsonObject) -> JsonObject:
    status = status if status >= 400 else 503
    word = _STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
    return {"code": status, "message": "", "status": word, **error_fields(error)}


def _whole(turn: Turn, head: JsonObject, calls: list[JsonObject]) -> JsonObject:
    if turn.error is not None:
        return {"error": _error(turn.status, turn.error)}
    texts = [
        *([{"text": turn.thinking, "thought": True}] if turn.thinking else []),
        *({"text": said} for said in (turn.text, turn.refusal) if said),
    ]
    content: JsonObject = {"role": "model", **({"parts": [*texts, *calls]} if texts or calls else {})}
    return {"candidates": [{"content": content, **_finish(turn), "index": 0}], **head}


def _streamed(turn: Turn, head: JsonObject, calls: list[JsonObject]) -> Answer:
    def piece(kind: PieceKind, part: JsonObject, *, call: int | None = None, **ending: Any) -> Piece:
        candidate = {"content": {"role": "model", "parts": [part]}, **ending, "index": 0}
        content = event_lines(json_bytes({"candidates": [candidate], **head}), turn)
        # A call comes whole, in one event.
        return Piece(kind=kind, content=content, call=call, is_last=call is not None)

    pieces = [
        piece("thinking", {"text": part, "thought": True}) for part in fragments(turn.thinking or "", turn.pieces)
    ]
    pieces += (piece("text", {"text": part}) for part in fragments(turn.text or "", turn.pieces))
    pieces += (piece("text", {"text": part}) for part in fragments(turn.refusal or "", turn.pieces))
    pieces += (piece("call", call, call=index) for index, call in enumerate(calls))
    if turn.error is not None:
        event = event_lines(json_bytes({"error": _error(turn.status, turn.error)}), turn)
        pieces.append(Piece(kind="error", content=event))
    else:
        pieces.append(piece("finish", {"text": ""}, **_finish(turn)))
    return Answer(pieces=tuple(pieces), content_type="text/event-stream", is_stream=True)


def _finish(turn: Turn) -> JsonObject:
    if turn.finish is None:
        return {}
    finish = finish_of(turn)
    return {"finishReason": _FINISHES[finish] if finish in _FINISHES else str(turn.finish)}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["contents"])
    return {
        "promptTokenCount": used.input_tokens,
        "candidatesTokenCount": used.output_tokens - used.reasoning_tokens,
        "thoughtsTokenCount": used.reasoning_tokens,
        "cachedContentTokenCount": used.cached_input_tokens,
        "totalTokenCount": used.input_tokens + used.output_tokens,
    }
