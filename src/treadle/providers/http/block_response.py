"""Block responses: what dialects whose messages are blocks share of one answer: which calls are ready, and how it ends."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from treadle.messages import Finish
from treadle.ports import ModelEnd, ModelPart
from treadle.providers.http.reading import Response, without_ending
from treadle.providers.http.wordings import finish_of
from treadle.providers.payload.blocks import ContentBlock, MessageBlocks

__all__ = ["BlockResponse"]

_Block = TypeVar("_Block", bound=ContentBlock)


class BlockResponse(Response, Generic[_Block]):
    """Takes the data of each event, and gives the parts that it makes. A dialect's own class reads the events.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    reason_field: str
    """The field of a whole answer that has the reason, as the dialect spells it."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._blocks: MessageBlocks[_Block] = MessageBlocks(names)
        self._reason = ""
        """Why the model stopped, in the dialect's word; empty until it is known."""

    def end(self) -> ModelEnd:
        """Return the whole message."""
        gathered = self._blocks.gathered(is_cut=self._is_cut)
        return ModelEnd(
            parts=gathered.parts,
            finish=finish_of(self._reason),
            usage=self.counted,
            cut_calls=gathered.cut,
            unnamed_calls=gathered.unnamed,
            is_retold=self._blocks.is_retold,
            has_strays=gathered.has_strays,
            finish_reason=self._reason or None,
        )

    def _take_blocks(self, blocks: Iterable[_Block]) -> list[ModelPart]:
        """Take the blocks of a whole answer. Raises `IncompleteStream` where it has neither a block nor a reason to stop."""
        parts = self._blocks.take_whole(blocks)
        if not self._reason and not self._blocks.all:
            raise without_ending(self.reason_field)
        if self._is_cut:
            self._blocks.doubt_last()
        self.is_empty = False
        self.is_done = self.is_whole = True
        return parts + self._ready()

    def _ready(self) -> list[ModelPart]:
        """Return the calls that have become complete, in call order."""
        return self._blocks.ready(has_ended=(self.is_whole or bool(self._reason)) and not self._is_cut)

    @property
    def _is_cut(self) -> bool:
        return finish_of(self._reason) is Finish.LENGTH
