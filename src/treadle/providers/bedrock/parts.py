"""Bedrock Converse, inward: one content block that is being put together. Knows nothing of the rest of the answer."""

from base64 import b64decode, b64encode
from typing import Any

import msgspec

from treadle.messages import Opaque, Part, Text, Thinking
from treadle.ports import ModelPart
from treadle.providers.bedrock.contents import PROVIDER
from treadle.providers.payload.blocks import ContentBlock
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.lenient import arguments_text, decode, text_or_nothing

__all__ = ["ConverseBlock", "Delta", "Reasoning"]


class Reasoning(msgspec.Struct, rename="camel"):
    """A thought, or what one event adds to it. `Any` is the wire's."""

    text: Any = None
    signature: Any = None
    redacted_content: Any = None
    reasoning_text: Any = None


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: Any = None
    name: Any = None
    type: Any = None
    input: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: those bytes are what the model wrote, as near as one can get."""


class Delta(msgspec.Struct, rename="camel"):
    """What one event adds to a block. `Any` is the wire's."""

    text: Any = None
    tool_use: _ToolUse | None = None
    tool_result: Any = None
    reasoning_content: Reasoning | None = None
    citation: Any = None


class _Block(msgspec.Struct, rename="camel"):
    text: Any = None
    tool_use: _ToolUse | None = None
    tool_result: Any = None
    reasoning_content: Reasoning | None = None
    citations_content: Any = None


_blocks = msgspec.json.Decoder(_Block)
_objects = msgspec.json.Decoder(dict[str, Any])

_OWN_CALL = "server_tool_use"
"""The type of a call that the vendor carries out itself."""


class ConverseBlock(ContentBlock):
    """One block, from its start, or from its first piece where it has no start, to its end.

    Args:
        raw: The block as it began, or a whole one.
    """

    def __init__(self, raw: bytes | msgspec.Raw = b"{}") -> None:
        self._raw = bytes(raw)
        self._start = start = decode(self._raw, _blocks)
        call = start.tool_use
        is_own_call = call is not None and call.type == _OWN_CALL
        kind = "toolUse" if call is not None else "text"
        if start.tool_result is not None or is_own_call:
            kind = "other"
        elif start.reasoning_content is not None:
            kind = "thinking"
        super().__init__(
            kind,
            block_id=text_or_nothing(call.tool_use_id) if call is not None else "",
            name=text_or_nothing(call.name) if call is not None else "",
            is_call=call is not None and not is_own_call,
        )
        self._signature: list[str] = []
        self._sealed: list[str] = []
        self._citations: list[Any] = []
        self._results: list[Any] = []

    def begin(self) -> list[ModelPart]:
        """Take what came with the start: all of it, where the block came whole."""
        start = self._start
        parts = self.say(text_or_nothing(start.text))
        if isinstance(cited := start.citations_content, dict):
            self._citations += _objects_of(cited.get("citations"))
            for piece in _objects_of(cited.get("content")):
                parts += self.say(text_or_nothing(piece.get("text")))
        if start.reasoning_content is not None:
            parts += self._think(start.reasoning_content)
        return parts

    def grow(self, delta: Delta) -> list[ModelPart]:
        """Take what one event adds. The first piece of a block without a start says what the block is."""
        if delta.reasoning_content is not None:
            if self.kind == "text" and not self._said:
                self.kind = "thinking"
            return self._think(delta.reasoning_content)
        if delta.tool_use is not None:
            self.add_arguments(arguments_text(delta.tool_use.input))
        if delta.tool_result is not None:
            self._results += delta.tool_result if isinstance(delta.tool_result, list) else [delta.tool_result]
        if isinstance(delta.citation, dict):
            self._citations.append(delta.citation)
        return self.say(text_or_nothing(delta.text))

    def close(self) -> None:
        """Take the end. Where the arguments came whole, with the start, they are taken now."""
        super().close()
        if self._start.tool_use is not None and not self.has_arguments:
            whole = arguments_text(self._start.tool_use.input)
            self.add_arguments("" if whole.strip() == "{}" else whole)

    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""
        match self.kind:
            case "text":
                cited = to_json({"citations": self._citations}).decode() if self._citations else None
                return Text(self.said, signature=cited) if self.said else None
            case "thinking" if self._sealed:
                return Thinking(payload={"reasoningContent": {"redactedContent": _joined(self._sealed)}})
            case "thinking":
                signature = "".join(self._signature) or None
                return Thinking(text=self.said, signature=signature) if self.said or signature else None
            case _:
                return Opaque(provider=PROVIDER, payload=self._payload())

    def _think(self, thought: Reasoning) -> list[ModelPart]:
        whole = thought.reasoning_text if isinstance(thought.reasoning_text, dict) else {}
        self._signature += filter(None, (text_or_nothing(thought.signature), text_or_nothing(whole.get("signature"))))
        if sealed := text_or_nothing(thought.redacted_content):
            self._sealed.append(sealed)
        return self.say(text_or_nothing(thought.text)) + self.say(text_or_nothing(whole.get("text")))

    def _payload(self) -> dict[str, Any]:
        payload = decode(self._raw, _objects)
        if isinstance(call := payload.get("toolUse"), dict) and self.has_arguments and self.is_complete:
            payload["toolUse"] = {**call, "input": decode(self.arguments.encode(), _objects)}
        if isinstance(result := payload.get("toolResult"), dict) and self._results:
            payload["toolResult"] = {**result, "content": self._results}
        return payload


def _joined(sealed: list[str]) -> str:
    """Return the pieces of a sealed thought as one: each is base64 by itself."""
    if len(sealed) == 1:
        return sealed[0]
    try:
        return b64encode(b"".join(map(b64decode, sealed))).decode()
    except ValueError:
        return "".join(sealed)


def _objects_of(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
