"""Chat Completions: what the dialect takes, and how it says a turn, streamed or whole. Knows no fault of the wire and no socket."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Fault,
    OpenAIForm,
    OpenAIFunction,
    OpenAIName,
    Piece,
    PieceKind,
    Refusal,
    check_arguments,
    check_functions,
    check_strict_schema,
    did_you_mean,
    event_lines,
    finish_name,
    in_turns,
    json_bytes,
    openai_calls,
    openai_error,
    openai_refusal,
    read,
    used_tokens,
    whole,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = ["ChatCompletions", "check_chat_history", "check_chat_request"]


# --- What the vendor takes, declared. Messages and parts are open: a compatible server has fields of its own in them.

_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Count: TypeAlias = Annotated[float, msgspec.Meta(ge=1)]
_Penalty: TypeAlias = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


class _ImageUrl(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: JsonObject


class _InputAudio(msgspec.Struct, tag_field="type", tag="input_audio"):
    input_audio: JsonObject


class _File(msgspec.Struct, tag_field="type", tag="file"):
    file: JsonObject


_Texts: TypeAlias = str | Annotated[list[_Text], msgspec.Meta(min_length=1)]


class _System(msgspec.Struct, tag_field="role", tag="system"):
    content: _Texts
    tool_calls: None = None
    tool_call_id: None = None


class _Developer(_System, tag="developer"):
    pass


class _User(msgspec.Struct, tag_field="role", tag="user"):
    content: str | Annotated[list[_Text | _ImageUrl | _InputAudio | _File], msgspec.Meta(min_length=1)]
    tool_calls: None = None
    tool_call_id: None = None


class _Tool(msgspec.Struct, tag_field="role", tag="tool"):
    content: _Texts
    tool_call_id: _Words


class _Called(msgspec.Struct):
    name: OpenAIName
    arguments: _Words


class _Call(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    type: Literal["function"]
    function: _Called


class _Assistant(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | Annotated[list[_Text | _RefusalPart], msgspec.Meta(min_length=1)] | None = None
    tool_calls: Annotated[list[_Call], msgspec.Meta(min_length=1)] | None = None
    refusal: Any = None
    audio: Any = None

    def __post_init__(self) -> None:
        if self.content is None and self.tool_calls is None and self.refusal is None and self.audio is None:
            raise ValueError("Invalid value for 'content': expected a string, got null.")


_Message: TypeAlias = _System | _Developer | _User | _Assistant | _Tool


class _History(msgspec.Struct):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Declared(msgspec.Struct):
    type: Literal["function"]
    function: OpenAIFunction


class _Name(msgspec.Struct):
    name: str


class _Chosen(msgspec.Struct, tag_field="type", tag="function"):
    function: _Name


class _Allowed(msgspec.Struct):
    mode: Literal["auto", "required"]
    tools: list[Any]


class _ChosenAmong(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    allowed_tools: _Allowed


class _PlainForm(msgspec.Struct, tag_field="type", tag="text"):
    pass


class _JsonForm(msgspec.Struct, tag_field="type", tag="json_object"):
    pass


class _SchemaForm(msgspec.Struct, tag_field="type", tag="json_schema"):
    json_schema: OpenAIForm


class _Request(_History, forbid_unknown_fields=True):
    model: _Words
    stream: bool | None = None
    store: bool | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    n: Annotated[float, msgspec.Meta(ge=1, le=128)] | None = None
    top_logprobs: Annotated[float, msgspec.Meta(ge=0, le=20)] | None = None
    stream_options: _StreamOptions | None = None
    tools: Annotated[list[_Declared], msgspec.Meta(min_length=1, max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | _Chosen | _ChosenAmong | None = None
    response_format: _PlainForm | _JsonForm | _SchemaForm | None = None
    stop: Any = None
    seed: Any = None
    user: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    metadata: Any = None
    logit_bias: Any = None
    modalities: Any = None
    prediction: Any = None
    audio: Any = None
    service_tier: Any = None
    web_search_options: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None


def _refusal(fault: Fault) -> Refusal:
    if fault.path == ("model",) and fault.kind in ("missing", "limit"):
        return Refusal("you must provide a model parameter", param="model")
    if fault.kind == "unknown":
        hint = did_you_mean(fault, _Request)
        words = f"Unrecognized request argument supplied: {fault.path[0]}.{hint}"
        return Refusal(words, param=str(fault.path[0]), code="unknown_parameter")
    return openai_refusal(fault)


# --- The rules that no field can declare.


def check_chat_request(body: Any, *, lenient_arguments: bool = False) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request that the vendor takes.

    Args:
        lenient_arguments: Take arguments in the history that are not valid JSON, as some compatible servers do.

    Raises:
        Refusal: The vendor refuses it.
    """
    request = read(body, _Request, _refusal)
    if request.stream_options is not None and request.stream is not True:
        words = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise Refusal(words, param="stream_options")
    functions = {index: tool.function for index, tool in enumerate(request.tools or ())}
    names = check_functions(functions, "function.", is_strict=lambda function: bool(function.strict))
    for key in ("parallel_tool_calls", "tool_choice"):
        if not names and getattr(request, key) is not None:
            raise Refusal(f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", param=key)
    choice = request.tool_choice
    if isinstance(choice, _Chosen) and choice.function.name not in names:
        words = f"tool choice 'function.name': '{choice.function.name}' not found in 'tools' parameter."
        raise Refusal(f"Invalid value for 'tool_choice': {words}", param="tool_choice")
    form = request.response_format.json_schema if isinstance(request.response_format, _SchemaForm) else None
    if form is not None and form.strict and (fault := check_strict_schema(form.schema)) is not None:
        words = f"Invalid schema for response_format '{form.name}': {fault}"
        raise Refusal(words, param="response_format.json_schema.schema", code="invalid_json_schema")
    _check_messages(request.messages, lenient_arguments=lenient_arguments)
    return cast("JsonObject", body)


@checked
def check_chat_history(messages: Any, *, lenient_arguments: bool = False) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_chat_history([{"role": "user", "content": "go"}])
        >>> check_chat_history([{"role": "tool", "tool_call_id": "c", "content": "ok"}])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: Invalid parameter: messages with role 'tool' must be a response to ...

    Args:
        messages: The value of `messages`.
        lenient_arguments: Take arguments that are not valid JSON, as some compatible servers do.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    _check_messages(read({"messages": messages}, _History, _refusal).messages, lenient_arguments=lenient_arguments)


def _check_messages(messages: list[_Message], *, lenient_arguments: bool) -> None:
    """Check that each call has its result before anyone else speaks."""
    unanswered: list[str] = []
    answered: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if isinstance(message, _Tool):
            _take_result(message, where, unanswered, answered)
            continue
        _check_all_answered(unanswered, where)
        unanswered, answered = [], set()
        for place, call in enumerate((message.tool_calls or ()) if isinstance(message, _Assistant) else ()):
            at = f"{where}.tool_calls[{place}]"
            if call.id in unanswered:
                words = f"Invalid parameter: Duplicate value for 'id' of '{call.id}' in {at}."
                raise Refusal(words, param=f"{at}.id")
            if not lenient_arguments:
                check_arguments(call.function.arguments, f"{at}.function")
            unanswered.append(call.id)
    _check_all_answered(unanswered, f"messages[{len(messages) - 1}]")


def _take_result(message: _Tool, where: str, unanswered: list[str], answered: set[str]) -> None:
    """Take one tool message off the calls that wait for an answer."""
    call_id = message.tool_call_id
    if not unanswered and not answered:
        words = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise Refusal(f"Invalid parameter: {words}", param=f"{where}.role")
    if call_id in answered:
        words = f"Duplicate value for 'tool_call_id' of '{call_id}' in {where}."
        raise Refusal(f"Invalid parameter: {words}", param=f"{where}.tool_call_id")
    if call_id not in unanswered:
        words = f"'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
        raise Refusal(f"Invalid parameter: {words}", param=f"{where}.tool_call_id")
    unanswered.remove(call_id)
    answered.add(call_id)


def _check_all_answered(unanswered: list[str], where: str) -> None:
    if unanswered:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(unanswered)}",
            param=f"{where}.role",
        )


