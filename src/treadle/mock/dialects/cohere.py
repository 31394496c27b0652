"""Cohere's Chat, version 2: what the dialect takes, and how it says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Fault,
    Piece,
    PieceKind,
    Refusal,
    bracketed,
    error_fields,
    event_lines,
    finish_name,
    json_bytes,
    openai_calls,
    read,
    used_tokens,
    whole,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["CohereChat", "check_cohere_history", "check_cohere_request", "cohere_events"]


# --- What the vendor takes, declared.

_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]
_Image: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(https?://|data:image/(png|jpeg|webp|gif);base64,)")]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]

_MAX_IMAGES = 20
_MAX_STRICT_FIELDS = 200


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    """An object of the vendor's: it takes no further field."""


class _Text(_Object, tag_field="type", tag="text"):
    text: str


class _Thinking(_Object, tag_field="type", tag="thinking"):
    thinking: str


class _ImageUrl(msgspec.Struct):
    url: _Image


class _ImagePart(_Object, tag_field="type", tag="image_url"):
    image_url: _ImageUrl


class _Data(msgspec.Struct):
    data: JsonObject | str


class _Document(_Object, tag_field="type", tag="document"):
    document: _Data


class _Called(_Object):
    name: _Name
    arguments: str

    def __post_init__(self) -> None:
        if type(_parsed(self.arguments)) is not dict:
            raise ValueError("the arguments are not a JSON object")


class _Call(_Object):
    id: _Words
    type: Literal["function"]
    function: _Called


class _Message(_Object, tag_field="role"):
    content: str | list[Any] | None = None

    def __post_init__(self) -> None:
        is_blank = not self.content or (isinstance(self.content, str) and not self.content.strip())
        if is_blank and not (self.content is None and getattr(self, "tool_calls", None)):
            raise ValueError("message must not be empty in a turn")


class _System(_Message, tag="system"):
    content: str | list[_Text] | None = None


class _User(_Message, tag="user"):
    content: str | list[_Text | _ImagePart] | None = None


class _Tool(_Message, tag="tool", kw_only=True):
    content: str | list[_Text | _Document] | None = None
    tool_call_id: _Words


class _Assistant(_Message, tag="assistant"):
    content: str | list[_Text | _Thinking] | None = None
    tool_calls: Annotated[list[_Call], msgspec.Meta(min_length=1)] | None = None
    tool_plan: str | None = None
    citations: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        said = [self.content] if isinstance(self.content, str) else self.content or ()
        if self.tool_calls and any(isinstance(part, str) or (isinstance(part, _Text) and part.text) for part in said):
            raise ValueError(
                "text content is not allowed when tool_calls are provided. If you wish to pass a tool plan, either pass thinking "
                "content (with thinking enabled) or use 'tool_plan'"
            )


class _History(_Object):
    messages: Annotated[list[_System | _User | _Assistant | _Tool], msgspec.Meta(min_length=1)]


class _Function(_Object):
    name: _Name
    parameters: JsonObject
    description: str | None = None

    def __post_init__(self) -> None:
        if self.parameters.get("type") != "object" or not isinstance(self.parameters.get("properties"), dict):
            raise ValueError("'parameters' must be a JSON schema of an object with properties")


class _Declared(_Object):
    type: Literal["function"]
    function: _Function


class _Form(_Object):
    type: Literal["text", "json_object"]
    json_schema: JsonObject | None = None
    schema: JsonObject | None = None

    def __post_init__(self) -> None:
        if any(schema is not None and schema.get("type") != "object" for schema in (self.json_schema, self.schema)):
            raise ValueError("the top level type of response_format.json_schema must be object")


class _Thoughts(_Object):
    type: Literal["enabled", "disabled"]
    token_budget: Any = None


class _Citing(msgspec.Struct):
    mode: Literal["ENABLED", "DISABLED", "FAST", "ACCURATE", "OFF"]


