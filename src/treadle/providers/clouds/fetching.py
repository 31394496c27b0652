"""Fetching: what must be fetched from a blocking library, in a thread, once for all who wait; and tokens that are fetched in time."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from treadle.concurrency import watch
from treadle.errors import ConfigurationError, MissingCredential, ModelError, ModelRejected, ModelUnavailable, shown
from treadle.providers.http.client import AuthHeaders, CloudEndpoint, Outgoing
from treadle.providers.http.endpoint import check_header

__all__ = [
    "Asked",
    "Reached",
    "Shared",
    "Token",
    "TokenCredentials",
    "given_token",
    "text_option",
]

_T = TypeVar("_T")

_FETCH_SECONDS = 60.0
"""How long to wait for credentials. The thread that fetches them is left behind then."""

_EARLY_SECONDS = 240.0
"""How long before its end a token is replaced: longer than any answer takes to begin, and than clocks differ."""


class Shared(Generic[_T]):
    """Runs a blocking function in a thread of its own; all who ask meanwhile, on whatever event loop, wait for the same run.

    Args:
        function: What to run. It raises `ModelError`.
        what: What is fetched, for messages.
    """

    def __init__(self, function: Callable[[], _T], *, what: str) -> None:
        self._function = function
        self._what = what
        self._begin()
        watch(self)

    def after_fork(self) -> None:
        """A fork has no such thread."""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._running: Future[_T] | None = None

    async def get(self) -> _T:
        """Return what the function returns.

        Raises:
            ModelError: What the function raises; or it takes too long.
        """
        with self._lock:
            future = self._running
            if future is None:
                future = self._running = Future()
                future.set_running_or_notify_cancel()  # one who stops waiting must not cancel it for the others
                threading.Thread(target=self._run, args=(future,), name="treadle-credentials", daemon=True).start()
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                return await asyncio.wrap_future(future)
        except TimeoutError as exc:
            raise ModelUnavailable(f"{self._what} did not arrive within {_FETCH_SECONDS:g} s.") from exc

    def _run(self, future: "Future[_T]") -> None:
        try:
            value = self._function()
        except BaseException as exc:  # noqa: BLE001 - whoever waits must be told, whatever it was
            self._finish(future)
            future.set_exception(exc)
        else:
            self._finish(future)
            future.set_result(value)

    def _finish(self, future: "Future[_T]") -> None:
        with self._lock:
            if self._running is future:
                self._running = None


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token."""

    value: str
    expires_at: float | None = None
    """Seconds since 1970; None where nobody says."""


class TokenCredentials:
    """Credentials that are a bearer token. It is fetched on first use, and again before it expires.

    Args:
        fetch: Fetches one; blocking. It raises `ModelError`.
        advice: What to check where the vendor refuses it.
        what: What is fetched, for messages.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        fetch: Callable[[], Token],
        *,
        advice: str,
        what: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.advice = advice
        self._now = now
        self._token: Token | None = None
        self._shared = Shared(self._kept(fetch), what=what)

    async def auth_headers(self, request: Outgoing) -> AuthHeaders:
        """Return the header that carries the token.

        Raises:
            ModelError: There is none to be had.
        """
        token = self._token
        if token is None or self._is_old(token, early=_EARLY_SECONDS):
            token = await self._fresh(token)
        return AuthHeaders(headers={"Authorization": f"Bearer {token.value}"}, secrets=(token.value,))

    def renew(self) -> bool:
        """Forget the token. One who has none asks for no other."""
        had_one = self._token is not None
        self._token = None
        return had_one

    async def _fresh(self, known: Token | None) -> Token:
        try:
            return await self._shared.get()
        except ModelError:
            # What has not expired is still good while the one who gives tokens is not well.
            if known is None or self._is_old(known):
                raise
            return known

    def _kept(self, fetch: Callable[[], Token]) -> Callable[[], Token]:
        def run() -> Token:
            self._token = token = fetch()
            return token

        return run

    def _is_old(self, token: Token, *, early: float = 0.0) -> bool:
        return token.expires_at is not None and token.expires_at - early <= self._now()


def given_token(function: Callable[[], str]) -> Callable[[], Token]:
    """Return the fetch of a person's own function. It is asked before each request: it knows when its token expires."""

    def fetch() -> Token:
        try:
            value = function()
        except ModelError:
            raise
        except Exception as exc:
            raise ModelRejected(f"The function given as api_key raised {type(exc).__name__}.") from exc
        if not isinstance(value, str) or not value.strip():
            raise ModelRejected("The function given as api_key must return a token as a string that is not empty.")
        return Token(value=check_header("Authorization", value), expires_at=0.0)

    return fetch


# --- Asked: what a person says of a model at a cloud, and what was found of it. Values only.

_ApiKey: TypeAlias = str | Callable[[], str]
"""A key, or a function that returns a token."""


_PROOFS = frozenset({"authorization", "api-key", "x-goog-api-key", "ocp-apim-subscription-key"})


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of one model."""

    name: str
    """What comes before the colon of the model's name."""
    model: str
    base_url: str | None
    """The address that they gave, as an argument or in the vendor's variable; None for the cloud's own."""
    api_key: _ApiKey | None
    """The key that they gave, as an argument or in the vendor's variable."""
    stream: bool
    options: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    """Headers of their own, which may prove who asks."""
    environment: Mapping[str, str]

    @property
    def proves_itself(self) -> bool:
        """Whether a header of theirs says who asks: then nobody else is looked for."""
        return any(name.lower() in _PROOFS for name in self.headers)


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is reached."""

    base_url: str
    api_key: str | None
    cloud_endpoint: CloudEndpoint
    options: Mapping[str, Any]
    """Those that are fields of the body, or the dialect's own."""
    is_vendors: bool
    """Whether it is the cloud's own address, so that its list price holds."""


def text_option(options: Mapping[str, Any], name: str, example: str) -> str | None:
    """Return an option that must be a string; None where it is not set.

    Raises:
        ConfigurationError: It is something else.
    """
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"The option {name} must be a string such as {example!r}; got {shown(value)}.")
    return value.strip()


def need(module: str, *, extra: str, why: str) -> None:
    """Check that an extra is installed.

    Raises:
        MissingCredential: It is not; the message names the command.
    """
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise MissingCredential(f"{why} needs the extra {extra!r}: pip install '.[{extra}]' in the project's folder.")
