"""What the dialects of the mock share: answers and refusals, their rendering, and the checks of both of OpenAI's dialects."""

import difflib
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET

from treadle.messages import Finish, Usage
from treadle.mock.script import ScriptedCall, Turn, finish_of, no_constant, no_duplicates
from treadle.tools import JsonObject

__all__ = [
    "Answer",
    "Dialect",
    "Fault",
    "HasHead",
    "OpenAIForm",
    "OpenAIFunction",
    "OpenAIName",
    "Piece",
    "PieceKind",
    "Refusal",
    "arguments_text",
    "arguments_value",
    "aws_error",
    "aws_exception",
    "bracketed",
    "called",
    "check_arguments",
    "check_functions",
    "check_strict_schema",
    "did_you_mean",
    "error_fields",
    "event_frame",
    "event_lines",
    "exception_frame",
    "finish_name",
    "frame",
    "in_turns",
    "is_listing",
    "json_bytes",
    "model_list",
    "openai_calls",
    "openai_error",
    "openai_refusal",
    "read",
    "too_deep",
    "used_tokens",
    "whole",
]

PieceKind: TypeAlias = Literal["start", "thinking", "text", "call", "error", "finish", "done", "whole"]


class Refusal(Exception):
    """The provider refuses a request as it is.

    Example:
        >>> Refusal("you must provide a model parameter", param="model").status
        400

    Args:
        message: The vendor's words.
        param: The place in the body.
        code: The vendor's code.
        status: The HTTP status.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer's body that is written at once: one event of a stream, or a body whole."""

    kind: PieceKind
    content: bytes
    call: int | None = None
    """Position of the call that it belongs to."""
    is_last: bool = False
    """Whether it is the last one of its call."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One response before any fault."""

    pieces: tuple[Piece, ...]
    content_type: str = "application/json"
    is_stream: bool = False


class Dialect(Protocol):
    """One vendor's wire format."""

    @property
    def path(self) -> str:
        """How the path of its requests ends."""
        ...

    def check(self, body: Any) -> JsonObject:
        """Return the body of a request that the vendor takes.

        Raises:
            Refusal: The vendor refuses it.
        """
        ...

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        """Return the answer that says what the turn says. `ids` names calls without an id of their own."""
        ...

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        """Return an error body: the message, or the object as it is, in the vendor's envelope."""
        ...


@runtime_checkable
class HasHead(Protocol):
    """A dialect that says something outside of its bodies: the model in the path, its version in a header."""

    def with_head(self, path: str, headers: Mapping[str, str]) -> Dialect:
        """Return the dialect as it reads the body of a request with this head. Names of headers are in lower case.

        Raises:
            Refusal: The vendor refuses the head.
        """
        ...


# --- Reading: a value of strangers as the struct that declares it, and the fault of one that is not so.

T = TypeVar("T")

_FAULTS = {
    "missing": re.compile(r"Object missing required field `(?P<name>.*)`"),
    "unknown": re.compile(r"Object contains unknown field `(?P<name>.*)`"),
    "type": re.compile(r"Expected `(?P<expected>.*)`, got `.*`"),
    "limit": re.compile(r"Expected `(?P<expected>.*)` (?:of )?(?P<limit>(?:length )?[<>]=) (?P<bound>.*)"),
    "pattern": re.compile(r"Expected `str` matching regex '(?P<bound>.*)'"),
    "value": re.compile(r"Invalid (?:enum )?value ['\d].*"),
}
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def too_deep() -> Refusal:
    return Refusal("The request is nested too deeply.")


def bracketed(path: tuple[str | int, ...]) -> str:
    """Return a place in a body as in `messages[0].content`."""
    return "".join(f"[{step}]" if isinstance(step, int) or step == "..." else f".{step}" for step in path).removeprefix(
        "."
    )


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing in a value that its struct does not declare."""

    kind: str
    """`missing`, `unknown`, `type`, `limit`, `pattern`, `value`, or `rule` for what a struct itself refuses."""
    words: str
    """What msgspec, or the struct, says."""
    path: tuple[str | int, ...]
    holders: tuple[Any, ...]
    """The value at the place before each step of the path."""
    got: Any
    expected: tuple[str, ...] = ()
    """The types that may stand there, in msgspec's words."""
    limit: str = ""
    """`>=`, `<=`, `length >=` or `length <=`."""
    bound: str = ""

    @property
    def shown(self) -> str:
        """What was got, as JSON; of a list or an object no more than that it is one, since it may be of any depth."""
        return (
            "[...]"
            if isinstance(self.got, list)
            else "{...}"
            if isinstance(self.got, dict)
            else json.dumps(self.got, default=str)
        )