class _Request(_History):
    model: _Words
    stream: bool | None = None
    strict_tools: bool | None = None
    logprobs: bool | None = None
    raw_prompting: bool | None = None
    return_prompt: bool | None = None
    temperature: _Share | None = None
    frequency_penalty: _Share | None = None
    presence_penalty: _Share | None = None
    k: Annotated[float, msgspec.Meta(ge=0, le=500)] | None = None
    p: Annotated[float, msgspec.Meta(ge=0.01, le=0.99)] | None = None
    max_tokens: Annotated[float, msgspec.Meta(ge=0)] | None = None
    seed: Annotated[float, msgspec.Meta(ge=0, le=2**64 - 1)] | None = None
    priority: Annotated[float, msgspec.Meta(ge=0, le=999)] | None = None
    safety_mode: Literal["CONTEXTUAL", "STRICT", "OFF", "NONE"] | None = None
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    stop_sequences: Annotated[list[str], msgspec.Meta(max_length=5)] | None = None
    tools: Annotated[list[_Declared], msgspec.Meta(min_length=1)] | None = None
    response_format: _Form | None = None
    thinking: _Thoughts | None = None
    citation_options: _Citing | None = None
    documents: Annotated[list[str | _Data], msgspec.Meta(min_length=1)] | None = None
    truncation_mode: Any = None


_TYPES = {"str": "string", "array": "list", "float": "number"}
_NEEDED = {
    "model": "a model parameter is required for this endpoint.",
    "messages": "invalid request: message must be at least 1 token long or tool results must be specified.",
}
_LIMITS = {
    ">=": "must be at least",
    "<=": "must be at most",
    "length <=": "must hold at most",
}


