"""Needs: what of the sandbox's border a call needs lifted, and the texts in which models, rules and records write it. Values only."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from treadle.errors import InvalidArguments
from treadle.fields import Documented, explained
from treadle.tools.protected import canonical_host_glob

__all__ = ["GIT", "UNCONFINED", "Need", "parse_need", "parse_needs", "with_port"]

_FORMS = "`git`, `network HOST` such as `network api.example.com` or `network localhost:8000`, `write FOLDER` such as `write ~/.cache/x`, or `unconfined`"

_WITH_PORT = re.compile(r"(?:\[([^\[\]]+)\]|([^:]+)):(\d{1,5})")

_PORTS = 65_536


class Need(msgspec.Struct, Documented, frozen=True):
    """One thing outside of the sandbox's border that a call needs.

    Example:
        Need("network", "api.example.com")
    """

    kind: Literal["git", "network", "write", "unconfined"]
    """`git`: write the git history of the folder, without its hooks and without programs that git's configuration names. `network`: reach a
    host. `write`: write a folder outside. `unconfined`: run without the sandbox."""
    value: str = ""
    """The host of `network` in its canonical spelling, where `*` stands for any text and `*` alone for the whole network, with the port that is
    named; the folder of `write`."""

    @property
    def text(self) -> str:
        """The form in which the model asks for it and records hold it, such as `network api.example.com`."""
        return f"{self.kind} {self.value}".strip()

    @property
    def host(self) -> str:
        """The host of `network`, without the port."""
        return _parted(self.value)[0]

    def reaches(self, host: str, port: int, usual: int) -> bool:
        """Whether it lets a command reach a host at a port.

        Args:
            usual: The port that needs not be named.
        """
        pattern, named = _parted(self.value)
        is_open = port == (int(named) if named else usual)
        return (
            self.kind == "network"
            and is_open
            and re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), host) is not None
        )


GIT = Need("git")
UNCONFINED = Need("unconfined")


@explained
def parse_need(text: str) -> Need:
    """Return the need that a text names.

    Raises:
        InvalidArguments: It names none.
    """
    kind, _, value = text.strip().partition(" ")
    value = value.strip()
    has_value = kind in ("network", "write")
    if kind not in get_args(Need.__annotations__["kind"]) or has_value != bool(value):
        raise InvalidArguments(f"{text[:100]!r} is not a need. Write {_FORMS}.")
    if any(ord(char) < 32 or ord(char) == 127 for char in value) or (kind == "network" and " " in value):
        raise InvalidArguments(f"{text[:100]!r} names no {'host' if kind == 'network' else 'folder'}. Write {_FORMS}.")
    if kind == "write" and not value.startswith(("/", "~/")):
        raise InvalidArguments(f"`write` requires a folder from `/` or `~/`; got {value[:100]!r}.")
    if kind == "network":
        host, port = _parted(value)
        host = canonical_host_glob(host)
        if port and not 0 < int(port) < _PORTS:
            raise InvalidArguments(f"{text[:100]!r} names no port. Write {_FORMS}.")
        value = with_port(host, int(port)) if port else host
    return Need(kind, value)  # type: ignore[arg-type]  # one of the kinds, checked above


def with_port(host: str, port: int) -> str:
    """Return a host and port in the form in which a need names both: `localhost:8000`, `[::1]:8000`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parted(value: str) -> tuple[str, str]:
    found = _WITH_PORT.fullmatch(value)
    return (found[1] or found[2], found[3]) if found else (value, "")


@explained
def parse_needs(texts: Iterable[str]) -> tuple[Need, ...]:
    """Return the needs that some texts name, each once.

    Raises:
        InvalidArguments: One names none.
    """
    return tuple(dict.fromkeys(map(parse_need, texts)))
