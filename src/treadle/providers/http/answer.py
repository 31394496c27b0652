"""Answer: one HTTP answer, read under our own limits of time and size. Knows no dialect, sends nothing."""

import asyncio
import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from treadle.errors import (
    ConfigurationError,
    IncompleteStream,
    ModelError,
    ModelResponseInvalid,
    ModelUnavailable,
    shown,
)
from treadle.fields import Documented, NamedOptions
from treadle.redaction import is_secret_name, remember, secrets_of_address

__all__ = [
    "ACCEPTED",
    "PIECE_BYTES",
    "Answer",
    "Endpoint",
    "Timeouts",
    "Unpacker",
    "check_header",
    "in_words",
    "no_first_byte",
    "secrets_of",
    "unpacker_for",
    "with_version",
]


# --- Endpoint: where the requests of one model go, under which limits, and what of it may be shown. Sends nothing.


class Timeouts(
    msgspec.Struct, Documented, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions
):
    """How long one model call may take, in seconds.

    Example:
        Timeouts(first_byte_seconds=600)  # a large model on a small machine reads its prompt for minutes

    Raises:
        ConfigurationError: A limit is not a positive number.
    """

    connect_seconds: float = 10
    """To reach the server: name, connection and TLS."""
    first_byte_seconds: float = 120
    """From the request to the first byte of the answer's body. Raise it for slow local models."""
    idle_seconds: float = 60
    """Between two pieces of the answer."""
    after_finish_seconds: float = 15
    """After a finish reason, for more content or the end of the answer, where the dialect has no other end or the server omits it.
    The response is then complete. Chat Completions and Gemini; a server that continues after a finish gets `idle_seconds` from then on."""
    total_seconds: float = 600
    """For the whole answer, however steadily it drips."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ConfigurationError(f"Timeouts.{name} must be a number of seconds above 0; got {shown(value)}.")


class Endpoint:
    """Where the requests of one model go.

    Args:
        base_url: As the person gave it; user name, password and query are used and never shown.
        path: What the dialect adds to it, such as `chat/completions`; not added twice.
        headers: Of every request.
        timeouts: Of every request.
        secrets: What no message may show.
        is_encoded: Whether the path is percent-encoded already.

    Raises:
        ConfigurationError: The URL or a header cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        *,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        secrets: Iterable[str] = (),
        is_encoded: bool = False,
    ) -> None:
        if not isinstance(timeouts, Timeouts):
            raise ConfigurationError(f"timeouts must be Timeouts(...) or None; got {shown(timeouts)}.")
        parsed = _parse(base_url)
        self.url = _join(parsed.with_user(None), path, is_encoded=is_encoded)
        self.headers: CIMultiDict[str] = CIMultiDict()
        for name, value in headers.items():
            self.headers[name] = check_header(name, value)  # of two spellings of one name the later counts
        self.timeouts = timeouts
        self.shown = str(parsed.with_user(None).with_query(None).with_fragment(None))
        """The base URL without user name, password and query."""
        own = _secrets_of(base_url, parsed)
        remember([*own, *_secret_headers(self.headers)])
        self._secrets = [*secrets, *own]
        self._passing: list[str] = []
        self.redact = _redactor(self._secrets)
        """Hides the secrets in a text."""
        if parsed.user is not None:
            self._log_in(parsed)

    def hide(self, secrets: Iterable[str]) -> None:
        """Hide these too from now on, such as a token that was just fetched. Only the newest of them are kept."""
        new = [secret for secret in secrets if secret and secret not in self._passing]
        if new:
            remember(new)
            self._passing = [*self._passing, *new][-_MAX_PASSING:]
            self.redact = _redactor((*self._secrets, *self._passing))

    def _log_in(self, parsed: URL) -> None:
        if "Authorization" in self.headers:
            raise ConfigurationError(
                f"The base URL {self.shown} holds a user name, and an API key is set too. Use one of them."
            )
        self.headers["Authorization"] = _basic(parsed.user or "", parsed.password or "")


