"""What PostgreSQL and its driver complain of, in words that say what to do, without secrets. Acts on nothing."""

import psycopg
from psycopg import errors

from treadle.errors import JournalError
from treadle.journals.postgres.address import Address
from treadle.journals.store.faults import disk_full, locked, not_taken

__all__ = ["COLLISIONS", "OWN_FAULTS", "STORE_FAULTS", "describe", "describe_unreachable"]

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
