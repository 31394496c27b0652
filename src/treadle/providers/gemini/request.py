"""Gemini, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from treadle.errors import ConfigurationError
from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.ports import ModelFacts, ModelRequest, ToolChoice, ToolSpec
from treadle.providers.http.endpoint import with_version
from treadle.providers.http.listings import Listing, Page, number, objects
from treadle.providers.payload import (
    EncodedMessages,
    ToolSets,
    object_schema,
    opening,
    sendable_arguments,
    server_tools,
    to_json,
    wire_id,
    wire_name,
    with_schema,
)
from treadle.tools import JsonObject
from treadle.validation.schema import resolved

__all__ = [
    "LISTING",
    "PROVIDER",
    "GeminiRequests",
    "gemini_name",
    "gemini_schema",
    "is_third_generation",
]


# --- Gemini's JSON Schema: a schema in the words that the vendor takes. Checks nothing: the gate enforces the original.

_MAX_EXPANSIONS = 500
"""References replaced in one schema: a small document can name itself a million times."""

_DROPPED = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "$ref", "const", "discriminator"}
)
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SINGLES = frozenset({"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"})
_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
_FORMATS = frozenset({"date", "date-time", "double", "duration", "enum", "float", "int32", "int64", "time"})


def gemini_schema(schema: JsonObject) -> JsonObject:
    """Return the schema without references; one that contains itself goes one level deep, and then tells the type only."""
    return _Writer(schema).node(schema)


def _gemini_parameters(schema: JsonObject) -> JsonObject:
    """Return the schema of a tool: the vendor asks for an object at the top, and older models for its properties."""
    top = object_schema({**schema, **resolved(schema, schema)})
    return {"properties": {}, **_Writer(schema).node(top)}


class _Writer:
    """Writes one document."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._expansions_left = _MAX_EXPANSIONS

    def node(self, schema: Any, inside: tuple[str, ...] = ()) -> JsonObject:
        """Return one sub-schema. `inside` are the references that led to it."""
        if not isinstance(schema, dict):
            return {} if schema is not False else {"not": {}}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in inside or not self._expansions_left:
                return self._closed(schema)
            self._expansions_left -= 1
            schema, inside = resolved(schema, self._root), (*inside, reference)
        written = {word: self._value(word, value, inside) for word, value in schema.items() if word not in _DROPPED}
        if "const" in schema:
            written["enum"] = [schema["const"]]
        return _with_known_format(_with_type(written))

    def _value(self, word: str, value: Any, inside: tuple[str, ...]) -> Any:
        if word in _MAPS and isinstance(value, dict):
            return {name: self.node(one, inside) for name, one in value.items()}
        if word in _LISTS and isinstance(value, list):
            return [self.node(one, inside) for one in value]
        if word in _SINGLES and isinstance(value, dict):
            return self.node(value, inside)
        return value

    def _closed(self, schema: Mapping[str, Any]) -> JsonObject:
        """Return what is left of a reference that is not followed: the kind of value, and its words."""
        target = resolved(schema, self._root)
        return {word: target[word] for word in ("type", "title", "description") if word in target}


def _with_type(node: JsonObject) -> JsonObject:
    """Say of which type the values are that a node lists. The vendor misses it."""
    values = node.get("enum")
    if "type" in node or not isinstance(values, list):
        return node
    types = list(dict.fromkeys(_TYPES[type(value)] for value in values if type(value) in _TYPES))
    return {"type": types[0] if len(types) == 1 else types, **node} if types else node


def _with_known_format(node: JsonObject) -> JsonObject:
    """Move a format that the vendor does not know into the description, where the model reads it."""
    format_name = node.get("format")
    if not isinstance(format_name, str) or format_name in _FORMATS:
        return node
    described = f"{node.get('description', '')} (format: {format_name})".lstrip()
    return {word: value for word, value in node.items() if word != "format"} | {"description": described}


# --- Gemini's rules for names and models: what a tool may be called, and what a model takes. Knows no request.

_GENERATION_NAME = re.compile(r"gemini-(\d+)")


def gemini_name(name: str) -> str:
    """Return a tool's name as Gemini takes it: as other providers do, but no digit and no dash may come first."""
    # No name holds a line break, so the digest that it brings is nobody else's.
    return wire_name(f"_\n{name}" if name[:1] in set("-0123456789") else name)


def is_third_generation(model: str) -> bool:
    """Return whether the model signs its calls and takes files inside results. A name without a number is a new model."""
    found = _GENERATION_NAME.search(model)
    return found is None or int(found[1]) >= 3


