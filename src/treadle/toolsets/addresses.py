"""Addresses: which addresses of the network a tool may reach that a model sends there: public ones, and what was named. Opens nothing."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.tools.hosts import canonical_host

__all__ = ["Network", "NotPublic", "Target", "addresses_of", "is_allowed", "networks", "target_of"]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS = {"http": 80, "https": 443}
_MAX_URL_CHARS = 4000
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})?")
_SAFE_SIGNS = "/:=&?+!$,;'@()*%"
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_HIDDEN_WAY_UP = re.compile(r"(^|/|%2F|%5C)\.\.?(%2F|%5C)|(%2F|%5C)\.\.?(/|$)")
_TRANSLATING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")))
"""Networks whose addresses hold one of IPv4 in their last four bytes, beside those that Python knows."""

_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10", "3fff::/20"))
)
"""What some versions of Python take for public: special networks, with Oracle's metadata service in the first, and Azure's own address."""


class NotPublic(Exception):
    """An address that may not be reached."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL leads, in the one form that is judged, resolved and asked for."""

    url: str
    scheme: str
    host: str
    """In small letters and ASCII, without brackets and without a dot at its end."""
    port: int


def networks(named: Sequence[str]) -> tuple[Network, ...]:
    """Read networks as people write them, such as `127.0.0.0/8`.

    Raises:
        ConfigurationError: One is not a network.
    """
    if isinstance(named, str):
        raise ConfigurationError(f"allowed_networks takes a list, such as ['10.0.0.0/8']; got {shown(named)}.")
    found: list[Network] = []
    for one in named:
        try:
            found.append(ipaddress.ip_network(one))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"{shown(one)} is not a network, such as '10.0.0.0/8'.") from error
    return tuple(found)


def target_of(url: str) -> Target:
    """Read a URL strictly.

    Raises:
        ValueError: With a sentence: it is not a URL of the web, or holds what two readers may read in two ways.
    """
    if len(url) > _MAX_URL_CHARS:
        raise ValueError(f"The address has {len(url):,} characters; at most {_MAX_URL_CHARS:,} are allowed.")
    if _UNSAFE.search(url):
        raise ValueError("The address holds a blank, a control character or a backslash. Encode it with %.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"This is not a valid address: {error}.") from error
    if parts.scheme not in _PORTS:
        raise ValueError(f"Only http:// and https:// addresses can be fetched; got {shown(parts.scheme or url[:40])}.")
    if "@" in parts.netloc:
        raise ValueError("The address holds a user or a password. Leave it out.")
    host = canonical_host(parts.hostname or "")
    shown_host = f"[{host}]" if ":" in host else host
    own_port = port if port is not None else _PORTS[parts.scheme]
    place = shown_host if own_port == _PORTS[parts.scheme] else f"{shown_host}:{own_port}"
    query = f"?{_spelled(parts.query)}" if parts.query else ""
    return Target(
        url=f"{parts.scheme}://{place}{_path(parts.path)}{query}", scheme=parts.scheme, host=host, port=own_port
    )


def _path(given: str) -> str:
    """Return a path without `.` and `..`, as it is asked for.

    Raises:
        ValueError: It goes up behind an encoded slash, which some servers follow and others do not.
    """
    path = _spelled(given)
    if _HIDDEN_WAY_UP.search(path):
        raise ValueError("The path of the address goes up behind an encoded slash. Write the path that it leads to.")
    kept: list[str] = []
    parts = path.split("/")[1:]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part != ".":
            kept.append(part)
    return "/" + "/".join(kept) + ("/" if parts[-1:] in ([".."], ["."]) and kept else "")


def _spelled(text: str) -> str:
    """Return a path or a query in its one spelling: only what has to be escaped is, in capitals."""

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%25"
        character = chr(int(found[1], 16))
        return character if character in _UNRESERVED else f"%{found[1].upper()}"

    return _ESCAPED.sub(one, quote(text, safe=_SAFE_SIGNS))


async def addresses_of(target: Target, allowed: Sequence[Network]) -> tuple[str, ...]:
    """Resolve a host once, and return its addresses. They are what is connected to: nobody resolves the name again.

    Raises:
        NotPublic: One of them may not be reached. A name that has a public address and another one is refused whole.
        OSError: The name cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = tuple(dict.fromkeys(str(row[4][0]) for row in found))
    if not addresses:
        raise OSError(f"{target.host} has no address")
    for one in addresses:
        if not is_allowed(one, allowed):
            raise NotPublic(
                f"{target.host} leads to {one}, which is not a public address. Only public addresses can be fetched."
            )
    return addresses


def is_allowed(address: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether an address is public, or in a network that was named. An address of IPv4 within one of IPv6 is judged, too."""
    try:
        one = ipaddress.ip_address(address)
    except ValueError:  # such as one with a zone, which is of this link
        return False
    inner = _inner(one)
    if any(each in network for each in inner for network in allowed):
        return True
    return all(map(_is_public, inner))


def _is_public(one: _Address) -> bool:
    return one.is_global and not (
        one.is_multicast
        or one.is_reserved
        or one.is_private
        or one.is_loopback
        or one.is_link_local
        or one.is_unspecified
        or any(one in network for network in _NOT_PUBLIC)
    )


def _inner(one: _Address) -> list[_Address]:
    """Return an address, and those that it stands for."""
    if isinstance(one, ipaddress.IPv4Address):
        return [one]
    if one.ipv4_mapped is not None:
        return [one.ipv4_mapped]
    found: list[_Address] = [one]
    if one.sixtofour is not None:
        found.append(one.sixtofour)
    if one.teredo is not None:
        found += one.teredo
    if any(one in network for network in _TRANSLATING):
        found.append(ipaddress.IPv4Address(int(one) & 0xFFFFFFFF))
    return found
