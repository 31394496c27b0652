"""Pace: how many requests of a batch are under way, and when. A vendor's rate limit slows all of them. Knows no task."""

import asyncio
from collections.abc import AsyncIterator

from treadle.errors import ModelError
from treadle.ports import Clock, Model, ModelPart, ModelRequest, Randomness
from treadle.providers.capable import CapableModel
from treadle.redaction import redacted_logger

__all__ = ["Pace", "PacedModel"]

logger = redacted_logger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_LONGEST_ASKED_SECONDS = 3600.0
"""A vendor that asks for a longer wait, such as until tomorrow, ends the run: the same command continues it then."""
_TRIES = 30
"""How often a request is made again that a rate limit has refused."""


class Pace:
    """Lets requests begin: at most so many at once, fewer after a rate limit, and none while the vendor asks to wait.

    A rate limit halves the number, for all tasks together; each round of answers raises it by one again.

    Args:
        most: How many requests may be under way at best.
    """

    def __init__(self, most: int, *, clock: Clock, randomness: Randomness) -> None:
        self.limit = float(most)
        """How many requests may be under way now."""
        self._most = most
        self._clock, self._randomness = clock, randomness
        self._running = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._pauses = 0
        """Rate limits in a row."""
        self._pause_ends = float("-inf")
        self._slowed = 0
        """How often the pace was slowed: answers to requests from before that say nothing new."""

    @property
    def paused_seconds(self) -> float:
        """For how long no request begins; 0 for none."""
        return max(self._pause_ends - self._clock.monotonic(), 0.0)

    async def begin(self) -> int:
        """Wait until a request may begin. Return a number to give back with its end."""
        while self._running >= int(self.limit) or self.paused_seconds > 0:
            wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(wake)
            await wake
        self._running += 1
        return self._slowed

    def end(self) -> None:
        """Count a request as no longer under way."""
        self._running -= 1
        self._wake()

    def answered(self) -> None:
        """Note an answer: the pace may rise again."""
        self._pauses = 0
        self.limit = min(self.limit + 1 / self.limit, float(self._most))

    def refused(self, begun: int, asked_seconds: float | None) -> None:
        """Note a rate limit: the pace is halved, and nothing begins for a while.

        Args:
            begun: The number that `begin` gave for the request.
            asked_seconds: How long the vendor asks to wait; None if it does not say.
        """
        pause = asked_seconds or 0.0
        if begun == self._slowed:
            self._slowed += 1
            self.limit = max(self.limit / 2, 1.0)
            longest = min(_FIRST_PAUSE_SECONDS * 2.0**self._pauses, _LONGEST_PAUSE_SECONDS)
            self._pauses += 1
            pause = max(pause, longest * (0.5 + self._randomness.random() / 2))
            logger.warning(
                "The vendor limits the rate: the batch waits %.1f s, then has %d requests at once.",
                pause,
                int(self.limit),
            )
        ends = self._clock.monotonic() + pause
        if ends > self._pause_ends:
            self._pause_ends = ends
            self._clock.call_later(pause, self._wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            if not wake.done():
                wake.set_result(None)


class PacedModel(CapableModel):
    """A model whose requests keep the pace of a batch. One that a rate limit refuses is made again, and its run does not notice.

    Args:
        model: What is known of it.
        asked: What its requests go to; itself, or one that limits them otherwise.
    """

    def __init__(self, model: Model, asked: Model, pace: Pace) -> None:
        super().__init__(model, frozenset())
        self._asked = asked
        self._pace = pace

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Let the model answer once it is this request's turn.

        Raises:
            ModelError: The model failed.
        """
        return self._paced(request)

    async def _paced(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        for tries_left in reversed(range(_TRIES)):
            begun, has_parts = await self._pace.begin(), False
            stream = self._asked.stream(request)
            try:
                async for part in stream:
                    has_parts = True
                    yield part
            except ModelError as error:
                if not _is_rate_limit(error):
                    raise
                self._pace.refused(begun, error.retry_after_seconds)
                if has_parts or not tries_left:
                    raise
            else:
                self._pace.answered()
                return
            finally:
                self._pace.end()
                if (close := getattr(stream, "aclose", None)) is not None:
                    await close()


def _is_rate_limit(error: ModelError) -> bool:
    """Whether the vendor asks for fewer requests, and for no longer than a batch would wait."""
    asked = error.retry_after_seconds
    is_limit = error.status in (429, 529) or (error.status == 503 and bool(asked))
    return is_limit and error.may_retry and (asked or 0.0) <= _LONGEST_ASKED_SECONDS
