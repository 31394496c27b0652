"""What the leases of all stores share: who holds a session, how that is reported, and how often a holder sends a heartbeat."""

import asyncio
import os
import shlex
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from treadle.errors import SessionHeld

__all__ = ["BEATS_A_LEASE", "LEASE_SECONDS", "Holder", "HolderLink", "held", "look_seconds"]

LEASE_SECONDS = 10.0
"""A holder that sent no heartbeat for so long is taken for dead."""

BEATS_A_LEASE = 20
_LOOKS_A_BEAT = 2


def look_seconds(lease_seconds: float) -> float:
    """How often one looks whether a lease has ended."""
    return lease_seconds / BEATS_A_LEASE / _LOOKS_A_BEAT


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a session."""

    host: str
    pid: int
    since: float
    """Seconds since 1970, by the holder's clock. For people, and to tell two holders apart."""

    @classmethod
    def here(cls) -> "Holder":
        """Return this process, now."""
        return cls(host=socket.gethostname(), pid=os.getpid(), since=time.time())

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host}, since {since}"


def held(session_id: str, holder: Holder | None, *, journal: str) -> SessionHeld:
    """Return the error of a session whose holder lives; None where the holder's name cannot be read.

    Args:
        journal: Where the session is stored, for the command that cancels it.
    """
    who = "another process" if holder is None else str(holder)
    return SessionHeld(
        f"Session {session_id!r} is being run by {who}. Wait for it, or cancel it with session.cancel() or `treadle cancel "
        f"{shlex.quote(session_id)} --journal {shlex.quote(journal)}`; meanwhile you can send messages and answers to it."
    )


class HolderLink:
    """The way from a thread that keeps leases to the event loop of the run that holds one."""

    def __init__(self, on_message: Callable[[], None]) -> None:
        self._on_message = on_message
        self._reported = 0
        self._loop = asyncio.get_running_loop()

    @property
    def is_orphaned(self) -> bool:
        """Whether nobody can be notified of anything: the event loop of its run is closed."""
        return self._loop.is_closed()

    def tell(self, arrival: int) -> None:
        """Tell the holder of a message, once."""
        if arrival > self._reported:
            self._reported = arrival
            self._call(self._on_message)

    def _call(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # a closed loop: nobody is left to tell
            self._loop.call_soon_threadsafe(callback)
