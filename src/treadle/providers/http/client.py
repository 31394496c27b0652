"""HTTP: one client for each event loop, closed with it, and what a failure to reach a server means. Knows no dialect and no model."""

import asyncio
import atexit
import contextlib
import io
import os
import re
import ssl
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple, NoReturn, Protocol
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from treadle.concurrency import bury, watch
from treadle.errors import ConfigurationError, ModelRejected, ModelResponseInvalid, ModelUnavailable, shown
from treadle.providers.http.answer import ACCEPTED, Answer, in_words, no_first_byte
from treadle.providers.http.endpoint import Endpoint, Timeouts

__all__ = [
    "Answer",
    "AuthHeaders",
    "CloudEndpoint",
    "Credentials",
    "Endpoint",
    "HttpClient",
    "Outgoing",
    "Timeouts",
    "proxy_for",
    "shared_client",
]

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""Bytes of one answer, after decompression."""

_LARGE_BODY = 1024 * 1024
"""From here on aiohttp wants a body that it can send in pieces."""


_MAX_CLOSED = 5
"""Kept connections that may turn out closed, one after the other, before that is a failure."""


class _Held(NamedTuple):
    session: aiohttp.ClientSession
    holder: AsyncGenerator[None]
    """Suspended in its `try`: the event loop closes it when it shuts down, and so the session with it."""


_is_reused: ContextVar[bool] = ContextVar("_is_reused", default=False)
"""Whether the request that this task sends goes out on a kept connection."""


class _Connector(aiohttp.TCPConnector):
    """Notes of each request whether its connection is a kept one. The library's own tracing costs six calls a request."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._used: WeakSet[Any] = WeakSet()  # Any: the protocols of its connections

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature of the library
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.protocol in self._used:
            _is_reused.set(True)
        else:
            self._used.add(connection.protocol)
        return connection


