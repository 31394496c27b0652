"""Pairing in Anthropic Messages: refuse a history whose calls and results do not match. Repairs nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from treadle.fields import checked
from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_anthropic_history"]

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")

_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"content": list},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict, "server_name": str},
}
"""What each kind of block must hold. The results of the vendor's own tools are one kind more."""

_SPOKEN = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}),
}
_SHOWN = frozenset({"text", "image", "document", "search_result"})
"""What a result may hold."""
_SOURCES = frozenset({"base64", "content", "file", "text", "url"})
_UNMARKED = frozenset({"thinking", "redacted_thinking"})
"""Blocks that cannot carry a cache marker."""

_KINDS: dict[type | tuple[type, ...], str] = {
    str: "Input should be a valid string",
    dict: "Input should be a valid dictionary",
    list: "Input should be a valid list",
}


@checked
def check_anthropic_history(messages: Any) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_anthropic_history([{"role": "user", "content": "go"}])
        >>> check_anthropic_history([{"role": "assistant", "content": "go"}])
        Traceback (most recent call last):
        treadle.mock.dialects.answers.Refusal: messages: first message must use the "user" role

    Args:
        messages: The value of `messages`.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    if not isinstance(messages, list):
        _refuse("messages: Input should be a valid list")
    if not messages:
        _refuse("messages: at least one message is required")
    turns: list[tuple[str, list[tuple[str, JsonObject]]]] = []
    for index, message in enumerate(messages):
        role = _role(message, index)
        blocks = list(_blocks(message, role, index, is_last=index == len(messages) - 1))
        # The vendor joins neighbours of one role, but wants all results of a step in the one message after it.
        if turns and turns[-1][0] == role == "assistant":
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    if turns[0][0] != "user":
        _refuse('messages: first message must use the "user" role')
    _check_pairs(turns)


