"""Pairing in Responses: refuse an input whose calls, outputs and reasoning do not belong together. Repairs nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from treadle.fields import checked
from treadle.mock.dialects.openai_checks import (
    check_arguments,
    items_of,
    name_of,
    object_of,
    refuse,
    refuse_missing,
    refuse_type,
    refuse_value,
    text_of,
)
from treadle.tools import JsonObject

__all__ = ["Kept", "check_responses_history"]

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
        treadle.mock.dialects.answers.Refusal: No tool call found for function call output with call_id c.

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
