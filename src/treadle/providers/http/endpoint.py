"""Endpoint: where the requests of one model go, under which limits, and what of it may be shown. Sends nothing."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec
from multidict import CIMultiDict
from yarl import URL

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions
from treadle.redaction import is_secret_name, remember, secrets_of_address

__all__ = ["LOCAL_TIMEOUTS", "Endpoint", "Timeouts", "check_header", "secrets_of", "with_version"]


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
    prompt_tokens_per_second: float | None = None
    """How fast the server reads a prompt, where that is known: a request then has at least twice the time that its size needs, to the first
    byte."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "prompt_tokens_per_second":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                unit = "tokens" if name == "prompt_tokens_per_second" else "seconds"
                raise ConfigurationError(f"Timeouts.{name} must be a number of {unit} above 0; got {shown(value)}.")

    def of(self, body: bytes | None) -> "Timeouts":
        """Return the limits of one request: with time for the server to read it."""
        if self.prompt_tokens_per_second is None or not body:
            return self
        seconds = 2 * len(body) / _BYTES_A_TOKEN / self.prompt_tokens_per_second
        if seconds <= self.first_byte_seconds:
            return self
        return msgspec.structs.replace(
            self, first_byte_seconds=seconds, total_seconds=max(self.total_seconds, 2 * seconds)
        )


_BYTES_A_TOKEN = 4

LOCAL_TIMEOUTS = Timeouts(first_byte_seconds=900, idle_seconds=300, total_seconds=3600)
"""For servers on the person's own machine, whose processor may read a long prompt for minutes."""


class Endpoint:
    """Where the requests of one model go.

    Args:
        base_url: As the person gave it; user name, password and query are used and never shown.
        path: What the dialect adds to it, such as `chat/completions`; not added twice.
        headers: Of every request.
        timeouts: Of every request.
        secrets: What no message may show.
        is_encoded: Whether the path is percent-encoded already.
        version: What the addresses of the dialect end in; nothing where they have no version.

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
        version: str = "/v1",
    ) -> None:
        if not isinstance(timeouts, Timeouts):
            raise ConfigurationError(f"timeouts must be Timeouts(...) or None; got {shown(timeouts)}.")
        parsed = _parse(base_url)
        self.url = _join(parsed.with_user(None), path, is_encoded=is_encoded)
        self.headers: CIMultiDict[str] = CIMultiDict()
        for name, value in headers.items():
            self.headers[name] = check_header(name, value)  # of two spellings of one name the later counts
        self.timeouts = timeouts
        self.version = version
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
    """Return a function that hides every secret; a short one only where it is alone, or it would eat half of the words."""
    patterns = [
        re.escape(secret) if len(secret) >= 8 else rf"(?<!\w){re.escape(secret)}(?!\w)"
        for secret in sorted({secret.strip() for secret in secrets}, key=len, reverse=True)
        if secret
    ]
    if not patterns:
        return str
    pattern = re.compile("|".join(patterns))
    return lambda text: pattern.sub("[redacted]", text)