def check_header(name: str, value: str) -> str:
    """Return a header's value without blanks around it.

    Raises:
        ConfigurationError: It holds what no header can hold. The value is not shown: it may be a key.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"The value of the header {name} must be text.")
    value = value.strip()
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ConfigurationError(f"{shown(name)} is not a name of an HTTP header.")
    if not value.isascii() or not value.isprintable():
        raise ConfigurationError(
            f"The value of the header {name} (the API key, perhaps) holds a character that no header may hold, such as a line break."
        )
    return value


def with_version(base_url: str, version: str) -> str:
    """Return the address with the API's version: people and the vendors' SDKs write the host alone.

    Args:
        version: As a path, such as `/v2`.
    """
    try:
        parts = urlsplit(base_url.strip())
    except (AttributeError, ValueError):
        return base_url  # the endpoint says what is wrong with it
    if not parts.netloc or parts.path.strip("/"):
        return base_url
    return urlunsplit(parts._replace(path=version))


def secrets_of(api_key: str | None, headers: Mapping[str, str] | None) -> list[str]:
    """Name what messages must not show: the key, and every header that the person set."""
    values = list(map(str, (headers or {}).values()))
    return [api_key or "", *values, *(value.partition(" ")[2] for value in values)]


def _parse(base_url: str) -> URL:
    try:
        url = URL(base_url.strip())
        is_usable = url.scheme in ("http", "https") and bool(url.host) and url.port is not None
    except (ValueError, TypeError, UnicodeError):
        is_usable = False
    if not is_usable:
        # The text itself may hold a password, so only its shape is shown.
        raise ConfigurationError("The base URL must look like https://host/v1 or http://127.0.0.1:8080/v1.")
    return url


def _secrets_of(base_url: str, url: URL) -> list[str]:
    """Name what of an address no message may show, in each form that a server may echo: user, password and query."""
    found = [url.user or "", url.password or "", url.raw_user or "", url.raw_password or "", url.raw_query_string]
    if url.user is not None:
        found.append(_basic(url.user, url.password or "").partition(" ")[2])
    return [
        *found,
        *secrets_of_address(base_url),
        *(value for value in url.query.values() if len(value) >= _MIN_SECRET),
    ]


def _secret_headers(headers: Mapping[str, str]) -> list[str]:
    """Return the values of the headers that hold a key by their name, with and without the scheme before it."""
    values = [value for name, value in headers.items() if is_secret_name(name)]
    return [form for value in values for form in (value, value.partition(" ")[2]) if form]


_MAX_PASSING = 16
"""Secrets that came after the start and are still hidden: tokens follow one another."""

_MIN_SECRET = 4
"""A shorter value of a query is a version or a switch."""


def _join(base: URL, path: str, *, is_encoded: bool) -> URL:
    if is_encoded:
        stem = base.raw_path.rstrip("/")
        return base.with_path(f"{stem}/{path}", encoded=True).with_query(base.query)
    stem = base.path.rstrip("/")
    joined = stem if stem.endswith("/" + path) else f"{stem}/{path}"
    return base.with_path(joined).with_query(base.query)


def _basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode("ascii")


def _redactor(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that hides every secret; a short one only where it stands alone, or it would eat half of the words."""
    patterns = [
        re.escape(secret) if len(secret) >= 8 else rf"(?<!\w){re.escape(secret)}(?!\w)"
        for secret in sorted({secret.strip() for secret in secrets}, key=len, reverse=True)
        if secret
    ]
    if not patterns:
        return str
    pattern = re.compile("|".join(patterns))
    return lambda text: pattern.sub("[redacted]", text)


# --- Unpacking: compressed bytes in, small pieces of what they hold out. Bounded at each step; does no I/O.

ACCEPTED = "gzip, deflate"
"""The encodings that a server may choose from: the value of `Accept-Encoding`."""

PIECE_BYTES = 32 * 1024
"""Bytes that are handed out at once, so that the event loop gets a turn between two pieces of any answer."""

_MAX_FRUITLESS_STEPS = 1000
"""Empty members in a row that a compressed body may hold."""


