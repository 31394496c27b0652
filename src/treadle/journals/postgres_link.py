"""Links to a journal's server: its address, its tables, and connections that are made anew when they are lost. Stores nothing."""

import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Self, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from treadle.errors import ConfigurationError, JournalError
from treadle.journals.backend import disk_full, locked, not_taken
from treadle.redaction import remember

__all__ = [
    "COLLISIONS",
    "NAMED",
    "NAMES_MORE",
    "NAMES_ONE",
    "OWN_FAULTS",
    "STORE_FAULTS",
    "VERSION",
    "Address",
    "Connection",
    "Kind",
    "Link",
    "Sent",
    "build",
    "describe",
    "describe_unreachable",
    "kind_of",
    "parse_address",
]


# --- The address of a PostgreSQL journal: what the driver needs, and what people may see of it. Connects to nothing.

_DEFAULTS = {
    "application_name": "treadle",
    "connect_timeout": "5",
    # A server that vanished without a word is noticed within a minute; the system's own default is two hours.
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "50000",
}
_ALWAYS = {"client_encoding": "utf8"}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a journal's server is, and as whom to go there."""

    parameters: Mapping[str, str]
    """For the driver; the password among them."""
    location: str
    """For people: without secrets."""
    search_path: str = ""
    """The search path that the options ask for; empty where they ask for none."""
    secrets: tuple[str, ...] = ()
    """Texts that no message may hold."""

    def __repr__(self) -> str:
        return f"Address({self.location!r})"

    def cleaned(self, text: str) -> str:
        """Return a message on one line, without secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())


def parse_address(url: str) -> Address:
    """Take a URL such as `postgresql://user:password@host:5432/database` apart.

    Raises:
        ConfigurationError: It is invalid. The message quotes nothing of it: a mistyped URL shows its password elsewhere.
    """
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.Error, UnicodeError):
        raise _unreadable() from None  # the cause quotes the URL
    # An @ or / of a password that is not encoded ends up in these.
    if "@" in given.get("host", "") + given.get("dbname", "") or not _is_port(given.get("port", "")):
        raise _unreadable()
    found = [value for name, value in given.items() if value and ("password" in name or "secret" in name)]
    secrets = {form for secret in found for form in (secret, quote(secret, safe=""))}
    remember(secrets)
    return Address(
        parameters={**_DEFAULTS, **given, **_ALWAYS},
        location=_location(given),
        search_path=_search_path(given.get("options", "")),
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
    )


def _search_path(options: str) -> str:
    found = re.findall(r"(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)", options)
    return re.sub(r"\\(.)", r"\1", found[-1]) if found else ""


def _is_port(port: str) -> bool:
    return all(number == "" or (number.isascii() and number.isdecimal()) for number in port.split(","))


def _location(given: Mapping[str, str]) -> str:
    user = f"{quote(given['user'], safe='')}@" if given.get("user") else ""
    host, port = given.get("host", ""), given.get("port", "")
    is_socket = host.startswith("/")
    place = "" if is_socket else _hosts(host, port)
    asked = [f"host={host}", *([f"port={port}"] if port else [])] if is_socket else []
    schema = _search_path(given.get("options", ""))
    asked += [f"options=-csearch_path%3D{quote(schema, safe='')}"] if schema else []
    query = f"?{'&'.join(asked)}" if asked else ""
    return f"postgresql://{user}{place}/{quote(given.get('dbname', ''), safe='')}{query}"


def _hosts(host: str, port: str) -> str:
    hosts, ports = host.split(","), port.split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    shown = (f"[{name}]" if ":" in name else name for name in hosts)
    return ",".join(f"{name}:{number}" if number else name for name, number in zip(shown, ports, strict=True))


def _unreadable() -> ConfigurationError:
    return ConfigurationError(
        "The journal's address is not a PostgreSQL URL. Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
        "special characters of the password percent-encoded (@ as %40, / as %2F)."
    )


# --- A connection to PostgreSQL of which every wait has a limit. Knows no table.


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


# --- The tables of a journal in PostgreSQL, and how they are recognised. Opens no connection and stores no event.

_T = TypeVar("_T")

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]  # Any: rows of all tables

Sent: TypeAlias = Callable[[], _T]
"""Gives the outcome of statements that were sent."""

# The same tables as in SQLite. `session` has room in its pages, because its rows change with every append.
_FIRST = (
    "CREATE TABLE treadle_journal (version integer NOT NULL)",
    """
    CREATE TABLE session (
        seat        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id          text NOT NULL UNIQUE,
        tenant      text NOT NULL DEFAULT '',
        state       text NOT NULL DEFAULT 'active',
        status      text NOT NULL DEFAULT 'active',
        head        bigint NOT NULL DEFAULT 0,
        epoch       bigint NOT NULL DEFAULT 0,
        owner       text,
        lease_until timestamptz,
        wake_at     double precision,
        version     bigint NOT NULL DEFAULT 0,
        parent_id   text,
        parent_seq  bigint,
        task        text NOT NULL DEFAULT '',
        created_at  double precision NOT NULL,
        updated_at  double precision NOT NULL
    ) WITH (fillfactor = 60)
    """,
    """
    CREATE TABLE event (
        session_id text NOT NULL,
        seq        bigint NOT NULL,
        epoch      bigint NOT NULL,
        at         double precision NOT NULL,
        type       text NOT NULL,
        version    integer NOT NULL,
        body       text NOT NULL,
        PRIMARY KEY (session_id, seq)
    )
    """,
    """
    CREATE TABLE inbox (
        arrival      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session_id   text NOT NULL,
        msg_id       text NOT NULL,
        kind         text NOT NULL,
        body         text NOT NULL,
        consumed_seq bigint,
        UNIQUE (session_id, msg_id)
    )
    """,
    "CREATE INDEX inbox_waiting ON inbox (session_id, arrival) WHERE consumed_seq IS NULL",
    "CREATE TABLE blob (sha256 text NOT NULL PRIMARY KEY, bytes bytea NOT NULL)",
    # Deleting a session is the one thing that may remove events; it must first say so in `session.state`.
    """
    CREATE FUNCTION event_is_append_only() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            IF EXISTS (SELECT FROM session WHERE id = OLD.session_id AND state = 'deleted') THEN
                RETURN OLD;
            END IF;
        END IF;
        RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END
    $$
    """,
    """
    CREATE TRIGGER event_is_never_changed BEFORE UPDATE OR DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION event_is_append_only()
    """,
    """
    CREATE TRIGGER event_is_never_emptied BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION event_is_append_only()
    """,
)

# Checksums are chained over a session's events; `heir` is the one process that waits for a dead holder's lease to end.
_SECOND = (
    "ALTER TABLE event ADD COLUMN sum bytea",
    "ALTER TABLE inbox ADD COLUMN sum bytea",
    "ALTER TABLE session ADD COLUMN heir text, ADD COLUMN heir_until timestamptz",
)

# A list may be of one tenant or parent. The time of the last change has no index: each append would have to move it.
_THIRD = (
    "CREATE INDEX session_of_tenant ON session (tenant)",
    "CREATE INDEX session_below ON session (parent_id)",
)

# What waits is read without events. It follows from them, so a session of before is marked as not looked at yet: `?`.
_FOURTH = (
    """
    CREATE TABLE due (
        session_id text NOT NULL,
        key        text NOT NULL,
        kind       text NOT NULL,
        at         double precision,
        call_id    text NOT NULL DEFAULT '',
        PRIMARY KEY (session_id, key)
    )
    """,
    "INSERT INTO due (session_id, key, kind) SELECT id, '?', 'unknown' FROM session WHERE state IN ('paused', 'running')",
)

# Which events name stored bytes: `artifacts_of` of the events. Found in the text as it is stored, because no function for JSON of
# the server takes every text, such as one with `\u0000`. A purge asks for each of a session's stored results.
_MAY_NAME = "type IN ('tool.finished', 'contract.violated', 'context.compacted')"
_KEY = '\'"artifact":"\''
NAMED = f"substr(body, strpos(body, {_KEY}) + 12, 64)"
NAMES_ONE = f"{_MAY_NAME} AND strpos(body, {_KEY}) > 0"
# A list of several, or a second key of that name, such as one in a result's own data: such events are few, and each is looked at.
NAMES_MORE = (
    f'{_MAY_NAME} AND (strpos(body, \'"artifacts":["\') > 0 OR strpos({NAMED.replace(", 64", "")}, {_KEY}) > 0)'
)
_FIFTH = (
    f"CREATE INDEX event_naming ON event (({NAMED})) WHERE {NAMES_ONE}",
    f"CREATE INDEX event_naming_more ON event (session_id) WHERE {NAMES_MORE}",
)

_STEPS = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH)
"""What leads from each version to the next; the first from an empty schema."""

VERSION = len(_STEPS)

_MARK = "treadle_journal"
"""The table by which a schema is known to be ours; it holds the version."""

_TABLES = (_MARK, "session", "event", "inbox", "blob")

_BUILDING = 0x5452444C
"""The advisory lock of whoever makes tables: `TRDL`."""


class Kind(Enum):
    """What the tables of a schema are to us."""

    EMPTY = "empty"
    OURS = "ours"
    OLDER = "older"
    NEWER = "newer"
    FOREIGN = "foreign"
    DAMAGED = "damaged"
    """Ours, but not all tables are there."""
    NOWHERE = "nowhere"
    """The search path names no schema that there is, or none that the role may use."""


def kind_of(connection: Connection) -> tuple[Kind, int]:
    """Say what the tables are, and their version. Reads only."""
    row = connection.execute("SELECT current_schema()").fetchone()
    if row is None or row[0] is None:
        return Kind.NOWHERE, 0
    found = connection.execute(
        "SELECT relname FROM pg_catalog.pg_class "
        "WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)",
        (list(_TABLES),),
    ).fetchall()
    tables = {name for (name,) in found}
    if not tables:
        return Kind.EMPTY, 0
    if tables != set(_TABLES):
        return (Kind.DAMAGED if _MARK in tables else Kind.FOREIGN), 0
    return _kind_of_version(connection.execute("SELECT max(version) FROM treadle_journal").fetchone())


def _kind_of_version(row: tuple[Any, ...] | None) -> tuple[Kind, int]:
    version = 0 if row is None or row[0] is None else int(row[0])
    if version <= 0:
        return Kind.FOREIGN, version
    if version == VERSION:
        return Kind.OURS, version
    return (Kind.NEWER if version > VERSION else Kind.OLDER), version


def build(connection: Connection, busy_seconds: float) -> None:
    """Make the tables, or lead older ones to this version, in one transaction. Does nothing when another was first."""
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {max(1, round(busy_seconds * 1000))}")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_BUILDING,))
        kind, version = kind_of(connection)
        if kind not in {Kind.EMPTY, Kind.OLDER}:
            return
        for step in _STEPS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute("DELETE FROM treadle_journal")
        connection.execute("INSERT INTO treadle_journal (version) VALUES (%s)", (VERSION,))


# --- A connection to a journal's server that is opened when it is needed, and anew when it was lost. Stores nothing.

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
                if self._connection is not None and not self._connection.closed:
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


# --- What PostgreSQL and its driver complain of, in words that say what to do, without secrets. Acts on nothing.

OWN_FAULTS = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded, OverflowError, UnicodeError)
"""Faults of the one thing that was to be stored; the store itself is well."""

COLLISIONS = (errors.DeadlockDetected, errors.SerializationFailure)
"""Two transactions stood in each other's way; what belongs to only one session can be done by itself."""