def _refusal(fault: Fault) -> Refusal:
    """Say a fault in the vendor's words."""
    place = bracketed(fault.path)
    match fault.kind:
        case "unknown":
            words = f"unknown field: parameter '{fault.path[-1]}' is not a valid field. For proper usage, please refer to https://docs.cohere.com/v2/reference/chat"
            return Refusal(words, param=place, status=422)
        case "type":
            expected = " or ".join(_TYPES.get(word, word) for word in fault.expected if word != "null")
            return Refusal(f"invalid type: parameter '{place}' should be of type {expected}.", param=place, status=422)
        case "missing" | "limit" if place in _NEEDED:
            return Refusal(_NEEDED[place])
        case "missing":
            said = "is required"
        case "limit" if fault.limit == "length >=":
            said = "must not be empty"
        case "limit":
            said = f"{_LIMITS[fault.limit]} {fault.bound.removesuffix('.0')}"
        case "pattern":
            said = f"does not match {fault.bound}"
        case "value":
            said = f"cannot be {fault.shown}"
        case _:
            return Refusal(f"invalid request: {fault.words}: '{place}'")
    return Refusal(f"invalid request: '{place}' {said}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- The rules that no field can declare.


def check_cohere_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request that the vendor takes.

    Raises:
        Refusal: The vendor refuses it.
    """
    request = read(body, _Request, _refusal)
    if request.frequency_penalty and request.presence_penalty:
        raise Refusal("invalid request: cannot specify both frequency_penalty and presence_penalty.")
    if request.tools is None and request.tool_choice is not None:
        raise Refusal("invalid request: tool_choice cannot be specified without tools")
    functions = [tool.function for tool in request.tools or ()]
    if len({function.name for function in functions}) < len(functions):
        raise Refusal("invalid request: two tools have the same name")
    if request.strict_tools and not all(function.parameters.get("required") for function in functions):
        raise Refusal(
            "invalid request: each tool must have at least one required parameter when strict_tools is enabled"
        )
    if request.strict_tools and sum(_fields(function.parameters) for function in functions) > _MAX_STRICT_FIELDS:
        raise Refusal(f"invalid request: at most {_MAX_STRICT_FIELDS} fields are allowed when strict_tools is enabled")
    if request.response_format is not None and request.response_format.type == "json_object":
        for field, name in ((request.documents, "RAG"), (request.tools, "tools")):
            if field:
                raise Refusal(f"invalid request: response_format is not supported with {name}.")
    _check_messages(request.messages, thinks=request.thinking is None or request.thinking.type == "enabled")
    return cast("JsonObject", body)


def _fields(schema: Any) -> int:
    """Return how many properties a schema declares, at every depth."""
    if isinstance(schema, dict):
        own = schema.get("properties")
        return (len(own) if isinstance(own, dict) else 0) + sum(map(_fields, schema.values()))
    return sum(map(_fields, schema)) if isinstance(schema, list) else 0


@checked
def check_cohere_history(messages: Any, *, thinks: bool = True) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_cohere_history([{"role": "user", "content": "go"}])
        >>> check_cohere_history([{"role": "user", "content": ""}])
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: invalid request: message must not be empty in a turn: 'messages[0]'

    Args:
        messages: The value of `messages`.
        thinks: Whether the model may think in this request.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    _check_messages(read({"messages": messages}, _History, _refusal).messages, thinks=thinks)


def _check_messages(messages: list[_System | _User | _Assistant | _Tool], *, thinks: bool) -> None:
    """Check who speaks when, and that each call has its result before anyone else speaks."""
    waiting: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if isinstance(message, _System) and index:
            raise Refusal("system turn must be the first in the list")
        if isinstance(message, _Tool):
            if message.tool_call_id not in waiting:
                raise Refusal(
                    f"invalid request: the tool call id {message.tool_call_id!r} at '{where}' is not found in the previous assistant message"
                )
            waiting.remove(message.tool_call_id)
            continue
        _check_answered(waiting, where)
        if isinstance(message, _Assistant):
            if not thinks and any(isinstance(part, _Thinking) for part in message.content or ()):
                raise Refusal(f"thinking content is not allowed when thinking is disabled: '{where}'")
            waiting = [call.id for call in message.tool_calls or ()]
            if len({*waiting}) < len(waiting) or seen & {*waiting}:
                raise Refusal(f"invalid request: an id is used by more than one tool call: '{where}'")
            seen |= {*waiting}
    _check_answered(waiting, "the end of messages")
    images = sum(isinstance(part, _ImagePart) for message in messages for part in message.content or ())
    if images > _MAX_IMAGES:
        raise Refusal(f"invalid request: at most {_MAX_IMAGES} images are allowed in one request - received {images}")


def _check_answered(waiting: list[str], where: str) -> None:
    if waiting:
        raise Refusal(f"invalid request: tool calls without a tool message before '{where}': {', '.join(waiting)}")


# --- Cohere's Chat, version 2: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no
# socket.

_FINISHES = {
    Finish.STOP: "COMPLETE",
    Finish.CALLS: "TOOL_CALL",
    Finish.LENGTH: "MAX_TOKENS",
    Finish.REFUSED: "ERROR_TOXIC",
}


class CohereChat:
    """The dialect of `POST /v2/chat`."""

    path = "/chat"

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        return check_cohere_request(body)

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        answer: JsonObject = {"id": f"mock-{number}", "message": _message(turn, ids)}
        if (finish := finish_name(turn, _FINISHES)) is not None:
            answer["finish_reason"] = finish
        if turn.usage is not None:
            answer["usage"] = _usage(turn, body)
        if body.get("stream") is True:
            return Answer(pieces=tuple(_pieces(answer, turn)), content_type="text/event-stream", is_stream=True)
        return whole(answer if turn.error is None else _error(turn.error))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes(_error(error))


def cohere_events(answer: JsonObject, *, pieces: int = 3) -> bytes:
    """Return the stream that says an answer which was sent whole.

    Example:
        >>> cohere_events({"message": {"content": []}, "finish_reason": "COMPLETE"}).count(b"data: ")
        3

    Args:
        answer: A whole answer's JSON object.
        pieces: Fragments of each text and of each call's arguments.
    """
    return b"".join(piece.content for piece in _pieces(answer, Turn(pieces=pieces)))


def _message(turn: Turn, ids: Iterator[str]) -> JsonObject:
    """Return the message of a turn. What is said along with calls is their plan."""
    message: JsonObject = {"role": "assistant"}
    said = [text for text in (turn.text, turn.refusal) if text]
    content = [{"type": "thinking", "thinking": turn.thinking}] if turn.thinking is not None else []
    if turn.calls:
        message |= {"tool_plan": "".join(said)} if said else {}
        message["tool_calls"] = openai_calls(turn, ids)
    else:
        content += ({"type": "text", "text": text} for text in said)
    return {**message, **({"content": content} if content else {})}


def _pieces(answer: JsonObject, turn: Turn) -> Iterator[Piece]:
    """Yield the events of an answer, in order."""

    def piece(kind: PieceKind, event: str, payload: JsonObject, *, call: int | None = None) -> Piece:
        content = event_lines(json_bytes({"type": event, **payload}), turn, kind=event)
        return Piece(kind=kind, content=content, call=call, is_last=event == "tool-call-end")

    message = answer["message"]
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield piece("start", "message-start", {"id": answer.get("id", "mock"), **_delta(empty)})
    for part in fragments(message.get("tool_plan") or "", turn.pieces):
        yield piece("text", "tool-plan-delta", _delta({"tool_plan": part}))
    cited = list(enumerate(message.get("citations") or ()))
    for index, block in enumerate(message.get("content") or ()):
        kind: PieceKind = "thinking" if block["type"] == "thinking" else "text"
        about = [(place, one) for place, one in cited if one.get("content_index", 0) == index]
        for event, payload in _block_events(block, about, turn.pieces):
            yield piece(kind, event, {"index": index, **payload})
    for index, call in enumerate(message.get("tool_calls") or ()):
        for event, payload in _call_events(call, turn.pieces):
            yield piece("call", event, {"index": index, **payload}, call=index)
    if turn.error is not None:
        yield Piece(kind="error", content=event_lines(json_bytes(_error(turn.error)), turn))
        return
    end = {name: answer[name] for name in ("finish_reason", "usage") if name in answer}
    if "finish_reason" in end:
        yield piece("finish", "message-end", {"delta": end})
    yield Piece(kind="done", content=event_lines(b"[DONE]", turn))


def _delta(message: JsonObject) -> JsonObject:
    return {"delta": {"message": message}}


def _block_events(
    block: JsonObject, cited: list[tuple[int, JsonObject]], pieces: int
) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of a block. What its text cites is said before its end, under an index of its own."""
    kind = block["type"]
    if kind not in ("text", "thinking"):
        yield "content-start", _delta({"content": block})
    else:
        yield "content-start", _delta({"content": {"type": kind, kind: ""}})
        for part in fragments(block[kind], pieces):
            yield "content-delta", _delta({"content": {kind: part}})
    for place, one in cited:
        yield "citation-start", {"index": place, **_delta({"citations": one})}
        yield "citation-end", {"index": place}
    yield "content-end", {}


def _call_events(call: JsonObject, pieces: int) -> Iterator[tuple[str, JsonObject]]:
    """Yield the events of a call. One without arguments has no piece of them."""
    function = call["function"]
    arguments = "" if function["arguments"].strip() == "{}" else function["arguments"]
    yield "tool-call-start", _delta({"tool_calls": {**call, "function": {"name": function["name"], "arguments": ""}}})
    for part in fragments(arguments, pieces):
        yield "tool-call-delta", _delta({"tool_calls": {"function": {"arguments": part}}})
    yield "tool-call-end", {}


def _error(error: str | JsonObject) -> JsonObject:
    """Return the vendor's error: a message beside an id, or the object as it is."""
    return {"id": "mock", "message": "", **error_fields(error)}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    """Return what was used. What is charged for is less: the vendor's own words around a prompt are free."""
    used = used_tokens(turn, body["messages"])
    thought = {"reasoning_tokens": used.reasoning_tokens} if used.reasoning_tokens else {}
    return {
        "billed_units": {
            "input_tokens": max(used.input_tokens - 1, 0),
            "output_tokens": max(used.output_tokens - 1, 0),
        },
        "tokens": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, **thought},
        "cached_tokens": used.cached_input_tokens,
    }
