"""Payload: what the dialects share about the content of requests and responses. Sends nothing."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import repeat
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar
from weakref import ref

import msgspec

from treadle.canonical import text_key
from treadle.concurrency import Pieces
from treadle.errors import ConfigurationError, InvalidArguments, ModelResponseInvalid, shown
from treadle.messages import Finish, Media, Message, Opaque, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta, ToolSpec
from treadle.tools import JsonObject
from treadle.validation import NotJson, parse_arguments
from treadle.validation.plain import (
    damaged_byte,
    damaged_json,
    is_damaged,
    is_damaged_throughout,
    joined,
    repaired,
    repaired_value,
)

__all__ = [
    "ContentBlock",
    "CountNames",
    "EncodedMessages",
    "MessageBlocks",
    "ObjectEnd",
    "OwnArguments",
    "ThinkingTags",
    "ThoughtText",
    "ToolSets",
    "Turns",
    "arguments_text",
    "call_arguments",
    "cited_in",
    "count",
    "data_url",
    "decode",
    "flag_option",
    "grouped",
    "held_in",
    "id_pattern",
    "in_words",
    "is_foreign",
    "is_worse",
    "may_have_lost",
    "name_or_nothing",
    "object_option",
    "object_schema",
    "objects_in",
    "open_turn",
    "opening",
    "own_names",
    "repaired_end",
    "sendable_arguments",
    "server_tools",
    "strict_schema",
    "text_or_nothing",
    "to_json",
    "turns_json",
    "usage_of",
    "user_content",
    "wire_id",
    "wire_name",
    "with_schema",
    "without_absent",
]


# --- Arguments: tell when the JSON object of a call's arguments closes, while it still arrives in pieces. Parses no
# values.

_FLAT = re.compile(r'\s*\{[^"{}\\]*+(?:"[^"\\]*+"[^"{}\\]*+)*+\}\s*')
"""An object in one piece, with no object and no escape in it, as most arguments are: it is recognised at once."""
_OUTSIDE_TEXT = re.compile(r'["{}]')
_INSIDE_TEXT = re.compile(r'["\\]')


class ObjectEnd:
    """Follows braces and strings through the pieces of one JSON object. Each character is looked at once.

    Example:
        end = ObjectEnd()
        end.feed('{"a": "}')  # False: that brace is text
        end.feed('"}')  # True
    """

    __slots__ = ("_depth", "_is_escaped", "_is_in_text", "_is_started", "has_tail", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False
        """Whether the first object is complete."""
        self.has_tail = False
        """Whether something other than blanks came after it: then it was not one object after all."""
        self._depth = 0
        self._is_in_text = False
        self._is_escaped = False
        self._is_started = False

    def feed(self, piece: str) -> bool:
        """Take the next piece. Return whether the object is complete and nothing follows it."""
        if not self._is_started:
            if _FLAT.fullmatch(piece):
                self._is_started = self.is_closed = True
                return True
            piece = piece.lstrip()
            if not piece:
                return False
            self._is_started = True
            # Whatever does not begin as an object never ends as one.
            self.has_tail = not piece.startswith("{")
        if not self.is_closed and not self.has_tail:
            piece = piece[self._scan(piece) :]
        if self.is_closed and piece and not piece.isspace():
            self.has_tail = True
        return self.is_closed and not self.has_tail

    def _scan(self, piece: str) -> int:
        """Follow the piece to where the object closes, or to the end; return that place."""
        at = 0
        if self._is_escaped:
            at, self._is_escaped = 1, False
        while found := (_INSIDE_TEXT if self._is_in_text else _OUTSIDE_TEXT).search(piece, at):
            at = found.end()
            match found[0]:
                case '"':
                    self._is_in_text = not self._is_in_text
                case "\\":
                    self._is_escaped = at == len(piece)
                    at += 1
                case "{":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        self.is_closed = True
                        return at
        return len(piece)


def may_have_lost(calls: Iterable[tuple[Hashable, str, bool]]) -> bool:
    """Whether a call without arguments may have lost them to a later one, which has the same name and shares its identity.

    Args:
        calls: Of each call its identity, its name, and whether arguments came for it.
    """
    bare: set[tuple[Hashable, str]] = set()
    for identity, name, has_arguments in calls:
        if not has_arguments:
            bare.add((identity, name))
        elif (identity, name) in bare:
            return True
    return False


# --- Lenient: read the JSON that servers really send. Marks what is not text, repairs nothing, and knows no dialect.

_T = TypeVar("_T")

_MAX_VALUES = 300_000
"""Values in one JSON text: each costs far more than its few bytes on the wire."""
_MAX_MENDED_BYTES = 1024 * 1024
"""Bytes of a JSON text that is read a second time, because what it holds is not Unicode."""
_MAX_LOOKS = 10_000
"""Places in it at which such damage is looked for: each costs microseconds."""
_HARMLESS = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))

_texts = msgspec.json.Decoder(str)

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_DAMAGE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})|[^\x00-\x1f])"
    "|[\x00-\x1f]|[\udc80-\udcff]"
)
# In place of damage stand characters of the last private area: 2,048 for the halves, 256 for bytes and control characters. One that
# a server really sends in a damaged text is read as damage, and never the other way round.
_FIRST_HALF = 0x10E000
_FIRST_BYTE = 0x10E800
_STAND_INS = re.compile("[\U0010e000-\U0010e8ff]")
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")


def decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode JSON. Damage in it is found again in the texts of the value: see `characters.py`.

    Raises:
        ModelResponseInvalid: It is not JSON, has another shape, or is too large to be decoded without holding the event loop.
    """
    if len(data) > _MAX_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        raise ModelResponseInvalid(f"The server sent one JSON text of more than {_MAX_VALUES} values.")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        if len(data) > _MAX_MENDED_BYTES or len(data.translate(None, _HARMLESS)) > _MAX_LOOKS:
            raise ModelResponseInvalid(f"The server sent something that does not follow its protocol: {exc}.") from exc
    try:
        value = decoder.decode(_with_stand_ins(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelResponseInvalid(f"The server sent something that does not follow its protocol: {exc}.") from exc
    restored: _T = _restored(value)
    return restored


def text_or_nothing(value: Any) -> str:
    return value if isinstance(value, str) else ""


def name_or_nothing(value: Any) -> str:
    """Return the name of a tool; nothing for one of nothing but blanks, which names none."""
    name = text_or_nothing(value)
    return name if name.strip() else ""


def count(counts: Any, name: str) -> int:
    """Return the number of tokens under a name; 0 where the server gives none, or nonsense."""
    return (_number(counts.get(name)) or 0) if isinstance(counts, dict) else 0


_CACHED = (
    "cached_tokens",  # OpenAI in the details; Moonshot in addition to them
    "prompt_cache_hit_tokens",  # DeepSeek
    "cache_read_input_tokens",  # Anthropic, and LiteLLM for it
    "cache_read_tokens",
)
_WRITTEN = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")


class CountNames(NamedTuple):
    """What the numbers of tokens are called in one dialect."""

    prompt: tuple[str, ...]
    """Those that make up the prompt together."""
    completion: tuple[str, ...]
    """Those that make up the answer together."""
    cached: tuple[str, ...] = _CACHED
    """Those of the prompt that came from a cache, by whichever name: gateways send several, and 0 under the wrong one."""
    written: tuple[str, ...] = _WRITTEN
    """Those that were written to a cache, by whichever name."""
    total: str = ""
    """The sum, where the server counts one: some leave a number out that only the total tells."""
    is_net: bool = False
    """Whether the prompt counts only what came from no cache and went to none."""


def usage_of(
    counts: Any, names: CountNames, *, details: Any = None, written: int = 0, reasoning: int = 0, has_said: bool = True
) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt.

    A usage of which a number could not be read is marked as an estimate, and the engine fills in what is 0.

    Args:
        details: A further object that may hold the numbers of the cache.
        written: Tokens that were written to a cache, as the dialect tells them besides.
        reasoning: Tokens of the answer that are reasoning.
        has_said: Whether anything was said: else the number of the answer may be left out.
    """
    if not isinstance(counts, dict):
        return None
    read, unreadable = _numbers(counts)
    # No generators here: each of their steps is a call, at every step of a run.
    prompt = sum(map(read.get, names.prompt, repeat(0)))
    completion = sum(map(read.get, names.completion, repeat(0)))
    cached = max((0, *map(read.get, names.cached, repeat(0))))
    written = max((written, *map(read.get, names.written, repeat(0))))
    is_cache_lost = not unreadable.isdisjoint(names.cached)
    if isinstance(details, dict):
        further, lost = _numbers(details)
        cached = max((cached, *map(further.get, names.cached, repeat(0))))
        written = max((written, *map(further.get, names.written, repeat(0))))
        is_cache_lost = is_cache_lost or not lost.isdisjoint(names.cached)
    is_lost, total = names.prompt[0] in unreadable, read.get(names.total, 0)
    if names.is_net:
        prompt = 0 if is_lost else prompt + cached + written
    elif prompt or completion:
        prompt = prompt or max(total - completion, 0)
        completion = max(completion, total - prompt)
        cached = min(cached, prompt)
        written = min(written, prompt - cached)
    if not prompt and not completion:
        return None
    is_guessed = is_lost or (has_said and names.completion[0] not in read)
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cached_input_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=reasoning,
        estimated=not prompt or is_cache_lost or (is_guessed and not total),
    )


def _numbers(counts: dict[str, Any]) -> tuple[dict[str, int], set[str]]:
    """Return the numbers of tokens, and the names under which there is something else."""
    read: dict[str, int] = {}
    unreadable: set[str] = set()
    for name, value in counts.items():
        if type(value) is int and 0 <= value < _TOO_MANY:
            read[name] = value
        elif (number := _number(value)) is not None:
            read[name] = number
        elif value is not None:
            unreadable.add(name)
    return read, unreadable


_TOO_MANY = 2**53


def _number(value: Any) -> int | None:
    """Return a number of tokens, which may be written as text; None for anything else. A boolean counts nothing."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:20])
    if type(value) is not int and type(value) is not float:
        return None
    return int(value) if 0 <= value < _TOO_MANY else None


def call_arguments(pieces: Iterable[str]) -> str:
    """Return the arguments of a call from their pieces. Damaged ones are not valid JSON, wherever they are read."""
    text = "".join(pieces)
    return text if text.isascii() else damaged_json(joined(text))


def arguments_text(raw: msgspec.Raw) -> str:
    """Return the text of a call's arguments: of a string its content, of an object its own JSON, as it came, damage included."""
    encoded = bytes(raw)
    if encoded.startswith(b'"'):
        return decode(encoded, _texts)
    if encoded == b"null":
        return ""
    text = encoded.decode("utf-8", "surrogateescape")
    return text if text.isascii() else _ESCAPED_BYTES.sub(lambda found: damaged_byte(ord(found[0]) - 0xDC00), text)


def is_worse(finish: Finish, other: Finish) -> bool:
    """Whether the first of two finishes of one response is further from a completion. Servers report several."""
    return _FROM_BEST.index(finish) >= _FROM_BEST.index(other)


_FROM_BEST = (Finish.STOP, Finish.CALLS, Finish.UNKNOWN, Finish.LENGTH, Finish.REFUSED)


def repaired_end(end: ModelEnd) -> ModelEnd:
    """Return the end of a response with texts that can be stored. Whether something was lost is in it.

    Raises:
        ModelResponseInvalid: So much is damaged that repairing it would hold the event loop.
    """
    parts: list[Part] = []
    has_damaged_text = False
    for part in end.parts:
        if isinstance(part, Text | Thinking) and is_damaged_throughout(part.text):
            raise ModelResponseInvalid("The text of the response is damaged throughout: it is mostly not text.")
        parts.append(_repaired_part(part))
        has_damaged_text = has_damaged_text or (isinstance(part, Text) and is_damaged(joined(part.text)))
    return msgspec.structs.replace(end, parts=tuple(parts), has_damaged_text=has_damaged_text)


def _repaired_part(part: Part) -> Part:
    match part:
        case ToolCall(signature=signature) if signature:
            return msgspec.structs.replace(part, signature=repaired(signature))
        case Text(signature=signature):
            return Text(repaired(part.text), signature=signature and repaired(signature))
        case Thinking(signature=signature):
            payload = repaired_value(part.payload)
            return Thinking(text=repaired(part.text), signature=signature and repaired(signature), payload=payload)
        case Opaque():
            return Opaque(provider=part.provider, payload=repaired_value(part.payload))
        case Media():
            return msgspec.structs.replace(
                part, media_type=repaired(part.media_type), base64=part.base64 and repaired(part.base64)
            )
        case _:
            return part


# --- damage ----------------------------------------------------------------------------------------------------------


def _with_stand_ins(data: bytes) -> bytes:
    """Put a character of private use in place of what is not Unicode in the strings of a JSON text."""
    text = data.decode("utf-8", "surrogateescape")
    return _STRINGS.sub(lambda string: _DAMAGE.sub(_stand_in, string[0]), text).encode("utf-8", "surrogateescape")


def _stand_in(found: re.Match[str]) -> str:
    if found["half"]:
        return chr(_FIRST_HALF + int(found["half"], 16) - 0xD800)
    character = found[0]
    if len(character) > 1:
        return character
    return chr(_FIRST_BYTE + (ord(character) & 0xFF))


def _restored(value: Any) -> Any:
    """Put the damage back into what was read. What is raw gets the very bytes that came."""
    match value:
        case str():
            return value if value.isascii() else _STAND_INS.sub(_damage, value)
        case msgspec.Raw():
            text = bytes(value).decode("utf-8", "surrogateescape")
            return msgspec.Raw(_STAND_INS.sub(_damage_on_the_wire, text).encode("utf-8", "surrogateescape"))
        case dict():
            return {_restored(name): _restored(item) for name, item in value.items()}
        case list():
            return [_restored(item) for item in value]
        case msgspec.Struct():
            for name in value.__struct_fields__:
                setattr(value, name, _restored(getattr(value, name)))
            return value
        case _:
            return value


def _damage(found: re.Match[str]) -> str:
    place = ord(found[0])
    return chr(place - _FIRST_HALF + 0xD800) if place < _FIRST_BYTE else damaged_byte(place - _FIRST_BYTE)


def _damage_on_the_wire(found: re.Match[str]) -> str:
    place = ord(found[0])
    if place < _FIRST_BYTE:
        return f"\\u{place - _FIRST_HALF + 0xD800:04x}"
    byte = place - _FIRST_BYTE
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


# --- Blocks: the content blocks of one message, put together as they arrive, and distinguished where a server repeats
# them. Knows no dialect.


class ContentBlock(ABC):
    """One block, from its start to its end. A dialect's own class feeds it, and makes a part of it.

    Args:
        kind: What the block is, in the dialect's words; `text` and `thinking` say something to people.
        block_id: The id of a call; empty where the server sent none.
        name: The name of a call's tool.
        is_call: Whether it is a call of the agent's own tools.
    """

    def __init__(self, kind: str, *, block_id: str = "", name: str = "", is_call: bool = False) -> None:
        self.kind = kind
        self.id = block_id
        self.name = name
        self.is_call = is_call
        self.is_closed = False
        """Whether its end came."""
        self.is_doubtful = False
        """Whether it may have been cut, although it looks whole."""
        self._said = Pieces()
        self._arguments = Pieces()
        self._object = ObjectEnd()

    @property
    def said(self) -> str:
        return "".join(self._said)

    @property
    def arguments(self) -> str:
        return call_arguments(self._arguments) or "{}"

    @property
    def is_complete(self) -> bool:
        """Whether the arguments of a call are one object that is closed."""
        return self._object.is_closed and not self._object.has_tail and not self.is_doubtful

    @property
    def has_arguments(self) -> bool:
        """Whether any came: a call of a tool without parameters has none."""
        return any(self._arguments)

    def add_arguments(self, piece: str) -> None:
        """Take a piece of a call's arguments."""
        if piece:
            self._arguments.add(piece)
            self._object.feed(piece)

    def say(self, text: str) -> list[ModelPart]:
        """Take a piece of what the block says."""
        if not text:
            return []
        self._said.add(text)
        return self._delta(text)

    def begin(self) -> list[ModelPart]:
        """Take what came with the start."""
        return []

    def close(self) -> None:
        """Take the end."""
        self.is_closed = True

    def break_off(self) -> None:
        """Expect no more of a block that was not closed. A call without arguments may have lost them."""
        if not self.is_closed and self.is_call and not self.has_arguments:
            self.close()
            self.is_doubtful = not self.has_arguments

    @property
    def content(self) -> tuple[str, str, bytes, str]:
        """What the block says, whatever its id and however its arguments are written."""
        return self.kind, self.name, text_key("".join(self._arguments) or "{}"), self.said

    def goes_on(self, other: "ContentBlock") -> bool:
        """Whether this block begins as the other one did, which was not closed, and so takes its place."""
        is_same = self.id == other.id and self.content[:2] == other.content[:2]
        is_other_whole = other.is_closed or other.is_complete
        loses_arguments = other.has_arguments and not self.has_arguments
        return is_same and not is_other_whole and not loses_arguments and self.said.startswith(other.said)

    def rest(self, said_before: str = "") -> list[ModelPart]:
        """Return what of the words has not been said before."""
        said = self.said.removeprefix(said_before)
        return self._delta(said) if said else []

    @abstractmethod
    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""

    def call(self, position: int, names: Mapping[str, str]) -> ToolCall:
        """Return the call that the block is. One without an id is named by its position."""
        return ToolCall(
            id=self.id or f"call_{position}",
            name=names.get(self.name, self.name),
            arguments=self.arguments,
            signature=self.call_signature,
        )

    @property
    def call_signature(self) -> str | None:
        """What must travel back with a call."""
        return None

    def _delta(self, text: str) -> list[ModelPart]:
        match self.kind:
            case "text":
                return [TextDelta(text)]
            case "thinking":
                return [ThinkingDelta(text)]
            case _:
                return []


class _Gathered(NamedTuple):
    """What a message came to."""

    parts: tuple[Part, ...]
    cut: frozenset[str]
    """Ids of calls whose end may be missing."""
    unnamed: frozenset[str]
    """Ids of calls that we named, because the server did not."""
    has_strays: bool
    """Whether it is unknown of some piece to which call it belongs."""


_Block = TypeVar("_Block", bound=ContentBlock)


class MessageBlocks(Generic[_Block]):
    """The blocks of one message, in order. A block that the server sends twice is one block; where the two differ both are kept.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.all: list[_Block] = []
        self.calls: list[_Block] = []
        self.is_retold = False
        """Whether the message began again after a call."""
        self._open: dict[int, _Block] = {}
        self._at: dict[int, _Block] = {}
        """The blocks of a message that has begun again, by their index."""
        self._begun: dict[int, _Block] = {}
        self._by_id: dict[str, _Block] = {}
        self._twins: dict[_Block, _Block] = {}
        """Blocks that may be the repetition of an earlier one: what they say is held until that is known."""
        self._has_started = False
        self._has_lost = False
        self._told = 0

    def start(self) -> None:
        """Take the start of the message. A second one may begin it again: each block is then compared with the earlier one."""
        if self._has_started:
            self._at, self._begun = self._begun, {}
            self.is_retold = self.is_retold or bool(self.calls)
        self._has_started = True

    def begin(self, index: int, block: _Block) -> list[ModelPart]:
        """Take the start of a block, and what came with it."""
        at = self._at.pop(index, None)
        known = (self._by_id.get(block.id) if block.is_call and block.id else None) or at
        earlier = self._open.get(index)
        if known is not None and known is earlier and known.is_call and not known.has_arguments:
            return []  # its start was sent twice
        if earlier is not None and earlier is not known:
            earlier.break_off()  # what comes next at this index belongs to the new block
        self._open[index] = self._begun[index] = self.append(block)
        parts = block.begin()
        if known is None:
            return parts
        self._twins[block] = known
        return []

    def append(self, block: _Block) -> _Block:
        """Add a block that came whole."""
        self.all.append(block)
        if block.is_call:
            self.calls.append(block)
            self._by_id.setdefault(block.id, block)
        return block

    def take_whole(self, blocks: Iterable[_Block]) -> list[ModelPart]:
        """Take the blocks of a message that came whole."""
        parts: list[ModelPart] = []
        for block in blocks:
            parts += self.append(block).begin()
            block.close()
        return parts

    def doubt_last(self) -> None:
        """Take that a limit cut a message that came whole: a call at its end cannot be distinguished from one that is whole."""
        if self.all:
            self.all[-1].is_doubtful = True

    def gathered(self, *, is_cut: bool) -> "_Gathered":
        """Return the whole message: nothing comes any more.

        Args:
            is_cut: Whether a limit cut it.
        """
        self.settle()
        for block in self.calls:
            block.break_off()
        named = [block for block in self.calls if block.name]
        parts: list[Part | None] = []
        cut: list[str] = []
        unnamed: list[str] = []
        for block in self.all:
            if not block.is_call:
                parts.append(block.part(is_last=block is self.all[-1]))
                continue
            if named and not block.name:  # a call only where there is no other, so that the model is told of it
                continue
            call = self.call_of(block)
            parts.append(call)
            if block.is_doubtful or (is_cut and not self.is_ready(block, has_ended=False)):
                cut.append(call.id)
            if not block.id:
                unnamed.append(call.id)
        shared = ((block.id, block.name, block.has_arguments) for block in named if block.id)
        has_strays = self._has_lost or len(named) < len(self.calls) or may_have_lost(shared)
        said = tuple(part for part in parts if part is not None)
        return _Gathered(said, frozenset(cut), frozenset(unnamed), has_strays)

    def lose(self, arguments: str) -> None:
        """Take a piece of arguments that belongs to no call that was begun."""
        self._has_lost = self._has_lost or bool(arguments.strip())

    def open_at(self, index: int) -> _Block | None:
        """Return the block that grows at an index."""
        return self._open.get(index)

    def shown(self, block: _Block, parts: list[ModelPart]) -> list[ModelPart]:
        """Return what a block says now; nothing while it may be a repetition."""
        return [] if block in self._twins else parts

    def close(self, index: int) -> list[ModelPart]:
        """Take the end of a block."""
        block = self._open.pop(index, None)
        if block is None:
            return []
        block.close()
        return self._compare(block) if block in self._twins else []

    def settle(self) -> None:
        """Take the end of the message: what may still be a repetition is compared as it is."""
        for block in list(self._twins):
            self._compare(block)

    def call_of(self, block: _Block) -> ToolCall:
        """Return the call that a block is."""
        return block.call(self.calls.index(block), self._names)

    def ready(self, *, has_ended: bool) -> list[ModelPart]:
        """Return the calls that have become complete, in call order: none before an earlier one.

        Args:
            has_ended: Whether the message ended and no limit cut it.
        """
        found: list[ModelPart] = []
        for block in self.calls[self._told :]:
            if not self.is_ready(block, has_ended=has_ended):
                break
            found.append(CallReady(self.call_of(block)))
            self._told += 1
        return found

    def is_ready(self, block: _Block, *, has_ended: bool) -> bool:
        """Return whether a call is complete."""
        if block.is_doubtful or not block.name or self._has_lost:
            return False
        if not block.is_closed or block.has_arguments:
            return block.is_closed and block.is_complete
        # Without arguments it is whole, or cut right after its name: what comes next tells.
        return block is not self.all[-1] or has_ended

    def _compare(self, block: _Block) -> list[ModelPart]:
        """Keep one of a block and its repetition. Where they differ both are kept."""
        known = self._twins.pop(block)
        if block.content == known.content:
            self._remove(block)
            return []
        if block.goes_on(known) and known in self.all:
            self._remove(block)
            for blocks in (self.all, self.calls):
                blocks[:] = [block if one is known else one for one in blocks]
            return block.rest(known.said)
        known.break_off()
        return block.rest()

    def _remove(self, block: _Block) -> None:
        for blocks in (self.all, self.calls):
            blocks[:] = [one for one in blocks if one is not block]


# --- Encoded: JSON bytes that are made once and joined into many requests. Knows no dialect.

_LONG = 32
"""Messages from which on the bytes of each are kept beside the last body, for requests that do not begin as that one did."""

_encoder = msgspec.json.Encoder()


class _Body(NamedTuple):
    """The last body of one session."""

    whole: bytes
    head: bytes
    first: "_First"
    """Weak: it drops the body when the message dies."""
    rest: tuple[Message, ...]
    """The messages behind the first."""

    def begins(self, head: bytes, messages: Sequence[Message]) -> bool:
        """Whether a request with this head and these messages begins with the whole of it."""
        behind = tuple(messages[1 : len(self.rest) + 1])
        return self.head == head and self.first() is messages[0] and self.rest == behind


class _Known(ref[Message]):
    """A message that was encoded, and its bytes. One object and no closure: the collector looks at each that a session keeps."""

    __slots__ = ("encoded", "key")
    key: int
    encoded: bytes


class _First(ref[Message]):
    """The first message of a session whose last body is kept."""

    __slots__ = ("session_id",)
    session_id: str


class EncodedMessages:
    """The bytes of each message, made at first sight and dropped with the message.

    What was sent once is sent again byte for byte, which is what a provider's prompt cache asks for.

    A session's last body is kept until its first message dies: so that its next request costs its new messages and one copy, and not a
    look at every message. The bytes of each message are kept beside it once the session is long; for a short one they would only be the
    same bytes twice, and it is written anew where its beginning changes.

    Args:
        encode: Returns a message as the dialect's JSON objects, joined by commas; the same for the same message.
    """

    def __init__(self, encode: Callable[[Message], bytes]) -> None:
        self._encode = encode
        self._known: dict[int, _Known] = {}
        self._bodies: dict[str, _Body] = {}
        known, bodies = self._known, self._bodies

        def forget(one: ref[Message]) -> None:
            known.pop(one.key, None)  # type: ignore[attr-defined]  # a _Known, as all of these

        def drop(one: ref[Message]) -> None:
            bodies.pop(one.session_id, None)  # type: ignore[attr-defined]  # a _First, as all of these

        self._forget, self._drop = forget, drop

    def pieces(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the bytes of each message, in order, without those that come to nothing."""
        known = self._known
        found = [known[id(message)].encoded if id(message) in known else self._add(message) for message in messages]
        return [piece for piece in found if piece]

    def body(self, head: bytes, messages: Sequence[Message], *, session_id: str) -> bytes:
        """Return the body of a request: its head, the messages joined by commas, and `]}`.

        Where it begins as the last one of its session did, that one is taken and only the rest is written.

        Args:
            head: What comes before the messages: it ends with their `[`, or with one element behind that.
        """
        if not messages:
            return head + b"]}"
        last = self._bodies.get(session_id)
        if last is not None and last.begins(head, messages):
            beginning, new, first = memoryview(last.whole)[:-2], messages[len(last.rest) + 1 :], last.first
        else:
            beginning, new, first = memoryview(head), messages, self._dropping(session_id, messages[0])
        pieces = self.pieces(new) if len(messages) >= _LONG else list(filter(None, map(self._encode, new)))
        comma = b"," if pieces and beginning[-1] != ord("[") else b""
        whole = b"".join((beginning, comma, b",".join(pieces), b"]}"))
        self._bodies[session_id] = _Body(whole, head, first, tuple(messages[1:]))
        return whole

    def _dropping(self, session_id: str, first: Message) -> _First:
        """Return a reference that drops the session's body when its first message dies."""
        found = _First(first, self._drop)
        found.session_id = session_id
        return found

    def _add(self, message: Message) -> bytes:
        one = _Known(message, self._forget)
        one.key, one.encoded = id(message), self._encode(message)
        # The entry is removed before the id can be used again: callbacks run while the message dies.
        self._known[one.key] = one
        return one.encoded


def to_json(value: Any) -> bytes:
    """Return a JSON value as bytes. Lone surrogates, which are not text and which servers refuse, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=msgspec.json.decode)  # a part that is JSON already
        return _encoder.encode(_without_surrogates(plain))


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
        case _:
            return value


# --- Names: write a tool's name and a call's id in the letters that a provider takes, and the name back. Knows no
# dialect.

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]+")
_PLAIN_ID = re.compile(r"[!-~]{1,40}")


def wire_name(name: str) -> str:
    """Return the name itself where providers take it, else its letters and a digest of the whole: the same for the same name."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return f"{_STRANGE.sub('_', name)[:51]}_{_digest(name)[:12]}"


def own_names(names: Iterable[str], write: Callable[[str], str] = wire_name) -> dict[str, str]:
    """Return the way back for those names that `write` changes."""
    return {wire: name for name in names if (wire := write(name)) != name}


def wire_id(call_id: str, *, plain: re.Pattern[str] = _PLAIN_ID) -> str:
    """Return the id itself where providers take it, else a digest of it.

    Ids of another server may be longer, and no answer ever names one: calls and results only have to agree.

    Args:
        plain: What the dialect or the server takes; by default OpenAI's: up to 40 visible characters.
    """
    return call_id if plain.fullmatch(call_id) else _made_id(call_id, plain)


def id_pattern(written: str | None) -> re.Pattern[str]:
    """Return the pattern of a server's ids; OpenAI's where it has no own.

    Raises:
        ConfigurationError: It is not a regular expression, or fits nothing that could be made here.
    """
    if written is None:
        return _PLAIN_ID
    try:
        plain = re.compile(written)
        _made_id("", plain)
    except (re.error, StopIteration) as exc:
        raise ConfigurationError(
            f"call_id must be a regular expression that up to 40 hexadecimal digits fit, such as '[a-zA-Z0-9]{{9}}'; got {shown(written)}."
        ) from exc
    return plain


def _made_id(call_id: str, plain: re.Pattern[str]) -> str:
    """Return the longest digest that fits."""
    digest = _digest(call_id)
    made = (f"call_{digest[:32]}", *(digest[:length] for length in range(40, 0, -1)))
    return next(filter(plain.fullmatch, made))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- Bodies: what the request bodies of all dialects have in common: options, tools written once, arguments fit to
# send. Knows no dialect.

_MAX_BROKEN_CHARS = 2_000
_MAX_TOOL_SETS = 64


class _ToolSet(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request, written."""

    tools: tuple[ToolSpec, ...]
    """Kept, so that their id stays their own."""
    encoded: bytes
    """A JSON array, sorted by name."""
    own_names: Mapping[str, str]
    """Our names of those that had to be renamed for the wire."""


OwnArguments: TypeAlias = Callable[[str, str], str]
"""Returns the arguments of a call, which it gets by our name of its tool, as the tool's own schema wants them."""


class ToolSets:
    """Tools as bytes, each tuple of them written once.

    Args:
        write: Returns tools, which it gets in the order of their names, as the dialect's JSON values.
        name: Returns a tool's name in the letters that the dialect takes.
        server_tools: The tools that the server runs by itself, written without the brackets; they stand behind ours.
    """

    def __init__(
        self,
        write: Callable[[Iterable[ToolSpec]], Iterable[Any]],
        *,
        name: Callable[[str], str] = wire_name,
        server_tools: bytes = b"",
    ) -> None:
        self._write = write
        self._name = name
        self._server_tools = server_tools
        self._known: dict[int, _ToolSet] = {}
        self._nullable: tuple[tuple[ToolSpec, ...], Mapping[str, JsonObject]] = ((), {})

    def listed(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Return the tools of a request, the server's own last, without the brackets; nothing where there are none."""
        ours = self.of(tools).encoded[1:-1] if tools else b""
        return b",".join(filter(None, (ours, self._server_tools)))

    def own_names(self, tools: tuple[ToolSpec, ...]) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self.of(tools).own_names if tools else {}

    def own_arguments(self, tools: tuple[ToolSpec, ...], name: str, arguments: str) -> str:
        """Return a call's arguments as our own schema of its tool wants them: without nulls that the strict form has for absent properties."""
        if "null" not in arguments:
            return arguments
        schema = self._nullable_of(tools).get(name)
        return arguments if schema is None else without_absent(arguments, schema)

    def _nullable_of(self, tools: tuple[ToolSpec, ...]) -> Mapping[str, JsonObject]:
        """Return the schemas of those tools whose optional properties can be null in the strict form, by the tools' names."""
        if self._nullable[0] is not tools:
            schemas = {spec.name: object_schema(spec.parameters) for spec in tools}
            self._nullable = tools, {name: schema for name, schema in schemas.items() if _has_nulls(schema)}
        return self._nullable[1]

    def of(self, tools: tuple[ToolSpec, ...]) -> _ToolSet:
        known = self._known.get(id(tools))
        if known is None:
            if len(self._known) >= _MAX_TOOL_SETS:
                self._known.clear()
            in_order = sorted(tools, key=lambda spec: spec.name)
            known = self._known[id(tools)] = _ToolSet(
                tools=tools,
                encoded=to_json(list(self._write(in_order))),
                own_names=own_names((spec.name for spec in tools), self._name),
            )
        return known


def opening(fields: Mapping[str, Any], options: Mapping[str, Any], *, ours: AbstractSet[str]) -> bytes:
    """Return the beginning of a body, without its last brace: the dialect's own fields and the person's options.

    Args:
        fields: What the dialect sends by itself; an option of that name replaces it, and one that is None takes it away.
        options: Further fields.
        ours: Fields that come from the request; an option may not set them.

    Raises:
        ConfigurationError: An option is not valid JSON, or names a field of ours.
    """
    if taken := ours & options.keys():
        raise ConfigurationError(
            f"The model's options must not contain {', '.join(sorted(taken))}: Treadle sets this in each request."
        )
    chosen = {name: value for name, value in {**fields, **options}.items() if value is not None}
    try:
        encoded = to_json(chosen)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigurationError(f"The model's options are not plain JSON: {exc}.") from exc
    return encoded.removesuffix(b"}")


def server_tools(given: Any, *, example: str, is_function: Callable[[Mapping[str, Any]], bool]) -> bytes:
    """Return the option `server_tools`, the tools that the server runs by itself: written, without the brackets.

    Args:
        given: The option's value; None or an empty list for no such tool.
        example: What one looks like in the dialect, for the message.
        is_function: Whether one of them is a function: those are the agent's own tools.

    Raises:
        ConfigurationError: It is not a list of objects, or one of them is a function.
    """
    tools = [] if given is None else given
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) and tool for tool in tools):
        raise ConfigurationError(
            f"The option server_tools must be a list of objects such as {example}; got {shown(given)}."
        )
    if any(map(is_function, tools)):
        raise ConfigurationError("The option server_tools holds a function: give functions to the agent as its tools.")
    written = opening({}, {"tools": list(tools)}, ours=frozenset())
    return written.removeprefix(b'{"tools":[').removesuffix(b"]")


def object_option(name: str, value: Any, *, of: str) -> JsonObject:
    """Return an option that is an object; an empty one where it is None.

    Args:
        of: Whose option it is, for the message, such as `an Anthropic model`.

    Raises:
        ConfigurationError: It is not an object.
    """
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"The option {name} of {of} must be an object; got {shown(value)}.")
    return dict(value or {})


def flag_option(name: str, value: Any, *, of: str, default: bool = False) -> bool:
    """Return an option that is true or false; the default where it is None. Raises as `object_option` does."""
    if not isinstance(value, bool | None):
        raise ConfigurationError(f"The option {name} of {of} must be true or false; got {shown(value)}.")
    return default if value is None else value


def sendable_arguments(raw: str) -> str:
    """Return the arguments as the model wrote them; broken ones inside an object, since servers parse the history too.

    llama.cpp answers 500 to arguments that are not valid JSON. The call's result tells the model what was wrong with them.
    """
    if not raw.strip():
        return "{}"
    try:
        if isinstance(msgspec.json.decode(raw), dict):
            return raw
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return to_json({"_invalid": raw[:_MAX_BROKEN_CHARS]}).decode()


# --- Contents: what the OpenAI dialects say alike of a user's message and its media. Knows no dialect's names of the
# kinds.

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_objects = msgspec.json.Decoder(dict[str, Any])


def user_content(
    message: Message, *, text: Callable[[str], _Wire], media: Callable[[Media], _Wire]
) -> str | list[_Wire]:
    """Return the content of a user's message: its text alone, or a list of parts where media are among them.

    Args:
        text: Makes the dialect's part of a text.
        media: Makes the dialect's part of an image or a file.
    """
    if not any(isinstance(part, Media) for part in message.parts):
        return message.text
    return [
        text(part.text) if isinstance(part, Text) else media(part)
        for part in message.parts
        if isinstance(part, Text | Media)
    ]


def held_in(signature: str | None) -> JsonObject:
    """Return the object that a signature of ours is; an empty one where it is not one of ours, as in an imported history."""
    try:
        return _objects.decode(signature) if signature is not None else {}
    except msgspec.DecodeError:
        return {}


def cited_in(signature: str | None) -> list[JsonObject]:
    """Return what a text cites, which its signature holds."""
    return objects_in(held_in(signature).get("citations"))


def objects_in(values: Any) -> list[JsonObject]:
    """Return the objects of a list."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def data_url(media: Media) -> str | None:
    """Return the content as a `data:` URL; None where only an address of it is known."""
    return f"data:{media.media_type};base64,{media.base64}" if media.base64 is not None else None


def in_words(media: Media) -> str:
    """Return the text that stands for media which a dialect cannot carry, so that the model knows of them at least."""
    return f"[{media.media_type}: {media.url or media.name or 'no content'}]"


# --- Schemas: a tool's schema as vendors take it: an object at its root, strict where it can be. Knows no dialect,
# checks no value.

_REFUSED_AT_ROOT = frozenset({"oneOf", "anyOf", "allOf", "enum", "not", "$ref"})
_BRANCHES = ("oneOf", "anyOf", "allOf")

_DROPPED = frozenset({"default", "examples", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"})
"""Notes that strict mode does not permit and that no value depends on."""
_KEPT = frozenset({
    *("type", "title", "description", "enum", "const", "pattern", "format", "multipleOf", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "definitions"),
})  # fmt: skip
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_MAX_DEPTH = 10
_MAX_PROPERTIES = 5_000
_MAX_ENUM_VALUES = 1_000
_MAX_CHARS = 120_000


class _NotStrict(Exception):
    """The schema says something that strict mode cannot."""


def object_schema(schema: Mapping[str, Any]) -> JsonObject:
    """Return the schema with an object at its root, which vendors want of every tool.

    A root of alternatives becomes one object with the properties of all of them: the model sees each, and the runtime still
    checks which belong together.
    """
    root = _followed(schema)
    if root.get("type") == "object" and not _REFUSED_AT_ROOT & root.keys():
        return dict(root)
    properties: JsonObject = {}
    for branch in _branches(root, schema):
        properties |= branch.get("properties") or {}
    properties |= root.get("properties") or {}
    kept = {key: value for key, value in root.items() if key not in _REFUSED_AT_ROOT}
    return {**kept, "type": "object", "properties": properties}


def with_schema(instructions: str, schema: Mapping[str, Any] | None) -> str:
    """Return instructions that also ask for an answer of a schema, for where the vendor takes no form of answer; None for any answer."""
    if schema is None:
        return instructions
    written = to_json(schema).decode()
    instruction = (
        f"When you are done, answer with one JSON value and nothing else. It must fit this JSON Schema: {written}"
    )
    return f"{instructions}\n\n{instruction}".lstrip()


def strict_schema(schema: Mapping[str, Any], *, nullable: bool = False) -> JsonObject | None:
    """Return the schema as strict mode takes it, or None where that would change what it accepts.

    Strict mode wants every property required and no other ones, and knows few keywords.

    Args:
        nullable: Whether an optional property may become one that can be null. `without_absent` takes these nulls out again.
            Otherwise a schema with optional properties has no strict form.
    """
    compiler = _Strict(schema, nullable=nullable)
    try:
        return compiler.node(schema, depth=0)
    except _NotStrict:
        return None


def _has_nulls(schema: Mapping[str, Any]) -> bool:
    return strict_schema(schema) is None and strict_schema(schema, nullable=True) is not None


def without_absent(arguments: str, schema: Mapping[str, Any]) -> str:
    """Return a call's arguments without the nulls that stand for absent properties in the strict form of this schema.

    Arguments without such a null, and arguments that are not valid JSON, are returned as they are.
    """
    if "null" not in arguments:
        return arguments
    try:
        value = parse_arguments(arguments)
    except (NotJson, InvalidArguments):
        return arguments
    pruned = _pruned(value, schema, schema)
    return arguments if pruned == value else json.dumps(pruned, ensure_ascii=False)


def _pruned(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    schema = _resolved(schema, root)
    if isinstance(value, list):
        return [_pruned(item, schema.get("items"), root) for item in value]
    if not isinstance(value, dict):
        return value
    branches = [_resolved(branch, root) for branch in schema.get("anyOf", ())]
    fitting = (branch for branch in branches if value.keys() <= branch.get("properties", {}).keys())
    chosen = schema if "properties" in schema else next(fitting, schema)
    properties, required = chosen.get("properties", {}), chosen.get("required", ())
    return {
        name: _pruned(item, properties.get(name), root)
        for name, item in value.items()
        if item is not None or name not in properties or name in required or _admits_null(properties[name], root)
    }


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    return _found(schema.get("$ref"), root) or schema


def _admits_null(schema: Any, root: Mapping[str, Any]) -> bool:
    schema = _resolved(schema, root)
    if "anyOf" in schema:
        return any(_admits_null(branch, root) for branch in schema["anyOf"])
    if "enum" in schema:
        return None in schema["enum"]
    if "const" in schema:
        return schema["const"] is None
    return "null" in _types(schema) or "type" not in schema


class _Strict:
    """Writes the strict form of one schema, and counts what the vendor limits."""

    def __init__(self, root: Mapping[str, Any], *, nullable: bool) -> None:
        self._root = root
        self._nullable = nullable
        self._properties = 0
        self._enum_values = 0
        self._chars = 0

    def node(self, schema: Any, *, depth: int) -> JsonObject:
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or schema.keys() - _KEPT - _DROPPED:
            raise _NotStrict
        if "$ref" in schema and depth > 0:
            return self._reference(schema)
        written = {key: value for key, value in schema.items() if key in _KEPT}
        self._count(written)
        _check_words(written)
        for key in ("$defs", "definitions"):
            if key in written:
                written[key] = self._each(written[key], depth=depth)
        if "anyOf" in written:
            written["anyOf"] = [self.node(branch, depth=depth + 1) for branch in _listed(written["anyOf"])]
        if "items" in written or "array" in _types(written):
            written["items"] = self.node(written.get("items"), depth=depth + 1)
        if "properties" in written or "object" in _types(written):
            self._close(written, depth=depth)
        return written

    def _close(self, written: JsonObject, *, depth: int) -> None:
        """Close an object. Below the root, one without properties is a free map, which strict mode does not have."""
        properties = written.get("properties", {} if depth == 0 else None)
        written["properties"] = self._each(properties, depth=depth)
        self._properties += len(properties or ())
        is_open = written.get("additionalProperties", False) is not False
        if is_open or "object" not in _types(written) or self._properties > _MAX_PROPERTIES:
            raise _NotStrict
        for name in written["properties"].keys() - set(_listed(written.get("required", []))):
            written["properties"][name] = self._optional(written["properties"][name], (properties or {})[name])
        written["required"] = list(written["properties"])
        written["additionalProperties"] = False

    def _optional(self, written: JsonObject, schema: Mapping[str, Any]) -> JsonObject:
        """Return an optional property as one that can be null. Where null has a meaning of its own, nothing can say "absent"."""
        if not self._nullable:
            raise _NotStrict
        if not _admits_null(schema, self._root):
            return {"anyOf": [written, {"type": "null"}]}
        if schema.get("default") is not None or "default" not in schema:
            raise _NotStrict
        return written

    def _each(self, schemas: Any, *, depth: int) -> JsonObject:
        if not isinstance(schemas, Mapping):
            raise _NotStrict
        self._chars += sum(map(len, schemas))
        return {name: self.node(schema, depth=depth + 1) for name, schema in schemas.items()}

    def _reference(self, schema: Mapping[str, Any]) -> JsonObject:
        """Return a reference alone: strict mode permits no word beside it."""
        if schema.keys() - _DROPPED - {"$ref", "title", "description"} or _found(schema["$ref"], self._root) is None:
            raise _NotStrict
        return {"$ref": schema["$ref"]}

    def _count(self, written: Mapping[str, Any]) -> None:
        values = _listed(written.get("enum", []))
        self._enum_values += len(values)
        self._chars += sum(len(value) for value in (*values, written.get("const")) if isinstance(value, str))
        if self._enum_values > _MAX_ENUM_VALUES or self._chars > _MAX_CHARS:
            raise _NotStrict


def _check_words(written: Mapping[str, Any]) -> None:
    """Refuse a schema that says nothing of the type, a format that strict mode does not know, and look-around in patterns."""
    if not written.keys() & {"type", "anyOf", "enum", "const"}:
        raise _NotStrict
    if written.get("format", "date") not in _FORMATS or "(?" in str(written.get("pattern", "")):
        raise _NotStrict


def _types(schema: Mapping[str, Any]) -> list[Any]:
    types = schema.get("type", [])
    return types if isinstance(types, list) else [types]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _NotStrict
    return value


def _followed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with what its root refers to in its place."""
    target = _found(schema.get("$ref"), schema)
    if target is None:
        return schema
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _found(reference: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a reference names, where that is the root itself or a definition at the root."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith(("#/$defs/", "#/definitions/")):
        return None
    _, holder, name = reference.split("/", 2)
    definitions = root.get(holder)
    target = definitions.get(name) if isinstance(definitions, Mapping) else None
    return target if isinstance(target, Mapping) else None


def _branches(root: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = [root[key] for key in _BRANCHES if isinstance(root.get(key), list)]
    branches = [branch for group in listed for branch in group if isinstance(branch, Mapping)]
    followed = [_found(branch.get("$ref"), whole) or branch for branch in branches]
    return [branch for branch in followed if isinstance(branch.get("properties"), Mapping)]


# --- Turns: messages as the dialects of Claude group them, whether they come from Anthropic or from Bedrock. Knows no
# block's form.

Turns = list[tuple[bytes, list[bytes]]]
"""Of each turn: who speaks, and its blocks as JSON."""


def grouped(messages: Iterable[Message], encoded: EncodedMessages, *, earlier: bytes) -> Turns:
    """Return the turns of a history: neighbours of one role are one, so that results and what the person adds stand together.

    Args:
        earlier: The block that comes before a history that begins with the model: the vendor wants the person to speak first.
    """
    turns: Turns = []
    for message in messages:
        role = b"assistant" if message.role == "assistant" else b"user"
        for blocks in encoded.pieces((message,)):
            if turns and turns[-1][0] == role:
                turns[-1][1].append(blocks)
            else:
                turns.append((role, [blocks]))
    if turns and turns[0][0] == b"assistant":
        turns.insert(0, (b"user", [earlier]))
    return turns


def turns_json(turns: Turns) -> list[bytes]:
    """Return each turn as a JSON object."""
    return [b'{"role":"%b","content":[%b]}' % (role, b",".join(blocks)) for role, blocks in turns]


def open_turn(messages: tuple[Message, ...]) -> list[Message]:
    """Return the messages of the turn that continues, the last one first; none where the person has begun another."""
    turn: list[Message] = []
    for message in reversed(messages):
        if message.role != "user":
            turn.append(message)
        elif turn:
            break
    has_ended = turn and turn[0].role == "assistant" and turn[0] is not messages[-1]
    return [] if has_ended else turn


def is_foreign(messages: tuple[Message, ...], *, origin: str, is_provable: Callable[[Thinking], bool]) -> bool:
    """Whether the turn that continues holds calls and no thought of this model that can go back: with thinking on, it is refused.

    Args:
        origin: What messages of this model are marked with.
        is_provable: Whether the vendor takes a thought back.
    """
    turn = open_turn(messages)
    if not turn or turn[0].role != "tool":
        return False
    own = [part for message in turn if message.origin == origin for part in message.parts]
    return not any(isinstance(part, Thinking) and is_provable(part) for part in own)


# --- Thoughts: reasoning that a server leaves in the text, between tags, taken out of it. Knows no dialect; sees text
# only.

ThinkingTags: TypeAlias = Literal["both", "closing", "off"]
"""`both`: what is between an opening and a closing tag is reasoning. `closing`: the opening tag may be missing. `off`: all is text."""

_TAGS = {
    "<think>": "</think>",  # DeepSeek-R1, QwQ, Qwen3, GLM, MiniMax: docs.vllm.ai/features/reasoning_outputs
    "<thinking>": "</thinking>",  # Amazon Nova: docs.aws.amazon.com/nova/latest/userguide
    "<thought>": "</thought>",  # Gemini's compatible endpoint, EXAONE
    "<seed:think>": "</seed:think>",  # Seed-OSS
    "[THINK]": "[/THINK]",  # Magistral: docs.mistral.ai/capabilities/reasoning
    "◁think▷": "◁/think▷",  # Kimi-VL
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A: docs.cohere.com
}
_FIRST = tuple({opening[0] for opening in _TAGS})
_MISSING = {"</think>": "<think>", "◁/think▷": "◁think▷"}
"""Closing tags whose opening one some templates put into the prompt, so that no server sends it: DeepSeek-R1, QwQ."""
_QUOTES = "`'\""


class ThoughtText:
    """Takes the reasoning out of the text of one response.

    Args:
        tags: What counts as reasoning.
    """

    def __init__(self, tags: ThinkingTags) -> None:
        self._tags = tags
        self._split = _Split(is_done=tags == "off")

    def shown(self, parts: list[ModelPart]) -> list[ModelPart]:
        """Return the pieces of a stream, those between tags as thinking. A piece that may be half a tag is kept for the next."""
        if self._split.is_done:
            return parts
        found: list[ModelPart] = []
        for part in parts:
            found += self._split.feed(part.text) if type(part) is TextDelta else [part]
        return found

    def rest(self) -> list[ModelPart]:
        """Return what was kept when the stream ended."""
        return self._split.finish()

    def ended(self, end: ModelEnd) -> ModelEnd:
        """Return the whole message, with the reasoning that stood in its first text as a part of its own."""
        at = next((at for at, part in enumerate(end.parts) if isinstance(part, Text)), None)
        if self._tags == "off" or at is None:
            return end
        text = end.parts[at]
        assert isinstance(text, Text)
        thought, said = self._parted(text.text)
        if said == text.text:
            return end
        kept: list[Part] = []
        is_told = any(isinstance(part, Thinking) and part.text.strip() == thought for part in end.parts)
        if thought and not is_told:
            kept.append(Thinking(text=thought))
        if said:
            kept.append(msgspec.structs.replace(text, text=said))
        return msgspec.structs.replace(end, parts=(*end.parts[:at], *kept, *end.parts[at + 1 :]))

    def _parted(self, text: str) -> tuple[str, str]:
        """Return the reasoning of a whole text, and the text without it."""
        if self._tags == "closing":
            text = _with_opening(text)
        split = _Split()
        parts = [*split.feed(text), *split.finish()]
        thoughts = "".join(part.text for part in parts if isinstance(part, ThinkingDelta))
        return thoughts.strip(), "".join(part.text for part in parts if isinstance(part, TextDelta))


def _with_opening(text: str) -> str:
    """Return a text with the opening tag that its server left out; as it is where none is missing, or a tag is only quoted."""
    for closing, opening in _MISSING.items():
        before, found, after = text.partition(closing)
        is_quoted = before[-1:] in _QUOTES and after[:1] in _QUOTES and bool(before)
        if found and opening not in before and not is_quoted:
            return opening + text
    return text


class _Split:
    """Tells pieces of text apart: reasoning between tags, and the answer after it."""

    def __init__(self, *, is_done: bool = False) -> None:
        self.is_done = is_done
        """Whether all that follows is the answer."""
        self._held = ""
        self._closing = ""
        """The tag that ends the reasoning that is open; empty where none is."""
        self._has_thought = False

    def feed(self, text: str) -> list[ModelPart]:
        """Return what a piece makes certain."""
        if self.is_done:
            return [TextDelta(text)] if text else []
        self._held += text
        return self._inside() if self._closing else self._before()

    def finish(self) -> list[ModelPart]:
        """Return what is left at the end. Reasoning that was never closed stays reasoning."""
        held, self._held, self.is_done = self._held, "", True
        if self._closing:
            return [ThinkingDelta(held)] if held else []
        held = held.lstrip() if self._has_thought else held
        return [TextDelta(held)] if held else []

    def _before(self) -> list[ModelPart]:
        """Look for an opening tag, where only blanks stood before."""
        text = self._held.lstrip()
        if text and not text.startswith(_FIRST):
            return self.finish()
        for opening, closing in _TAGS.items():
            if text.startswith(opening):
                self._held, self._closing, self._has_thought = text[len(opening) :], closing, True
                return self._inside()
        if any(opening.startswith(text) for opening in _TAGS):  # half a tag, or nothing yet
            return []
        return self.finish()

    def _inside(self) -> list[ModelPart]:
        """Look for the closing tag; keep the end of what may be its beginning."""
        thought, found, after = self._held.partition(self._closing)
        if found:
            self._held, self._closing = after, ""
            return [*([ThinkingDelta(thought)] if thought.strip() else []), *self._before()]
        size = next((n for n in range(len(self._closing) - 1, 0, -1) if thought.endswith(self._closing[:n])), 0)
        self._held = thought[len(thought) - size :]
        said = thought[: len(thought) - size]
        return [ThinkingDelta(said)] if said else []
