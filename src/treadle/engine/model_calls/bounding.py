"""Bounding: hold the results of one step within their limit together, the biggest first. Recorded once, and so the same for ever."""

import msgspec

from treadle.canonical import artifact_id
from treadle.context.shortening import shares
from treadle.engine.model_calls.usage import count_tokens, forget_counts
from treadle.engine.rules.bounds import bound
from treadle.events import ContextCompacted
from treadle.messages import Message, Result
from treadle.ports import Journal, RequestNeed
from treadle.redaction import without_known
from treadle.sessions.ledger import Ledger
from treadle.tools import ToolResult

__all__ = ["Bounding", "keep_content"]

_CHARS_OF_WINDOW = 2
"""Characters for each token of the window: half of it, at four characters a token."""


class Bounding:
    """Shortens the results of one run's steps.

    Args:
        limit: Characters that the results of one step may take together; None for no limit.
    """

    def __init__(self, ledger: Ledger, limit: int | None) -> None:
        self._ledger = ledger
        self._limit = limit

    async def hold(self, need: RequestNeed) -> None:
        """Shorten the results of the last step, where they are too long together. What was decided on before stays."""
        limit = self._limit
        if limit is None:
            return
        if need.window is not None:
            limit = min(limit, need.window * _CHARS_OF_WINDOW)
        found = self._last_results()
        if found is None:
            return
        message, seq = found
        sizes = [len(part.content) for part in message.results]
        if sum(sizes) <= limit or any(one.last >= seq for one in self._ledger.state.compactions.made):
            return
        await self._shorten(message, seq, shares(sizes, limit), need)

    def _last_results(self) -> tuple[Message, int] | None:
        """Return the results that no request has held yet, and the number of their event."""
        state = self._ledger.state
        for message, seq in zip(reversed(state.messages), reversed(state.message_seqs), strict=True):
            if message.role == "tool":
                return message, seq
            if message.role == "assistant":
                return None
        return None

    async def _shorten(self, message: Message, seq: int, rooms: list[int], need: RequestNeed) -> None:
        state = self._ledger.state
        results = {one.call.id: one.result for one in state.answered}
        shorter: dict[str, str] = {}
        digests: list[str] = []
        for part, room in zip(message.results, rooms, strict=True):
            if len(part.content) > room:
                digest, shorter[part.call_id] = await self._shortened(part, results.get(part.call_id), room)
                digests.append(digest)
        before = need.fixed_tokens + count_tokens(state.shown)
        saved = sum(len(part.content) - len(shorter.get(part.call_id, part.content)) for part in message.results) // 4
        event = ContextCompacted(
            step=need.step,
            tier="limits",
            reason="step",
            first=seq,
            last=seq,
            results=shorter,
            artifacts=tuple(digests),
            tokens_before=before,
            tokens_after=max(before - saved, 0),
            model=need.model,
        )
        forget_counts(state.shown)  # what comes after it was counted with it
        await self._ledger.record(event, durable=True)

    async def _shortened(self, part: Result, result: ToolResult | None, room: int) -> tuple[str, str]:
        """Return the digest of the whole of a result, and what is shown of it."""
        journal, content = self._ledger.journal, part.content
        kept = None if result is None else result.artifact
        if kept is not None and artifact_id(kept) in content:  # a part of it was shown: of the same whole, less is
            whole = (await journal.blob(kept) or content.encode()).decode("utf-8", "replace")
            value = whole if isinstance(_value_of(content), str) else [whole]
            return kept, bound(value, whole, room, artifact=artifact_id(kept))[0]
        digest = await keep_content(journal, content)
        return digest, bound(_value_of(content), content, room, artifact=artifact_id(digest))[0]


async def keep_content(journal: Journal, content: str) -> str:
    """Store a result's text, without the values that journals hide, and return its digest."""
    return await journal.put_blob(b"".join(without_known(content.encode("utf-8", "replace"))))


def _value_of(content: str) -> object:
    """Return the object or list of a JSON text; any other text itself."""
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content
    return value if isinstance(value, dict | list) else content
