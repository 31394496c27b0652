"""Responses, outward: the messages of a history as input items. Sends nothing, and repairs only what the vendor refuses."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.providers.openai_responses.items import PROVIDER
from treadle.providers.payload.bodies import sendable_arguments
from treadle.providers.payload.contents import data_url, in_words, user_content
from treadle.providers.payload.lenient import text_or_nothing
from treadle.providers.payload.names import wire_id, wire_name

__all__ = ["callers_in", "items_of", "left_to_the_client", "state_id", "state_marker"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object of the wire

_PLAIN_ID = re.compile(r"[!-~]{1,64}")
"""What the vendor takes here; Chat Completions takes 40 characters.."""
_MARKER = "treadle.response"
_COMPUTER = "computer_call"
"""Never sent back: a picture of a screen is the only answer that a computer's call takes, and nobody here has one."""

_PROGRAM = ("program", "program_output")
"""What the vendor's code container is given, and what it gives."""

_NOT_RUN = "Not executed: this client runs function tools only."
_NOT_RUN_BY_A_SHELL: _Wire = {"stdout": "", "stderr": _NOT_RUN, "outcome": {"type": "exit", "exit_code": 126}}
_ANSWERS: Mapping[Any, tuple[str, _Wire]] = {
    "custom_tool_call": ("call_id", {"type": "custom_tool_call_output", "output": _NOT_RUN}),
    "local_shell_call": ("id", {"type": "local_shell_call_output", "output": _NOT_RUN}),
    "apply_patch_call": ("call_id", {"type": "apply_patch_call_output", "status": "failed", "output": _NOT_RUN}),
    "shell_call": ("call_id", {"type": "shell_call_output", "output": [_NOT_RUN_BY_A_SHELL]}),
    "mcp_approval_request": (
        "approval_request_id",
        {"type": "mcp_approval_response", "approve": False, "reason": _NOT_RUN},
    ),
}
"""What each item that asks its client to act is answered with, and where its id goes."""

_objects = msgspec.json.Decoder(dict[str, Any])


