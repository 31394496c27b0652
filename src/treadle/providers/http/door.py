"""Doors: how a dialect is spoken at a cloud's own address: the path, the fields that differ, and who asks. Values and one port; sends nothing."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

__all__ = ["Credentials", "Door", "Outgoing", "Proof"]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it is sent, for those who sign it."""

    url: str
    """As it stands on the wire, percent-encoded."""
    content_type: str
    body: bytes


class Proof(msgspec.Struct, frozen=True, kw_only=True):
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

    async def proof(self, request: Outgoing) -> Proof:
        """Return the headers that this request needs.

        Raises:
            ModelError: There are no credentials, or they could not be had.
        """
        ...

    def renew(self) -> bool:
        """Forget what a server has just refused. Return whether it is worth asking again with a new one."""
        ...


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """How a dialect is spoken at a cloud's own address."""

    name: str
    """What stands before the colon of the model's name."""
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