# --- Gemini's contents: neutral messages in the dialect's parts. Sends nothing, knows no request around them.

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

PROVIDER = "gemini"
"""What opaque parts of this dialect are marked with."""

_ABOUT_THE_ANSWER = frozenset({"citationMetadata", "groundingMetadata", "urlContextMetadata"})
"""What a server tells about its answer beside the parts of it."""

_UNSIGNED = "skip_thought_signature_validator"
"""The vendor's stand-in for a signature that cannot be had: a call of another model, or one that came without.

From its page on thought signatures (ai.google.dev/gemini-api/docs/thought-signatures). Gemini 3 answers 400 to a step whose first
call has neither; it checks no further call of the same step, and earlier models check none.
"""

_MODEL = b'{"role":"model","parts":['
_NOBODY = b'{"role":"user","parts":[{"text":"Continue."}]}'
"""Stands where the vendor wants a person's words and there are none: before the model's first words, and after its last."""

_MAX_BROKEN_CHARS = 2_000

_RESULT_MEDIA = frozenset({"application/pdf", "image/jpeg", "image/png", "image/webp", "text/plain"})
"""What Gemini 3 takes inside a function's response; other files, such as sound, follow the results."""


class _GeminiContents:
    """Writes messages for one model."""

    def __init__(self, *, origin: str, is_third_generation: bool) -> None:
        self._origin = origin
        self._is_third_generation = is_third_generation
        self._encoded = EncodedMessages(self._encode)

    def write(self, messages: Iterable[Message]) -> bytes:
        """Return the messages as contents joined by commas. Each message is encoded once, however often it is sent."""
        contents: list[bytes] = []
        pieces: list[bytes] = []
        for message in messages:
            for piece in self._encoded.pieces((message,)):
                if message.role == "assistant":
                    pieces.append(piece)
                    continue
                contents += _model_content(pieces)
                contents.append(piece)
                pieces = []
        return b",".join(_between_people([*contents, *_model_content(pieces)]))

    def _encode(self, message: Message) -> bytes:
        """Return a message as contents; of the model's only the parts, since its neighbours share one content."""
        match message.role:
            case "user":
                # A part without words is refused, and so is a content without parts.
                return _content(list(_user_parts(message.parts)) or [{"text": " "}])
            case "assistant":
                return to_json(self._model_parts(message))[1:-1]
            case "tool":
                return b",".join(map(_content, self._results(message.results)))

    def _model_parts(self, message: Message) -> list[_Wire]:
        is_own = message.origin == self._origin
        parts = [wire for part in message.parts if (wire := _model_part(part, is_own=is_own)) is not None]
        first_call = next((wire for wire in parts if "functionCall" in wire), None)
        if self._is_third_generation and first_call is not None:
            first_call.setdefault("thoughtSignature", _UNSIGNED)
        return parts

    def _results(self, results: tuple[Result, ...]) -> Iterator[list[_Wire]]:
        """Yield the parts of one content of results, and of one with the files that these cannot hold."""
        # All results of a step stand in one content, or the vendor counts too few of them.
        if results:
            yield [self._result(result) for result in results]
        following = [part for result in results for part in self._attachments(result)]
        if following:
            yield following

    def _result(self, result: Result) -> _Wire:
        # The id is optional, and always sent: it tells two calls of one name apart. Servers without ids take any.
        response: _Wire = {
            "name": gemini_name(result.name),
            "response": _response(result),
            "id": wire_id(result.call_id),
        }
        if inside := [_media(media) for media in result.media if self._goes_inside(media)]:
            response["parts"] = inside
        return {"functionResponse": response}

    def _attachments(self, result: Result) -> Iterator[_Wire]:
        outside = [_media(media) for media in result.media if not self._goes_inside(media)]
        if outside:
            yield {"text": f"Attached to the result of {gemini_name(result.name)} ({wire_id(result.call_id)}):"}
            yield from outside

    def _goes_inside(self, media: Media) -> bool:
        return self._is_third_generation and media.base64 is not None and media.media_type in _RESULT_MEDIA


def _content(parts: list[_Wire]) -> bytes:
    return to_json({"role": "user", "parts": parts})


def _model_content(pieces: list[bytes]) -> list[bytes]:
    return [_MODEL + b",".join(pieces) + b"]}"] if pieces else []