# --- Chat Completions: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket.

_CREATED = 1_700_000_000  # one instant for ever: equal scripts give equal bytes
_FINISHES = {Finish.STOP: "stop", Finish.CALLS: "tool_calls", Finish.LENGTH: "length", Finish.REFUSED: "content_filter"}


class ChatCompletions:
    """The dialect of `POST /v1/chat/completions`.

    Args:
        lenient_arguments: Take histories whose calls carry arguments that are not valid JSON.
    """

    path = "/chat/completions"

    def __init__(self, *, lenient_arguments: bool = False) -> None:
        self._lenient_arguments = lenient_arguments

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        return check_chat_request(body, lenient_arguments=self._lenient_arguments)

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        calls = openai_calls(turn, ids)
        head = {"id": f"chatcmpl-mock-{number}", "created": _CREATED, "model": body["model"]}
        if body.get("stream") is True:
            return _streamed(turn, body, head, calls)
        return whole(_whole(turn, body, head, calls))

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": openai_error(status, error, param=param, code=code)})


def _whole(turn: Turn, body: JsonObject, head: JsonObject, calls: list[JsonObject]) -> JsonObject:
    if turn.error is not None:
        return {"error": openai_error(turn.status, turn.error)}
    message: JsonObject = {"role": "assistant", "content": turn.text, "refusal": turn.refusal}
    if turn.thinking is not None:
        message["reasoning_content"] = turn.thinking
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(turn)}
    usage = {} if turn.usage is None else {"usage": _usage(turn, body)}
    return {**head, "object": "chat.completion", "choices": [choice], **usage}