STORE_FAULTS = (psycopg.Error, *OWN_FAULTS)


def describe(address: Address, fault: Exception) -> JournalError:
    """Return the error to raise for a fault of the journal at an address."""
    place, detail = address.location, _message_of(address, fault)
    match fault:
        case errors.InsufficientPrivilege():
            text = f"The role may not use the journal {place} ({detail}). Grant it what it needs, or name another role."
        case errors.ReadOnlySqlTransaction():
            text = f"The journal {place} does not accept writes: its server is a standby, or its role can only read."
        case errors.LockNotAvailable():
            return locked(place)
        case errors.DiskFull():
            return disk_full(place)
        case errors.UndefinedTable() | errors.UndefinedColumn() | errors.UndefinedObject():
            text = f"The tables of the journal {place} have been altered ({detail}). Restore them from a backup, or find out which program changed them."
        case errors.AdminShutdown() | errors.CrashShutdown() | errors.CannotConnectNow():
            return describe_unreachable(address, fault)
        case psycopg.OperationalError() if fault.sqlstate is None:
            return describe_unreachable(address, fault)
        case _ if isinstance(fault, OWN_FAULTS):
            return not_taken(place, detail)
        case _:
            text = f"The journal {place} does not work ({detail}). Check the server's log."
    return JournalError(text)


def describe_unreachable(address: Address, fault: Exception) -> JournalError:
    """Return the error to raise when there is no connection, or none any more."""
    return JournalError(
        f"The server of the journal {address.location} cannot be reached ({_message_of(address, fault)}). Check "
        "that it runs, and its address, role, password and database."
    )


def _message_of(address: Address, fault: Exception) -> str:
    said = fault.diag.message_primary if isinstance(fault, psycopg.Error) else None
    return address.cleaned(said or str(fault)).rstrip(".")