def _between_people(contents: list[bytes]) -> list[bytes]:
    """Return contents that begin and end with a person's words or with results: nothing else may stand around a call."""
    opening = [_NOBODY] if contents and contents[0].startswith(_MODEL) else []
    ending = [_NOBODY] if contents and contents[-1].startswith(_MODEL) else []
    return [*opening, *contents, *ending]


def _user_parts(parts: tuple[Part, ...]) -> Iterator[_Wire]:
    for part in parts:
        match part:
            case Text(text) if text:
                yield {"text": text}
            case Media():
                yield _media(part)


def _model_part(part: Part, *, is_own: bool) -> _Wire | None:
    """Return a part of the model's message; None for what this model cannot take."""
    match part:
        case Text() if part.text or (part.signature is not None and is_own):
            return _signed({"text": part.text}, part.signature, is_own=is_own)
        case Thinking() if is_own and (part.text or part.signature is not None):
            return _signed({"text": part.text, "thought": True}, part.signature, is_own=is_own)
        case ToolCall():
            return _signed({"functionCall": _call(part)}, part.signature, is_own=is_own)
        case Media():
            return _media(part)
        case Opaque(provider=provider, payload=dict() as payload) if is_own and provider == PROVIDER:
            # What was said about the answer as a whole, such as its sources, is no part and does not go back.
            return None if payload.keys() & _ABOUT_THE_ANSWER else payload
        case _:
            return None


def _signed(wire: _Wire, signature: str | None, *, is_own: bool) -> _Wire:
    return {**wire, "thoughtSignature": signature} if signature is not None and is_own else wire


def _call(call: ToolCall) -> _Wire:
    return {"name": gemini_name(call.name), "args": _arguments(call.arguments), "id": wire_id(call.id)}


def _arguments(raw: str) -> _Wire:
    """Return the arguments as an object in which every name occurs once, as the vendor's parser wants it."""
    arguments: _Wire = msgspec.json.decode(sendable_arguments(raw))
    return arguments if _can_be_written(arguments) else {"_invalid": raw[:_MAX_BROKEN_CHARS]}


def _response(result: Result) -> _Wire:
    """Return the result as the object that the vendor wants: `output` and `error` are its keys for any other value."""
    value = _structure(result.content)
    if result.is_error:
        return {"error": result.content if value is None else value}
    if isinstance(value, dict):
        return value
    return {"output": result.content if value is None else value}


def _structure(content: str) -> Mapping[str, Any] | list[Any] | None:
    """Return the object or the list that a text is; None for words."""
    # The vendor takes any "$ref" in a response for one of its files, and refuses the request when there is none: so it stays text.
    if not content.lstrip().startswith(("{", "[")) or '"$ref"' in content:
        return None
    try:
        value: _Wire | list[Any] = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if _can_be_written(value) else None


def _can_be_written(value: Any) -> bool:
    """Return whether a value that could be read can be written too, some levels deeper: both stop at a depth of about 1,000."""
    try:
        to_json([[[[[[[[value]]]]]]]])
    except RecursionError:
        return False
    return True


def _media(media: Media) -> _Wire:
    if media.base64 is not None:
        return {"inlineData": {"mimeType": media.media_type, "data": media.base64}}
    if media.url is not None:
        return {"fileData": {"mimeType": media.media_type, "fileUri": media.url}}
    return {"text": f"[{media.media_type}: {media.name or 'no content'}]"}


# --- Gemini, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session.

