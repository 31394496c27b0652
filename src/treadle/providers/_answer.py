"""Answer: one HTTP answer, read under our own limits of time and size. Knows no dialect, sends nothing."""

import asyncio
from collections.abc import Mapping

import aiohttp

from treadle.errors import IncompleteStream, ModelError, ModelResponseInvalid, ModelUnavailable
from treadle.providers._endpoint import Endpoint, Timeouts

__all__ = ["Answer", "in_words", "no_first_byte"]

_DRAIN_SECONDS = 0.25
"""What a kept connection is worth: the wait for the last bytes of an answer that is whole already."""


class Answer:
    """The answer to one request: its head, and its body as it comes. Close it when done."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint, *, sent_at: float, max_bytes: int) -> None:
        timeouts = endpoint.timeouts
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.endpoint = endpoint
        self._response = response
        self._loop = asyncio.get_running_loop()
        self._ends_at = sent_at + timeouts.total_seconds
        self._first_byte_at: float | None = sent_at + timeouts.first_byte_seconds
        self._idle_seconds = timeouts.idle_seconds
        self._bytes_left = max_bytes
        self._max_bytes = max_bytes

    @property
    def content_type(self) -> str:
        """What the server calls the body, such as `text/event-stream`; nothing where it does not say."""
        return self._response.content_type if "Content-Type" in self.headers else ""

    async def read(self) -> bytes:
        """Return the next piece of the body; nothing at its end.

        Raises:
            ModelUnavailable: The server fell silent or takes too long.
            IncompleteStream: The connection broke.
            ModelResponseInvalid: The body is larger than the limit.
        """
        content = self._response.content
        try:
            piece = content.read_nowait()
            if not piece and not content.at_eof():
                piece = await self._wait()
        except (aiohttp.ClientError, OSError) as exc:
            self.close()
            raise IncompleteStream(
                f"The connection to {self.endpoint.shown} broke in the middle of the answer: {in_words(exc)}."
            ) from exc
        self._first_byte_at = None
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            self.close()
            raise ModelResponseInvalid(f"The answer of {self.endpoint.shown} is larger than {self._max_bytes} bytes.")
        return piece

    async def read_rest(self) -> bytes:
        """Return the whole of the body that is left. Raises as `read` does."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def hasten(self, idle_seconds: float) -> None:
        """Wait no longer than this for each further piece."""
        self._idle_seconds = min(self._idle_seconds, idle_seconds)

    async def drain(self) -> None:
        """Read a little on to the end of the body, so that the connection can be used again. Never fails."""
        self.hasten(_DRAIN_SECONDS)
        self._bytes_left = min(self._bytes_left, 64 * 1024)
        try:
            await self.read_rest()
        except ModelError:
            self.close()

    def close(self) -> None:
        """Let go of the connection: kept when the body was read to its end, else closed."""
        self._response.close()

    async def _wait(self) -> bytes:
        now = self._loop.time()
        silence_ends_at = self._first_byte_at or now + self._idle_seconds
        timer = asyncio.timeout_at(min(silence_ends_at, self._ends_at))
        try:
            async with timer:
                return await self._response.content.readany()
        except TimeoutError as exc:
            if not timer.expired():
                raise
            self.close()
            raise ModelUnavailable(self._complaint(is_total=self._ends_at <= silence_ends_at)) from exc

    def _complaint(self, *, is_total: bool) -> str:
        timeouts, shown = self.endpoint.timeouts, self.endpoint.shown
        if is_total:
            return f"The answer of {shown} took longer than {timeouts.total_seconds:g} s (Timeouts.total_seconds)."
        if self._first_byte_at is not None:
            return no_first_byte(shown, timeouts)
        return f"{shown} sent nothing for {self._idle_seconds:g} s in the middle of the answer (Timeouts.idle_seconds)."


def no_first_byte(shown: str, timeouts: Timeouts) -> str:
    seconds = min(timeouts.first_byte_seconds, timeouts.total_seconds)
    return f"{shown} sent no answer within {seconds:g} s. For a slow model raise Timeouts.first_byte_seconds."


def in_words(exc: BaseException) -> str:
    """Say in a few words what the system says; never an address, which may hold a password."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return type(exc).__name__
