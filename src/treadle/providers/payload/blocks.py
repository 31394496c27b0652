"""Blocks: the content blocks of one message, put together as they arrive, and distinguished where a server repeats them. Knows no dialect."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from treadle.canonical import text_key
from treadle.concurrency.pieces import Pieces
from treadle.messages import Part, ToolCall
from treadle.ports import CallReady, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.payload.arguments import ObjectEnd, may_have_lost
from treadle.providers.payload.lenient import call_arguments

__all__ = ["ContentBlock", "Gathered", "MessageBlocks"]


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


class Gathered(NamedTuple):
    """What a message came to."""

    parts: tuple[Part, ...]
    cut: frozenset[str]
    """Ids of calls whose end may be missing."""
    unnamed: frozenset[str]
    """Ids of calls that we named, because the server did not."""
    has_strays: bool
    """Whether nobody can say of some piece to which call it belongs."""


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

    def gathered(self, *, is_cut: bool) -> "Gathered":
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
        return Gathered(said, frozenset(cut), frozenset(unnamed), has_strays)

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
        """Take the end of the message: what may still be a repetition is compared as it stands."""
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
