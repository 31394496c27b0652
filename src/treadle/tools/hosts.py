"""Hosts: the one spelling in which a host is judged, asked for and compared with rules. Resolves nothing."""

import ipaddress
import re
import socket

__all__ = ["canonical_host", "canonical_host_glob"]

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}")
_WILD = frozenset("*?[")
_MAX_NAME = 253


def canonical_host(given: str) -> str:
    """Return a host in small letters and ASCII, without brackets and without a dot at its end; an address of IPv4 as four decimals.

    `127.1`, `2130706433`, `0x7f.0.0.1`, `0177.0.0.1` and `::ffff:127.0.0.1` all are `127.0.0.1`, as they are for whoever connects.

    Raises:
        ValueError: With a sentence: it is not a host.
    """
    if "%" in given:
        raise ValueError("The host of the address names a zone or is encoded. Write its plain name.")
    host = given.lower()
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
        except ValueError as error:
            raise ValueError(f"{given[:60]!r} is not an IPv6 address.") from error
        return address.compressed if address.ipv4_mapped is None else str(address.ipv4_mapped)
    try:
        host = (host.encode("idna").decode() if not host.isascii() else host).lower().removesuffix(".")
    except UnicodeError as error:
        raise ValueError(f"{given[:60]!r} is not a valid host name.") from error
    if not _NAME.fullmatch(host) or len(host) > _MAX_NAME:
        raise ValueError(f"{given[:60]!r} is not a valid host name.")
    if not _NUMBER.fullmatch(host):
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError as error:
        raise ValueError(f"{given[:60]!r} is neither a name nor an address.") from error


def canonical_host_glob(glob: str) -> str:
    """Return the host that a rule names in the spelling of `canonical_host`. One with wildcards has small letters and no dot at its end."""
    plain = glob.strip().lower()
    if _WILD & set(plain.removeprefix("[")) or (plain.startswith("[") and ":" not in plain):
        return plain.removesuffix(".")
    try:
        return canonical_host(plain)
    except ValueError:
        return plain