def _streamed(turn: Turn, body: JsonObject, head: JsonObject, calls: list[JsonObject]) -> Answer:
    wants_usage = (body.get("stream_options") or {}).get("include_usage") is True
    head = {**head, "object": "chat.completion.chunk", **({"usage": None} if wants_usage else {})}

    def piece(
        kind: PieceKind, delta: JsonObject, *, finish: str | None = None, call: int | None = None, is_last: bool = False
    ) -> Piece:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Piece(
            kind=kind, content=event_lines(json_bytes({**head, "choices": [choice]}), turn), call=call, is_last=is_last
        )

    pieces = [
        piece("start", {"role": "assistant", "content": None if calls and turn.text is None else "", "refusal": None})
    ]
    pieces += (piece("thinking", {"reasoning_content": part}) for part in fragments(turn.thinking or "", turn.pieces))
    pieces += (piece("text", {"content": part}) for part in fragments(turn.text or "", turn.pieces))
    pieces += (piece("text", {"refusal": part}) for part in fragments(turn.refusal or "", turn.pieces))
    by_call = [list(_deltas_of(index, call, turn.pieces)) for index, call in enumerate(calls)]
    pieces += (
        piece("call", {"tool_calls": [part]}, call=part["index"], is_last=part is by_call[part["index"]][-1])
        for part in in_turns(by_call, turn)
    )
    if turn.error is not None:
        event = event_lines(json_bytes({"error": openai_error(turn.status, turn.error)}), turn)
        pieces.append(Piece(kind="error", content=event))
        return Answer(pieces=tuple(pieces), content_type="text/event-stream; charset=utf-8", is_stream=True)
    pieces.append(piece("finish", {}, finish=_finish(turn)))
    if turn.usage is not None and (wants_usage or turn.usage is not UNSET):
        event = event_lines(json_bytes({**head, "choices": [], "usage": _usage(turn, body)}), turn)
        pieces.append(Piece(kind="done", content=event))
    pieces.append(Piece(kind="done", content=event_lines(b"[DONE]", turn)))
    return Answer(pieces=tuple(pieces), content_type="text/event-stream; charset=utf-8", is_stream=True)


def _finish(turn: Turn) -> str | None:
    """Return why a turn ended. The vendor's model refuses in a field of its own and ends as with any answer."""
    is_plain_refusal = turn.finish is UNSET and turn.refusal is not None and not turn.calls
    return "stop" if is_plain_refusal else finish_name(turn, _FINISHES)


def _deltas_of(index: int, call: JsonObject, pieces: int) -> Iterable[JsonObject]:
    function = call["function"]
    yield {"index": index, **call, "function": {"name": function["name"], "arguments": ""}}
    for part in fragments(function["arguments"], pieces):
        yield {"index": index, "function": {"arguments": part}}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["messages"])
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens, "audio_tokens": 0},
    }
