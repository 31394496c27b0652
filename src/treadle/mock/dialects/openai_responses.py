"""Responses: how the dialect says a turn, streamed or whole, and what its server keeps. Knows no fault of the wire and no socket."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Bounds,
    Piece,
    PieceKind,
    Refusal,
    check_arguments,
    check_function,
    check_scalars,
    check_strict_schema,
    did_you_mean,
    event_lines,
    items_of,
    json_bytes,
    name_of,
    object_of,
    openai_error,
    refuse,
    refuse_missing,
    refuse_schema,
    refuse_type,
    refuse_value,
    text_of,
    used_tokens,
)
from treadle.mock.script import Turn, finish_of, fragments
from treadle.tools import JsonObject

__all__ = ["Kept", "Responses", "check_responses_history", "check_responses_request"]


# --- Requests in Responses: refuse a body that the vendor refuses. The pairing of its items is checked elsewhere.

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "store", "parallel_tool_calls", "background")
_NUMBERS: Bounds = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "max_output_tokens": (16, None),
    "max_tool_calls": (1, None),
    "top_logprobs": (0, 20),
}
_TEXTS = ("instructions", "previous_response_id", "user", "prompt_cache_key", "safety_identifier", "service_tier")
_OTHERS = (
    *("model", "input", "tools", "tool_choice", "include", "text", "reasoning", "metadata", "truncation"),
    *("stream_options", "prompt", "conversation", "prompt_cache_retention"),
)
_KNOWN = frozenset((*_FLAGS, *_NUMBERS, *_TEXTS, *_OTHERS))
_MOVED = {"messages": "input", "response_format": "text.format", "max_tokens": "max_output_tokens"}
"""Parameters of Chat Completions, and where they are here."""
_INCLUDABLE = frozenset({
    *("reasoning.encrypted_content", "web_search_call.action.sources", "web_search_call.results"),
    *("code_interpreter_call.outputs", "file_search_call.results", "message.input_image.image_url"),
    *("computer_call_output.output.image_url", "message.output_text.logprobs"),
})  # fmt: skip
_SERVER_TOOLS = frozenset({
    *("web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search"),
    *("local_shell", "shell", "apply_patch", "computer_use_preview", "custom"),
})  # fmt: skip


def check_responses_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but the pairing of its items checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        refuse("We could not parse the JSON body of your request: it must be an object.", None)
    _check_names(body)
    check_scalars(body, flags=_FLAGS, texts=_TEXTS, numbers=_NUMBERS)
    _check_include(body)
    names = _check_tools(body)
    _check_tool_choice(body, names)
    _check_text(body)
    return body


def _check_names(body: JsonObject) -> None:
    for key in body:
        if key in _MOVED:
            refuse(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to '{_MOVED[key]}'.",
                key,
                "unsupported_parameter",
            )
        if key not in _KNOWN:
            refuse(f"Unknown parameter: '{key}'.{did_you_mean(key, _KNOWN)}", key, "unknown_parameter")
    for key in ("model", "input"):
        if body.get(key) in (None, ""):
            refuse_missing(key)
    if not isinstance(body["model"], str):
        refuse_type("model", "a string", body["model"])


def _check_include(body: JsonObject) -> None:
    include = body.get("include")
    if include is None:
        return
    if not isinstance(include, list):
        refuse_type("include", "an array of strings", include)
    for index, word in enumerate(include):
        if word not in _INCLUDABLE:
            refuse_value(f"include[{index}]", json.dumps(word), ", ".join(f"'{one}'" for one in sorted(_INCLUDABLE)))


def _check_tools(body: JsonObject) -> list[str]:
    """Return the names of the functions, each tool checked."""
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        refuse_type("tools", "an array of objects", tools)
    names: list[str] = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        name = _tool_name(object_of(tool, where), where)
        if name is not None and name in names:
            refuse(f"Invalid 'tools': the function name '{name}' is used by more than one tool.", f"{where}.name")
        names += [name] if name is not None else []
    return names


def _tool_name(tool: JsonObject, where: str) -> str | None:
    kind = tool.get("type")
    if kind is None:
        refuse_missing(f"{where}.type")
    if kind in _SERVER_TOOLS:
        return None
    if kind != "function":
        refuse_value(f"{where}.type", json.dumps(kind), "'function' and others")
    name, schema = check_function(tool, where)
    if tool.get("strict") is not False and (fault := check_strict_schema(schema)) is not None:
        refuse_schema(name, where, fault)
    return name


def _check_tool_choice(body: JsonObject, names: list[str]) -> None:
    choice = body.get("tool_choice")
    match choice:
        case None | "none" | "auto" | {"type": "allowed_tools", "mode": "auto" | "required", "tools": list()}:
            return
        case "required":
            if not body.get("tools"):
                refuse("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
        case str():
            refuse_value("tool_choice", f"'{choice}'", "'none', 'auto', and 'required'")
        case {"type": str(kind)}:
            _check_named_tool(choice, kind, names)
        case _:
            refuse_type("tool_choice", "'none', 'auto', 'required' or an object that names a function", choice)


def _check_named_tool(choice: JsonObject, kind: str, names: list[str]) -> None:
    if kind in _SERVER_TOOLS:
        return
    if kind != "function":
        refuse_value("tool_choice.type", f"'{kind}'", "'function' and others")
    name = choice.get("name")
    if name is None:
        refuse_missing("tool_choice.name")
    if name not in names:
        refuse(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")


def _check_text(body: JsonObject) -> None:
    text = body.get("text")
    if text is None:
        return
    if not isinstance(text, dict):
        refuse_type("text", "an object", text)
    match text.get("format"):
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "name": str(name), "schema": dict() as schema, **more} if _NAME.fullmatch(name):
            if more.get("strict") is not False and (fault := check_strict_schema(schema)) is not None:
                refuse(
                    f"Invalid schema for response_format '{name}': {fault}", "text.format.schema", "invalid_json_schema"
                )
        case {"type": "json_schema", "json_schema": _}:
            refuse_missing("text.format.name")
        case _:
            refuse(
                "Invalid parameter: 'text.format' must be text, json_object, or json_schema with a name and a schema.",
                "text.format",
            )


# --- Pairing in Responses: refuse an input whose calls, outputs and reasoning do not belong together. Repairs nothing.

_ROLES = ("assistant", "developer", "system", "user")
_INPUTS = frozenset({"input_text", "input_image", "input_file"})
_CONTENT = {
    "user": _INPUTS,
    "system": frozenset({"input_text"}),
    "developer": frozenset({"input_text"}),
    "assistant": frozenset({"output_text", "refusal"}),
}
_PAYLOADS: Mapping[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
}
"""Where each kind of content has what it is for: one of these."""
_ANSWERS = {
    "function_call_output": ("function_call", "function call"),
    "custom_tool_call_output": ("custom_tool_call", "custom tool call"),
    "shell_call_output": ("shell_call", "shell call"),
}
"""The calls that outputs answer; a shell's may be the server's own, and comes with its output."""
_SERVER_SIDE = frozenset({
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "tool_search_call"),
    *("tool_search_output", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
    *("local_shell_call", "local_shell_call_output", "apply_patch_call", "apply_patch_call_output"),
    *("computer_call", "computer_call_output", "compaction", "item_reference", "program", "program_output"),
})  # fmt: skip


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
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list):
        refuse_type("input", "one of a string or array of objects", items)
    items = items_of(items, "input")
    check = _Check(before or Kept(), links or {}, lenient_arguments=lenient_arguments)
    for index, item in enumerate(items):
        check.take(item, items[index + 1] if index + 1 < len(items) else None, f"input[{index}]")
    check.finish()


class _Check:
    """Goes through the items once, with the calls that wait for an output."""

    def __init__(self, before: Kept, links: Mapping[str, str], *, lenient_arguments: bool) -> None:
        self._before = before
        self._links = links
        self._lenient_arguments = lenient_arguments
        self._open = {("function_call", call_id): call_id for call_id in before.open_calls}
        self._answered: set[tuple[str, str]] = set()
        self._ids: set[str] = set()
        self._programs: set[object] = set()

    def take(self, item: Any, following: Any, where: str) -> None:
        kind = object_of(item, where).get("type", "message" if "role" in item else None)
        match kind:
            case "message":
                _check_message(item, where)
            case "function_call" | "custom_tool_call" | "shell_call":
                self._check_call(item, str(kind), where)
            case "function_call_output" | "custom_tool_call_output" | "shell_call_output":
                self._check_output(item, str(kind), where)
            case "reasoning":
                self._check_reasoning(item, following, where)
            case str() if kind in _SERVER_SIDE:
                if kind == "program":
                    self._programs.add(text_of(item, "call_id", where))
            case None:
                refuse_missing(f"{where}.type")
            case _:
                known = ", ".join(f"'{word}'" for word in ("message", "reasoning", "function_call", *_ANSWERS))
                refuse_value(where, json.dumps(kind), f"{known}, and others")
        self._check_id(item, str(kind), where)
        self._check_caller(item, where)

    def finish(self) -> None:
        for kind, call_id in self._open:
            refuse(f"No tool output found for {kind.replace('_', ' ')} {call_id}.", "input")

    def _check_id(self, item: JsonObject, kind: str, where: str) -> None:
        item_id = item.get("id")
        if item_id is None:
            return
        if not isinstance(item_id, str):
            refuse_type(f"{where}.id", "a string", item_id)
        needed = self._links.get(item_id)
        if needed is not None and needed not in self._ids | self._before.item_ids:
            refuse(
                f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'.",
                "input",
            )
        if item_id in self._ids:
            refuse(
                f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.",
                "input",
            )
        self._ids.add(item_id)

    def _check_caller(self, item: JsonObject, where: str) -> None:
        """Check that the program is known which made a call, unless it may be in what the server keeps."""
        caller = item.get("caller")
        if not isinstance(caller, dict) or caller.get("type") != "program" or self._before.item_ids:
            return
        if (caller_id := text_of(caller, "caller_id", f"{where}.caller")) not in self._programs:
            refuse(f"No program found for caller_id {caller_id}.", "input")

    def _check_call(self, item: JsonObject, kind: str, where: str) -> None:
        call_id = text_of(item, "call_id", where, longest=64)
        if kind != "shell_call":
            name_of(item, where, longest=128)
        if kind == "function_call":
            check_arguments(item, where, lenient=self._lenient_arguments)
        key = (kind, call_id)
        if key in self._open or key in self._answered:
            refuse(f"Duplicate value for 'call_id': '{call_id}' in {where}.", f"{where}.call_id", "invalid_value")
        self._open[key] = call_id

    def _check_output(self, item: JsonObject, kind: str, where: str) -> None:
        call_id = text_of(item, "call_id", where, longest=64)
        if kind == "shell_call_output":
            _check_shell_output(item, where)
        else:
            _check_output_value(item, where)
        call_kind, call_name = _ANSWERS[kind]
        key = (call_kind, call_id)
        if key in self._answered:
            refuse(f"Duplicate tool output found for {call_name} with call_id {call_id}.", f"{where}.call_id")
        if key not in self._open:
            refuse(f"No tool call found for {call_name} output with call_id {call_id}.", "input")
        del self._open[key]
        self._answered.add(key)

    def _check_reasoning(self, item: JsonObject, following: Any, where: str) -> None:
        item_id = text_of(item, "id", where)
        if not isinstance(item.get("summary"), list):
            refuse_missing(f"{where}.summary")
        is_sealed = bool(item.get("encrypted_content") or item.get("content"))
        if not is_sealed and item_id not in self._before.item_ids:
            refuse(
                f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with "
                "`store` set to true, or remove this item from your input.",
                "input",
            )
        kind = following.get("type", "message") if isinstance(following, dict) else None
        is_of_the_model = kind not in (None, *_ANSWERS) and (
            kind != "message" or (isinstance(following, dict) and following.get("role") == "assistant")
        )
        if not is_of_the_model:
            refuse(f"Item '{item_id}' of type 'reasoning' was provided without its required following item.", "input")


def _check_message(item: JsonObject, where: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        refuse_value(f"{where}.role", json.dumps(role), ", ".join(f"'{word}'" for word in _ROLES))
    for key in ("tool_calls", "tool_call_id"):
        if key in item:
            refuse(f"Unknown parameter: '{where}.{key}'.", f"{where}.{key}", "unknown_parameter")
    content = item.get("content")
    where = f"{where}.content"
    match content:
        case str():
            return
        case None:
            refuse_missing(where)
        case list():
            _check_parts(content, _CONTENT[role], where)
        case _:
            refuse_type(where, "one of a string or array of objects", content)


def _check_output_value(item: JsonObject, where: str) -> None:
    output = item.get("output")
    where = f"{where}.output"
    match output:
        case str():
            return
        case None:
            refuse_missing(where)
        case list():
            _check_parts(output, _INPUTS, where)
        case _:
            refuse_type(where, "one of a string or array of objects", output)


def _check_shell_output(item: JsonObject, where: str) -> None:
    where = f"{where}.output"
    if not isinstance(item.get("output"), list):
        refuse_type(where, "an array of objects", item.get("output"))
    for index, piece in enumerate(item["output"]):
        place = f"{where}[{index}]"
        for key in ("stdout", "stderr", "outcome"):
            if key not in object_of(piece, place):
                refuse_missing(f"{place}.{key}")


def _check_parts(parts: list[Any], kinds: Iterable[str], where: str) -> None:
    for index, part in enumerate(items_of(parts, where)):
        place = f"{where}[{index}]"
        kind = text_of(object_of(part, place), "type", place)
        if kind not in kinds:
            refuse_value(place, f"'{kind}'", ", ".join(f"'{word}'" for word in sorted(kinds)))
        if not any(isinstance(part.get(key), str) for key in _PAYLOADS[kind]):
            refuse_missing(f"{place}.{_PAYLOADS[kind][0]}")


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
        calls = [next(ids) if made.id is UNSET else made.id for made in turn.calls]
        items = list(_items(turn, body, calls, number=number))
        response = _response(turn, body, items, number=number)
        self._remember(response, items)
        if body.get("stream") is True:
            content_type = "text/event-stream; charset=utf-8"
            pieces = _streamed(turn, response, items, calls_at=len(items) - len(calls))
            return Answer(pieces=tuple(pieces), content_type=content_type, is_stream=True)
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(response)),))

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


def _items(turn: Turn, body: JsonObject, calls: list[Any], *, number: int) -> Iterator[JsonObject]:
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
    for index, (made, call_id) in enumerate(zip(turn.calls, calls, strict=True)):
        yield {
            "id": f"fc_mock_{number}_{index}",
            "type": "function_call",
            "status": status if index == len(calls) - 1 else "completed",
            "arguments": made.arguments,
            **({} if call_id is None else {"call_id": call_id}),
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
    yield from _in_turns([list(_call(calls_at + at, item, at, turn)) for at, item in enumerate(items[calls_at:])], turn)
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


def _in_turns(by_call: list[list[_Said]], turn: Turn) -> Iterable[_Said]:
    if not turn.interleave:
        return (said for own in by_call for said in own)
    longest = max(map(len, by_call), default=0)
    return (own[place] for place in range(longest) for own in by_call if place < len(own))


def _added(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: JsonObject) -> JsonObject:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _summary(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}