_OURS = frozenset({"contents", "model", "systemInstruction", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_GENERATION = frozenset(
    {
        *("candidateCount", "enableEnhancedCivicAnswers", "frequencyPenalty", "logprobs", "maxOutputTokens"),
        *("mediaResolution", "presencePenalty", "responseLogprobs", "responseModalities", "seed", "speechConfig"),
        *("stopSequences", "temperature", "thinkingConfig", "topK", "topP", "imageConfig"),
    }
)
"""Options that the vendor wants inside `generationConfig`."""

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}


class GeminiRequests:
    """Writes request bodies for one model. `Requests` says what it is made with."""

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any]) -> None:
        self._is_third_generation = is_third_generation(model)
        self._fields = {name: value for name, value in options.items() if name not in _GENERATION}
        self._generation = _generation_config(options, self._fields.pop("generationConfig", None))
        self._server_tools = server_tools(
            self._fields.pop("server_tools", None),
            example="{'googleSearch': {}}",
            is_function=lambda tool: not {"functionDeclarations", "function_declarations"}.isdisjoint(tool),
        )
        self._tool_config = _tool_config_option(self._fields.pop("toolConfig", None))
        self._opening = self._open(self._generation)
        self._contents = _GeminiContents(origin=origin, is_third_generation=self._is_third_generation)
        self.tools: Final = ToolSets(partial(map, _tool), name=gemini_name)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least comes first, and the contents last: the bytes of one step begin those of the next."""
        pieces = [self._opening_of(request)]
        if tools := self._tools_of(request):
            pieces.append(b',"tools":' + tools)
        if config := self._tool_config_of(request):
            pieces.append(b',"toolConfig":' + to_json(config))
        if instructions := self._instructions_of(request):
            pieces.append(b',"systemInstruction":' + to_json({"parts": [{"text": instructions}]}))
        return b"".join((*pieces, b',"contents":[', self._contents.write(request.messages), b"]}"))

    def _open(self, generation: Mapping[str, Any]) -> bytes:
        return opening({}, {**self._fields, "generationConfig": dict(generation)}, ours=_OURS)

    def _opening_of(self, request: ModelRequest) -> bytes:
        if request.output_schema is None or self._tells_schema(request):
            return self._opening
        form = {"responseMimeType": "application/json", "responseJsonSchema": gemini_schema(request.output_schema)}
        return self._open({**self._generation, **form})

    def _tells_schema(self, request: ModelRequest) -> bool:
        """Return whether the schema goes into the instructions: before Gemini 3 the vendor refuses it along with tools."""
        return not self._is_third_generation and bool(request.tools or self._server_tools)

    def _instructions_of(self, request: ModelRequest) -> str:
        told = request.output_schema if self._tells_schema(request) else None
        return with_schema(request.instructions or "", told)

    def _tools_of(self, request: ModelRequest) -> bytes:
        ours = [b'{"functionDeclarations":' + self.tools.of(request.tools).encoded + b"}"] if request.tools else []
        tools = [*ours, self._server_tools] if self._server_tools else ours
        return b"[" + b",".join(tools) + b"]" if tools else b""

    def _tool_config_of(self, request: ModelRequest) -> _Wire:
        if not request.tools:
            return self._tool_config
        return {**self._tool_config, "functionCallingConfig": _function_calling(request.tool_choice)}


def _generation_config(options: Mapping[str, Any], given: Any) -> _Wire:
    flat = {name: value for name, value in options.items() if name in _GENERATION}
    if not isinstance(given, dict | None):
        raise ConfigurationError("The option generationConfig must be an object.")
    return {name: value for name, value in {**(given or {}), **flat}.items() if value is not None}


def _tool_config_option(given: Any) -> _Wire:
    if not isinstance(given, dict | None) or "functionCallingConfig" in (given or {}):
        raise ConfigurationError(
            "The option toolConfig must be an object without functionCallingConfig: use tool_choice."
        )
    opening({}, {"toolConfig": given}, ours=frozenset())  # refuses what is not valid JSON
    return given or {}


def _tool(spec: ToolSpec) -> _Wire:
    schema = _gemini_parameters(spec.parameters)
    return {"name": gemini_name(spec.name), "description": spec.description, "parametersJsonSchema": schema}


def _function_calling(choice: ToolChoice) -> _Wire:
    """Return the choice in the vendor's words. There is no way to say one call at a time: the runtime orders them anyway."""
    if mode := _MODES.get(choice):
        return {"mode": mode}
    return {"mode": "ANY", "allowedFunctionNames": [gemini_name(choice)]}


# --- Gemini's list of models, in pages: those that generate content.


def _read(value: Any) -> Page | None:
    listed = objects(value.get("models", [])) if isinstance(value, dict) and "error" not in value else None
    if listed is None:
        return None
    rest = value.get("nextPageToken")
    return Page(
        {
            one["name"].removeprefix("models/"): ModelFacts(
                window=number(one.get("inputTokenLimit")), output=number(one.get("outputTokenLimit"))
            )
            for one in listed
            if isinstance(one.get("name"), str) and _generates(one)
        },
        {"pageToken": rest} if isinstance(rest, str) and rest else None,
    )


def _generates(model: dict[str, Any]) -> bool:
    methods = model.get("supportedGenerationMethods")
    return not isinstance(methods, list) or "generateContent" in methods


def _address(base_url: str) -> str:
    return with_version(base_url, "/v1beta")


LISTING = Listing(read=_read, address=_address, query={"pageSize": "1000"}, key_header="x-goog-api-key", key_prefix="")
