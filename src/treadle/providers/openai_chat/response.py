"""Chat Completions, inward: from the events of one answer to the parts of one response. Does no I/O.

Servers differ in everything but the names of the fields, so values are read as they come and judged here: `Any` in the structs
below is the wire's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.canonical import text_key
from treadle.concurrency import Pieces
from treadle.errors import ModelResponseInvalid
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.http.failures import finish_of
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.payload import (
    CountNames,
    ObjectEnd,
    OwnArguments,
    arguments_text,
    call_arguments,
    count,
    decode,
    is_worse,
    may_have_lost,
    name_or_nothing,
    text_or_nothing,
    usage_of,
)
from treadle.tools import JsonObject

__all__ = ["Calls", "ChatResponse", "Function"]


# --- Chat Completions, inward: the calls of one response, put together from fragments. Knows nothing of the rest of the
# answer.


class Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: a server that sends an object instead of its text means exactly those bytes."""

    @property
    def says_something(self) -> bool:
        return bool(name_or_nothing(self.name) or arguments_text(self.arguments))


class _Fragment(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    function: Function | None = None
    extra_content: Any = None
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """These two stand in the function; some servers write them beside the id."""


_Action: TypeAlias = tuple[str, bytes]


class _CallSlot:
    """One call that is being put together."""

    __slots__ = ("end", "id", "index", "is_begun_again", "is_streamed", "name", "pieces", "position", "signature")

    def __init__(self, position: int, index: int | None) -> None:
        self.position = position
        self.index = index
        self.id = ""
        self.name = ""
        self.signature: str | None = None
        self.pieces = Pieces()
        self.end = ObjectEnd()
        self.is_begun_again = False
        """Whether its id and name came again after its end, so that further arguments repeat it."""
        self.is_streamed = True
        """Whether it came in pieces, or at least could have."""

    @property
    def given_id(self) -> str:
        """The id in a message. A server without ids still has positions, and ModelEnd must be able to name a call that was cut."""
        return self.id or f"call_{self.position}"

    @property
    def is_ready(self) -> bool:
        return self.end.is_closed and not self.end.has_tail and bool(self.name)

    @property
    def has_arguments(self) -> bool:
        """Whether any came: a call of a tool without parameters may have none."""
        return any(map(str.strip, self.pieces))

    @property
    def says_something(self) -> bool:
        return bool(self.id) or self.has_arguments

    @property
    def action(self) -> _Action:
        """What the call does, however its arguments are written."""
        return self.name, text_key("".join(self.pieces))

    def add(self, text: str) -> None:
        self.pieces.add(text)
        self.end.feed(text)

    def call(self, names: Mapping[str, str], own_arguments: OwnArguments | None) -> ToolCall:
        """Return the call as our own schema wants it: by our name, without nulls that stand for absent properties."""
        name = names.get(self.name, self.name)
        arguments = call_arguments(self.pieces)
        if own_arguments is not None:
            arguments = own_arguments(name, arguments)
        return ToolCall(id=self.given_id, name=name, arguments=arguments, signature=self.signature)


class Calls:
    """The calls of one response, from fragments to call order.

    A fragment belongs to the call at its index. Servers that leave the index out, or send 0 for every call, begin a new call by
    a new id and its name, or by a name after the open call has closed. A fragment without a name begins none, whatever its id: some
    servers write a new one into each. A call that is reported again under its id begins anew as well: whoever collects the response
    compares both.
    """

    def __init__(self) -> None:
        self._slots: dict[int, _CallSlot] = {}
        self._open: dict[int, _CallSlot] = {}
        self._last: _CallSlot | None = None
        self._next = 0
        self._told = 0
        self._has_lost = False
        self.size = 0
        """How many fragments it has taken, those that only repeat a call left out."""

    def add(self, fragment: _Fragment) -> None:
        """Take a fragment of a call."""
        call_id, name, text = _read(fragment)
        self.size += bool(call_id or name or text)
        slot = self._slot(_index(fragment.index), call_id, name, text)
        if slot is None:
            self._has_lost = True
            return
        if slot.position >= self._told:  # a call that was handed out keeps the id that it had
            slot.id = slot.id or call_id
        if name and call_id == slot.id and slot.end.is_closed and not text.strip():
            slot.is_begun_again = bool(call_id)
        _fill(slot, fragment, name, text)

    def add_whole(self, fragments: Iterable[_Fragment], *, is_again: bool) -> None:
        """Take the calls of a whole message.

        Args:
            is_again: Whether the message repeats what was streamed before it. Each call that equals a streamed one is that one
                then, whatever its id; one with the same id first.
        """
        read = [(fragment, *_read(fragment)) for fragment in fragments]
        repeated: set[int] = set()
        if is_again:
            streamed = [(slot.id, slot.action) for slot in self.in_order()]
            actions = [(call_id, (name, text_key(text))) for _, call_id, name, text in read]
            repeated = _matched(actions, streamed)
        for place, (fragment, call_id, name, text) in enumerate(read):
            if place not in repeated:
                self.size += 1
                slot = self._begin(_index(fragment.index))
                slot.id, slot.is_streamed = call_id, False
                _fill(slot, fragment, name, text)

    def ready(self) -> list[_CallSlot]:
        """Return the calls that have become complete, in call order: none before an earlier one."""
        found: list[_CallSlot] = []
        while not self._has_lost and (slot := self._slots.get(self._told)) is not None and slot.is_ready:
            found.append(slot)
            self._told += 1
        return found

    def in_order(self) -> list[_CallSlot]:
        """Return the calls. What never got a name is one only where there is no other, so that the model is told of it."""
        slots = self._sorted()
        return [slot for slot in slots if slot.name] or [slot for slot in slots if slot.says_something]

    def _sorted(self) -> list[_CallSlot]:
        return list(map(self._slots.__getitem__, sorted(self._slots)))

    @property
    def has_strays(self) -> bool:
        """Whether it is unknown of some fragment to which call it belongs."""
        if self._has_lost:
            return True
        slots = list(self._slots.values())
        for slot in slots:  # no any(): each of its steps is a call, at every step of a run
            if not slot.name and slot.says_something:
                return True
        if len(slots) < 2:  # nothing else that a fragment could belong to
            return False
        slots = self._sorted()
        streamed = [slot for slot in slots if slot.is_streamed]
        broken = {slot.index for slot in streamed if slot.has_arguments and not slot.is_ready}
        sharing = Counter(slot.index for slot in streamed)
        return (
            any(sharing[index] > 1 for index in broken)
            or may_have_lost((slot.index, slot.name, slot.has_arguments) for slot in streamed)
            or may_have_lost((slot.id, slot.name, slot.has_arguments) for slot in slots if slot.id)
        )

    def _slot(self, index: int | None, call_id: str, name: str, text: str) -> _CallSlot | None:
        """Return the call that a fragment belongs to; None where it may be one or another."""
        slot = self._last if index is None else self._open.get(index)
        if not name and (slot is not None or call_id):
            slot, is_known = self._meant(slot, index, call_id, text)
            if not is_known:
                return None
        elif slot is not None and call_id and slot.id not in ("", call_id):
            slot = self._going_on(index, call_id, text)  # calls that share an index take turns
        if slot is not None and slot.is_begun_again and text.lstrip().startswith("{"):
            again = self._begin(index)
            again.id, again.name = slot.id, slot.name
            return again
        if slot is None or (name and _begins_another(slot, index, name, text)):
            return self._begin(index)
        if index is not None:
            self._open[index] = slot
        self._last = slot
        return slot

    def _begin(self, index: int | None) -> _CallSlot:
        position = index if index is not None and index not in self._slots else self._next
        slot = self._slots[position] = _CallSlot(position, index)
        self._next = max(self._next, position + 1)
        if index is not None:
            self._open[index] = slot
        self._last = slot
        return slot

    def _meant(
        self, slot: _CallSlot | None, index: int | None, call_id: str, text: str
    ) -> tuple[_CallSlot | None, bool]:
        """Return the call that a fragment without a name continues, None for one that has yet to get its name, and whether
        there is no other that it may continue."""
        if slot is not None and (slot.id == call_id != "" or not text.strip()):
            return slot, True
        if slot is not None and not call_id and len(self._slots) == 1 and not slot.end.is_closed:
            return slot, True
        going = [one for one in self._slots.values() if not one.end.is_closed]
        if own := [one for one in going if call_id and one.id == call_id]:
            is_known = len(own) == 1 and (slot is None or index is None or own[0].index == index)
            return own[0], is_known
        if slot is None:
            return None, True
        rivals = [one for one in going if one is not slot and index in (None, one.index)]
        is_second = slot.end.is_closed and text.lstrip().startswith("{") and not slot.is_begun_again
        return slot, not rivals and not is_second

    def _going_on(self, index: int | None, call_id: str, text: str) -> _CallSlot | None:
        """Return the call of that id and index that is not complete yet."""
        mine = (slot for slot in self._slots.values() if slot.id == call_id and slot.index == index)
        return next((slot for slot in mine if not slot.end.is_closed), None)


def _matched(calls: Sequence[tuple[str, _Action]], streamed: Sequence[tuple[str, _Action]]) -> set[int]:
    """Return the places of the calls that are one of the streamed calls each: with the same id, else with another one."""
    by_id = Counter(streamed)
    places = set()
    for place, call in enumerate(calls):
        if by_id[call] > 0:
            by_id[call] -= 1
            places.add(place)
    by_action = Counter(action for _, action in by_id.elements())
    for place, (_, action) in enumerate(calls):
        if place not in places and by_action[action] > 0:
            by_action[action] -= 1
            places.add(place)
    return places


def _read(fragment: _Fragment) -> tuple[str, str, str]:
    """Return the id, the name and the text of a fragment."""
    function = fragment.function or Function(name=fragment.name, arguments=fragment.arguments)
    call_id = str(fragment.id) if type(fragment.id) is int else text_or_nothing(fragment.id)
    return call_id, name_or_nothing(function.name), arguments_text(function.arguments)


def _fill(slot: _CallSlot, fragment: _Fragment, name: str, text: str) -> None:
    if name and name != slot.name:
        slot.name = _whole_name(slot.name, name)
    if fragment.extra_content:
        slot.signature = slot.signature or _signature(fragment.extra_content)
    if text:
        slot.add(text)


def _whole_name(known: str, reported: str) -> str:
    """Join a name that comes in pieces. One that is repeated, as far as it goes by then, is not a piece."""
    return reported if reported.startswith(known) else known + reported


def _begins_another(slot: _CallSlot, index: int | None, name: str, text: str) -> bool:
    if index is None and slot.name and name != slot.name:
        return True
    return slot.end.is_closed and (text.lstrip().startswith("{") or not slot.name)


def _index(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _signature(extra: Any) -> str | None:
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) and signature else None


# --- Chat Completions, inward: `reasoning_details`, in which gateways carry the signed reasoning of the models behind
# them.

_WORDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The kinds that a stream cuts into pieces, and the field that is cut. Sealed ones come whole."""


class _ReasoningDetails:
    """The details of one response, those of a stream joined again: a signature fits the whole text only."""

    def __init__(self) -> None:
        self._details: list[JsonObject] = []
        self._pieces = Pieces()

    def add(self, pieces: Any, *, is_whole: bool) -> None:
        """Take the details of one delta, or of a whole message. Anything else is ignored."""
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, dict):
                continue
            if is_whole or not self._goes_on_with(piece):
                self._close()
                self._details.append(dict(piece))
            else:
                self._details[-1] |= {name: value for name, value in piece.items() if value is not None}
            if isinstance(said := piece.get(_WORDS.get(str(piece.get("type")), "")), str):
                self._pieces.add(said)

    def whole(self) -> list[JsonObject]:
        self._close()
        return self._details

    def _goes_on_with(self, piece: JsonObject) -> bool:
        """Whether the piece is of the last detail. A signed one is complete.

        The index alone does not tell: there are servers that stream every detail with 0.
        """
        last = self._details[-1] if self._details else {}
        is_alike = all(last.get(name) == piece.get(name) for name in ("type", "index"))
        return is_alike and piece.get("type") in _WORDS and not last.get("signature")

    def _close(self) -> None:
        """Give the last detail its whole text."""
        if self._pieces:
            last = self._details[-1]
            last[_WORDS[last["type"]]] = "".join(self._pieces)
            self._pieces.clear()


# --- Chat Completions, inward: from the events of one answer to the parts of one response. Does no I/O.


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_Fragment | None] | None = None
    function_call: Function | None = None
    """What a call was before there were several."""


class _Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice | None] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    id: Any = None
    model: Any = None


_chunks = msgspec.json.Decoder(_Chunk)
_values = msgspec.json.Decoder()


class ChatResponse(Response):
    """Takes the data of each event, and gives the parts that it makes.

    A finish reason or `[DONE]` makes it whole, either; nothing follows `[DONE]`.

    Args:
        names: Our names of tools that were renamed for the wire.
        own_arguments: Returns the arguments of a call, which it gets by our name, as the tool's own schema wants them.
    """

    terminal = "a finish reason or [DONE]"

    def __init__(self, names: Mapping[str, str], *, own_arguments: OwnArguments | None = None) -> None:
        self._names = names
        self._own_arguments = own_arguments
        self._text = Pieces()
        self._thinking = Pieces()
        self._details: _ReasoningDetails | None = None
        self._is_refused = False
        self._has_begun = False
        """Whether something came already: a whole message then repeats it."""
        self._has_message = False
        self._is_retold = False
        self._calls = Calls()
        self._finish = Finish.UNKNOWN
        self._finish_reason: str | None = None
        self._counts: Any = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream. Raises as `Response.add` does."""
        data = data.strip()
        if not data or self.is_done:
            return []
        if data == b"[DONE]":
            self.is_done = self.is_whole = True
            self.is_empty = False
            return []
        return self._take(_chunk(data))

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it neither ends nor says anything."""
        chunk = _chunk(body)
        if chunk.choices is None and not chunk.error:
            raise ModelResponseInvalid("The answer has no choices.")
        parts = self._take(chunk)
        if not (self._finish_reason is not None or self._has_begun or self._is_refused or _has_blank_finish(chunk)):
            raise without_ending("finish_reason")
        self.is_done = self.is_whole = True
        return parts

    def end(self) -> ModelEnd:
        """Return the whole message."""
        finish = Finish.REFUSED if self._is_refused else self._finish
        parts: list[Part] = []
        details = [] if self._details is None else self._details.whole()
        if self._thinking or details:
            payload = {"reasoning_details": details} if details else None
            parts.append(Thinking(text="".join(self._thinking), payload=payload))
        if self._text:
            parts.append(Text("".join(self._text)))
        slots = self._calls.in_order()
        calls = [slot.call(self._names, self._own_arguments) for slot in slots]
        pairs = zip(slots, calls, strict=True)
        cut = [call.id for slot, call in pairs if not slot.end.is_closed] if finish is Finish.LENGTH else ()
        return ModelEnd(
            parts=(*parts, *calls),
            finish=finish,
            usage=self.counted,
            cut_calls=frozenset(cut),
            unnamed_calls=frozenset([slot.given_id for slot in slots if not slot.id]),
            is_retold=self._is_retold,
            has_strays=self._calls.has_strays,
            finish_reason=self._finish_reason,
        )

    def _take(self, chunk: _Chunk) -> list[ModelPart]:
        if chunk.error:
            raise AnswerError(chunk.error)
        if chunk.usage is not None:
            if chunk.usage != self._counts:  # some servers count in every piece
                self._counts = chunk.usage
                self.counted = _usage(chunk.usage) or self.counted
            if self.is_whole and not chunk.choices:  # the vendor's last word before [DONE]
                self.may_go_on = False
        if chunk.id and not self.id:
            self.id, self.model = text_or_nothing(chunk.id), text_or_nothing(chunk.model)
        parts: list[ModelPart] = []
        if chunk.choices is None:
            return parts
        self.is_empty = False
        for choice in chunk.choices:
            if choice is not None and not choice.index:  # the first choice only, should an option ask for more
                self._take_choice(choice, parts)
        return parts

    def _take_choice(self, choice: _Choice, parts: list[ModelPart]) -> None:
        if choice.error:
            raise AnswerError(choice.error)
        before = self._calls.size, len(parts)
        if choice.delta is not None:
            self._take_delta(choice.delta, parts)
        if choice.message is not None:
            self._take_message(choice.message, parts)
        if (self._calls.size, len(parts)) != before:
            if self.is_whole:  # this server continues after a finish: it may do so again, however late
                self.goes_on = True
            self.is_whole = False  # the finish that came before this content was not the end
        if choice.finish_reason and isinstance(choice.finish_reason, str):
            if choice.finish_reason == "error":
                raise AnswerError({"message": "finish_reason is error"})
            finish = finish_of(choice.finish_reason)
            if self._finish_reason is None or is_worse(finish, self._finish):
                self._finish, self._finish_reason = finish, choice.finish_reason
            self.is_whole = True

    def _take_message(self, message: _Delta, parts: list[ModelPart]) -> None:
        """Take a whole message. After others it reports again what they said, and only what is new in it counts."""
        if self._has_begun:
            message.content = _rest(_said(message), "".join(self._text))
            message.refusal = bool(message.refusal)
            message.reasoning_content = _rest(_thinking(message), "".join(self._thinking))
            message.reasoning = None
            message.reasoning_details = None if self._details else message.reasoning_details
        self._take_words(message, parts, is_whole=True)
        if calls := _calls(message):
            before = self._calls.size
            self._calls.add_whole(calls, is_again=self._has_begun)
            self._is_retold = self._is_retold or (self._has_begun and self._calls.size > before)
            self._has_message = True
            parts += self._ready()
        self._has_begun = self._has_begun or bool(calls or self._text or self._thinking)

    def _take_delta(self, delta: _Delta, parts: list[ModelPart]) -> None:
        self._take_words(delta, parts, is_whole=False)
        self._has_begun = self._has_begun or bool(parts)
        if delta.tool_calls is None and delta.function_call is None:  # most pieces of a stream
            return
        if calls := _calls(delta):
            self._has_begun = True
            self._is_retold = self._is_retold or self._has_message
            for fragment in calls:
                self._calls.add(fragment)
            parts += self._ready()

    def _take_words(self, delta: _Delta, parts: list[ModelPart], *, is_whole: bool) -> None:
        has_list = isinstance(delta.content, list)
        if (has_list or delta.reasoning_content or delta.reasoning) and (thought := _thinking(delta)):
            self._thinking.add(thought)
            parts.append(ThinkingDelta(thought))
        if delta.reasoning_details:
            self._details = self._details or _ReasoningDetails()
            self._details.add(delta.reasoning_details, is_whole=is_whole)
        if delta.refusal is not None and (text_or_nothing(delta.refusal) or delta.refusal is True):
            self._is_refused = True
        if (delta.content or delta.refusal) and (said := _said(delta)):
            self._text.add(said)
            parts.append(TextDelta(said))

    def _ready(self) -> list[ModelPart]:
        return [CallReady(slot.call(self._names, self._own_arguments)) for slot in self._calls.ready()]


def _has_blank_finish(chunk: _Chunk) -> bool:
    """Whether the finish reason is the empty text: Snowflake ends every whole answer so. Null or absent is not an ending."""
    return any(choice is not None and choice.finish_reason == "" for choice in chunk.choices or ())


def _said(delta: _Delta) -> str:
    """Return the words, those of a refusal included."""
    content = delta.content
    said = content if isinstance(content, str) else _pieces(content, "text")
    return said if delta.refusal is None else said + text_or_nothing(delta.refusal)


def _calls(delta: _Delta) -> Sequence[_Fragment]:
    if delta.tool_calls is not None:
        return [fragment for fragment in delta.tool_calls if fragment is not None]
    if delta.function_call is not None and delta.function_call.says_something:
        return [_Fragment(index=0, function=delta.function_call)]
    return ()


def _rest(whole: str, streamed: str) -> str:
    """Return what a whole message says beyond what was streamed of it. Where they differ, what was streamed stands."""
    return whole.removeprefix(streamed) if whole.startswith(streamed) else ""


def _thinking(delta: _Delta) -> str:
    """Return the reasoning. Gateways send the same words in both fields, so the first counts."""
    for reported in (delta.reasoning_content, delta.reasoning):
        if reported and isinstance(reported, str):
            return reported
    if not isinstance(delta.content, list):
        return ""
    nested = [piece.get("thinking") for piece in delta.content if isinstance(piece, dict)]
    return "".join(piece if isinstance(piece, str) else _pieces(piece, "text") for piece in nested)


def _pieces(content: Any, kind: str) -> str:
    """Return the text of Mistral's list of typed pieces."""
    if not isinstance(content, list):
        return ""
    return "".join(
        text_or_nothing(piece.get(kind)) for piece in content if isinstance(piece, dict) and piece.get("type") == kind
    )


_COUNTS = CountNames(prompt=("prompt_tokens",), completion=("completion_tokens",), total="total_tokens")


def _usage(counts: Any) -> Usage | None:
    if not isinstance(counts, dict):
        return None
    reasoning = count(counts.get("completion_tokens_details"), "reasoning_tokens")
    return usage_of(counts, _COUNTS, details=counts.get("prompt_tokens_details"), reasoning=reasoning)


def _chunk(data: bytes) -> _Chunk:
    chunk = decode(data, _chunks)
    if chunk.object == "error" and not chunk.error:  # vLLM: the whole object is the error
        raise AnswerError(decode(data, _values))
    return chunk
