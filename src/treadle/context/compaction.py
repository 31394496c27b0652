"""Compactors: shorten what the model is shown, the cheapest way first. They choose; the engine checks, records and charges.

None of them separates a call from its result, and the last exchanges stay unchanged.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.context.compilers import CLEARED, clipped, estimated_tokens, exchanges_of, sent_chars, shares
from treadle.errors import ConfigurationError, ContextOverflow
from treadle.fields import checked, explained
from treadle.messages import Media, Message, ToolCall, user_message
from treadle.ports import Compactable, Compaction, Compactor, RequestNeed
from treadle.redaction import redacted_logger

__all__ = [
    "KEPT_BEFORE",
    "ClearResults",
    "Summarize",
    "Tiers",
    "WhenFull",
    "end_of_old",
    "plan_and_todos",
    "summary_of",
    "task_within",
    "transcript",
]

logger = redacted_logger(__name__)

KEPT_BEFORE = 1
"""How many messages stay in front of a summary: the first, which holds the task."""

_WORTH_CHARS = 200
_ANSWER_TOKENS = 20_000
_SPARE_TOKENS = 13_000
_LEAST_SAVED = 3
"""One part in so many of a request is saved at least: a prefix that changes is cached no more."""
_LEFT_SHARE = 4
"""What is left of old messages may fill one part in so many of their room: else the next compaction is due too soon."""
_CHARS_PER_TOKEN = 3
_FACTS_CHARS = 8_000
_MAX_HALVINGS = 3
"""So often a request for a summary is made shorter because the provider has refused the one before as too long."""

_SUMMARY = (
    "Another model continues with this work and sees nothing of it but your summary and the latest messages. Write down the "
    "objective, the constraints, what was decided and by whom, what was changed and where, what is still open, and what must "
    "not be done again. Keep names, numbers and paths exactly as they are. Write only the summary."
)


class WhenFull:
    """What compactors share that keep the last exchanges and are due when a request fills too much of the window."""

    def __init__(self, keep: int, share: float | None) -> None:
        if keep < 1:
            raise ConfigurationError(f"keep must be a whole number of at least 1; got {keep}.")
        if share is not None and not 0 < share <= 1:
            raise ConfigurationError(f"share must be a number above 0, at most 1; got {share}.")
        self._keep = keep
        self._share = share

    @explained
    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Whether the request fills more of the window than it may. Never, where nobody knows the window."""
        if need.window is None:
            return False
        return tokens > (_room(need.window) if self._share is None else need.window * self._share)