class _Member(Protocol):
    """What `zlib.decompressobj` returns, as far as it is used here."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, packed: bytes, limit: int, /) -> bytes: ...


class Unpacker:
    """Decompresses one body step by step. 60 KB can hold 60 MB, so no step gives more than one piece.

    Example:
        unpacker.feed(compressed)
        while piece := unpacker.take(): ...

    Args:
        start: Makes the decompressor of one member; a gzip body may have several.
        shown: The server, for messages.
    """

    def __init__(self, start: Callable[[], _Member], *, shown: str) -> None:
        self._start = start
        self._shown = shown
        self._member = start()
        self._packed = b""
        self._has_begun = False

    def feed(self, packed: bytes) -> None:
        """Add bytes as they came. Take everything out before the next ones are added."""
        self._packed += packed

    def take(self) -> bytes:
        """Return the next piece; nothing when more bytes are needed.

        Raises:
            ModelResponseInvalid: The bytes are not compressed as the server said.
        """
        for _ in range(_MAX_FRUITLESS_STEPS):
            if self._member.eof:
                self._packed = self._packed.lstrip(b"\0")  # some servers pad the last member
            if not self._packed:
                return b""
            if self._member.eof:
                self._member = self._start()
            piece = self._step()
            if piece:
                return piece
        raise ModelResponseInvalid(f"{self._shown} sent a compressed answer that holds nothing.")

    def finish(self) -> None:
        """Check that the body is whole.

        Raises:
            IncompleteStream: It ended in the middle of a member.
        """
        if self._has_begun and not self._member.eof:
            raise IncompleteStream(f"The compressed answer of {self._shown} was cut off.")

    def _step(self) -> bytes:
        packed, self._packed = self._packed, b""
        self._has_begun = True
        try:
            piece = self._member.decompress(packed, PIECE_BYTES)
        except zlib.error as exc:
            raise ModelResponseInvalid(
                f"{self._shown} sent an answer that is not compressed as its Content-Encoding says: {exc}."
            ) from exc
        self._packed = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return piece


class _Deflate:
    """What servers call deflate: zlib's format, or the bare stream that some send under that name."""

    def __init__(self) -> None:
        self._inner: zlib._Decompress | None = None
        self._head = b""

    def decompress(self, packed: bytes, limit: int, /) -> bytes:
        if self._inner is None:
            packed = self._head + packed
            if len(packed) < 2:
                self._head = packed
                return b""
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if _is_zlib(packed) else -zlib.MAX_WBITS)
        return self._inner.decompress(packed, limit)

    @property
    def eof(self) -> bool:
        return self._inner is not None and self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return b"" if self._inner is None else self._inner.unused_data

    @property
    def unconsumed_tail(self) -> bytes:
        return b"" if self._inner is None else self._inner.unconsumed_tail


def _is_zlib(head: bytes) -> bool:
    """Whether two bytes are the header of zlib's format (RFC 1950): the method deflate, and a sum that fits."""
    return head[0] & 0x0F == 8 and (head[0] * 256 + head[1]) % 31 == 0