def read(value: Any, shape: type[T], refusal: Callable[[Fault], Refusal], *, at: tuple[str | int, ...] = ()) -> T:
    """Return a value as the struct that declares it.

    Args:
        refusal: Says a fault in the words of the vendor.
        at: Where the value is in the body.

    Raises:
        Refusal: It is not of that shape.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise refusal(_fault(str(error), value, at)) from None
    except RecursionError:
        raise too_deep() from None
    except UnicodeEncodeError:  # msgspec's, for half a surrogate pair where a name or one of some words may stand
        raise Refusal(
            "The request holds half a surrogate pair where a name of a field or a known word must be."
        ) from None


def _fault(message: str, value: Any, at: tuple[str | int, ...]) -> Fault:
    words, _, place = message.removesuffix("`").rpartition(" - at `")
    words, place = (words, place) if place.startswith("$") and words else (message, "")
    path: list[str | int] = [int(index) if index.isdigit() else name or index for name, index in _STEP.findall(place)]
    kind, found = next(
        ((kind, hit) for kind, form in _FAULTS.items() if (hit := form.fullmatch(words))), ("rule", None)
    )
    named = {} if found is None else found.groupdict()
    path += [named["name"]] if "name" in named else []
    holders: list[Any] = []
    for step in path:
        holders.append(value)
        held = value.get(step) if isinstance(value, dict) else None
        value = value[step] if isinstance(value, list) and isinstance(step, int) else held
    return Fault(
        kind=kind,
        words=words,
        path=(*at, *path),
        holders=(*(None for _ in at), *holders),
        got=value,
        expected=tuple(named.get("expected", "").split(" | ")),
        limit=named.get("limit", ""),
        bound=named.get("bound", "").replace("\\\\", "\\"),
    )


# --- Rendering: what all dialects need to say a turn: JSON bytes, events of a stream, tokens that only have to be
# there. Knows no dialect.


def json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8; lone surrogates, which have no UTF-8, as escapes."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError:
        raise too_deep() from None
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def event_lines(data: bytes, turn: Turn, *, kind: str | None = None) -> bytes:
    """Return one event of a stream, its lines ended as the turn says. `kind` is the name of its type, if it has one."""
    newline = turn.newline.encode()
    named = b"" if kind is None else b"event: " + kind.encode() + newline
    return named + b"data: " + data + newline + newline


def whole(value: Any) -> Answer:
    """Return an answer that is one JSON value."""
    return Answer(pieces=(Piece(kind="whole", content=json_bytes(value)),))


def called(turn: Turn, ids: Iterator[str], named: str = "id") -> Iterator[tuple[ScriptedCall, JsonObject]]:
    """Yield each call of a turn, and the field of its id; no field where it is to have none.

    Args:
        ids: Names the calls without an id of their own.
        named: What the vendor calls the field.
    """
    for made in turn.calls:
        call_id = next(ids) if made.id is UNSET else made.id
        yield made, {} if call_id is None else {named: call_id}


def openai_calls(turn: Turn, ids: Iterator[str]) -> list[JsonObject]:
    """Return the calls of a turn as Chat Completions, and Cohere after it, have them in a message."""
    return [
        {**named, "type": "function", "function": {"name": made.name, "arguments": made.arguments}}
        for made, named in called(turn, ids)
    ]


def in_turns(by_call: list[list[T]], turn: Turn) -> list[T]:
    """Return what is sent of all calls in order of sending: one call after the other, or in turns where the turn says so."""
    if not turn.interleave:
        return [part for own in by_call for part in own]
    longest = max(map(len, by_call), default=0)
    return [own[place] for place in range(longest) for own in by_call if place < len(own)]


def error_fields(error: str | JsonObject) -> JsonObject:
    """Return the fields of an error: a message, or those of the vendor's object, which may stand in an envelope."""
    body = {"message": error} if isinstance(error, str) else error.get("error", error)
    return body if isinstance(body, dict) else {"message": body}


