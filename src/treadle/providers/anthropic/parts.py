"""Anthropic Messages, inward: one content block that is being put together. Knows nothing of the rest of the answer."""

from typing import Any

import msgspec

from treadle.messages import Opaque, Part, Text, Thinking
from treadle.ports import ModelPart, TextDelta, ThinkingDelta
from treadle.providers.anthropic.blocks import PROVIDER
from treadle.providers.payload.blocks import ContentBlock
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.lenient import arguments_text, decode, text_or_nothing

__all__ = ["AnswerBlock", "BlockDelta"]


class BlockDelta(msgspec.Struct):
    """What one event adds to a block. `Any` is the wire's."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    citation: Any = None
    content: Any = None
    stop_reason: Any = None
    container: Any = None


class _Start(msgspec.Struct):
    type: Any = None
    id: Any = None
    name: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    citations: Any = None
    input: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: those bytes are what the model wrote, as near as one can get."""
    caller: Any = None


_starts = msgspec.json.Decoder(_Start)
_objects = msgspec.json.Decoder(dict[str, Any])


class AnswerBlock(ContentBlock):
    """One block, from its start to its end.

    Args:
        raw: The block as it began, or a whole one.
    """

    def __init__(self, raw: bytes | msgspec.Raw = b"{}") -> None:
        self._raw = bytes(raw)
        self._start = start = decode(self._raw, _starts)
        super().__init__(
            text_or_nothing(start.type),
            block_id=text_or_nothing(start.id),
            name=text_or_nothing(start.name),
            is_call=start.type == "tool_use",
        )
        self._signature = text_or_nothing(start.signature)
        self._citations = _objects_of(start.citations)

    def begin(self) -> list[ModelPart]:
        """Take what came with the start."""
        return self.grow(BlockDelta(text=self._start.text, thinking=self._start.thinking))

    def grow(self, delta: BlockDelta) -> list[ModelPart]:
        """Take what one event adds."""
        self._signature = text_or_nothing(delta.signature) or self._signature
        if delta.citation is not None:
            self._citations += _objects_of([delta.citation])
        self.add_arguments(text_or_nothing(delta.partial_json))
        if said := text_or_nothing(delta.thinking):
            self._said.add(said)
            return [ThinkingDelta(said)]
        if said := text_or_nothing(delta.text):
            self._said.add(said)
            return [TextDelta(said)]
        if said := text_or_nothing(delta.content):
            self._said.add(said)
        return []

    def close(self) -> None:
        """Take the end. Some servers send the arguments whole, with the start, and no piece of them after it."""
        super().close()
        whole = arguments_text(self._start.input)
        if not self.has_arguments and whole.strip() not in ("", "{}"):
            self.add_arguments(whole)

    @property
    def call_signature(self) -> str | None:
        """Who called, where it was not the model itself but its code on the vendor's side: that must travel back."""
        caller = self._start.caller
        if not isinstance(caller, dict) or caller.get("type") in (None, "direct"):
            return None
        return to_json(caller).decode()

    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""
        said = self.said
        match self._start.type:
            case "text":
                return Text(said, signature=self._cited()) if said else None
            case "thinking":
                return self._thought(said, is_last=is_last) if said or self._signature else None
            case "redacted_thinking":
                return Thinking(payload=decode(self._raw, _objects))
            case _:
                return Opaque(provider=PROVIDER, payload=self._payload(said))

    def _cited(self) -> str | None:
        """Return what a text cites as its signature: it must travel back to the model that wrote it, and says nothing to others."""
        return to_json({"citations": self._citations}).decode() if self._citations else None

    def _thought(self, said: str, *, is_last: bool) -> Thinking:
        """Return a thought. Without a signature it goes back as it came, for some servers sign none, unless it was cut off."""
        if self._signature or is_last:
            return Thinking(text=said, signature=self._signature or None)
        block = decode(self._raw, _objects)
        return Thinking(text=said, payload={**block, "thinking": said})

    def _payload(self, said: str) -> dict[str, Any]:
        payload = decode(self._raw, _objects)
        if self.has_arguments and self.is_complete:
            payload["input"] = decode(self.arguments.encode(), _objects)
        if said:
            payload["content"] = said
        return payload


def _objects_of(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
