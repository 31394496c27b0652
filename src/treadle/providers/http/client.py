"""HTTP: the connections of each event loop, closed with it, and the proxies of the environment. Knows no dialect and no model."""

import asyncio
import atexit
import contextlib
import re
import sys
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, Mapping
from importlib import import_module
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from yarl import URL

from treadle.concurrency import bury, watch
from treadle.errors import ConfigurationError, ModelUnavailable, shown
from treadle.providers.http.answer import Answer, no_first_byte
from treadle.providers.http.endpoint import Endpoint, Timeouts

if TYPE_CHECKING:
    from treadle.providers.http.wire import Connections

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

_WIRE = "treadle.providers.http.wire"


class _Held(NamedTuple):
    connections: "Connections"
    holder: AsyncGenerator[None]
    """Suspended in its `try`: the event loop closes it when it shuts down, and so the connections with it."""


class HttpClient:
    """Sends requests over the kept connections of the running event loop, which are closed with it.

    Connections are not limited in number: each run has one model call at a time, and a hidden queue would look like a
    slow server. Proxies come from the environment, read once for each host; `.netrc` is never read, since its passwords belong
    to people.
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
        loop = asyncio.get_running_loop()
        connections = (self._held.get(loop) or await self._open()).connections
        timeouts = endpoint.timeouts.of(body)
        sent_at = loop.time()
        timer = asyncio.timeout(min(timeouts.first_byte_seconds, timeouts.total_seconds))
        try:
            async with timer:
                exchange = await connections.exchange(endpoint, body, headers, self._proxy)
        except connections.FAILURES as exc:
            if timer.expired():
                raise ModelUnavailable(no_first_byte(endpoint.shown, timeouts)) from exc
            connections.raise_unreachable(endpoint, exc)
        return Answer(exchange, endpoint, timeouts=timeouts, sent_at=sent_at, max_bytes=max_bytes)

    async def close(self) -> None:
        """Close the connections of the running event loop. The next request opens new ones."""
        held = self._held.get(asyncio.get_running_loop())
        if held is not None:
            await _close(held)

    async def _open(self) -> _Held:
        loop = asyncio.get_running_loop()
        if (
            _WIRE not in sys.modules
        ):  # it loads aiohttp: too long for the event loop, and of no use before the first request
            await asyncio.to_thread(import_module, _WIRE)
        from treadle.providers.http.wire import Connections  # noqa: PLC0415 - as above

        if (held := self._held.get(loop)) is not None:  # another first request has come before this one
            return held
        connections = Connections()
        holder = self._hold(loop, connections)
        # Known before the next await, so that two first requests share them.
        self._held[loop] = held = _Held(connections, holder)
        await anext(holder)
        self._watch_exit()
        await self._forget_closed_loops()
        return held

    async def _hold(self, loop: AbstractEventLoop, connections: "Connections") -> AsyncGenerator[None]:
        """Close the connections when this generator is closed: `asyncio.run` closes what is suspended when its loop ends."""
        try:
            yield
        finally:
            self._held.pop(loop, None)
            await connections.close()

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
        """Drop the connections of loops that were closed without shutting down their generators."""
        for loop in [loop for loop in list(self._held) if loop.is_closed()]:
            held = self._held.pop(loop, None)
            if held is not None:
                await held.connections.close()

    def _proxy(self, endpoint: Endpoint) -> URL | None:
        place = (endpoint.url.scheme, f"{endpoint.url.host_subcomponent}:{endpoint.url.port}")
        if place not in self._proxies:
            self._proxies[place] = proxy_for(*place)
        return self._proxies[place]


shared_client = HttpClient()
"""The client of all models of this process: connections to one server are shared."""


async def _close(held: _Held) -> None:
    await held.holder.aclose()


def proxy_for(scheme: str, authority: str) -> URL | None:
    """Return the environment's proxy for a server; None for this machine itself, which no proxy can reach for us."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - once a host, and not before the first request

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


def _is_this_machine(authority: str) -> bool:
    host = URL(f"http://{authority}").host or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


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