class ClearResults(WhenFull):
    """Replace the contents of old results by one line each. Calls, their arguments and all other text stay.

    Example:
        Agent(model, compactor=ClearResults(keep=5))

    Args:
        keep: How many of the last exchanges keep their results.
        share: The share of the model's window that a request may fill, from 0 to 1; above it, results are cleared before the request.
            None for the window minus room for an answer (20,000 tokens, or an eighth) and a reserve (13,000, or a sixteenth).
    """

    @checked
    def __init__(self, *, keep: int = 3, share: float | None = None) -> None:
        super().__init__(keep, share)

    @checked
    async def compact(self, context: Compactable) -> Compaction | None:
        """Return which results are cleared; None if too few are old or long. Each is kept whole, as an artifact."""
        end = end_of_old(context, self._keep)
        old = [
            part
            for message in context.messages[:end]
            for part in message.results
            if part.media or len(part.content) > _WORTH_CHARS
        ]
        saved = sum(len(part.content) - _WORTH_CHARS // 2 for part in old) // 4
        is_wanted = context.need.reason == "overflow" or context.session.state.compactions.asked > 0
        if not old or (saved < context.tokens // _LEAST_SAVED and not is_wanted):
            return None
        results = {
            part.call_id: CLEARED.format(tool=part.name, artifact=await context.keep(part.call_id)) for part in old
        }
        return Compaction(tier="results", begin=0, end=end, results=results)


class Summarize(WhenFull):
    """Have the run's model write a summary that replaces all but the first message and the last exchanges.

    Example:
        Agent(model, compactor=Tiers(ClearResults(), Summarize(keep=4)))

    Args:
        keep: How many of the last exchanges stay unchanged.
        share: As for `ClearResults`.
        instructions: What the model is told to write.
    """

    @checked
    def __init__(self, *, keep: int = 3, share: float | None = None, instructions: str = _SUMMARY) -> None:
        super().__init__(keep, share)
        self._instructions = instructions

    @checked
    async def compact(self, context: Compactable) -> Compaction | None:
        """Return the summary; None if there is too little to summarize, or the model wrote nothing."""
        end = end_of_old(context, self._keep)
        if not (text := await summary_of(context, end, instructions=self._instructions)):
            return None
        if kept := plan_and_todos(context.session.state.facts.values):
            text = f"{text}\n\n## Plan and todos (recorded)\n{kept}"
        message = user_message(f"Summary of the work so far, in place of its messages:\n\n{text}")
        messages = (message, *task_within(context, end))
        return Compaction(tier="summary", begin=KEPT_BEFORE, end=end, messages=messages, summary=text)


class Tiers:
    """Several compactors, the cheapest first: the first that gains enough room is used.

    A compactor gains enough if the remaining old messages fill at most a quarter of the room for them. With less, the provider's
    cache would be lost again after a few steps. If none gains as much, the last that gains anything is used. If the window is
    unknown, or the provider has refused a request as too long, it is the first that gains anything.

    Args:
        compactors: At least one.

    Raises:
        ConfigurationError: None was given.
    """

    @checked
    def __init__(self, *compactors: Compactor) -> None:
        if not compactors:
            raise ConfigurationError("Tiers needs at least one compactor: Tiers(ClearResults(), Summarize()).")
        self._compactors = compactors

    @explained
    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Whether any of them would shorten the request before it is sent."""
        return any(one.is_due(need, tokens) for one in self._compactors)

    @checked
    async def compact(self, context: Compactable) -> Compaction | None:
        """Return the result of the first that gains enough room, else that of the last that gains anything."""
        found: Compaction | None = None
        for one in self._compactors:
            try:
                made = await one.compact(context)
            except Exception:
                if found is None:
                    raise
                logger.exception("A compactor raised; what the one before it has found is used")
                continue
            if made is not None and _gains_enough(made, context):
                return made
            found = found if made is None else made
        return found


def _gains_enough(made: Compaction, context: Compactable) -> bool:
    """Whether what a compaction leaves of old messages fills a small part of the room for them only."""
    need, old = context.need, context.messages[made.begin : made.end]
    if need.window is None or need.reason == "overflow":
        return True
    stays = context.tokens - _tokens(old)
    left = _tokens(old) - _saved(old, made.results) if made.messages is None else _tokens(made.messages)
    return left <= max(_room(need.window) - stays, 0) // _LEFT_SHARE


def _saved(old: Sequence[Message], results: Mapping[str, str]) -> int:
    parts = [part for message in old for part in message.results if part.call_id in results]
    return sum(len(part.content) - len(results[part.call_id]) for part in parts) // 4


def _tokens(messages: Sequence[Message]) -> int:
    return sum(sent_chars(part) for message in messages for part in message.parts) // 4


def _room(window: int) -> int:
    """Return what a request may take of a window: all but room for an answer, and a reserve for what is estimated wrongly."""
    return window - min(_ANSWER_TOKENS, window // 8) - min(_SPARE_TOKENS, window // 16)


def end_of_old(context: Compactable, keep: int) -> int:
    """Return the index behind the last message that is not one of the last exchanges.

    Of those fewer are kept where they fill half of the window; the last one always is.
    """
    exchanges, need = exchanges_of(context.messages), context.need
    kept = keep
    if need.window is not None:
        while kept > 1 and sum(estimated_tokens(one) for few in exchanges[-kept:] for one in few) > need.window // 2:
            kept -= 1
    return sum(map(len, exchanges[: max(len(exchanges) - kept, 0)]))


async def summary_of(context: Compactable, end: int, *, instructions: str) -> str | None:
    """Have the run's own model sum up the messages before `end`. None where there is too little to sum up.

    A request that is refused as too long is made again with half of the words, three times at most.
    """
    if end - KEPT_BEFORE < 2:
        return None
    halvings = 0
    while True:
        asked = user_message(transcript(context, context.messages[:end], halvings=halvings))
        try:
            return (await context.ask([asked], instructions=instructions)).strip()
        except ContextOverflow:
            halvings += 1
            if halvings > _MAX_HALVINGS:
                raise


def task_within(context: Compactable, end: int) -> tuple[Message, ...]:
    """Return the message that the run under way began with, where no other message shown after the compaction is that one."""
    run, messages = context.session.state.run, context.session.messages
    if run is None or run.first_message >= len(messages):
        return ()
    task = messages[run.first_message]
    is_shown = task in context.messages[:KEPT_BEFORE] or task in context.messages[end:]
    return () if is_shown or task.role != "user" or not task.parts else (task,)


def plan_and_todos(facts: Mapping[str, Any]) -> str:
    """Return what tools keep of plans, goals and todos, as it is. A compaction must not lose it."""
    kept = {name: facts[name] for name in ("goal", "plan", "todos") if name in facts}
    return clipped(msgspec.json.encode(kept).decode(), _FACTS_CHARS) if kept else ""


def transcript(context: Compactable, messages: Sequence[Message], *, halvings: int = 0) -> str:
    """Return messages as one text that fits into a request of its own, the longest cut first.

    A model that is to sum up calls must not take them for its own.
    """
    need = context.need
    tokens = context.tokens // 2 if need.reason == "overflow" else context.tokens
    tokens = (tokens if need.window is None else min(tokens, _room(need.window))) >> halvings
    texts = [f"[{message.role}] {_words_of(message)}" for message in messages]
    rooms = shares([len(text) for text in texts], max(tokens * _CHARS_PER_TOKEN, 1_000))
    return "\n\n".join(clipped(text, room) for text, room in zip(texts, rooms, strict=True))


def _words_of(message: Message) -> str:
    lines = [message.text] if message.text else []
    lines += [_media(part) for part in message.parts if isinstance(part, Media)]
    lines += [f"calls {part.name}({part.arguments})" for part in message.parts if isinstance(part, ToolCall)]
    lines += [" ".join((f"{part.name} returned: {part.content}", *map(_media, part.media))) for part in message.results]
    return "\n".join(lines)


def _media(part: Media) -> str:
    return f"[{part.media_type} {part.name or 'without a name'}]"