def finish_name(turn: Turn, names: Mapping[Finish, str]) -> str | None:
    """Return why a turn ended, by the vendor's name for it; the turn's own text where the vendor has none. None for no reason.

    Args:
        names: The vendor's name of each reason.
    """
    if turn.finish is None:
        return None
    finish = finish_of(turn)
    return names[finish] if finish in names else str(turn.finish)


def arguments_value(arguments: str) -> Any:
    """Return the arguments of a call as the object that they are. Broken ones, which no vendor sends so, go out as the text that they are."""
    try:
        value = json.loads(arguments or "{}", object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as Anthropic and Bedrock stream them: as text, and nothing for an empty object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return "" if text.strip() == "{}" else text


def used_tokens(turn: Turn, prompt: Any) -> Usage:
    """Return the tokens of a turn: its own, or four characters a token."""
    if isinstance(turn.usage, Usage):
        return turn.usage
    said = [
        turn.text or "",
        turn.thinking or "",
        turn.refusal or "",
        *(made.name + made.arguments for made in turn.calls),
    ]
    return Usage(input_tokens=len(json_bytes(prompt)) // 4 + 1, output_tokens=sum(map(len, said)) // 4 + 1)


# --- Listings: the mock's one model, in the list of the dialect that asks. Decides nothing else.

_WINDOW = 32_768
_OUTPUT = 4_096


def is_listing(method: str, path: str) -> bool:
    """Whether a request asks for the list of models."""
    return method == "GET" and path.endswith("/models")


def model_list(query: str, headers: Mapping[str, str]) -> bytes:
    """Return the list, in the form of the dialect whose query or headers the request has; else in OpenAI's."""
    return json_bytes(_listed(parse_qs(query), headers))


def _listed(query: Mapping[str, list[str]], headers: Mapping[str, str]) -> JsonObject:
    if "anthropic-version" in headers:
        model = {"id": "mock", "type": "model", "display_name": "Mock", "max_input_tokens": _WINDOW}
        return {"data": [model], "first_id": "mock", "last_id": "mock", "has_more": False}
    if "pageSize" in query or "x-goog-api-key" in headers:
        methods = {"supportedGenerationMethods": ["generateContent"]}
        return {"models": [{"name": "models/mock", "inputTokenLimit": _WINDOW, "outputTokenLimit": _OUTPUT, **methods}]}
    if "endpoint" in query:
        return {"models": [{"name": "mock", "endpoints": query["endpoint"], "context_length": _WINDOW}]}
    return {"object": "list", "data": [{"id": "mock", "object": "model"}]}


# --- AWS's errors: their classes by status, and the body that tells one. Knows no dialect.

_CLASSES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def aws_error(status: int, error: str | JsonObject) -> bytes:
    """Return the body of an error: a message, or the object as it is. The class, which AWS tells in a header, is in it."""
    kind = _CLASSES.get(status, "ValidationException" if 400 <= status < 500 else "InternalServerException")
    return json_bytes({"__type": kind, **error_fields(error)})


def aws_exception(status: int, error: str | JsonObject) -> tuple[str, bytes]:
    """Return type and payload of an exception inside a stream. An error without a status is one of the model's stream."""
    said = {"message": error} if isinstance(error, str) else error
    named = said.get("type")
    kind = _CLASSES.get(status, "InternalServerException") if status >= 400 else "ModelStreamErrorException"
    kind = named if isinstance(named, str) else kind[0].lower() + kind[1:]
    return kind, json_bytes({name: value for name, value in said.items() if name != "type"})


# --- AWS event streams, written: one message of headers and a payload, with both checksums. Reads nothing.

_TEXT = 7


def event_frame(kind: str, payload: bytes) -> bytes:
    """Return one event.

    Example:
        >>> event_frame("messageStart", b'{"role":"assistant"}')[-4:] != b""
        True

    Args:
        kind: The type of the event.
        payload: JSON.
    """
    return frame({":event-type": kind, ":content-type": "application/json", ":message-type": "event"}, payload)


def exception_frame(kind: str, payload: bytes) -> bytes:
    """Return one exception."""
    return frame({":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}, payload)


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message of these headers and this payload."""
    head = b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + bytes([_TEXT]) + struct.pack(">H", len(value)) + value


# --- OpenAI's errors: the object that both of its dialects put into an error body or event. Decides nothing.

_ERROR_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def openai_error(
    status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
) -> JsonObject:
    """Return the vendor's error object: the message in its envelope, or the object as it is."""
    kind = "server_error" if status >= 500 or status < 400 else _ERROR_KINDS.get(status, "invalid_request_error")
    return {"message": "", "type": kind, "param": param, "code": code, **error_fields(error)}


# --- OpenAI's declarations: what both of its dialects take, and what they say of anything else.

OpenAIName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[a-zA-Z0-9_-]+\Z")]

_REFUSED_AT_ROOT = frozenset({"oneOf", "anyOf", "allOf", "enum", "not"})
_GOT: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
}
"""What the vendor calls each type that JSON can hold."""
_EXPECTED = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "an array of objects",
    "object": "an object",
    "null": "null",
}


class OpenAIFunction(msgspec.Struct):
    """The function of a tool."""

    name: OpenAIName
    parameters: JsonObject  # the vendor lets it be absent; but a tool that forgot its schema looks just like that
    description: str | None = None
    strict: bool | None = None

    def __post_init__(self) -> None:
        schema = self.parameters
        if schema.get("type") != "object":
            kind = json.dumps(schema.get("type"))
            raise ValueError(self.fault(f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'."))
        if schema.keys() & _REFUSED_AT_ROOT:
            reason = "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
            raise ValueError(self.fault(f"schema must have type 'object' and not have {reason}"))
        if type(schema.get("properties", {})) is not dict or type(schema.get("required", [])) is not list:
            raise ValueError(self.fault("'properties' must be an object, and 'required' an array."))

    def fault(self, fault: str) -> str:
        return f"Invalid schema for function '{self.name}': {fault}"


class OpenAIForm(msgspec.Struct):
    """The schema that an answer shall have."""

    name: OpenAIName
    schema: JsonObject
    strict: bool | None = None


def openai_refusal(fault: Fault) -> Refusal:
    """Say a fault in the vendor's words."""
    place = bracketed(fault.path)
    code = None
    match fault.kind:
        case "missing":
            said, code = f"Missing required parameter: '{place}'.", "missing_required_parameter"
        case "unknown":
            said, code = f"Unknown parameter: '{place}'.", "unknown_parameter"
        case "type" if not place:
            said = "We could not parse the JSON body of your request: it must be an object."
        case "type":
            words = [_EXPECTED.get(word, word) for word in fault.expected if word != "null" or len(fault.expected) == 1]
            expected = words[0] if len(words) == 1 else f"one of {' or '.join(words).replace('or an', 'or')}"
            got = _GOT.get(type(fault.got), f"a {type(fault.got).__name__}")
            said, code = f"Invalid type for '{place}': expected {expected}, but got {got} instead.", "invalid_type"
        case "limit":
            said, code = _limit(fault, place)
        case "pattern":
            reason = f"Expected a string that matches the pattern '{fault.bound.removesuffix(chr(92) + 'Z')}$'."
            said, code = f"Invalid '{place}': string does not match pattern. {reason}", "invalid_value"
        case "value":
            said, code = f"Invalid value: '{fault.got}'.", "invalid_value"
        case _:
            said = fault.words.replace("{place}", place)
    return Refusal(said, param=place or None, code=code)


def _limit(fault: Fault, place: str) -> tuple[str, str]:
    noun = "array" if isinstance(fault.got, list) else "string"
    kind = f"an {noun}" if noun == "array" else f"a {noun}"
    bound = fault.bound.removesuffix(".0")
    match fault.limit:
        case "length >=":
            reason = f"Expected {kind} with minimum length {bound}, but got an empty {noun} instead."
            return f"Invalid '{place}': empty {noun}. {reason}", f"empty_{noun}"
        case "length <=":
            reason = (
                f"Expected {kind} with maximum length {bound}, but got {kind} with length {len(fault.got)} instead."
            )
            return f"Invalid '{place}': {noun} too long. {reason}", f"{noun}_above_max_length"
        case _:
            side, code = (
                ("below minimum", "below_min_value") if fault.limit == ">=" else ("above maximum", "above_max_value")
            )
            reason = f"Expected a value {fault.limit} {bound}, but got {fault.got} instead."
            return f"Invalid '{place}': {side} value. {reason}", code


def did_you_mean(fault: Fault, shape: type[msgspec.Struct]) -> str:
    """Return the vendor's hint at the field that was meant; nothing where none is near."""
    near = difflib.get_close_matches(str(fault.path[-1]), shape.__struct_fields__, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


def check_functions(
    functions: Mapping[int, OpenAIFunction], where: str, *, is_strict: Callable[[OpenAIFunction], bool]
) -> list[str]:
    """Return the names of functions, each of which must be another.

    Args:
        functions: Each by the index of its tool.
        where: Where the name of a function is in its tool.
        is_strict: Whether strict mode reads the schema.
    """
    names: list[str] = []
    for index, function in functions.items():
        if is_strict(function) and (fault := check_strict_schema(function.parameters)) is not None:
            place = f"tools[{index}].{where}parameters"
            raise Refusal(function.fault(fault), param=place, code="invalid_function_parameters")
        if function.name in names:
            raise Refusal(
                f"Invalid 'tools': the function name '{function.name}' is used by more than one tool.",
                param=f"tools[{index}].{where}name",
                code="invalid_value",
            )
        names.append(function.name)
    return names


def check_arguments(arguments: str, where: str) -> None:
    """Check that the arguments of a call in the history are JSON."""
    try:
        json.loads(arguments, parse_constant=no_constant)
    except (ValueError, RecursionError):
        place = f"{where}.arguments"
        raise Refusal(f"Invalid '{place}': the string is not valid JSON.", param=place, code="invalid_value") from None


# --- Strict schemas: say what the vendor's strict mode refuses in a schema. Compiles nothing, and shares nothing with
# what does.

_KEYWORDS = frozenset({
    *("type", "title", "description", "enum", "const", "properties", "required", "additionalProperties", "items"),
    *("anyOf", "$ref", "$defs", "definitions", "pattern", "format", "multipleOf", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
})  # fmt: skip
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def check_strict_schema(schema: Any) -> str | None:  # Any: JSON of strangers
    """Return the first thing that strict mode refuses, in the vendor's words; None where it takes the schema."""
    return next(_faults(schema, schema, ()), None)


def _faults(schema: Any, root: Any, at: tuple[str, ...]) -> Iterator[str]:
    where = f"In context={json.dumps(at).replace('[', '(').replace(']', ')')}, "
    if not isinstance(schema, dict):
        yield f"{where}schema must be an object."
        return
    yield from (f"{where}'{key}' is not permitted." for key in schema if key not in _KEYWORDS)
    if "$ref" in schema:
        yield from _reference_faults(schema, root, where)
        return
    yield from _keyword_faults(schema, where)
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    if "object" in kinds:
        yield from _object_faults(schema, where)
    if "array" in kinds and "items" not in schema:
        yield f"{where}array schema missing items."
    for path, below in _below(schema):
        yield from _faults(below, root, (*at, *path))


def _keyword_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    if not schema.keys() & {"type", "anyOf", "enum", "const"}:
        yield f"{where}schema must have a 'type' key."
    if schema.get("format", _FORMATS[0]) not in _FORMATS:
        yield f"{where}'{schema['format']}' is not a valid format."
    if "(?" in str(schema.get("pattern", "")):
        yield f"{where}regex lookaround is not supported."


def _object_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False:
        yield f"{where}'additionalProperties' is required to be supplied and to be false."
    if not isinstance(properties, dict):
        yield f"{where}object schema missing properties."
        return
    message = "'required' is required to be supplied and to be an array including every key in properties."
    if not isinstance(required, list):
        yield f"{where}{message}"
        return
    for name in properties:
        if name not in required:
            yield f"{where}{message} Missing '{name}'."
    for name in required:
        if name not in properties:
            yield f"{where}{message} Extra required key '{name}' supplied."


def _reference_faults(schema: dict[str, Any], root: Any, where: str) -> Iterator[str]:
    if len(schema) > 1:
        yield f"{where}$ref cannot have keywords {sorted(schema.keys() - {'$ref'})}."
    target = schema["$ref"]
    if target == "#":
        return
    _, _, path = str(target).partition("#/")
    found = root
    for step in path.split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    if found is None or not str(target).startswith("#/"):
        yield f"{where}reference can only point to definitions of the schema; got '{target}'."


def _below(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key in ("properties", "$defs", "definitions"):
        held = schema.get(key)
        for name, below in held.items() if isinstance(held, dict) else ():
            yield (key, name), below
    for index, below in enumerate(schema["anyOf"] if isinstance(schema.get("anyOf"), list) else ()):
        yield ("anyOf", str(index)), below
    if "items" in schema:
        yield ("items",), schema["items"]
