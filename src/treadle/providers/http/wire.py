"""Wire: what of a request needs aiohttp: its connections, the request itself, and what a failure means. Loaded with the first request."""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NoReturn
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from treadle.errors import ModelRejected, ModelResponseInvalid, ModelUnavailable, shown
from treadle.providers.http.answer import ACCEPTED, Exchange, in_words
from treadle.providers.http.endpoint import Endpoint, check_header

__all__ = ["Connections"]

_SMALL_BODY = 64 * 1024
"""Up to here a body is sent with its head, as one packet; a larger one is not copied."""
_MAX_CLOSED = 5
"""Kept connections that may turn out closed, one after the other, before that is a failure."""
_OWN_HEADERS = {"User-Agent": "treadle", "Accept-Encoding": ACCEPTED}


class Connections:
    """The connections of one event loop. The library connects (names, TLS, proxies, kept connections) and reads HTTP; a request is written here."""

    FAILURES: Final = (aiohttp.ClientError, HttpProcessingError, OSError)
    """What is raised by an exchange that gets no answer."""

    def __init__(self) -> None:
        self._connector = aiohttp.TCPConnector(limit=0)
        self._routes: WeakKeyDictionary[Endpoint, _Route] = WeakKeyDictionary()
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def exchange(
        self,
        endpoint: Endpoint,
        body: bytes | None,
        own: Mapping[str, str] | None,
        proxy: Callable[[Endpoint], URL | None],
    ) -> Exchange:
        """Post one body, or get where there is none. A kept connection that the server has closed meanwhile is not an answer.

        Args:
            own: Headers of this request alone, which override the endpoint's.
            proxy: Returns the proxy for an endpoint; None for none.

        Raises:
            aiohttp.ClientError, HttpProcessingError, OSError: There is no answer: see `raise_unreachable`.
        """
        route = self._routes.get(endpoint)
        if route is None:
            route = self._routes[endpoint] = _Route(endpoint, proxy(endpoint))
        for tries_left in range(_MAX_CLOSED, -1, -1):
            connection = await self._connected(route)
            is_kept = connection.protocol in self._used
            try:
                return await self._answered(connection, route.head(endpoint.url, own, body), body)
            except BaseException as exc:
                connection.close()
                is_closed = isinstance(exc, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
                if not (is_closed and is_kept and tries_left):
                    raise
        raise AssertionError("unreachable")

    async def _connected(self, route: "_Route") -> Connection:
        try:
            return await self._connector.connect(route.place, [], route.within)
        except TimeoutError as exc:
            raise aiohttp.ConnectionTimeoutError from exc

    async def _answered(self, connection: Connection, head: bytes, body: bytes | None) -> Exchange:
        """Send a request, and wait for the head of its answer. What the system does not take at once is sent meanwhile."""
        protocol = connection.protocol
        if protocol is None or protocol.transport is None or protocol.transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        self._used.add(protocol)
        protocol.set_response_params(
            read_until_eof=True,
            auto_decompress=False,  # the library would unpack all that has come at once, be it a thousandfold
        )
        if body is None or len(body) <= _SMALL_BODY:
            protocol.transport.write(head + (body or b""))
        else:
            protocol.transport.write(head)
            protocol.transport.write(body)
        while True:
            message, content = await protocol.read()
            if message.code >= 200 or message.code == 101:  # what comes before that announces an answer
                return Exchange(connection, message.code, message.headers, content)

    async def close(self) -> None:
        await self._connector.close()

    @staticmethod
    def raise_unreachable(endpoint: Endpoint, exc: Exception) -> NoReturn:
        """Raise what it means that there is no answer."""
        _raise_unreachable(endpoint, exc)


class _Route:
    """The way to one endpoint: where its connections lead, and what each request begins with.

    The session of the library prepares all of it for each request, and writes the body in a task: an eighth of a turn.
    """

    def __init__(self, endpoint: Endpoint, proxy: URL | None) -> None:
        headers = CIMultiDict(_OWN_HEADERS)
        headers.update(endpoint.headers)
        for name in ("Content-Length", "Transfer-Encoding"):  # the body says what they are
            headers.pop(name, None)
        # The library adds this to what a proxy is sent, and compares that when it looks for a kept connection.
        for_proxy = None if proxy is None else {"Host": endpoint.url.host_port_subcomponent or "", **_OWN_HEADERS}
        self.place = aiohttp.ClientRequest(
            "GET",
            endpoint.url,
            headers=headers,
            proxy=proxy,
            proxy_headers=for_proxy,
            loop=asyncio.get_running_loop(),
        )
        """What the library connects for. It is never sent."""
        self.within = aiohttp.ClientTimeout(total=None, connect=endpoint.timeouts.connect_seconds)
        """The one limit that the library keeps itself; all others are kept by the client, where they can be distinguished."""
        self._headers: bytes | None = None

    def head(self, url: URL, own: Mapping[str, str] | None, body: bytes | None) -> bytes:
        """Return the head of a request. A connection must have been made before: a proxy's password comes with it."""
        if own:
            headers = self._written(own)
        elif (known := self._headers) is not None:
            headers = known
        else:
            headers = self._headers = self._written({})
        is_for_proxy = self.place.proxy is not None and not self.place.is_ssl()
        target = (str(url) if is_for_proxy else url.raw_path_qs).encode()
        if body is None:
            return b"GET %b HTTP/1.1\r\n%b\r\n" % (target, headers)
        return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (target, headers, len(body))

    def _written(self, own: Mapping[str, str]) -> bytes:
        headers = self.place.headers.copy()
        headers.update({name: check_header(name, value) for name, value in own.items()})
        return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()


def _raise_unreachable(endpoint: Endpoint, exc: Exception) -> NoReturn:
    shown = endpoint.shown
    match exc:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            raise ModelRejected(
                f"TLS with {shown} failed: {in_words(exc)}. Check the certificate, and https or http in the base URL.{_of_certificates()}"
            ) from exc
        case aiohttp.ClientHttpProxyError():
            # From None here and below: the representation of this error shows the request's headers, the key among them.
            raise ModelRejected(f"The proxy refuses to connect to {shown}: {exc.status}.", status=exc.status) from None
        case aiohttp.ClientResponseError() | HttpProcessingError():
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