class HttpClient:
    """Sends requests, over one `aiohttp.ClientSession` for each running event loop, closed with its loop.

    Connections are kept and not limited in number: each run has one model call at a time, and a hidden queue would look like a
    slow server. Proxies come from the environment, read once for each host; `.netrc` is never read, since its passwords belong
    to people, and its lookup costs a thread for each request.
    """

    def __init__(self) -> None:
        self._held: dict[AbstractEventLoop, _Held] = {}
        self._is_watching_exit = False
        self._proxies: dict[tuple[str, str], URL | None] = {}
        watch(self)

    def after_fork(self) -> None:
        """The connections are the parent's. Closing them here would end them there."""
        bury(self._held)
        self._held = {}

    async def send(
        self,
        endpoint: Endpoint,
        body: bytes | None,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = _MAX_RESPONSE_BYTES,
    ) -> Answer:
        """Post one JSON body, or get where there is none, and return the answer as soon as its head has come. Follows no redirect, and retries nothing.

        A kept connection that the server has closed meanwhile is not an answer: the request goes out again on another one.

        Args:
            headers: Those of this request alone, which override the endpoint's.
            max_bytes: Bytes that the answer may have.

        Raises:
            ModelUnavailable: The server could not be reached, hung up, or stayed silent.
            ModelRejected: TLS or a proxy forbids it.
            ModelResponseInvalid: The answer is not HTTP.
        """
        session = await self._session()
        timeouts = endpoint.timeouts
        sent_at = asyncio.get_running_loop().time()
        timer = asyncio.timeout(min(timeouts.first_byte_seconds, timeouts.total_seconds))
        try:
            async with timer:
                response = await self._post(session, endpoint, body, headers)
        except (aiohttp.ClientError, OSError) as exc:
            if timer.expired():
                raise ModelUnavailable(no_first_byte(endpoint.shown, timeouts)) from exc
            _raise_unreachable(endpoint, exc)
        return Answer(response, endpoint, sent_at=sent_at, max_bytes=max_bytes)

    async def _post(
        self, session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes | None, own: Mapping[str, str] | None
    ) -> aiohttp.ClientResponse:
        headers = endpoint.headers
        if own:
            headers = headers.copy()
            headers.update(own)
        method = "GET" if body is None else "POST"
        proxy = self._proxy(endpoint)
        timeout = _connecting_within(endpoint.timeouts.connect_seconds)
        for tries_left in range(_MAX_CLOSED, -1, -1):
            _is_reused.set(False)
            try:
                return await session.request(
                    method,
                    endpoint.url,
                    data=io.BytesIO(body) if body is not None and len(body) >= _LARGE_BODY else body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=proxy,
                    timeout=timeout,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not _is_reused.get() or not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the session of the running event loop. The next request makes a new one."""
        held = self._held.get(asyncio.get_running_loop())
        if held is not None:
            await _close(held)

    async def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            connector = _Connector(limit=0)
            session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "treadle", "Accept-Encoding": ACCEPTED},
                auto_decompress=False,  # the library would unpack all that has come at once, be it a thousandfold
            )
            holder = self._hold(loop, session)
            # Known before the first await, so that two first requests share one session.
            self._held[loop] = held = _Held(session, holder)
            await anext(holder)
            self._watch_exit()
            await self._forget_closed_loops()
        return held.session

    async def _hold(self, loop: AbstractEventLoop, session: aiohttp.ClientSession) -> AsyncGenerator[None]:
        """Close the session when this generator is closed: `asyncio.run` closes what is suspended when its loop ends."""
        try:
            yield
        finally:
            self._held.pop(loop, None)
            await session.close()

    def _watch_exit(self) -> None:
        """Close at exit what is still open then: a loop in a daemon thread is never shut down."""
        if not self._is_watching_exit:
            self._is_watching_exit = True
            atexit.register(self._close_at_exit)

    def _close_at_exit(self) -> None:
        for loop, held in list(self._held.items()):
            if loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_close(held), loop)
                with contextlib.suppress(TimeoutError):
                    closing.result(timeout=1)

    async def _forget_closed_loops(self) -> None:
        """Drop the sessions of loops that were closed without shutting down their generators."""
        for loop in [loop for loop in list(self._held) if loop.is_closed()]:
            held = self._held.pop(loop, None)
            if held is not None:
                await held.session.close()

    def _proxy(self, endpoint: Endpoint) -> URL | None:
        place = (endpoint.url.scheme, f"{endpoint.url.host_subcomponent}:{endpoint.url.port}")
        if place not in self._proxies:
            self._proxies[place] = proxy_for(*place)
        return self._proxies[place]


shared_client = HttpClient()
"""The client of all models of this process: connections to one server are shared."""


@cache
def _connecting_within(seconds: float) -> aiohttp.ClientTimeout:
    """Return the one limit that the client keeps itself; all others are kept here, where they can be distinguished."""
    return aiohttp.ClientTimeout(total=None, connect=seconds)


async def _close(held: _Held) -> None:
    await held.holder.aclose()


def proxy_for(scheme: str, authority: str) -> URL | None:
    """Return the environment's proxy for a server; None for this machine itself, which no proxy can reach for us."""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if (
        not proxy
        or proxy_bypass(authority)
        or _is_this_machine(authority)
        or _is_excepted(authority, proxies.get("no"))
    ):
        return None
    advice = f"Change {scheme.upper()}_PROXY, or put {authority} into NO_PROXY."
    try:
        url = URL(proxy if "://" in proxy else f"http://{proxy}")
        is_usable = bool(url.host) and url.port is not None and not re.search(r"\s", proxy.strip())
    except ValueError:
        # Neither the address nor the library's words about it are shown: both may hold a password.
        raise ConfigurationError(f"The environment names a proxy whose address is not valid. {advice}") from None
    if url.scheme not in ("http", "https"):
        kind = f"a proxy of the kind {shown(url.scheme, 20)}; only http and https work"
        raise ConfigurationError(f"The environment names {kind}. {advice}")
    if not is_usable:
        raise ConfigurationError(f"The environment names a proxy whose address is not valid. {advice}")
    return url


def _is_excepted(authority: str, no_proxy: str | None) -> bool:
    """Whether NO_PROXY names a server in a form that the standard library does not read: `10.0.0.0/8`, `[::1]`, `*.example.com`."""
    host = (URL(f"http://{authority}").host or "").lower()
    entries = [one.strip().lower().strip("[]") for one in (no_proxy or "").split(",")]
    if any(host.endswith(one[1:]) for one in entries if one.startswith("*.")):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    for one in entries:
        with contextlib.suppress(ValueError):
            if address in ip_network(one, strict=False):
                return True
    return False


