"""A connection to PostgreSQL of which every wait has a limit. Knows no table.

The driver waits for a server's answer for ever. A server that hangs takes bytes and answers nothing: its connection is
closed after a silence, and whoever waits is told that the server did not answer.
"""

import time
from collections.abc import Callable, Generator
from typing import Any, Self

import psycopg
from psycopg.conninfo import make_conninfo

from treadle.journals.postgres.address import Address

__all__ = ["BoundConnection", "ServerSilent"]


class ServerSilent(psycopg.OperationalError):
    """The server has not sent or taken a byte for too long. The connection is closed."""


class BoundConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed when its server is silent for too long.

    It never prepares statements: a pooler may give each transaction another connection to the server, and there the
    name of a prepared statement is unknown, or means another statement.
    """

    silence_seconds = 10.0
    """How long the server may be silent while we wait for it."""
    is_hurried: Callable[[], bool] = staticmethod(lambda: False)
    """Whether nobody waits for answers any more."""

    @classmethod
    def open(cls, address: Address, silence_seconds: float, is_hurried: Callable[[], bool]) -> Self:
        """Connect. The address's `connect_timeout` limits that."""
        connection = cls.connect(make_conninfo(**address.parameters), autocommit=True, prepare_threshold=None)
        connection.silence_seconds = silence_seconds
        connection.is_hurried = is_hurried
        return connection

    def wait(self, gen: Generator[Any, Any, Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(self._listening(gen), interval=min(interval, self.silence_seconds / 4))
        except ServerSilent:
            self.close()
            raise

    def _listening(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Pass on what the driver asks and learns, and end the silence."""
        try:
            asked = next(gen)
            until = time.monotonic() + self.silence_seconds
            while True:
                ready = yield asked
                if ready:
                    until = time.monotonic() + self.silence_seconds
                elif time.monotonic() >= until or self.is_hurried():
                    raise ServerSilent(f"it did not answer for {self.silence_seconds:g} seconds")
                asked = gen.send(ready)
        except StopIteration as end:
            return end.value
