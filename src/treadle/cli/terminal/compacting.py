"""Compacting: the compactor of a conversation, which a person may also ask for with `/compact`."""

from treadle import ClearResults, Summarize, Tiers
from treadle.ports import Compactable, Compaction, RequestNeed

__all__ = ["OnDemandCompactor"]


class OnDemandCompactor:
    """Makes the conversation shorter when the window fills, cheapest way first; once more when it is asked to."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether the next request is to be made shorter, however short it is."""
        self._tiers = Tiers(ClearResults(), Summarize())
        self._summary = Summarize(keep=1)

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return self.is_wanted or self._tiers.is_due(need, tokens)

    async def compact(self, context: Compactable) -> Compaction | None:
        if self.is_wanted:
            self.is_wanted = False
            return await self._summary.compact(context)
        return await self._tiers.compact(context)
