"""Responses: what the dialect takes, and how it says a turn, streamed or whole, and what its server keeps. Knows no fault of the wire and no socket."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, cast

import msgspec
from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Fault,
    OpenAIForm,
    OpenAIFunction,
    Piece,
    PieceKind,
    Refusal,
    called,
    check_arguments,
    check_functions,
    check_strict_schema,
    did_you_mean,
    event_lines,
    in_turns,
    json_bytes,
    openai_error,
    openai_refusal,
    read,
    used_tokens,
    whole,
)
from treadle.mock.script import Turn, finish_of, fragments
from treadle.tools import JsonObject

__all__ = ["Kept", "Responses", "check_responses_history", "check_responses_request"]


# --- What the vendor takes, declared.

_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_CallId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_-]+\Z")]

_MOVED = {"messages": "input", "response_format": "text.format", "max_tokens": "max_output_tokens"}
"""Parameters of Chat Completions, and where they are here."""


class _InputText(msgspec.Struct, tag_field="type", tag="input_text"):
    text: str


class _InputImage(msgspec.Struct, tag_field="type", tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None

    def __post_init__(self) -> None:
        if self.image_url is None and self.file_id is None:
            raise ValueError("Missing required parameter: '{place}.image_url'.")


class _InputFile(msgspec.Struct, tag_field="type", tag="input_file"):
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None

    def __post_init__(self) -> None:
        if self.file_data is None and self.file_url is None and self.file_id is None:
            raise ValueError("Missing required parameter: '{place}.file_data'.")


class _OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    text: str


class _RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    refusal: str


_Input: TypeAlias = Annotated[list[_InputText | _InputImage | _InputFile], msgspec.Meta(min_length=1)]
_Part: TypeAlias = _InputText | _InputImage | _InputFile | _OutputText | _RefusalPart


class _Caller(msgspec.Struct):
    type: str | None = None
    caller_id: str | None = None

    def __post_init__(self) -> None:
        if self.type == "program" and not self.caller_id:
            raise ValueError("Missing required parameter: '{place}.caller_id'.")


class _Item(msgspec.Struct, tag_field="type", kw_only=True):
    id: str | None = None
    caller: _Caller | None = None


class _Message(_Item, tag="message", kw_only=True):
    role: Literal["assistant", "developer", "system", "user"]
    content: str | Annotated[list[_Part], msgspec.Meta(min_length=1)]
    tool_calls: None = None
    tool_call_id: None = None

    def __post_init__(self) -> None:
        allowed: dict[str, tuple[type[msgspec.Struct], ...]] = {
            "assistant": (_OutputText, _RefusalPart),
            "user": (_InputText, _InputImage, _InputFile),
        }
        kinds = allowed.get(self.role, (_InputText,))
        for part in self.content if isinstance(self.content, list) else ():
            if type(part) not in kinds:
                known = ", ".join(f"'{_kind(kind)}'" for kind in kinds)
                raise ValueError(f"Invalid value: '{_kind(part)}'. Supported values are: {known}.")


class _Call(_Item, kw_only=True):
    call_id: _CallId


class _FunctionCall(_Call, tag="function_call", kw_only=True):
    name: _Name
    arguments: _Words


class _CustomCall(_Call, tag="custom_tool_call", kw_only=True):
    name: _Name


class _ShellCall(_Call, tag="shell_call"):
    pass


class _Output(_Item, kw_only=True):
    call_id: _CallId


class _FunctionOutput(_Output, tag="function_call_output", kw_only=True):
    output: str | _Input


class _CustomOutput(_FunctionOutput, tag="custom_tool_call_output"):
    pass


class _Ran(msgspec.Struct):
    stdout: Any
    stderr: Any
    outcome: Any


class _ShellOutput(_Output, tag="shell_call_output", kw_only=True):
    output: list[_Ran]


class _Reasoning(_Item, tag="reasoning", kw_only=True):
    id: _Words
    summary: list[Any]
    encrypted_content: Any = None
    content: Any = None


class _Program(_Item, tag="program", kw_only=True):
    call_id: _Words


_SERVER_SIDE = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "tool_search_call"),
    *("tool_search_output", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
    *("local_shell_call", "local_shell_call_output", "apply_patch_call", "apply_patch_call_output"),
    *("computer_call", "computer_call_output", "compaction", "item_reference", "program_output"),
)
_AnyItem: Any = Union[
    *(
        _Message,
        _FunctionCall,
        _CustomCall,
        _ShellCall,
        _FunctionOutput,
        _CustomOutput,
        _ShellOutput,
        _Reasoning,
        _Program,
    ),
    *(msgspec.defstruct(f"_{kind}", [], bases=(_Item,), tag=kind) for kind in _SERVER_SIDE),
]  # Any: mypy follows no union that is made


class _History(msgspec.Struct):
    input: str | Annotated[list[_AnyItem], msgspec.Meta(min_length=1)]


class _FunctionTool(OpenAIFunction, tag_field="type", tag="function"):
    pass


class _Chosen(msgspec.Struct, tag_field="type", tag="function"):
    name: str


class _ChosenAmong(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    mode: Literal["auto", "required"]
    tools: list[Any]


_SERVER_TOOLS = tuple(
    msgspec.defstruct(f"_{kind}", [], tag_field="type", tag=kind)
    for kind in (
        *(
            "web_search",
            "web_search_preview",
            "file_search",
            "code_interpreter",
            "image_generation",
            "mcp",
            "tool_search",
        ),
        *("local_shell", "shell", "apply_patch", "computer_use_preview", "custom"),
    )
)
_Tool: Any = Union[_FunctionTool, *_SERVER_TOOLS]  # Any: mypy follows no union that is made
_Choice: Any = Union[Literal["none", "auto", "required"], _Chosen, _ChosenAmong, *_SERVER_TOOLS, None]  # Any: the same


class _PlainForm(msgspec.Struct, tag_field="type", tag="text"):
    pass


class _JsonForm(msgspec.Struct, tag_field="type", tag="json_object"):
    pass


class _SchemaForm(OpenAIForm, tag_field="type", tag="json_schema"):
    pass


class _Text(msgspec.Struct):
    format: _PlainForm | _JsonForm | _SchemaForm | None = None


_Includable: TypeAlias = Literal[
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
    "code_interpreter_call.outputs",
    "file_search_call.results",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "message.output_text.logprobs",
]


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    model: _Words
    input: str | list[Any]
    stream: bool | None = None
    store: bool | None = None
    parallel_tool_calls: bool | None = None
    background: bool | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[float, msgspec.Meta(ge=16)] | None = None
    max_tool_calls: Annotated[float, msgspec.Meta(ge=1)] | None = None
    top_logprobs: Annotated[float, msgspec.Meta(ge=0, le=20)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    include: list[_Includable] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _Choice = None
    text: _Text | None = None
    reasoning: Any = None
    metadata: Any = None
    truncation: Any = None
    stream_options: Any = None
    prompt: Any = None
    conversation: Any = None
    prompt_cache_retention: Any = None


def _kind(item: Any) -> str:
    return str(item.__struct_config__.tag)


def _refusal(fault: Fault) -> Refusal:
    name = str(fault.path[0]) if fault.path else ""
    if fault.kind == "unknown" and name in _MOVED:
        words = f"In the Responses API, this parameter has moved to '{_MOVED[name]}'."
        return Refusal(f"Unsupported parameter: '{name}'. {words}", param=name, code="unsupported_parameter")
    if fault.kind == "unknown":
        words = f"Unknown parameter: '{name}'.{did_you_mean(fault, _Request)}"
        return Refusal(words, param=name, code="unknown_parameter")
    return openai_refusal(fault)


# --- The rules that no field can declare.


def check_responses_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its items checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    request = read(body, _Request, _refusal)
    functions = {index: tool for index, tool in enumerate(request.tools or ()) if isinstance(tool, _FunctionTool)}
    names = check_functions(functions, "", is_strict=lambda function: function.strict is not False)
    choice = request.tool_choice
    if choice == "required" and not request.tools:
        raise Refusal("Tool choice 'required' must be specified with 'tools' parameter.", param="tool_choice")
    if isinstance(choice, _Chosen) and choice.name not in names:
        raise Refusal(f"Tool choice '{choice.name}' not found in 'tools' parameter.", param="tool_choice")
    form = None if request.text is None else request.text.format
    fault = check_strict_schema(form.schema) if isinstance(form, _SchemaForm) and form.strict is not False else None
    if isinstance(form, _SchemaForm) and fault is not None:
        words = f"Invalid schema for response_format '{form.name}': {fault}"
        raise Refusal(words, param="text.format.schema", code="invalid_json_schema")
    return cast("JsonObject", body)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the server knows of the response that a request continues from."""

    open_calls: tuple[str, ...] = ()
    """Calls of it that wait for their outputs."""
    item_ids: frozenset[str] = frozenset()