def unpacker_for(encoding: str, *, shown: str) -> Unpacker | None:
    """Return what decompresses a body; None for one that is not compressed.

    Args:
        encoding: The header `Content-Encoding`.
        shown: The server, for messages.

    Raises:
        ModelResponseInvalid: The server chose an encoding that it was not offered.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return Unpacker(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), shown=shown)
        case "deflate":
            return Unpacker(_Deflate, shown=shown)
        case other:
            raise ModelResponseInvalid(
                f"{shown} compressed its answer with {other!r:.40}, which was not offered. Only {ACCEPTED} can be read."
            )


# --- Answer: one HTTP answer, read under our own limits of time and size. Knows no dialect, sends nothing.

_TURN_SECONDS = 0.005
"""How long an answer is read before others get a turn: a fast server always has more, and never makes us wait."""

_DRAIN_SECONDS = 0.25
"""What a kept connection is worth: the wait for the last bytes of an answer that is whole already."""

_LARGE_BYTES = 1024 * 1024


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
        self._idle_seconds = self._pause_seconds = timeouts.idle_seconds
        self._bytes_left = max_bytes
        self._max_bytes = max_bytes
        self._turn_began = self._loop.time()
        self._unpacker = unpacker_for(response.headers.get("Content-Encoding", ""), shown=endpoint.shown)

    @property
    def content_type(self) -> str:
        """What the server calls the body, such as `text/event-stream`; nothing where it does not say."""
        return self._response.content_type if "Content-Type" in self.headers else ""

    async def read(self, *, pause_seconds: float | None = None) -> bytes:
        """Return the next piece of the body, decompressed: at most `PIECE_BYTES`; nothing at its end.

        Args:
            pause_seconds: How long to wait for it, where that is less than between any two pieces.

        Raises:
            ModelUnavailable: The server fell silent or takes too long.
            IncompleteStream: The connection broke, or the compressed body was cut off.
            ModelResponseInvalid: The body is larger than the limit, or is not compressed as the server said.
        """
        await self.give_turn()
        self._pause_seconds = self._idle_seconds if pause_seconds is None else min(pause_seconds, self._idle_seconds)
        piece = await (self._read_raw() if self._unpacker is None else self._read_unpacked(self._unpacker))
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            self.close()
            raise ModelResponseInvalid(f"The answer of {self.endpoint.shown} is larger than {self._max_bytes} bytes.")
        return piece

    async def read_rest(self, *, max_bytes: int | None = None) -> bytes:
        """Return the whole of the body that is left.

        Args:
            max_bytes: Bytes that it may have; None for the limit of every answer.

        Raises:
            ModelError: As `read` does.
        """
        if max_bytes is not None and max_bytes < self._bytes_left:
            self._bytes_left = self._max_bytes = max_bytes
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def give_turn(self, size: int = 0) -> None:
        """Let others have a turn of the event loop, if this answer has had it for long.

        Args:
            size: Bytes that are about to be decoded in one go; for many, a turn is given in any case.
        """
        if size > _LARGE_BYTES:
            await asyncio.sleep(0)  # the first turn is for what was ready already, the second for timers and sockets
        if size > _LARGE_BYTES or self._loop.time() - self._turn_began > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn_began = self._loop.time()

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

    async def _read_unpacked(self, unpacker: Unpacker) -> bytes:
        while not (piece := unpacker.take()):
            packed = await self._read_raw()
            if not packed:
                unpacker.finish()
                return b""
            unpacker.feed(packed)
        return piece

    async def _read_raw(self) -> bytes:
        content = self._response.content
        try:
            piece = content.read_nowait(PIECE_BYTES)
            if not piece and not content.at_eof():
                piece = await self._wait()
        except (aiohttp.ClientError, OSError) as exc:
            self.close()
            raise IncompleteStream(
                f"The connection to {self.endpoint.shown} broke in the middle of the answer: {in_words(exc)}."
            ) from exc
        self._first_byte_at = None
        return piece

    async def _wait(self) -> bytes:
        now = self._loop.time()
        silence_ends_at = self._first_byte_at or now + self._pause_seconds
        timer = asyncio.timeout_at(min(silence_ends_at, self._ends_at))
        try:
            async with timer:
                piece = await self._response.content.read(PIECE_BYTES)
        except TimeoutError as exc:
            if not timer.expired():
                raise
            self.close()
            raise ModelUnavailable(self._complaint(is_total=self._ends_at <= silence_ends_at)) from exc
        self._turn_began = self._loop.time()
        return piece

    def _complaint(self, *, is_total: bool) -> str:
        timeouts, shown = self.endpoint.timeouts, self.endpoint.shown
        if is_total:
            return f"The answer of {shown} took longer than {timeouts.total_seconds:g} s (Timeouts.total_seconds)."
        if self._first_byte_at is not None:
            return no_first_byte(shown, timeouts)
        return (
            f"{shown} sent nothing for {self._pause_seconds:g} s in the middle of the answer (Timeouts.idle_seconds)."
        )


def no_first_byte(shown: str, timeouts: Timeouts) -> str:
    seconds = min(timeouts.first_byte_seconds, timeouts.total_seconds)
    return f"{shown} sent no answer within {seconds:g} s. For a slow model raise Timeouts.first_byte_seconds."


def in_words(exc: BaseException) -> str:
    """Say in a few words what the system says; never an address, which may hold a password."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return type(exc).__name__
