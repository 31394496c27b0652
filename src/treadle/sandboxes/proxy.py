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

from treadle.tools.needs import Need, with_port
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
_PORTS = 65_536
_CONNECT_SECONDS = 30.0
_LEAST_DESCRIPTOR = 20
"""The shells on the way to the command use those of one digit."""
_REQUEST = re.compile(
    r"(?P<method>[A-Z]+) (?:http://)?(?P<host>\[[^\]/\s]+\]|[^:/\[\]\s]+)(?::(?P<port>\d{1,5}))?(?P<path>[/?]\S*)? (?P<version>HTTP/1\.[01])"
)
_HEADER = re.compile(r"(?P<name>[\w!#$%&'*+.^`|~-]+):(?P<value>[^\x00-\x08\x0a-\x1f\x7f]*)", re.ASCII)
_LENGTH = re.compile(r"[0-9]{1,18}")
_OF_ONE_CONNECTION = ("connection", "host", "keep-alive", "te", "trailer", "upgrade")
"""Headers that are for us, or that we write ourselves."""


class Proxy:
    """Serves the command that is given `descriptor`, until it is left.

    Args:
        needs: Those of the kind `network`. A host is reached by HTTP at port 80, by CONNECT at port 443, and by both at a port that is named.
    """

    def __init__(self, needs: Sequence[Need]) -> None:
        self._needs = needs
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
                line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
                asked, headers = _REQUEST.fullmatch(line), [_HEADER.fullmatch(one) for one in lines]
                found = [(one["name"].lower(), one["value"].strip(), one[0]) for one in headers if one is not None]
                if asked is None or len(found) < len(headers) or not int(asked["port"] or 80) < _PORTS:
                    await _answer(writer, "400 Bad Request", "This proxy takes CONNECT and http:// alone.")
                elif asked["method"] == "CONNECT":
                    await self._tunnelled(asked, reader, writer)
                else:
                    await self._asked(asked, found, reader, writer)
            finally:
                writer.close()

    async def _tunnelled(
        self, asked: re.Match[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what both say until both have ended."""
        if (other := await self._reached(asked, 443, writer)) is not None:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                await asyncio.gather(_pumped(reader, other[1]), _pumped(other[0], writer))
            finally:
                other[1].close()

    async def _asked(
        self,
        asked: re.Match[str],
        headers: Sequence[tuple[str, str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on one request, whose `Host` is that of its address (RFC 9112, 3.2.2), and no byte behind it."""
        names = [name for name, _, _ in headers]
        length = next((value for name, value, _ in headers if name == "content-length"), "0")
        if names.count("host") > 1 or names.count("content-length") > 1 or not _LENGTH.fullmatch(length):
            await _answer(writer, "400 Bad Request", "The request has two hosts, or no one length.")
            return
        if "transfer-encoding" in names:
            await _answer(writer, "411 Length Required", "This proxy takes no body without a Content-Length.")
            return
        if (other := await self._reached(asked, 80, writer)) is None:
            return
        kept = [line for name, _, line in headers if name not in _OF_ONE_CONNECTION and not name.startswith("proxy-")]
        path = asked["path"] or "/"
        host = f"Host: {asked['host']}" + (f":{asked['port']}" if asked["port"] else "")
        first = f"{asked['method']} {'/' * path.startswith('?')}{path} {asked['version']}"
        try:
            other[1].write("\r\n".join([first, host, *kept, "Connection: close", "", ""]).encode("latin-1"))
            await asyncio.gather(_copied(reader, other[1], int(length)), _pumped(other[0], writer))
        finally:
            other[1].close()

    async def _reached(
        self, asked: re.Match[str], usual: int, writer: asyncio.StreamWriter
    ) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter] | None":
        """Connect to a host and port that are allowed; else answer why not.

        Args:
            usual: The port that needs not be named.
        """
        port = int(asked["port"] or usual)
        try:
            host = canonical_host(asked["host"])
        except ValueError as error:
            await _answer(writer, "400 Bad Request", str(error))
            return None
        if not any(one.reaches(host, port, usual) for one in self._needs):
            name = host if port == usual else with_port(host, port)
            self.refused[name] = None
            await _answer(
                writer, "403 Forbidden", f"The sandbox allows no connection to {name}. It needs: network {name}"
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
    is_special = inner.is_loopback or inner.is_link_local or inner.is_unspecified or inner.is_multicast
    return bool(is_special or _has_interface(str(inner), socket.AF_INET6 if inner.version == 6 else socket.AF_INET))


def _has_interface(address: str, family: socket.AddressFamily) -> bool:
    """Whether an interface of this machine has an address: only that can be bound."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
        one.bind((address, 0))
        return True
    return False


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_MOST_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
    with suppress(OSError):
        while left and (piece := await reader.read(min(left, _MOST_BYTES))):
            left -= len(piece)
            writer.write(piece)
            await writer.drain()
