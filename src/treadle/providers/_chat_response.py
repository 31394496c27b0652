"""Chat Completions, inward: from the events of one answer to the parts of one response. Does no I/O.

Servers differ in everything but the names of the fields, so values are read as they come and judged here: `Any` in the structs
below is the wire's.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers._arguments import ObjectEnd

__all__ = ["ChatError", "ChatResponse"]


class ChatError(Exception):
    """The provider's own error, found inside an answer. Carries its JSON value."""

    def __init__(self, error: Any) -> None:
        super().__init__("the answer holds an error")
        self.error = error


class _Function(msgspec.Struct):
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: a server that sends an object instead of its text means exactly those bytes."""


class _Fragment(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[_Fragment | None] | None = None


class _Choice(msgspec.Struct):
    index: Any = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice | None] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None


_T = TypeVar("_T")
_chunks = msgspec.json.Decoder(_Chunk)
_values = msgspec.json.Decoder()

_FINISHES = {
    "stop": Finish.STOP,
    "tool_calls": Finish.CALLS,
    "function_call": Finish.CALLS,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.REFUSED,
    "refusal": Finish.REFUSED,
}


class _Slot:
    """One call that is being put together."""

    __slots__ = ("end", "id", "name", "pieces", "position", "signature")

    def __init__(self, position: int) -> None:
        self.position = position
        self.id = ""
        self.name = ""
        self.signature: str | None = None
        self.pieces: list[str] = []
        self.end = ObjectEnd()

    @property
    def is_ready(self) -> bool:
        return self.end.is_closed and not self.end.has_tail and bool(self.name)

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.end.feed(text)

    def call(self, names: Mapping[str, str]) -> ToolCall:
        return ToolCall(
            # A server without ids still has positions, and ModelEnd must be able to name a call that was cut.
            id=self.id or f"call_{self.position}",
            name=names.get(self.name, self.name),
            arguments="".join(self.pieces),
            signature=self.signature,
        )


class _Calls:
    """The calls of one response, from fragments to call order.

    A fragment belongs to the call at its index. Servers that leave the index out, or send 0 for every call, begin a new call by
    a new id, or by a name after the open call has closed.
    """

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._open: dict[int, _Slot] = {}
        self._last: _Slot | None = None
        self._next = 0
        self._told = 0

    def add(self, fragment: _Fragment, *, is_whole: bool) -> None:
        function = fragment.function or _Function()
        call_id = _text_or_nothing(fragment.id) or (str(fragment.id) if type(fragment.id) is int else "")
        name = _text_or_nothing(function.name)
        text = _arguments_text(function.arguments)
        slot = self._slot(_index(fragment.index), call_id, name, text, is_whole=is_whole)
        slot.id = slot.id or call_id
        slot.name = slot.name or name
        slot.signature = slot.signature or _signature(fragment.extra_content)
        if text:
            slot.add(text)

    def ready(self) -> list[_Slot]:
        """Return the calls that have become complete, in call order: none before an earlier one."""
        found = []
        while (slot := self._slots.get(self._told)) is not None and slot.is_ready:
            found.append(slot)
            self._told += 1
        return found

    def in_order(self) -> list[_Slot]:
        return [self._slots[position] for position in sorted(self._slots)]

    def _slot(self, index: int | None, call_id: str, name: str, text: str, *, is_whole: bool) -> _Slot:
        open_slot = self._last if index is None else self._open.get(index)
        if open_slot is None or is_whole or _begins_another(open_slot, index, call_id, name, text):
            position = index if index is not None and index not in self._slots else self._next
            open_slot = self._slots[position] = _Slot(position)
            self._next = max(self._next, position + 1)
        if index is not None:
            self._open[index] = open_slot
        self._last = open_slot
        return open_slot


def _begins_another(slot: _Slot, index: int | None, call_id: str, name: str, text: str) -> bool:
    if call_id and slot.id and call_id != slot.id:
        return True
    if index is None and name and slot.name and name != slot.name:
        return True
    is_repeat = index is not None and bool(call_id) and call_id == slot.id
    return bool(name) and slot.end.is_closed and not is_repeat and text.lstrip().startswith("{")


class ChatResponse:
    """Takes the data of each event, and gives the parts that it makes.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.is_whole = False
        """Whether the terminal came: a finish reason or `[DONE]`, either."""
        self.is_done = False
        """Whether `[DONE]` came: nothing follows."""
        self.is_empty = True
        """Whether nothing of this dialect came yet."""
        self._names = names
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._is_refused = False
        self._calls = _Calls()
        self._finish = Finish.UNKNOWN
        self._usage: Usage | None = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            ChatError: It is the provider's error.
            ModelResponseInvalid: It is no JSON, or of another shape.
        """
        data = data.strip()
        if not data or self.is_done:
            return []
        if data == b"[DONE]":
            self.is_done = self.is_whole = True
            self.is_empty = False
            return []
        return self._take(_chunk(data))

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does."""
        chunk = _chunk(body)
        if chunk.choices is None and not chunk.error:
            raise ModelResponseInvalid("The answer has no choices.")
        parts = self._take(chunk)
        self.is_done = self.is_whole = True
        return parts

    def end(self) -> ModelEnd:
        """Return the whole message."""
        slots = self._calls.in_order()
        calls = [slot.call(self._names) for slot in slots]
        finish = Finish.REFUSED if self._is_refused else self._finish
        is_cut = finish is Finish.LENGTH
        return ModelEnd(
            parts=(*self._words(), *calls),
            finish=finish,
            usage=self._usage,
            cut_calls=frozenset(
                call.id for slot, call in zip(slots, calls, strict=True) if is_cut and not slot.end.is_closed
            ),
        )

    def _words(self) -> list[Part]:
        parts: list[Part] = []
        if thought := "".join(self._thinking):
            parts.append(Thinking(text=thought))
        if said := "".join(self._text):
            parts.append(Text(said))
        return parts

    def _take(self, chunk: _Chunk) -> list[ModelPart]:
        if chunk.error:
            raise ChatError(chunk.error)
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage) or self._usage
        if chunk.choices is not None:
            self.is_empty = False
        parts: list[ModelPart] = []
        for choice in chunk.choices or ():
            if choice is not None and not choice.index:  # the first choice only, should an option ask for more
                self._take_choice(choice, parts)
        return parts

    def _take_choice(self, choice: _Choice, parts: list[ModelPart]) -> None:
        if choice.error:
            raise ChatError(choice.error)
        if choice.delta is not None:
            self._take_delta(choice.delta, parts, is_whole=False)
        elif choice.message is not None:
            self._take_delta(choice.message, parts, is_whole=True)
        if choice.finish_reason and isinstance(choice.finish_reason, str):
            if choice.finish_reason == "error":
                raise ChatError({"message": "finish_reason is error"})
            self._finish = _FINISHES.get(choice.finish_reason, Finish.UNKNOWN)
            self.is_whole = True

    def _take_delta(self, delta: _Delta, parts: list[ModelPart], *, is_whole: bool) -> None:
        thought, said = _thinking(delta), _said(delta.content)
        if thought:
            self._thinking.append(thought)
            parts.append(ThinkingDelta(thought))
        if refusal := _text_or_nothing(delta.refusal):
            self._is_refused = True
            said += refusal
        if said:
            self._text.append(said)
            parts.append(TextDelta(said))
        if delta.tool_calls:
            for fragment in delta.tool_calls:
                if fragment is not None:
                    self._calls.add(fragment, is_whole=is_whole)
            parts += [CallReady(slot.call(self._names)) for slot in self._calls.ready()]


