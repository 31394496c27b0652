"""A connection to a journal's server that is opened when it is needed, and anew when it was lost. Stores nothing."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg

from treadle.errors import JournalError
from treadle.journals.postgres.address import Address
from treadle.journals.postgres.connection import BoundConnection
from treadle.journals.postgres.schema import VERSION, Connection, Kind, build, kind_of

__all__ = ["Link"]

_T = TypeVar("_T")

_PAUSE_SECONDS = 0.05
_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Encodings of a database that take every character."""


class Link:
    """One connection, used by one thread.

    Args:
        busy_seconds: How long to wait for another program that keeps a row or table locked.
        silence_seconds: How long the server may be silent while an answer is waited for.
        patience_seconds: How long to wait for a server that went away during an act. One that could not be reached before
            is not waited for.
    """

    def __init__(
        self, address: Address, *, busy_seconds: float, silence_seconds: float, patience_seconds: float
    ) -> None:
        self.address = address
        self.busy_seconds = busy_seconds
        self._silence_seconds = silence_seconds
        self._patience_seconds = patience_seconds
        self._connection: BoundConnection | None = None
        self._is_hurried = False

    def hurry(self) -> None:
        """Give up what is waited for, now and later. For other threads: nobody wants an answer any more."""
        self._is_hurried = True

    def run(self, act: Callable[[Connection], _T]) -> _T:
        """Do something with the connection, from its beginning again where the connection was lost in it.

        Raises:
            JournalError: There is no journal that we could use.
            psycopg.Error: The act failed, or the server stayed away.
        """
        patience = self._patience_seconds if self._connection is not None else 0.0
        until = time.monotonic() + patience
        while True:
            try:
                return act(self._connected())
            except psycopg.Error:
                if not self._is_lost():
                    raise
                self.drop()
                if self._is_hurried or time.monotonic() >= until:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def drop(self) -> None:
        """Close the connection, which rolls back."""
        if self._connection is not None:
            with suppress(psycopg.Error):  # nothing more can be done for it, and what was committed is safe
                self._connection.close()
            self._connection = None

    def _is_lost(self) -> bool:
        return self._connection is None or self._connection.closed

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = BoundConnection.open(self.address, self._silence_seconds, lambda: self._is_hurried)
            try:
                self._prepare(connection)
            except BaseException:  # no connection may stay open that nobody knows of
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: Connection) -> None:
        self._check_encoding(connection)
        self._check_path(connection)
        kind, version = kind_of(connection)
        if kind in {Kind.EMPTY, Kind.OLDER}:
            build(connection, self.busy_seconds)
            kind, version = kind_of(connection)
        if kind is not Kind.OURS:
            raise JournalError(self._refusal(kind, version))

    def _check_encoding(self, connection: Connection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in _ENCODINGS:
            raise JournalError(
                f"The database of the journal {self.address.location} is encoded as {encoding}, which cannot store every character. Create one with ENCODING 'UTF8'."
            )

    def _check_path(self, connection: Connection) -> None:
        """Some poolers drop the options of a connection: then other tables than those meant would be used."""
        wanted = self.address.search_path
        row = connection.execute("SHOW search_path").fetchone()
        found = "" if row is None else str(row[0])
        if wanted and _names(wanted) != _names(found):
            raise JournalError(
                f"The search path of the journal {self.address.location} is {found!r}, though its address asks for "
                f"{wanted!r}: a pooler between drops the options of a connection. Set the path for the role or the "
                "database (ALTER ROLE ... SET search_path), or connect without the pooler."
            )

    def _refusal(self, kind: Kind, version: int) -> str:
        place = self.address.location
        match kind:
            case Kind.NEWER:
                return (
                    f"The journal {place} was written by a newer Treadle (schema {version}; this one knows {VERSION}). "
                    "Upgrade Treadle; it was not changed."
                )
            case Kind.DAMAGED:
                return (
                    f"The tables of the journal {place} are incomplete. Restore them from a copy of the database; "
                    "nothing was changed."
                )
            case Kind.NOWHERE:
                return (
                    f"The search path of the journal {place} names no schema that exists, or none that this role may use. "
                    "Create one (CREATE SCHEMA NAME), or let the role use it (GRANT USAGE, CREATE ON SCHEMA NAME TO ROLE)."
                )
            case _:
                return (
                    f"{place} holds tables of another program where the journal's would be. Name another database, or "
                    "another schema with ?options=-csearch_path%3DNAME. Nothing was changed."
                )


def _names(path: str) -> list[str]:
    return [name.strip().strip('"') for name in path.split(",")]
