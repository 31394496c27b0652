"""The proxy: lets one confined command reach the hosts that were lifted for it, over HTTP and CONNECT. Decides about no call.

The command is in a network of its own, in which nothing answers. `CONNECTOR`, which runs there before the command, makes a socket that listens
in that network and hands it over to us: so we accept what the command connects to, and no other way leads out.
"""

import asyncio
import fcntl
import ipaddress
import re
import socket
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from treadle.tools.protected import canonical_host

__all__ = ["CONNECTOR", "Proxy"]

CONNECTOR = """
import os, signal, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as channel, socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    socket.send_fds(channel, [b"."], [listener.fileno()])
    address = "http://127.0.0.1:%d" % listener.getsockname()[1]
for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
    os.environ[name] = address
os.environ["NODE_USE_ENV_PROXY"] = "1"
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.stderr.write("%s: %s\\n" % (sys.argv[2], error.strerror))
    os._exit(127)
"""
_MOST_BYTES = 65_536
_CONNECT_SECONDS = 30.0
_LEAST_DESCRIPTOR = 20
"""The shells on the way to the command use those of one digit."""
_TARGET = re.compile(r"(?:http://)?(?P<host>\[[^\]/]+\]|[^:/\[\]]+)(?::(?P<port>\d{1,5}))?(?P<path>/.*)?")


class Proxy:
    """Serves the command that is given `descriptor`, until it is left.

    Args:
        hosts: Canonical names and addresses; a `*` in one stands for any text.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._fits = re.compile("|".join(re.escape(one).replace(r"\*", ".*") for one in hosts))
        self.refused: dict[str, None] = {}
        """Hosts that the command has asked for in vain."""
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def descriptor(self) -> int:
        """What the connector is given."""
        return self._theirs.fileno()

    async def __aenter__(self) -> Self:
        high = fcntl.fcntl(self._theirs, fcntl.F_DUPFD_CLOEXEC, _LEAST_DESCRIPTOR)
        self._theirs.close()
        self._theirs = socket.socket(fileno=high)
        self._start(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [*self._tasks]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ours.close()
        self._theirs.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:  # Any: what is sent to it and yielded by it
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._ours, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._ours)
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not descriptors:  # it has ended before
            return
        with socket.socket(fileno=descriptors[0]) as listener:
            listener.setblocking(False)
            while True:
                connection, _ = await loop.sock_accept(listener)
                self._start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MOST_BYTES)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, _, rest = head.partition(" ")
                target, _, rest = rest.partition(" ")
                asked = _TARGET.fullmatch(target)
                if asked is None:
                    await _answer(writer, "400 Bad Request", "This proxy takes CONNECT and http:// alone.")
                    return
                port = int(asked["port"] or 80)
                other = await self._reached(asked["host"], port, writer)
                if other is not None:
                    await _joined(method, asked["path"] or "/", rest, (reader, writer), other)
            finally:
                writer.close()

    async def _reached(
        self, given: str, port: int, writer: asyncio.StreamWriter
    ) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter] | None":
        """Connect to a host that is allowed; else answer why not."""
        try:
            host = canonical_host(given)
        except ValueError as error:
            await _answer(writer, "400 Bad Request", str(error))
            return None
        if self._fits.fullmatch(host) is None:
            self.refused[host] = None
            await _answer(
                writer, "403 Forbidden", f"The sandbox allows no connection to {host}. It needs: network {host}"
            )
            return None
        for address in await _addresses(host, port):
            with suppress(OSError, TimeoutError):
                return await asyncio.wait_for(
                    asyncio.open_connection(address, port, limit=_MOST_BYTES), _CONNECT_SECONDS
                )
        await _answer(writer, "502 Bad Gateway", f"{host} cannot be reached.")
        return None


async def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host. A name of the network does not stand for this machine: only `localhost` and addresses do."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = dict.fromkeys(str(one[4][0]) for one in found)
    if host == "localhost" or host.endswith(".localhost") or host in addresses:
        return [*addresses]
    return [one for one in addresses if not _is_of_this_machine(one)]


def _is_of_this_machine(address: str) -> bool:
    plain = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(plain, "ipv4_mapped", None) or plain
    return bool(inner.is_loopback or inner.is_link_local or inner.is_unspecified or inner.is_multicast)


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


async def _joined(
    method: str,
    path: str,
    rest: str,
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Hand on what both say until both have ended. A request other than CONNECT is written as its server expects it."""
    try:
        if method.upper() == "CONNECT":
            one[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            version, *headers = rest.split("\r\n")
            kept = [
                line
                for line in headers
                if not line.lower().startswith(("proxy-", "connection:", "keep-alive:")) and line
            ]
            other[1].write(
                "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""]).encode("latin-1")
            )
        await asyncio.gather(_pumped(one[0], other[1]), _pumped(other[0], one[1]))
    finally:
        other[1].close()


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_MOST_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