@checked
def check_responses_history(
    items: Any,  # Any: JSON of strangers
    *,
    before: Kept | None = None,
    links: Mapping[str, str] | None = None,
    lenient_arguments: bool = False,
) -> None:
    """Check the `input` of one request as the vendor does.

    Example:
        >>> check_responses_history([{"role": "user", "content": "go"}])
        >>> check_responses_history([{"type": "function_call_output", "call_id": "c", "output": "ok"}])
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: No tool call found for function call output with call_id c.

    Args:
        items: The value of `input`.
        before: What the server knows of the previous response.
        links: The reasoning that must stand before an item, by the item's id.
        lenient_arguments: Take arguments that are not valid JSON, as some compatible servers do.

    Raises:
        Refusal: The input is not one that the vendor takes; the first fault in order.
    """
    if isinstance(items, list):  # an item with a role and no type is a message
        items = [{"type": "message", **item} if isinstance(item, dict) and "role" in item else item for item in items]
    declared = read({"input": items}, _History, _refusal).input
    check = _Check(before or Kept(), links or {}, lenient_arguments=lenient_arguments)
    for index, item in enumerate(declared if isinstance(declared, list) else ()):
        check.take(item, declared[index + 1 : index + 2], f"input[{index}]")
    check.finish()


class _Check:
    """Goes through the items once, with the calls that wait for an output."""

    def __init__(self, before: Kept, links: Mapping[str, str], *, lenient_arguments: bool) -> None:
        self._before = before
        self._links = links
        self._lenient_arguments = lenient_arguments
        self._open = [("function_call", call_id) for call_id in before.open_calls]
        self._answered: set[tuple[str, str]] = set()
        self._ids: set[str] = set()
        self._programs: set[str] = set()

    def take(self, item: Any, following: Any, where: str) -> None:
        match item:
            case _Call():
                self._check_call(item, where)
            case _Output():
                self._check_output(item, where)
            case _Reasoning():
                self._check_reasoning(item, following)
            case _Program():
                self._programs.add(item.call_id)
        self._check_id(item)
        # The program that made a call must be known, unless it may be in what the server keeps.
        by_program = item.caller is not None and item.caller.type == "program" and not self._before.item_ids
        if by_program and item.caller.caller_id not in self._programs:
            raise Refusal(f"No program found for caller_id {item.caller.caller_id}.", param="input")

    def finish(self) -> None:
        for kind, call_id in self._open:
            raise Refusal(f"No tool output found for {kind.replace('_', ' ')} {call_id}.", param="input")

    def _check_id(self, item: Any) -> None:
        if item.id is None:
            return
        needed = self._links.get(item.id)
        if needed is not None and needed not in self._ids | self._before.item_ids:
            words = f"Item '{item.id}' of type '{_kind(item)}' was provided without its required 'reasoning' item: '{needed}'."
            raise Refusal(words, param="input")
        if item.id in self._ids:
            words = f"Duplicate item found with id {item.id}. Remove duplicate items from your input and try again."
            raise Refusal(words, param="input")
        self._ids.add(item.id)

    def _check_call(self, item: _Call, where: str) -> None:
        if isinstance(item, _FunctionCall) and not self._lenient_arguments:
            check_arguments(item.arguments, where)
        call = (_kind(item), item.call_id)
        if call in self._open or call in self._answered:
            words = f"Duplicate value for 'call_id': '{item.call_id}' in {where}."
            raise Refusal(words, param=f"{where}.call_id", code="invalid_value")
        self._open.append(call)

    def _check_output(self, item: _Output, where: str) -> None:
        kind = _kind(item).removesuffix("_output")
        name, call = kind.replace("_", " "), (kind, item.call_id)
        if call in self._answered:
            words = f"Duplicate tool output found for {name} with call_id {item.call_id}."
            raise Refusal(words, param=f"{where}.call_id")
        if call not in self._open:
            raise Refusal(f"No tool call found for {name} output with call_id {item.call_id}.", param="input")
        self._open.remove(call)
        self._answered.add(call)

    def _check_reasoning(self, item: _Reasoning, following: list[Any]) -> None:
        if not item.encrypted_content and not item.content and item.id not in self._before.item_ids:
            raise Refusal(
                f"Item with id '{item.id}' not found. Items are not persisted when `store` is set to false. Try again with "
                "`store` set to true, or remove this item from your input.",
                param="input",
            )
        of_others = [
            isinstance(one, _Output) or (isinstance(one, _Message) and one.role != "assistant") for one in following
        ]
        if of_others != [False]:
            words = f"Item '{item.id}' of type 'reasoning' was provided without its required following item."
            raise Refusal(words, param="input")


