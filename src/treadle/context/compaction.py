"""Compactors: what the model is shown is made shorter, cheapest way first. They choose; the engine checks, records and charges.

None of them parts a call from its result, and the last exchanges stay as they are.
"""

from collections.abc import Sequence

from treadle.context.compilers import exchanges_of
from treadle.errors import ConfigurationError, shown
from treadle.messages import Message, Result, ToolCall, user_message
from treadle.ports import Compactable, Compaction, Compactor, RequestNeed

__all__ = ["ClearResults", "Summarize", "Tiers"]

_CLEARED = "[This result was removed to save room. Call {tool} again if you need it.]"

_SUMMARY = (
    "Another model continues with this work and sees nothing of it but your summary and the latest messages. Write down the "
    "objective, the constraints, what was decided and by whom, what was changed and where, what is still open, and what must "
    "not be done again. Keep names, numbers and paths exactly as they are. Write only the summary."
)


class ClearResults:
    """Replace the contents of old results by one line each. Calls, their arguments and all other words stay.

    Example:
        Agent(model, compactor=ClearResults(keep=5))

    Args:
        keep: How many of the last exchanges keep their results.
        share: Of the model's window that a request may fill, from 0 to 1; past it, results are cleared before the request.
    """

    def __init__(self, *, keep: int = 3, share: float = 0.8) -> None:
        self._keep = _checked_keep(keep)
        self._share = _checked_share(share)

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Whether the request fills more of the window than it may. Never, where nobody knows the window."""
        return _is_over(need, tokens, self._share)

    async def compact(self, context: Compactable) -> Compaction | None:
        """Return which results are cleared; None where all that are old are short."""
        end = _end_of_old(context.messages, self._keep)
        results = {
            part.call_id: _CLEARED.format(tool=part.name)
            for message in context.messages[:end]
            for part in message.results
            if _is_worth(part)
        }
        return Compaction(tier="results", begin=0, end=end, results=results) if results else None


class Summarize:
    """Have the run's own model write a summary, which stands in place of all but the first message and the last exchanges.

    Example:
        Agent(model, compactor=Tiers(ClearResults(), Summarize(keep=4)))

    Args:
        keep: How many of the last exchanges stay as they are.
        share: As for `ClearResults`.
        instructions: What the model is told to write.
    """

    def __init__(self, *, keep: int = 3, share: float = 0.8, instructions: str = _SUMMARY) -> None:
        self._keep = _checked_keep(keep)
        self._share = _checked_share(share)
        self._instructions = instructions

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Whether the request fills more of the window than it may. Never, where nobody knows the window."""
        return _is_over(need, tokens, self._share)

    async def compact(self, context: Compactable) -> Compaction | None:
        """Return the summary; None where there is too little to summarize, or the model wrote nothing."""
        begin, end = 1, _end_of_old(context.messages, self._keep)
        if end - begin < 2:
            return None
        told = user_message(_transcript(context.messages[:end]))
        words = (await context.ask([told], instructions=self._instructions)).strip()
        if not words:
            return None
        summary = user_message(f"Summary of the work so far, in place of its messages:\n\n{words}")
        return Compaction(tier="summary", begin=begin, end=end, messages=(summary,), summary=words)


class Tiers:
    """Several compactors, the cheapest first: the first that finds something shorter has done it.

    Args:
        compactors: At least one.

    Raises:
        ConfigurationError: None was given.
    """

    def __init__(self, *compactors: Compactor) -> None:
        if not compactors:
            raise ConfigurationError("Tiers needs at least one compactor: Tiers(ClearResults(), Summarize()).")
        self._compactors = compactors

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Whether any of them would make the request shorter before it is sent."""
        return any(one.is_due(need, tokens) for one in self._compactors)

    async def compact(self, context: Compactable) -> Compaction | None:
        """Return what the first of them returns that finds anything."""
        for one in self._compactors:
            if (made := await one.compact(context)) is not None:
                return made
        return None


def _is_over(need: RequestNeed, tokens: int, share: float) -> bool:
    return need.window is not None and tokens > need.window * share


def _end_of_old(messages: Sequence[Message], keep: int) -> int:
    """Return the index behind the last message that is not one of the last exchanges."""
    exchanges = exchanges_of(messages)
    return sum(map(len, exchanges[: max(len(exchanges) - keep, 0)]))


def _is_worth(part: Result) -> bool:
    return bool(part.media) or len(part.content) > 2 * len(_CLEARED)


def _transcript(messages: Sequence[Message]) -> str:
    """Return messages as one text. A model that is to sum up calls must not take them for its own."""
    return "\n\n".join(f"[{message.role}] {_words_of(message)}" for message in messages)


def _words_of(message: Message) -> str:
    words = [message.text] if message.text else []
    words += [f"calls {part.name}({part.arguments})" for part in message.parts if isinstance(part, ToolCall)]
    words += [f"{part.name} returned: {part.content}" for part in message.results]
    return "\n".join(words)


def _checked_keep(keep: object) -> int:
    if type(keep) is not int or keep < 1:
        raise ConfigurationError(f"keep must be a whole number of at least 1; got {shown(keep)}.")
    return keep


def _checked_share(share: object) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ConfigurationError(f"share must be a number above 0, at most 1; got {shown(share)}.")
    return float(share)
