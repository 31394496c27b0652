"""Gemini: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import Answer, Piece, PieceKind, Refusal, event_lines, json_bytes, used_tokens
from treadle.mock.script import Turn, finish_of, fragments
from treadle.tools import JsonObject

__all__ = ["STAND_IN_SIGNATURES", "GenerateContent", "check_gemini_history", "check_gemini_request", "gemini_dialects"]


# --- Requests in Gemini: refuse a body that the vendor refuses. The pairing of the contents is checked elsewhere.

_KNOWN = frozenset(
    {
        *("contents", "tools", "toolConfig", "safetySettings", "systemInstruction", "generationConfig"),
        *("cachedContent", "labels", "serviceTier", "store", "model"),
    }
)
_HOSTED = frozenset(
    {
        *("googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "computerUse", "googleMaps"),
        *("fileSearch", "mcpServers", "enterpriseWebSearch", "retrieval"),
    }
)
_DECLARATION = frozenset(
    {"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior"}
)
_OPENAPI = frozenset(
    {
        *(
            "type",
            "format",
            "title",
            "description",
            "nullable",
            "enum",
            "maxItems",
            "minItems",
            "properties",
            "required",
        ),
        *("minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "default"),
        *("propertyOrdering", "items", "minimum", "maximum"),
    }
)
"""The words of `parameters`, which is not a JSON Schema."""
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_NUMBERS = {
    "temperature": (0, 2),
    "topP": (0, 1),
    "topK": (1, None),
    "maxOutputTokens": (1, None),
    "candidateCount": (1, 8),
    "presencePenalty": (-2, 2),
    "frequencyPenalty": (-2, 2),
    "logprobs": (0, 20),
    "seed": (None, None),
}
_GENERATION = frozenset(
    {
        *_NUMBERS,
        *("stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities"),
        *("responseLogprobs", "speechConfig", "thinkingConfig", "mediaResolution", "imageConfig", "audioTimestamp"),
        *("enableEnhancedCivicAnswers", "routingConfig", "modelSelectionConfig"),
    }
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_SNAKE = re.compile(r"_([a-z])")


def check_gemini_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request in camel case, all but its contents checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("Invalid JSON payload received. Expected an object.")
    named = _named(body, _KNOWN, "")
    _check_instruction(named.get("systemInstruction"))
    _check_generation(named.get("generationConfig"))
    names = _check_tools(named.get("tools"))
    _check_tool_config(named.get("toolConfig"), names)
    return named


def _named(holder: Any, known: Collection[str], where: str) -> JsonObject:
    """Return an object with its names in camel case, which the vendor takes beside its own snake case."""
    if not isinstance(holder, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.protobuf.Message), {json.dumps(holder)}")
    named = {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in holder.items()}
    for key in named:
        if key not in known:
            place = f" at '{where}'" if where else ""
            _refuse(f'Invalid JSON payload received. Unknown name "{key}"{place}: Cannot find field.')
    return named


def _check_instruction(instruction: Any) -> None:
    if instruction is None:
        return
    parts = _named(instruction, ("role", "parts"), "system_instruction").get("parts")
    # One part may stand without its list.
    listed = parts if isinstance(parts, list) else [parts]
    if not listed or not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in listed):
        _refuse("* GenerateContentRequest.system_instruction.parts: parts with text must not be empty.")


def _check_generation(config: Any) -> None:
    if config is None:
        return
    named = _named(config, _GENERATION, "generation_config")
    for key, (least, most) in _NUMBERS.items():
        if (value := named.get(key)) is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(f"Invalid value at 'generation_config.{key}' (TYPE_NUMBER), {json.dumps(value)}")
        if (least is not None and value < least) or (most is not None and value > most):
            _refuse(f"* GenerateContentRequest.generation_config.{key}: {key} must be in the range [{least}, {most}].")
    mime = named.get("responseMimeType")
    if mime not in (None, "text/plain", "application/json", "text/x.enum"):
        _refuse(
            "* GenerateContentRequest.generation_config.response_mime_type: allowed mimetypes are `text/plain`, "
            "`application/json`, `application/xml`, `application/yaml` and `text/x.enum`."
        )
    schemas = [key for key in ("responseSchema", "responseJsonSchema") if named.get(key) is not None]
    if schemas and mime not in ("application/json", "text/x.enum"):
        _refuse(
            "Setting response_schema is only supported when response mime type is `application/json` or `text/x.enum`."
        )
    if len(schemas) > 1:
        _refuse("Only one of response_schema and response_json_schema may be set.")


def _check_tools(tools: Any) -> list[str]:
    """Return the names of the functions, each checked."""
    if tools is None:
        return []
    names: list[str] = []
    for index, tool in enumerate([tools] if isinstance(tools, dict) else _list(tools, "tools")):
        where = f"tools[{index}]"
        named = _named(tool, {"functionDeclarations", *_HOSTED}, where)
        place = f"{where}.function_declarations"
        declarations = named.get("functionDeclarations", [])
        for number, declaration in enumerate(_list(declarations, place)):
            names.append(_check_declaration(declaration, f"{place}[{number}]"))
    for number, name in enumerate(names):
        if name in names[:number]:
            _refuse(f"Duplicate function declaration found: {name}")
    return names


def _check_declaration(declaration: Any, where: str) -> str:
    named = _named(declaration, _DECLARATION, where)
    name = named.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(
            f"* GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an "
            "underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a "
            "maximum length of 64."
        )
    if not isinstance(named.get("description", ""), str):
        _refuse(f"Invalid value at '{where}.description' (TYPE_STRING), {json.dumps(named['description'])}")
    if "parameters" in named and "parametersJsonSchema" in named:
        _refuse(f"* GenerateContentRequest.{where}: only one of parameters and parameters_json_schema may be set.")
    if "parameters" in named:
        _check_openapi(named["parameters"], f"{where}.parameters")
    if "parametersJsonSchema" in named:
        _check_json_schema(named["parametersJsonSchema"], f"{where}.parameters_json_schema")
    return name


def _check_openapi(schema: Any, where: str) -> None:
    named = _named(schema, _OPENAPI, where)
    if not isinstance(named.get("type", ""), str):
        _refuse(f"Invalid value at '{where}.type' (TYPE_ENUM), {json.dumps(named['type'])}")
    properties = named.get("properties") or {}
    if not isinstance(properties, dict):
        _refuse(f"Invalid value at '{where}.properties' (map), {json.dumps(properties)}")
    for name, one in properties.items():
        _check_openapi(one, f"{where}.properties[{name}].value")
    if "items" in named:
        _check_openapi(named["items"], f"{where}.items")
    for index, one in enumerate(_list(named.get("anyOf", []), f"{where}.any_of")):
        _check_openapi(one, f"{where}.any_of[{index}]")


def _check_json_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        _refuse(f"* GenerateContentRequest.{where}: schema at top-level must be type object")
    for node in _nodes(schema):
        if "$ref" in node and node.keys() - {"$ref", "description", "default", "$defs"}:
            _refuse(
                f"$ref '{node['$ref']}' was set alongside unsupported fields. If a schema node has $ref set, then only "
                "description and default can be set alongside it."
            )
        if "$ref" in node and str(node["$ref"]).rpartition("/")[2] not in schema.get("$defs", {}):
            _refuse(f"reference to undefined schema at {where}")


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


def _check_tool_config(config: Any, names: list[str]) -> None:
    if config is None:
        return
    known = ("functionCallingConfig", "retrievalConfig", "includeServerSideToolInvocations")
    calling = _named(config, known, "tool_config").get("functionCallingConfig")
    if calling is None:
        return
    if not names:
        _refuse("Function calling config is set without function_declarations.")
    fields = ("mode", "allowedFunctionNames", "streamFunctionCallArguments")
    named = _named(calling, fields, "tool_config.function_calling_config")
    mode = named.get("mode", "AUTO")
    if mode not in _MODES:
        _refuse(f"Invalid value at 'tool_config.function_calling_config.mode' (TYPE_ENUM), {json.dumps(mode)}")
    allowed = _list(named.get("allowedFunctionNames", []), "tool_config.function_calling_config.allowed_function_names")
    if allowed and mode not in ("ANY", "VALIDATED"):
        _refuse("Allowed function names can only be set when the function calling mode is ANY or VALIDATED.")
    for name in allowed:
        if name not in names:
            _refuse(f"Allowed function name {json.dumps(name)} is not among the function declarations.")


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"Invalid value at '{where}' (list), {json.dumps(value)}")
    return value


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)


# --- Pairing in Gemini: refuse contents whose function calls and responses do not match. Repairs nothing.

STAND_IN_SIGNATURES = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
"""What the vendor takes in place of a signature."""

_ROLES = ("user", "model", "function")
_PAYLOADS: Mapping[str, type] = {
    "text": str,
    "inlineData": dict,
    "fileData": dict,
    "functionCall": dict,
    "functionResponse": dict,
    "executableCode": dict,
    "codeExecutionResult": dict,
    "toolCall": dict,
    "toolResponse": dict,
}
"""The fields of which a part has exactly one."""
_ASIDES = frozenset({"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"})
_ANYONE = frozenset({"text", "inlineData", "fileData"})
_ALLOWED = {
    "user": _ANYONE | {"functionResponse"},
    "function": frozenset({"functionResponse"}),
    "model": frozenset(_PAYLOADS) - {"functionResponse"},
}
_COUNTS = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)


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
    if contents is None or contents == []:
        _refuse("* GenerateContentRequest.contents: contents is not specified")
    if not isinstance(contents, list):
        _refuse("Invalid value at 'contents' (type.googleapis.com/google.ai.generativelanguage.v1beta.Content)")
    open_calls: list[JsonObject] = []
    previous = ""
    for index, content in enumerate(contents):
        role, parts = _content(content, f"contents[{index}]")
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        _check_turn(calls, responses, open_calls, previous)
        _check_answers(responses, open_calls)
        _check_signatures(parts, signed, f"contents[{index}]")
        open_calls, previous = calls, role
    if previous == "model":
        _refuse("Please ensure that multiturn requests end with a user turn or a function response turn.")
    if wants_signatures:
        _check_open_turn(contents)


def _content(content: Any, where: str) -> tuple[str, list[JsonObject]]:
    if not isinstance(content, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Content)")
    for key in content:
        if key not in ("role", "parts"):
            _refuse(f"Invalid JSON payload received. Unknown name \"{key}\" at '{where}': Cannot find field.")
    role = content.get("role", "user")
    if not isinstance(role, str) or role not in _ROLES:
        _refuse("Please use a valid role: user, model.")
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        _refuse(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.")
    return role, [_part(part, role, f"{where}.parts[{index}]") for index, part in enumerate(parts)]


def _part(part: Any, role: str, where: str) -> JsonObject:
    """Return one part with its names in camel case, checked by itself."""
    if not isinstance(part, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.v1beta.Part)")
    named = {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in part.items()}
    for key in named:
        if key not in _PAYLOADS and key not in _ASIDES:
            _refuse(f"Invalid JSON payload received. Unknown name \"{key}\" at '{where}': Cannot find field.")
    kinds = [key for key in named if key in _PAYLOADS]
    if len(kinds) > 1:
        _refuse(f"Invalid value at '{where}' (oneof), oneof field 'data' is already set. Cannot set '{kinds[1]}'")
    if not kinds or (named.get("text") == "" and "thoughtSignature" not in named):
        _refuse(f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field")
    kind = kinds[0]
    if not isinstance(named[kind], _PAYLOADS[kind]):
        _refuse(f"Invalid value at '{where}.{kind}' ({_PAYLOADS[kind].__name__}), {json.dumps(named[kind])}")
    if kind not in _ALLOWED[role]:
        _refuse(f"Please use a valid role: a part with {kind} cannot stand in a content of the role {role}.")
    _check_payload(kind, named[kind], f"{where}.{kind}")
    return named


def _check_payload(kind: str, payload: Any, where: str) -> None:
    match kind:
        case "functionCall":
            _check_name(payload, where)
            _check_struct(payload.get("args", {}), f"{where}.args")
        case "functionResponse":
            _check_name(payload, where)
            if "response" not in payload:
                _refuse(f"* GenerateContentRequest.{where}.response: Response cannot be empty.")
            _check_struct(payload["response"], f"{where}.response")
            _check_references(payload["response"], where)
        case "inlineData":
            _check_texts(payload, ("mimeType", "data"), where)
        case "fileData":
            _check_texts(payload, ("fileUri",), where)


def _check_name(payload: JsonObject, where: str) -> None:
    name = payload.get("name")
    if not isinstance(name, str) or not name:
        _refuse(f"* GenerateContentRequest.{where}.name: Name cannot be empty.")
    if not _NAME.fullmatch(name):
        _refuse(
            f"* GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an "
            "underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a "
            "maximum length of 64."
        )
    call_id = payload.get("id", "")
    if not isinstance(call_id, str):
        _refuse(f"Invalid value at '{where}.id' (TYPE_STRING), {json.dumps(call_id)}")


def _check_struct(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.protobuf.Struct), {json.dumps(value)}")


def _check_references(value: Any, where: str) -> None:
    """The vendor reads any `$ref` in a response as the name of one of its files."""
    match value:
        case {"$ref": str(name)}:
            _refuse(f"The referenced name `{name}` in {where}.response does not match to a display_name in parts.")
        case dict():
            for item in value.values():
                _check_references(item, where)
        case list():
            for item in value:
                _check_references(item, where)


def _check_texts(payload: JsonObject, names: tuple[str, ...], where: str) -> None:
    given = {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in payload.items()}
    for name in names:
        if not isinstance(given.get(name), str) or not given[name]:
            _refuse(f"* GenerateContentRequest.{where}.{name}: {name} parameter must be a string that is not empty.")


def _check_turn(
    calls: list[JsonObject], responses: list[JsonObject], open_calls: list[JsonObject], previous: str
) -> None:
    if calls and previous not in ("user", "function"):
        _refuse(
            "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
        )
    if responses and not open_calls:
        _refuse("Please ensure that function response turn comes immediately after a function call turn.")
    if len(responses) != len(open_calls):
        _refuse(_COUNTS)
    ids = [call["id"] for call in calls if call.get("id")]
    if len(set(ids)) < len(ids):
        _refuse("Please ensure that function call ids are unique in their turn.")


def _check_answers(responses: list[JsonObject], open_calls: list[JsonObject]) -> None:
    """Match by id where both sides have ids, else by order and name."""
    by_id = {call["id"]: call for call in open_calls if call.get("id")}
    for place, response in enumerate(responses):
        call_id = response.get("id")
        if call_id and call_id not in by_id:
            _refuse(
                f"Please ensure that the id `{call_id}` of a function response is that of an unanswered function call."
            )
        call = by_id.pop(call_id) if call_id else open_calls[place]
        if call["name"] != response["name"]:
            _refuse(
                f"Please ensure that function response `{response['name']}` answers function call `{call['name']}`."
            )


def _check_signatures(parts: list[JsonObject], signed: Collection[str], where: str) -> None:
    """Only the first call of a content is ever signed: an id that comes again behind it means another call."""
    place, part = next(((place, part) for place, part in enumerate(parts) if "functionCall" in part), (0, {}))
    call = part.get("functionCall")
    if call is not None and call.get("id") in signed and not part.get("thoughtSignature"):
        _refuse_unsigned(call, f"position {place} of {where}")


def _check_open_turn(contents: list[Any]) -> None:
    """Only the turn that continues is looked at, and in each of its steps the first call only."""
    for index, content in reversed(list(enumerate(contents))):
        role, parts = _content(content, f"contents[{index}]")
        if role == "user" and any("functionResponse" not in part for part in parts):
            return
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            _refuse_unsigned(first["functionCall"], f"contents[{index}]")


def _refuse_unsigned(call: JsonObject, where: str) -> NoReturn:
    _refuse(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and "
        f"missing thought_signature may lead to degraded model performance. Additional data, function call "
        f"`default_api:{call['name']}`, {where}."
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
        calls = [_call(made.name, made.arguments, next(ids) if made.id is UNSET else made.id) for made in turn.calls]
        if calls and (call_id := calls[0]["functionCall"].get("id")):
            self._signed.add(call_id)
            calls[0]["thoughtSignature"] = base64.b64encode(f"signature of {call_id}".encode()).decode()
        head: JsonObject = {"modelVersion": "mock", "responseId": f"mock-{number}"}
        if turn.usage is not None:
            head["usageMetadata"] = _usage(turn, body)
        if self._is_stream:
            return _streamed(turn, head, calls)
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(_whole(turn, head, calls))),))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": _error(status, error)})


def gemini_dialects() -> list[GenerateContent]:
    """Return both sisters."""
    signed: set[str] = set()
    return [GenerateContent(is_stream=is_stream, signed=signed) for is_stream in (True, False)]


def _error(status: int, error: str | JsonObject) -> JsonObject:
    body = {"message": error} if isinstance(error, str) else error.get("error", error)
    status = status if status >= 400 else 503
    word = _STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
    return {
        "code": status,
        "message": "",
        "status": word,
        **(body if isinstance(body, dict) else {"message": body}),
    }


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


def _call(name: str, arguments: str, call_id: object) -> JsonObject:
    named = {} if call_id is None else {"id": call_id}
    return {"functionCall": {"name": name, "args": _args(arguments), **named}}


def _args(arguments: str) -> Any:
    """Return the arguments as an object. Broken ones go out as the text that they are: no honest server sends them."""
    try:
        value = json.loads(arguments, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _no_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
    if len(result := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _no_constant(word: str) -> NoReturn:
    raise ValueError(word)


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