def _of_certificates() -> str:
    """Return what is wrong with the certificates that the environment names, with a blank before it; nothing where they are used."""
    for name, is_there in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
        path = os.environ.get(name)
        if path and not (is_there(path) and os.access(path, os.R_OK)):
            kind = "file" if name == "SSL_CERT_FILE" else "folder"
            return f" {name} names {shown(path, 200)}, and there is no such {kind} that can be read. Correct it, or unset it."
    if path := os.environ.get("SSL_CERT_FILE"):
        try:
            ssl.create_default_context(cafile=path)
        except OSError:
            return f" SSL_CERT_FILE names {shown(path, 200)}, which holds no certificate. Correct it, or unset it."
    other = next((name for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)), None)
    if other is not None and not os.environ.get("SSL_CERT_FILE"):
        return f" {other} is not read here: name the file in SSL_CERT_FILE."
    return ""


def _is_this_machine(authority: str) -> bool:
    host = URL(f"http://{authority}").host or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _raise_unreachable(endpoint: Endpoint, exc: aiohttp.ClientError | OSError) -> NoReturn:
    shown = endpoint.shown
    match exc:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            raise ModelRejected(
                f"TLS with {shown} failed: {in_words(exc)}. Check the certificate, and https or http in the base URL.{_of_certificates()}"
            ) from exc
        case aiohttp.ClientHttpProxyError():
            # From None here and below: the representation of this error shows the request's headers, the key among them.
            raise ModelRejected(f"The proxy refuses to connect to {shown}: {exc.status}.", status=exc.status) from None
        case aiohttp.ClientResponseError():
            raise ModelResponseInvalid(
                f"{shown} answered with something that is not HTTP. Check the base URL."
            ) from None
        case aiohttp.ClientProxyConnectionError():
            raise ModelUnavailable(
                f"The proxy to {shown} cannot be reached: {in_words(exc)}. Check HTTPS_PROXY and NO_PROXY."
            ) from exc
        case aiohttp.ClientConnectorDNSError():
            raise ModelUnavailable(f"The host of {shown} cannot be found. Check the base URL and the network.") from exc
        case aiohttp.ServerTimeoutError():
            seconds = endpoint.timeouts.connect_seconds
            raise ModelUnavailable(
                f"{shown} did not accept a connection within {seconds:g} s (Timeouts.connect_seconds)."
            ) from exc
        case aiohttp.ClientConnectorError():
            raise ModelUnavailable(
                f"Cannot connect to {shown}: {in_words(exc)}. Check that the server runs, and the base URL."
            ) from exc
        case _:
            raise ModelUnavailable(f"{shown} closed the connection without an answer: {in_words(exc)}.") from exc


# --- Doors: how a dialect is spoken at a cloud's own address: the path, the fields that differ, and who asks. Values
# and one port; sends nothing.


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it is sent, for those who sign it."""

    url: str
    """As it is on the wire, percent-encoded."""
    content_type: str
    body: bytes


class AuthHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What proves who asks, for one request."""

    headers: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    """What of it no message may show."""


class Credentials(Protocol):
    """The port to what proves who asks, where that is more than a key: a signature, or a token that expires."""

    @property
    def advice(self) -> str:
        """What to check where the vendor refuses them."""
        ...

    async def auth_headers(self, request: Outgoing) -> AuthHeaders:
        """Return the headers that this request needs.

        Raises:
            ModelError: There are no credentials, or they could not be had.
        """
        ...

    def renew(self) -> bool:
        """Forget what a server has just refused. Return whether it is worth asking again with a new one."""
        ...


class CloudEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How a dialect is spoken at a cloud's own address."""

    name: str
    """What comes before the colon of the model's name."""
    path: str | None = None
    """What is added to the base URL, percent-encoded; None for the dialect's own."""
    fields: Mapping[str, Any] = {}
    """Fields of the body that differ from the dialect's; None removes one."""
    is_framed: bool = False
    """Whether the events of a stream stand inside AWS's own."""
    credentials: Credentials | None = None
    """None for a key, or for nobody."""
    key_header: str | None = None
    """What carries a key; None for the dialect's own."""
    key_variable: str | None = None
    """Where people set it, for advice; None for the dialect's own."""
