"""Pairing in Bedrock Converse: refuse a history whose calls and results do not match. Repairs nothing.

It shares no code with what compiles or repairs a history: a checker that trusts the same code proves nothing.
"""

import binascii
import re
from base64 import b64decode
from typing import Any

from treadle.fields import checked
from treadle.mock.dialects.bedrock.refusing import malformed, refuse
from treadle.tools import JsonObject

__all__ = ["check_converse_history"]

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}")

_SPOKEN = {
    "user": frozenset(
        {"text", "image", "document", "video", "audio", "toolResult", "guardContent", "cachePoint", "searchResult"}
    ),
    "assistant": frozenset(
        {"text", "toolUse", "toolResult", "reasoningContent", "citationsContent", "cachePoint", "image"}
    ),
}
_SHOWN = frozenset({"text", "json", "image", "document", "video", "searchResult"})
"""What a result may hold."""
_FORMATS = {
    "image": frozenset({"png", "jpeg", "gif", "webp"}),
    "document": frozenset({"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}),
    "video": frozenset({"mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"}),
}


@checked
def check_converse_history(messages: Any, *, has_tools: bool = True) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_converse_history([{"role": "user", "content": [{"text": "go"}]}])
        >>> check_converse_history([{"role": "assistant", "content": [{"text": "go"}]}])
        Traceback (most recent call last):
        treadle.mock.dialects.answers.Refusal: A conversation must start with a user message. Try again with a conversation that starts with a user message.

    Args:
        messages: The value of `messages`.
        has_tools: Whether the request declares tools.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    if not isinstance(messages, list) or not messages:
        refuse("The messages field is empty. Add at least one message, and try again.")
    before = ""
    asked: list[str] = []
    seen: set[str] = set()
    names: list[str] = []
    for index, message in enumerate(messages):
        role, content = _message(message, index)
        if role == before:
            refuse(
                f"A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again. (messages.{index})"
            )
        if not before and role != "user":
            refuse(
                "A conversation must start with a user message. Try again with a conversation that starts with a user message."
            )
        kinds = [
            _check_block(block, role, f"messages.{index}.content.{place}", names) for place, block in enumerate(content)
        ]
        _check_company(kinds, index)
        if not has_tools and {"toolUse", "toolResult"} & set(kinds):
            refuse("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        if role == "user":
            _check_results(content, asked, index)
            asked = []
        else:
            asked = _calls(content, seen)
        before = role
    if len(set(names)) < len(names):
        refuse("Messages contain duplicate document file names. Rename the documents and try again.")
    if asked:
        refuse(
            f"Expected toolResult blocks at messages.{len(messages)}.content for the following Ids: {', '.join(asked)}"
        )


def _message(message: Any, index: int) -> tuple[str, list[Any]]:
    if not isinstance(message, dict) or message.keys() - {"role", "content"}:
        malformed(f"#/messages/{index}: only role and content are permitted")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        refuse(
            f"Value {role!r} at 'messages.{index}.role' failed to satisfy constraint: Member must satisfy enum value set: [user, assistant]"
        )
    if not isinstance(content, list) or not content:
        refuse(
            f"The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to the content field and try again."
        )
    return str(role), content


def _check_block(block: Any, role: str, where: str, names: list[str]) -> str:
    """Check one block; return its kind, and note the name of a document."""
    kind, value = _union(block, where)
    if kind not in _SPOKEN[role]:
        refuse(f"The {kind} block at {where} is not permitted in a message of the {role}.")
    match kind:
        case "text":
            _check_text(value, where)
        case "toolUse":
            _check_call(value, f"{where}.toolUse")
        case "toolResult" if role == "user":
            _check_result(value, f"{where}.toolResult", names)
        case "reasoningContent":
            _check_thought(value, f"{where}.reasoningContent")
        case "image" | "document" | "video":
            _check_media(kind, value, f"{where}.{kind}", names)
        case "cachePoint":
            _check_point(value, f"{where}.cachePoint")
    return kind


def _check_company(kinds: list[str], index: int) -> None:
    """Check what may not stand alone, or first."""
    if "document" in kinds and "text" not in kinds:
        refuse(f"The message at messages.{index} holds a document and no text. Add a text block, and try again.")
    if kinds[0] == "cachePoint":
        refuse(f"messages.{index}.content.0.cachePoint: a cache point must stand behind what is to be cached.")


def _check_text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        malformed(f"#/{where}/text: expected type: String")
    if not value.strip():
        refuse(
            f"The text field in the ContentBlock object at {where} is blank. Add text to the text field, and try again."
        )


def _check_call(value: Any, where: str) -> None:
    _check_members(value, {"toolUseId": str, "name": str, "input": dict}, frozenset({"type"}), where)
    _check_id(value["toolUseId"], where)
    if not _NAME.fullmatch(value["name"]):
        refuse(
            f"Value {value['name']!r} at '{where}.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
        )


def _check_result(value: Any, where: str, names: list[str]) -> None:
    _check_members(value, {"toolUseId": str, "content": list}, frozenset({"status", "type"}), where)
    _check_id(value["toolUseId"], where)
    if value.get("status", "success") not in ("success", "error"):
        refuse(
            f"Value at '{where}.status' failed to satisfy constraint: Member must satisfy enum value set: [success, error]"
        )
    for place, shown in enumerate(value["content"]):
        inside = f"{where}.content.{place}"
        kind, held = _union(shown, inside)
        if kind not in _SHOWN:
            refuse(f"The {kind} block at {inside} is not permitted in a result.")
        if kind == "text":
            _check_text(held, inside)
        elif kind in _FORMATS:
            _check_media(kind, held, f"{inside}.{kind}", names)


def _check_thought(value: Any, where: str) -> None:
    kind, held = _union(value, where)
    match kind:
        case "reasoningText":
            _check_members(held, {"text": str}, frozenset({"signature"}), f"{where}.{kind}")
            if not held.get("signature"):
                refuse(f"{where}.reasoningText.signature: Invalid `signature` in `thinking` block")
        case "redactedContent":
            _check_bytes(held, f"{where}.{kind}")
        case _:
            malformed(f"#/{where}: extraneous key [{kind}] is not permitted")


def _check_media(kind: str, value: Any, where: str, names: list[str]) -> None:
    needed: dict[str, type] = {"format": str, "source": dict, **({"name": str} if kind == "document" else {})}
    _check_members(value, needed, frozenset({"context", "citations"}), where)
    if value["format"] not in _FORMATS[kind]:
        refuse(
            f"Value {value['format']!r} at '{where}.format' failed to satisfy constraint: Member must satisfy enum value set: {sorted(_FORMATS[kind])}"
        )
    source, held = _union(value["source"], f"{where}.source")
    if source == "bytes":
        _check_bytes(held, f"{where}.source.bytes")
    elif source not in ("s3Location", "text", "content"):
        malformed(f"#/{where}/source: extraneous key [{source}] is not permitted")
    if kind == "document":
        if not _DOCUMENT_NAME.fullmatch(value["name"]):
            refuse(
                "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses, and square brackets. The name can't contain more than one consecutive whitespace character."
            )
        names.append(value["name"])


def _check_point(point: Any, where: str) -> None:
    if not isinstance(point, dict) or point.get("type") != "default" or point.get("ttl", "5m") not in ("5m", "1h"):
        refuse(f"Value at '{where}' failed to satisfy constraint: type must be default, and ttl 5m or 1h")


def _check_bytes(value: Any, where: str) -> None:
    try:
        held = b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        held = b""
    if not held:
        malformed(f"#/{where}: expected base64 that is not empty")


def _check_members(value: Any, needed: dict[str, type], others: frozenset[str], where: str) -> None:
    if not isinstance(value, dict):
        malformed(f"#/{where}: expected type: JSONObject")
    for name, kind in needed.items():
        if not isinstance(value.get(name), kind):
            malformed(f"#/{where}/{name}: expected type: {kind.__name__}")
    for name in value.keys() - needed.keys() - others:
        malformed(f"#/{where}: extraneous key [{name}] is not permitted")


def _check_id(call_id: str, where: str) -> None:
    if not _ID.fullmatch(call_id):
        refuse(
            f"Value {call_id!r} at '{where}.toolUseId' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.:-]+"
        )


# --- calls and results -----------------------------------------------------------------------------------------------


def _calls(content: list[JsonObject], seen: set[str]) -> list[str]:
    asked = [str(block["toolUse"]["toolUseId"]) for block in content if "toolUse" in block]
    for call_id in asked:
        if call_id in seen:
            refuse(f"messages: `tool_use` ids must be unique; found {call_id} twice")
        seen.add(call_id)
    answered = {block["toolResult"].get("toolUseId") for block in content if "toolResult" in block}
    return [call_id for call_id in asked if call_id not in answered]  # what the vendor ran itself is answered there


def _check_results(content: list[JsonObject], asked: list[str], index: int) -> None:
    given = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
    if len(given) > len(asked):
        refuse(
            f"The number of toolResult blocks at messages.{index}.content exceeds the number of toolUse blocks of previous turn."
        )
    missing = [call_id for call_id in asked if call_id not in given]
    if missing:
        refuse(f"Expected toolResult blocks at messages.{index}.content for the following Ids: {', '.join(missing)}")


def _union(value: Any, where: str) -> tuple[str, Any]:
    if not isinstance(value, dict) or len(value) != 1:
        malformed(f"#/{where}: exactly one member of the union must be set")
    return next(iter(value.items()))