# --- Responses: how the dialect says a turn, streamed or whole, and what its server keeps. Knows no fault of the wire
# and no socket.

_CREATED = 1_700_000_000  # one instant for ever: equal scripts give equal bytes
_ENCRYPTED = "reasoning.encrypted_content"
_CUTS = {Finish.LENGTH: "max_output_tokens", Finish.REFUSED: "content_filter"}


class _Said(NamedTuple):
    """One event before it has its number."""

    piece: PieceKind
    value: JsonObject
    call: int | None = None
    is_last: bool = False


class Responses:
    """The dialect of `POST /v1/responses`.

    A response is kept unless the request says `store: false`, as the vendor does, so that `previous_response_id` works.

    Args:
        lenient_arguments: Take histories whose calls carry arguments that are not valid JSON.
    """

    path = "/responses"

    def __init__(self, *, lenient_arguments: bool = False) -> None:
        self._lenient_arguments = lenient_arguments
        self._kept: dict[str, Kept] = {}
        self._links: dict[str, str] = {}

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        checked = check_responses_request(body)
        check_responses_history(
            checked["input"],
            before=self._before(checked),
            links=self._links,
            lenient_arguments=self._lenient_arguments,
        )
        return checked

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        items = list(_items(turn, body, ids, number=number))
        response = _response(turn, body, items, number=number)
        self._remember(response, items)
        if body.get("stream") is True:
            content_type = "text/event-stream; charset=utf-8"
            pieces = _streamed(turn, response, items, calls_at=len(items) - len(turn.calls))
            return Answer(pieces=tuple(pieces), content_type=content_type, is_stream=True)
        return whole(response)

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes({"error": openai_error(status, error, param=param, code=code)})

    def _before(self, body: JsonObject) -> Kept:
        previous = body.get("previous_response_id")
        if previous is None:
            return Kept()
        if previous not in self._kept:
            raise Refusal(
                f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return self._kept[previous]

    def _remember(self, response: JsonObject, items: list[JsonObject]) -> None:
        """Keep what later requests may refer to: the response itself, and which item needs which reasoning before it."""
        for item, following in itertools.pairwise(items):
            if item["type"] == "reasoning":
                self._links[following["id"]] = item["id"]
        if response["store"]:
            open_calls = tuple(
                item["call_id"] for item in items if item["type"] == "function_call" and item.get("call_id")
            )
            self._kept[response["id"]] = Kept(open_calls=open_calls, item_ids=frozenset(item["id"] for item in items))


def _items(turn: Turn, body: JsonObject, ids: Iterator[str], *, number: int) -> Iterator[JsonObject]:
    """Yield the output items that say the turn; the last one is cut where the turn is."""
    if turn.thinking is not None:
        seal = {"encrypted_content": f"gAAAA-mock-{number}"} if _ENCRYPTED in (body.get("include") or ()) else {}
        summary = [{"type": "summary_text", "text": turn.thinking}]
        yield {"id": f"rs_mock_{number}", "type": "reasoning", "summary": summary, **seal}
    status = "incomplete" if _cut_reason(turn) else "completed"
    is_last = not turn.calls
    if turn.text is not None or turn.refusal is not None or (is_last and turn.thinking is None):
        yield {
            "id": f"msg_mock_{number}",
            "type": "message",
            "status": status if is_last else "completed",
            "role": "assistant",
            "content": [*_content(turn)],
        }
    for index, (made, named) in enumerate(called(turn, ids, "call_id")):
        yield {
            "id": f"fc_mock_{number}_{index}",
            "type": "function_call",
            "status": status if index == len(turn.calls) - 1 else "completed",
            "arguments": made.arguments,
            **named,
            "name": made.name,
        }


def _content(turn: Turn) -> Iterator[JsonObject]:
    if turn.text is not None or turn.refusal is None:
        yield {"type": "output_text", "annotations": [], "logprobs": [], "text": turn.text or ""}
    if turn.refusal is not None:
        yield {"type": "refusal", "refusal": turn.refusal}


def _cut_reason(turn: Turn) -> str | None:
    """Return why the vendor calls the response incomplete. A refusal in words is a whole response."""
    if turn.refusal is not None and turn.finish is UNSET:
        return None
    return _CUTS.get(finish_of(turn))


def _response(turn: Turn, body: JsonObject, items: list[JsonObject], *, number: int) -> JsonObject:
    reason = _cut_reason(turn)
    error = None if turn.error is None else _failure(turn)
    return {
        "id": f"resp_mock_{number}",
        "object": "response",
        "created_at": _CREATED,
        "status": _status(turn, reason),
        "error": error,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": body.get("instructions"),
        "model": body["model"],
        "output": items,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "store": body.get("store") is not False,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "usage": None if turn.usage is None else _usage(turn, body),
    }


def _status(turn: Turn, reason: str | None) -> str | None:
    if turn.error is not None:
        return "failed"
    if turn.finish is None:
        return None
    return "incomplete" if reason else "completed"


def _failure(turn: Turn) -> JsonObject:
    """Return the error of a failed response: a code and a message, nothing else."""
    error = openai_error(turn.status, turn.error)
    return {"code": error["code"] or "server_error", "message": error["message"]}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["input"])
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_input_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