def left_to_the_client(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return those items of a response that ask its client to act, in a way that this one does not.

    A shell's call may be the server's own: then its output stands in the same response.
    """
    known = [(text_or_nothing(item.get("type")), text_or_nothing(item.get("call_id")), item) for item in items]
    answered = {(kind, call_id) for kind, call_id, _ in known}
    asking = [one for one in known if one[0] in _ANSWERS or one[0] == _COMPUTER]
    return [item for kind, call_id, item in asking if (f"{kind}_output", call_id) not in answered]


def callers_in(message: Message) -> dict[str, _Wire]:
    """Return, by the id of each call that a program of the model made and not the model itself, which program that was."""
    rests = {part.id: _rest(part.signature, is_linked=True) for part in message.calls if part.signature is not None}
    callers = {call_id: rest.get("caller") for call_id, rest in rests.items()}
    return {
        call_id: caller
        for call_id, caller in callers.items()
        if isinstance(caller, dict) and caller.get("type") != "direct"
    }


def items_of(
    message: Message, *, is_own: bool, is_stored: bool, callers: Mapping[str, _Wire] = MappingProxyType({})
) -> Iterator[_Wire]:
    """Return the input items that say a message.

    Args:
        callers: Which program of the model made a call, by the call's id: its result names it too.
        is_own: Whether the model that is asked wrote it.
        is_stored: Whether the server keeps its items, so that reasoning may go back by its id alone.
    """
    match message.role:
        case "user":
            yield {"role": "user", "content": user_content(message, text=_text, media=_media)}
        case "tool":
            for result in message.results:
                caller = callers.get(result.call_id)
                yield _result(result) if caller is None else {**_result(result), "caller": caller}
        case "assistant" if is_own:
            yield from _own(message, is_stored=is_stored)
        case "assistant":
            yield from _foreign(message)


def _own(message: Message, *, is_stored: bool) -> Iterator[_Wire]:
    parts = _without_tail(message.parts)
    payloads = [part.payload for part in parts if isinstance(part, Opaque) and isinstance(part.payload, dict)]
    # An item that followed reasoning is refused with its id and without the reasoning, so both go or neither does. A program always
    # goes back: its calls and their results name it.
    is_linked = any(payload.get("type") in _PROGRAM for payload in payloads) or all(
        _can_return(part.payload, is_stored=is_stored) for part in parts if isinstance(part, Thinking)
    )
    unanswered = left_to_the_client(payloads)
    ids: set[str] = set()
    for part in parts:
        match part:
            case Thinking(payload=dict()) if is_linked:
                yield part.payload
            case Text():
                yield _said(part, _rest(part.signature, is_linked=is_linked))
            case ToolCall():
                rest = _rest(part.signature, is_linked=is_linked)
                if (
                    own := text_or_nothing(rest.get("id"))
                ) in ids:  # the server gave two calls one id, and refuses it twice
                    del rest["id"]
                elif own:
                    ids.add(own)
                yield _call(part, rest)
            case Opaque(provider=provider, payload=dict()) if provider == PROVIDER and is_linked:
                yield from _opaque(part.payload, is_unanswered=part.payload in unanswered)


def _without_tail(parts: Sequence[Part]) -> list[Part]:
    """Leave out our own marker, and reasoning that nothing follows (the response was cut off): the vendor refuses it alone."""
    kept = [part for part in parts if not _is_marker(part)]
    while kept and isinstance(kept[-1], Thinking):
        kept.pop()
    return kept


def _is_marker(part: Part) -> bool:
    return isinstance(part, Opaque) and isinstance(part.payload, dict) and part.payload.get("type") == _MARKER


def _foreign(message: Message) -> Iterator[_Wire]:
    for part in message.parts:
        match part:
            case Text(text=text) if text:
                yield {"role": "assistant", "content": text}
            case ToolCall():
                yield _call(part, {})


def _can_return(payload: Any, *, is_stored: bool) -> bool:
    if not isinstance(payload, dict):
        return False
    return (is_stored and "id" in payload) or bool(payload.get("encrypted_content") or payload.get("content"))


def _rest(signature: str | None, *, is_linked: bool) -> _Wire:
    try:
        rest = _objects.decode(signature) if signature is not None else {}
    except msgspec.DecodeError:
        return {}
    return rest if is_linked else {name: value for name, value in rest.items() if name != "id"}


def _said(part: Text, rest: _Wire) -> _Wire:
    if "id" not in rest:
        return {"role": "assistant", "content": part.text}
    plain = {"type": "output_text", "text": part.text, "annotations": rest.pop("annotations", [])}
    content = rest.pop("content", None) or [plain]
    return {"type": "message", "role": "assistant", **rest, "content": content}


def _call(call: ToolCall, rest: _Wire) -> _Wire:
    return {
        "type": "function_call",
        **rest,
        "call_id": wire_id(call.id, plain=_PLAIN_ID),
        "name": wire_name(call.name),
        "arguments": sendable_arguments(call.arguments),
    }


def _opaque(payload: _Wire, *, is_unanswered: bool) -> Iterator[_Wire]:
    """Return a server's item, with the answer that it waits for where it asked its client to act."""
    kind = payload.get("type")
    if kind == _COMPUTER:
        return
    yield payload
    if is_unanswered:
        key, answer = _ANSWERS[kind]
        yield {key: payload.get("id" if key in ("id", "approval_request_id") else "call_id"), **answer}


def _result(result: Result) -> _Wire:
    # The dialect has no flag for errors: the content says it.
    output: str | list[_Wire] = result.content
    if result.media:
        output = [*([_text(result.content)] if result.content else []), *map(_media, result.media)]
    return {"type": "function_call_output", "call_id": wire_id(result.call_id, plain=_PLAIN_ID), "output": output}


def _text(text: str) -> _Wire:
    return {"type": "input_text", "text": text}


def _media(media: Media) -> _Wire:
    data = data_url(media)
    kind = media.media_type.partition("/")[0]
    if kind == "image" and (url := data or media.url):
        return {"type": "input_image", **_at("image_url", url), "detail": "auto"}
    if kind not in ("image", "audio", "video"):
        if data is not None:
            return {"type": "input_file", "filename": media.name or "attachment", "file_data": data}
        if media.url is not None:
            return {"type": "input_file", **_at("file_url", media.url)}
    # The vendor refuses the whole request for a sound or a film: the model is told of it at least.
    return _text(in_words(media))


def _at(key: str, url: str) -> _Wire:
    """Say where the content is. `file-...` is not an address but the vendor's name of a file that was uploaded to it."""
    return {"file_id": url} if url.startswith("file-") else {key: url}


def state_marker(response_id: str, after: int) -> Opaque:
    """Return the part that remembers which stored response a message is, and how many messages led to it."""
    return Opaque(provider=PROVIDER, payload={"type": _MARKER, "id": response_id, "after": after})


def state_id(message: Message, position: int) -> str | None:
    """Return the id of the stored response that this message is, or None.

    One that stands at another position follows another history than the server's: it was cut or compacted since.
    """
    for part in message.parts:
        match part:
            case Opaque(payload={"type": "treadle.response", "id": str(response_id), "after": int(after)}):
                return response_id if after == position else None
    return None
