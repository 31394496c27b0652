"""Gemini's parts, inward: put together in the order in which they came. Knows nothing of the rest of the answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.concurrency.pieces import Pieces
from treadle.errors import ModelResponseInvalid
from treadle.messages import Media, Opaque, Part, Text, Thinking, ToolCall
from treadle.ports import CallReady, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.gemini.contents import PROVIDER
from treadle.providers.payload.arguments import may_have_lost
from treadle.providers.payload.lenient import arguments_text, call_arguments, decode, text_or_nothing
from treadle.tools import JsonObject

__all__ = ["GeminiParts"]


class _Call(msgspec.Struct, rename="camel"):
    name: Any = None
    args: msgspec.Raw = msgspec.Raw(b"{}")
    """Kept raw: the call's arguments are exactly these bytes."""
    id: Any = None
    partial_args: Any = None
    will_continue: Any = None


class _Part(msgspec.Struct, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: _Call | None = None
    inline_data: Any = None


_parts = msgspec.json.Decoder(_Part)
_values = msgspec.json.Decoder(JsonObject)

_WORDS = frozenset({"text", "thought", "thoughtSignature"})
"""What a part of words may hold."""


class GeminiParts:
    """The parts of one response. Words of one kind that follow each other are one part; a signed part stays by itself.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._whole: list[Part] = []
        self._words = Pieces()
        self._is_thought = False
        self._calls = 0
        self.size = 0
        """How many parts that say something it has taken."""
        self.unnamed: set[str] = set()
        """Ids that were made up here: models before Gemini 3 send none."""

    @property
    def has_calls(self) -> bool:
        return self._calls > 0

    def add(self, raw: bytes) -> list[ModelPart]:
        """Take one part of a chunk.

        Raises:
            ModelResponseInvalid: It is invalid.
        """
        part = decode(raw, _parts)
        signature = text_or_nothing(part.thought_signature) or None
        if part.function_call is not None:
            return self._add_call(part.function_call, signature)
        if isinstance(part.text, str):
            return self._add_words(part.text, signature, is_thought=part.thought is True)
        payload = decode(raw, _values)
        if payload.keys() <= _WORDS:  # a signature that came by itself
            return self._add_words("", signature, is_thought=part.thought is True)
        self._close_words()
        self.size += 1
        self._whole.append(_other(part, payload))
        return []

    def all(self) -> tuple[Part, ...]:
        """Return the parts as they stand."""
        self._close_words()
        calls = [part for part in self._whole if isinstance(part, ToolCall)]
        if any(
            call.name for call in calls
        ):  # one without a name is a call only where there is no other, so that the model is told
            return tuple(part for part in self._whole if not isinstance(part, ToolCall) or part.name)
        return tuple(self._whole)

    @property
    def has_strays(self) -> bool:
        """Whether nobody can say of some arguments to which call they belong."""
        calls = [part for part in self._whole if isinstance(part, ToolCall)]
        named = ((call.id, call.name, call.arguments.strip() != "{}") for call in calls if call.id not in self.unnamed)
        return any(not call.name for call in calls) or may_have_lost(named)

    def _add_call(self, call: _Call, signature: str | None) -> list[ModelPart]:
        if call.partial_args or call.will_continue:
            raise ModelResponseInvalid("The server streams a call's arguments in pieces, which nobody asked for.")
        self._close_words()
        name = text_or_nothing(call.name)
        call_id = text_or_nothing(call.id)
        if not call_id:
            call_id = f"call_{self._calls}"
            self.unnamed.add(call_id)
        made = ToolCall(
            id=call_id,
            name=self._names.get(name, name),
            arguments=call_arguments([arguments_text(call.args)]) or "{}",
            signature=signature,
        )
        self._calls += 1
        self.size += 1
        self._whole.append(made)
        return [CallReady(made)] if made.name else []

    def _add_words(self, text: str, signature: str | None, *, is_thought: bool) -> list[ModelPart]:
        if not text and signature is None:
            return []
        self.size += 1
        # A signature belongs to the part that it came on: joined to its neighbours it would prove nothing.
        if signature is not None or is_thought is not self._is_thought:
            self._close_words()
        self._is_thought = is_thought
        self._words.add(text)
        if signature is not None:
            self._close_words(signature)
        if not text:
            return []
        return [ThinkingDelta(text) if is_thought else TextDelta(text)]

    def _close_words(self, signature: str | None = None) -> None:
        if not self._words:
            return
        text = "".join(self._words)
        self._words = Pieces()
        self._whole.append(
            Thinking(text=text, signature=signature) if self._is_thought else Text(text, signature=signature)
        )


def _other(part: _Part, payload: JsonObject) -> Part:
    """Return a picture as such; whatever else there is (code that ran on the server, a signed picture) as it came."""
    blob = part.inline_data
    if part.thought_signature is None and isinstance(blob, dict):
        kind, content = blob.get("mimeType"), blob.get("data")
        if isinstance(kind, str) and isinstance(content, str):
            return Media(media_type=kind, base64=content)
    return Opaque(provider=PROVIDER, payload=payload)