# --- the stream ------------------------------------------------------------------------------------------------------


def _streamed(turn: Turn, response: JsonObject, items: list[JsonObject], *, calls_at: int) -> Iterator[Piece]:
    for number, said in enumerate(_events(turn, response, items, calls_at)):
        value = {**said.value, "sequence_number": number}
        content = event_lines(json_bytes(value), turn, kind=value["type"])
        yield Piece(kind=said.piece, content=content, call=said.call, is_last=said.is_last)


def _events(turn: Turn, response: JsonObject, items: list[JsonObject], calls_at: int) -> Iterator[_Said]:
    begun = {
        **response,
        "status": "in_progress",
        "incomplete_details": None,
        "error": None,
        "output": [],
        "usage": None,
    }
    yield _Said("start", {"type": "response.created", "response": begun})
    yield _Said("start", {"type": "response.in_progress", "response": begun})
    for index, item in enumerate(items[:calls_at]):
        yield from _reasoning(index, item, turn) if item["type"] == "reasoning" else _message(index, item, turn)
    yield from in_turns([list(_call(calls_at + at, item, at, turn)) for at, item in enumerate(items[calls_at:])], turn)
    if turn.error is not None:
        yield _Said("error", {"type": "error", **_failure(turn), "param": None})
    elif turn.finish is not None:
        yield _Said("finish", {"type": f"response.{response['status']}", "response": response})


