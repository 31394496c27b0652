"""Cohere, inward: one piece of a message (text, thinking or a call) that is being put together. Knows nothing of the rest of the answer."""

from typing import Any

import msgspec

from treadle.concurrency.pieces import Pieces
from treadle.messages import Opaque, Part, Text, Thinking
from treadle.ports import ModelPart
from treadle.providers.cohere.messages import PROVIDER
from treadle.providers.payload.arguments import ObjectEnd
from treadle.providers.payload.blocks import ContentBlock
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.lenient import arguments_text, text_or_nothing

__all__ = ["CohereBlock", "Content", "ToolCallPiece", "call_block", "content_block"]


class Content(msgspec.Struct, gc=False):
    """A block of content, or what one event adds to it. `Any` is the wire's."""

    type: Any = None
    text: Any = None
    thinking: Any = None

    @property
    def words(self) -> str:
        return text_or_nothing(self.text) or text_or_nothing(self.thinking)

    @property
    def kind(self) -> str:
        """What a block that begins so is; one that does not say it is what it holds."""
        if self.type is None:
            return "thinking" if self.text is None and self.thinking is not None else "text"
        return self.type if self.type in ("text", "thinking") else "other"


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: a server that sends an object instead of its text means exactly those bytes."""


class ToolCallPiece(msgspec.Struct, gc=False):
    """A call, or what one event adds to it."""

    id: Any = None
    function: _Function | None = None

    @property
    def arguments(self) -> str:
        return arguments_text(self.function.arguments) if self.function is not None else ""


class CohereBlock(ContentBlock):
    """One piece of a message, from its start to its end.

    Args:
        kind: `text`, `thinking`, `call`, or `other` for what only the vendor understands.
        first: What came of its words, or of its arguments, with its start.
        payload: What came, where only the vendor understands it.
    """

    def __init__(self, kind: str, *, block_id: str = "", name: str = "", first: str = "", payload: Any = None) -> None:
        super().__init__(kind, block_id=block_id, name=name, is_call=kind == "call")
        self._first = first
        self._payload = payload
        self._citations: list[Any] = []

    def begin(self) -> list[ModelPart]:
        """Take what came with the start: all of it, where the block came whole."""
        return self.grow(self._first)

    def grow(self, piece: str) -> list[ModelPart]:
        """Take a piece of its words, or of its arguments."""
        if self.is_call:
            self.add_arguments(piece)
            return []
        return self.say(piece)

    def cite(self, citation: Any) -> None:
        """Take what its text cites."""
        if isinstance(citation, dict):
            self._citations.append(citation)

    def close(self) -> None:
        """Take the end. The vendor may write `null` as the arguments of a tool that has no parameters."""
        super().close()
        if self.is_call and "".join(self._arguments).strip() == "null":
            self._arguments, self._object = Pieces(), ObjectEnd()

    @property
    def _cited(self) -> str | None:
        return to_json({"citations": self._citations}).decode() if self._citations else None

    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""
        match self.kind:
            case "text":
                return Text(self.said, signature=self._cited) if self.said else None
            case "thinking":
                return Thinking(text=self.said, signature=self._cited) if self.said else None
            case _:
                return Opaque(provider=PROVIDER, payload=self._payload)


def content_block(content: Content, payload: Any = None) -> CohereBlock:
    """Return a block of content as it begins.

    Args:
        payload: What came, as a JSON value.
    """
    return CohereBlock(content.kind, first=content.words, payload=payload)


def call_block(call: ToolCallPiece) -> CohereBlock:
    """Return a call as it begins."""
    name = text_or_nothing(call.function.name) if call.function is not None else ""
    return CohereBlock("call", block_id=text_or_nothing(call.id), name=name, first=call.arguments)
