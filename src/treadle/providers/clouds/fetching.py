"""Fetching: what must be fetched from a blocking library, in a thread, once for all who wait; and tokens that are fetched in time."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

import msgspec

from treadle.concurrency.forks import watch
from treadle.errors import ModelError, ModelRejected, ModelUnavailable
from treadle.providers.http.door import Outgoing, Proof
from treadle.providers.http.endpoint import check_header

__all__ = ["FETCH_SECONDS", "Shared", "Token", "TokenCredentials", "given_token"]

_T = TypeVar("_T")

FETCH_SECONDS = 60.0
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
            async with asyncio.timeout(FETCH_SECONDS):
                return await asyncio.wrap_future(future)
        except TimeoutError as exc:
            raise ModelUnavailable(f"{self._what} did not arrive within {FETCH_SECONDS:g} s.") from exc

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

    async def proof(self, request: Outgoing) -> Proof:
        """Return the header that carries the token.

        Raises:
            ModelError: There is none to be had.
        """
        token = self._token
        if token is None or self._is_old(token, early=_EARLY_SECONDS):
            token = await self._fresh(token)
        return Proof(headers={"Authorization": f"Bearer {token.value}"}, secrets=(token.value,))

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