def _reasoning(index: int, item: JsonObject, turn: Turn) -> Iterator[_Said]:
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    text = item["summary"][0]["text"]
    yield _Said("thinking", _added(index, {**item, "summary": []}))
    yield _Said("thinking", {"type": "response.reasoning_summary_part.added", **place, "part": _summary("")})
    for part in fragments(text, turn.pieces):
        yield _Said("thinking", {"type": "response.reasoning_summary_text.delta", **place, "delta": part})
    yield _Said("thinking", {"type": "response.reasoning_summary_text.done", **place, "text": text})
    yield _Said("thinking", {"type": "response.reasoning_summary_part.done", **place, "part": _summary(text)})
    yield _Said("thinking", _done(index, item))


def _message(index: int, item: JsonObject, turn: Turn) -> Iterator[_Said]:
    # The vendor counts every event around a text as its own; for a cut in the middle of it only its fragments count.
    yield _Said("start", _added(index, {**item, "status": "in_progress", "content": []}))
    for at, part in enumerate(item["content"]):
        place = {"item_id": item["id"], "output_index": index, "content_index": at}
        kind, key = ("output_text", "text") if part["type"] == "output_text" else ("refusal", "refusal")
        yield _Said("start", {"type": "response.content_part.added", **place, "part": {**part, key: ""}})
        for delta in fragments(part[key], turn.pieces):
            yield _Said("text", {"type": f"response.{kind}.delta", **place, "delta": delta})
        yield _Said("start", {"type": f"response.{kind}.done", **place, key: part[key]})
        yield _Said("start", {"type": "response.content_part.done", **place, "part": part})
    yield _Said("start", _done(index, item))


def _call(index: int, item: JsonObject, call: int, turn: Turn) -> Iterator[_Said]:
    place = {"item_id": item["id"], "output_index": index}
    yield _Said("call", _added(index, {**item, "status": "in_progress", "arguments": ""}), call)
    for part in fragments(item["arguments"], turn.pieces):
        yield _Said("call", {"type": "response.function_call_arguments.delta", **place, "delta": part}, call)
    if item["status"] == "completed":
        whole = {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        yield _Said("call", whole, call)
    yield _Said("call", _done(index, item), call, is_last=True)


def _added(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _summary(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}