def _said(content: Any) -> str:
    """Return the text of a content: a string, or Mistral's list of typed pieces."""
    if isinstance(content, str):
        return content
    return _pieces(content, "text")


def _thinking(delta: _Delta) -> str:
    """Return the reasoning. Gateways send the same words in both fields, so the first counts."""
    told = _text_or_nothing(delta.reasoning_content) or _text_or_nothing(delta.reasoning)
    if told or not isinstance(delta.content, list):
        return told
    nested = [piece.get("thinking") for piece in delta.content if isinstance(piece, dict)]
    return "".join(piece if isinstance(piece, str) else _pieces(piece, "text") for piece in nested)


def _pieces(content: Any, kind: str) -> str:
    if not isinstance(content, list):
        return ""
    return "".join(
        _text_or_nothing(piece.get(kind)) for piece in content if isinstance(piece, dict) and piece.get("type") == kind
    )


def _text_or_nothing(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _index(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _signature(extra: Any) -> str | None:
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) and signature else None


def _arguments_text(raw: msgspec.Raw) -> str:
    """Return the text of arguments: of a string its content, of an object its own JSON, as it came."""
    encoded = bytes(raw)
    if encoded == b"null":
        return ""
    if not encoded.startswith(b'"'):
        return encoded.decode("utf-8", "replace")
    return _text_or_nothing(_decode(encoded, _values))


def _usage(value: Any) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt."""
    if not isinstance(value, dict):
        return None
    prompt, completion = _count(value, "prompt_tokens"), _count(value, "completion_tokens")
    if not prompt and not completion:
        return None
    cached = _count(value.get("prompt_tokens_details"), "cached_tokens") or _count(value, "prompt_cache_hit_tokens")
    return Usage(
        input_tokens=prompt,
        # Some servers leave the reasoning out of the completion, and only the total tells.
        output_tokens=max(completion, _count(value, "total_tokens") - prompt),
        cached_input_tokens=min(cached, prompt),
        reasoning_tokens=_count(value.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _count(counts: Any, name: str) -> int:
    number = counts.get(name) if isinstance(counts, dict) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 0
    return int(number) if 0 < number < 2**53 else 0


def _chunk(data: bytes) -> _Chunk:
    chunk = _decode(data, _chunks)
    if chunk.object == "error" and not chunk.error:  # vLLM: the whole object is the error
        raise ChatError(_decode(data, _values))
    return chunk


def _decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode JSON; once more with what is no text replaced, where a server sends such."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return decoder.decode(_mended(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelResponseInvalid(f"The server sent an event that is no Chat Completions chunk: {exc}.") from exc


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def _mended(data: bytes) -> bytes:
    """Replace what is no Unicode (broken UTF-8, lone surrogates) by U+FFFD, and drop control characters. Mends no JSON."""
    text = _CONTROLS.sub("", data.decode("utf-8", "replace"))
    return _ESCAPES.sub(lambda found: r"\ufffd" if found["lone"] else found[0], text).encode()
