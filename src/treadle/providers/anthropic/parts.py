"""Anthropic Messages, inward: one content block that is being put together. Knows nothing of the rest of the answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.canonical import text_key
from treadle.messages import Opaque, Part, Text, Thinking, ToolCall
from treadle.ports import ModelPart, TextDelta, ThinkingDelta
from treadle.providers.anthropic.blocks import PROVIDER
from treadle.providers.payload.arguments import ObjectEnd
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.lenient import arguments_text, call_arguments, decode, text_or_nothing

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


class AnswerBlock:
    """One block, from its start to its end.

    Args:
        raw: The block as it began, or a whole one.
    """

    def __init__(self, raw: bytes | msgspec.Raw = b"{}") -> None:
        self._raw = bytes(raw)
        self._start = decode(self._raw, _starts)
        self._said: list[str] = []
        self._signature = text_or_nothing(self._start.signature)
        self._citations = _objects_of(self._start.citations)
        self._arguments: list[str] = []
        self._object = ObjectEnd()
        self.is_closed = False
        """Whether its end came."""
        self.is_doubtful = False
        """Whether it may have been cut, although it looks whole."""

    @property
    def id(self) -> str:
        return text_or_nothing(self._start.id)

    @property
    def is_call(self) -> bool:
        return bool(self._start.type == "tool_use")

    @property
    def said(self) -> str:
        return "".join(self._said)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments of a call are one object that is closed."""
        return self._object.is_closed and not self._object.has_tail and not self.is_doubtful

    @property
    def has_arguments(self) -> bool:
        """Whether any came: a call of a tool without parameters has none."""
        return any(self._arguments)

    def begin(self) -> list[ModelPart]:
        """Take what came with the start."""
        start = self._start
        return self.grow(BlockDelta(text=start.text, thinking=start.thinking))

    def grow(self, delta: BlockDelta) -> list[ModelPart]:
        """Take what one event adds."""
        self._signature = text_or_nothing(delta.signature) or self._signature
        if delta.citation is not None:
            self._citations += _objects_of([delta.citation])
        if piece := text_or_nothing(delta.partial_json):
            self._arguments.append(piece)
            self._object.feed(piece)
        if said := text_or_nothing(delta.thinking):
            self._said.append(said)
            return [ThinkingDelta(said)]
        if said := text_or_nothing(delta.text):
            self._said.append(said)
            return [TextDelta(said)]
        if said := text_or_nothing(delta.content):
            self._said.append(said)
        return []

    def close(self) -> None:
        """Take the end. Some servers send the arguments whole, with the start, and no piece of them after it."""
        self.is_closed = True
        whole = arguments_text(self._start.input)
        if not self.has_arguments and whole.strip() not in ("", "{}"):
            self.grow(BlockDelta(partial_json=whole))

    def break_off(self) -> None:
        """Expect no more of a block that was not closed. A call without arguments may have lost them."""
        if not self.is_closed and self.is_call and not self.has_arguments:
            self.close()
            self.is_doubtful = not self.has_arguments

    @property
    def content(self) -> tuple[Any, Any, bytes, str]:
        """What the block says, whatever its id and however its arguments are written."""
        return self._start.type, self._start.name, text_key("".join(self._arguments) or "{}"), self.said

    def goes_on(self, other: "AnswerBlock") -> bool:
        """Whether this block begins as the other one did, which was not closed, and so takes its place."""
        is_same = self.id == other.id and self.content[:2] == other.content[:2]
        return is_same and not other.is_closed and self.said.startswith(other.said)

    def rest(self, other: "AnswerBlock") -> list[ModelPart]:
        """Return what of the words the other one has not said."""
        said = self.said.removeprefix(other.said)
        match self._start.type:
            case "text" if said:
                return [TextDelta(said)]
            case "thinking" if said:
                return [ThinkingDelta(said)]
            case _:
                return []

    def call(self, position: int, names: Mapping[str, str]) -> ToolCall:
        start, name = self._start, text_or_nothing(self._start.name)
        return ToolCall(
            id=self.id or f"call_{position}",
            name=names.get(name, name),
            arguments=call_arguments(self._arguments) or "{}",
            signature=_caller(start.caller),
        )

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
            payload["input"] = decode(call_arguments(self._arguments).encode(), _objects)
        if said:
            payload["content"] = said
        return payload


def _objects_of(values: Any) -> list[Any]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _caller(caller: Any) -> str | None:
    """Return who called, where it was not the model itself but its code on the vendor's side: that must travel back."""
    if not isinstance(caller, dict) or caller.get("type") in (None, "direct"):
        return None
    return to_json(caller).decode()
