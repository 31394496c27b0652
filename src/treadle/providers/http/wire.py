"""Wire: what of a request needs aiohttp: its session, the request itself, and what a failure means. Loaded with the first request."""

import io
import os
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, NoReturn
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from treadle.errors import ModelRejected, ModelResponseInvalid, ModelUnavailable, shown
from treadle.providers.http.answer import ACCEPTED, in_words
from treadle.providers.http.endpoint import Endpoint

__all__ = ["FAILURES", "new_session", "raise_unreachable", "request"]

FAILURES = (aiohttp.ClientError, OSError)
"""What a request raises that gets no answer, and an answer that breaks off."""
_LARGE_BODY = 1024 * 1024
"""From here on aiohttp wants a body that it can send in pieces."""
_MAX_CLOSED = 5
"""Kept connections that may turn out closed, one after the other, before that is a failure."""

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


def new_session() -> aiohttp.ClientSession:
    """Return a session of the running event loop."""
    return aiohttp.ClientSession(
        connector=_Connector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "treadle", "Accept-Encoding": ACCEPTED},
        auto_decompress=False,  # the library would unpack all that has come at once, be it a thousandfold
    )


async def request(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: bytes | None,
    own: Mapping[str, str] | None,
    proxy: URL | None,
) -> aiohttp.ClientResponse:
    """Post one body, or get where there is none. A kept connection that the server has closed meanwhile is not an answer.

    Args:
        own: Headers of this request alone, which override the endpoint's.

    Raises:
        aiohttp.ClientError, OSError: There is no answer: see `raise_unreachable`.
    """
    headers = endpoint.headers
    if own:
        headers = headers.copy()
        headers.update(own)
    method = "GET" if body is None else "POST"
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


@cache
def _connecting_within(seconds: float) -> aiohttp.ClientTimeout:
    """Return the one limit that the client keeps itself; all others are kept here, where they can be distinguished."""
    return aiohttp.ClientTimeout(total=None, connect=seconds)


def raise_unreachable(endpoint: Endpoint, exc: Exception) -> NoReturn:
    """Raise what a failure of `request` means."""
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
