"""Contents: messages in the JSON of the conventions for generative AI, within bounds. Values only; knows no span and no secret.

Source: open-telemetry/semantic-conventions-genai, model/gen-ai/gen-ai-{input-messages,output-messages,system-instructions,tool-definitions}.json.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["answer", "arguments_of", "definitions", "fitted", "instructions", "messages", "said"]

_MOST_CHARS = 16_000
_SHORTEST = 100
"""Characters of a text that are kept, however many texts there are."""
_MODALITIES = frozenset({"image", "audio", "video"})


def messages(given: Iterable[Any]) -> list[dict[str, Any]]:  # Any: a Message, which no public module names
    """Return messages of a conversation."""
    made = ({"role": one.role, "parts": list(_parts(one.parts))} for one in given)
    return [one for one in made if one["parts"]]


def said(parts: Iterable[Any], finish: str) -> list[dict[str, Any]]:
    """Return a response as the one output message that it is."""
    return [{"role": "assistant", "parts": list(_parts(parts)), "finish_reason": finish}]


def answer(text: str, finish: str) -> list[dict[str, Any]]:
    """Return the text of a run's answer as its output message."""
    return [{"role": "assistant", "parts": instructions(text), "finish_reason": finish}]


def instructions(text: str) -> list[dict[str, Any]]:
    """Return the system prompt."""
    return [{"type": "text", "content": text}]


def definitions(tools: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the tools that are offered, without their schemas, which are large."""
    return [{"type": "function", "name": one.name, "description": one.description} for one in tools]


def arguments_of(text: str) -> Any:
    """Return the arguments of a call; their text where it is not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def fitted(value: Any) -> str:
    """Return a value as an attribute: text as it is, else JSON that stays JSON. Long texts in it are cut, and what came first left out."""
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARS else f"{value[:_MOST_CHARS]}…"
    limit = _MOST_CHARS
    while len(text := json.dumps(value, ensure_ascii=False)) > _MOST_CHARS:
        if limit > _SHORTEST:
            limit //= 2
            value = _cut(value, limit)
        elif isinstance(value, list) and len(value) > 1:
            value = value[len(value) // 2 :]
        else:
            return (
                json.dumps(text[: _MOST_CHARS // 2] + "…", ensure_ascii=False) if not isinstance(value, list) else "[]"
            )
    return text


def _cut(value: Any, limit: int) -> Any:
    match value:
        case str():
            return value if len(value) <= limit else f"{value[:limit]}…"
        case dict():
            return {key: _cut(one, limit) for key, one in value.items()}
        case list() | tuple():
            return [_cut(one, limit) for one in value]
        case _:
            return value


def _parts(given: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for part in given:
        match type(part).__struct_config__.tag:
            case "text" if part.text:
                yield {"type": "text", "content": part.text}
            case "thinking" if part.text:
                yield {"type": "reasoning", "content": part.text}
            case "call":
                yield {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments_of(part.arguments)}
            case "result":
                yield {"type": "tool_call_response", "id": part.call_id, "response": part.content}
            case "media":
                yield _media(part)


def _media(part: Any) -> dict[str, Any]:
    kind = part.media_type.partition("/")[0]
    about = {"mime_type": part.media_type, "modality": kind if kind in _MODALITIES else "document"}
    if part.url is not None:
        return {"type": "uri", "uri": part.url, **about}
    # The bytes would not fit: a part of a type of our own, as the conventions allow, says that they were there.
    return {"type": "media", "bytes": len(part.base64 or "") * 3 // 4, **about}