def _role(message: Any, index: int) -> str:
    if not isinstance(message, dict):
        _refuse(f"messages.{index}: Input should be a valid dictionary or object to extract fields from")
    if "role" not in message:
        _refuse(f"messages.{index}.role: Field required")
    for key in message:
        if key not in ("role", "content"):
            _refuse(f"messages.{index}.{key}: Extra inputs are not permitted")
    role = message["role"]
    if role == "system":
        _refuse(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" as an input '
            "message role."
        )
    if not isinstance(role, str) or role not in _SPOKEN:
        _refuse(f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"')
    return role


def _blocks(message: JsonObject, role: str, index: int, *, is_last: bool) -> Iterator[tuple[str, JsonObject]]:
    """Yield the blocks of a message, each checked, with the place where it stands."""
    where = f"messages.{index}"
    content = message.get("content")
    if "content" not in message:
        _refuse(f"{where}.content: Field required")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        _refuse(f"{where}.content: Input should be a valid list")
    if not content and not (is_last and role == "assistant"):
        _refuse(f"{where}: all messages must have non-empty content except for the optional final assistant message")
    for place, block in enumerate(content):
        _check_block(block, role, f"{where}.content.{place}")
        yield f"{where}.content.{place}", block
    if is_last and role == "assistant" and content and _text_of(content[-1]) != _text_of(content[-1]).rstrip():
        _refuse("messages: final assistant content cannot end with trailing whitespace")


def _check_block(block: Any, role: str, where: str) -> None:
    kind = _kind(block, where)
    is_server_result = kind.endswith("_tool_result") and role == "assistant"
    if kind not in _FIELDS and not is_server_result:
        known = ", ".join(f"'{name}'" for name in sorted(_FIELDS))
        _refuse(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {known}")
    if kind not in _SPOKEN[role] and not is_server_result:
        other = "assistant" if role == "user" else "user"
        _refuse(f"{where}: `{kind}` blocks can only be in `{other}` messages")
    _check_fields(block, {"tool_use_id": str} if is_server_result else _FIELDS[kind], f"{where}.{kind}")
    _check_marker(block, kind, where)
    match kind:
        case "text":
            _check_text(block["text"])
            _check_citations(block.get("citations"), f"{where}.text.citations")
        case "thinking" if not block["signature"]:
            _refuse(f"{where}: Invalid `signature` in `thinking` block")
        case "tool_use":
            _check_pattern(block["id"], _ID, "^[a-zA-Z0-9_-]+$", f"{where}.tool_use.id")
            _check_pattern(block["name"], _NAME, "^[a-zA-Z0-9_-]{1,128}$", f"{where}.tool_use.name")
        case "tool_result":
            _check_result(block, f"{where}.tool_result")
        case "image" | "document":
            _check_source(block, kind, where)


def _kind(block: Any, where: str) -> str:
    if not isinstance(block, dict):
        _refuse(f"{where}: Input should be a valid dictionary or object to extract fields from")
    if not isinstance(block.get("type"), str):
        _refuse(f"{where}.type: Field required")
    return str(block["type"])


def _check_fields(block: JsonObject, fields: dict[str, type | tuple[type, ...]], where: str) -> None:
    for name, kind in fields.items():
        if name not in block:
            _refuse(f"{where}.{name}: Field required")
        if not isinstance(block[name], kind):
            _refuse(f"{where}.{name}: {_KINDS[kind]}")


def _check_marker(block: JsonObject, kind: str, where: str) -> None:
    if block.get("cache_control") is None:
        return
    if kind in _UNMARKED:
        _refuse(f"{where}.{kind}.cache_control: Extra inputs are not permitted")
    if kind == "text" and not block["text"]:
        _refuse(f"{where}.text: cache_control cannot be set for empty text blocks")


def _check_text(text: str) -> None:
    if not text:
        _refuse("messages: text content blocks must be non-empty")
    if not text.strip():
        _refuse("messages: text content blocks must contain non-whitespace text")


def _check_citations(citations: Any, where: str) -> None:
    if citations is not None and not isinstance(citations, list):
        _refuse(f"{where}: Input should be a valid list")
    for place, cited in enumerate(citations or ()):
        kind = _kind(cited, f"{where}.{place}")
        if "file_id" in cited:  # it stands in answers, and in no request
            _refuse(f"{where}.{place}.{kind}.file_id: Extra inputs are not permitted")


def _check_pattern(value: str, pattern: re.Pattern[str], shown: str, where: str) -> None:
    if not pattern.fullmatch(value):
        _refuse(f"{where}: String should match pattern '{shown}'")


def _check_result(block: JsonObject, where: str) -> None:
    _check_pattern(block["tool_use_id"], _ID, "^[a-zA-Z0-9_-]+$", f"{where}.tool_use_id")
    if not isinstance(block.get("is_error", False), bool):
        _refuse(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", [])
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        _refuse(f"{where}.content: Input should be a valid list")
    for place, shown in enumerate(content):
        kind = _kind(shown, f"{where}.content.{place}")
        if kind not in _SHOWN | {"tool_reference"}:
            _refuse(
                f"{where}.content.{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )
        if block.get("is_error") and kind != "text":
            _refuse(f'{where}: all content must be type "text" if `is_error` is true')
        if kind in _SHOWN:
            _check_block(shown, "user", f"{where}.content.{place}")


def _check_source(block: JsonObject, kind: str, where: str) -> None:
    source = block["source"]
    if source.get("type") not in _SOURCES:
        _refuse(
            f"{where}.{kind}.source: Input tag '{source.get('type')}' found using 'type' does not match any of the expected tags"
        )
    needed = {"base64": ("media_type", "data"), "text": ("media_type", "data"), "url": ("url",), "file": ("file_id",)}
    for name in needed.get(source["type"], ()):
        if not isinstance(source.get(name), str):
            _refuse(f"{where}.{kind}.source.{source['type']}.{name}: Field required")


def _text_of(block: JsonObject) -> str:
    return str(block["text"]) if block["type"] == "text" else ""


# --- calls and results -----------------------------------------------------------------------------------------------


def _check_pairs(turns: list[tuple[str, list[tuple[str, JsonObject]]]]) -> None:
    asked: list[str] = []
    seen: set[str] = set()
    where_asked = ""
    for role, blocks in turns:
        where = blocks[0][0].partition(".content")[0] if blocks else ""
        if role == "assistant":
            asked, where_asked = _calls(blocks, seen), where
            _check_server_results(blocks)
        else:
            _check_results(blocks, asked, where_asked)
            asked = []
    _check_none_left(asked, where_asked)


def _calls(blocks: list[tuple[str, JsonObject]], seen: set[str]) -> list[str]:
    asked = [str(block["id"]) for _, block in blocks if block["type"] == "tool_use"]
    for call_id in asked:
        if call_id in seen:
            _refuse("messages: `tool_use` ids must be unique")
        seen.add(call_id)
    return asked


def _check_results(blocks: list[tuple[str, JsonObject]], asked: list[str], where_asked: str) -> None:
    """Take the results that stand first; one behind anything else answers nothing."""
    answered: list[str] = []
    for where, block in blocks:
        if block["type"] != "tool_result":
            break
        call_id = block["tool_use_id"]
        if call_id in answered:
            _refuse(
                f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}"
            )
        if call_id not in asked:
            _refuse_unasked(where, call_id)
        answered.append(call_id)
    _check_none_left([call_id for call_id in asked if call_id not in answered], where_asked)
    for where, block in blocks[len(answered) :]:
        if block["type"] == "tool_result":
            _refuse_unasked(where, block["tool_use_id"])


def _check_none_left(asked: list[str], where: str) -> None:
    if asked:
        _refuse(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(asked)}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def _refuse_unasked(where: str, call_id: str) -> NoReturn:
    _refuse(
        f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block must have a "
        "corresponding `tool_use` block in the previous message."
    )


def _check_server_results(blocks: list[tuple[str, JsonObject]]) -> None:
    """A result of the vendor's own tool stands in the same message, behind its call."""
    called: set[str] = set()
    for where, block in blocks:
        kind = block["type"]
        if kind in ("server_tool_use", "mcp_tool_use"):
            called.add(block["id"])
        elif kind.endswith("_tool_result") and block["tool_use_id"] not in called:
            _refuse(
                f"{where}: unexpected `tool_use_id` found in `{kind}` blocks: {block['tool_use_id']}. Each `{kind}` block must "
                "have a corresponding `server_tool_use` block before it."
            )


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)
