"""What is said of each fault of PostgreSQL: what to do, and no secret. Connects to nothing."""

import pytest

pytest.importorskip("psycopg", reason="a journal in PostgreSQL needs the extra `postgres`")

import psycopg
from psycopg import errors

from treadle.journals.postgres_link import Address, describe

ADDRESS = Address(parameters={}, location="postgresql://db/agents", secrets=("hunter2",))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (errors.InsufficientPrivilege("permission denied"), "Grant it what it needs"),
        (errors.ReadOnlySqlTransaction("read-only"), "does not accept writes"),
        (errors.LockNotAvailable("lock"), "Another program keeps the journal"),
        (errors.DiskFull("no space"), "is full. Free some space"),
        (errors.UndefinedTable("no such table"), "Restore them from a backup, or find out which program changed them."),
        (
            errors.UndefinedColumn("no such column"),
            "Restore them from a backup, or find out which program changed them.",
        ),
        (
            errors.UndefinedObject("no such object"),
            "Restore them from a backup, or find out which program changed them.",
        ),
        (errors.AdminShutdown("shut down"), "cannot be reached"),
        (errors.CrashShutdown("crashed"), "cannot be reached"),
        (errors.CannotConnectNow("starting"), "cannot be reached"),
        (psycopg.OperationalError("connection lost"), "cannot be reached"),
        (errors.DataError("bad text"), "cannot store this (bad text). Nothing was written."),
        (UnicodeError("surrogate"), "cannot store this (surrogate)"),
        (errors.OutOfMemory("out of memory"), "Check the server's log."),
    ],
)
def test_a_fault_says_which_journal_and_what_to_do(fault: Exception, words: str) -> None:
    said = str(describe(ADDRESS, fault))

    assert words in said
    assert "postgresql://db/agents" in said


@pytest.mark.parametrize("kind", [errors.InsufficientPrivilege, errors.UndefinedTable, psycopg.OperationalError])
def test_what_the_server_said_is_told_on_one_line_without_secrets(kind: type[psycopg.Error]) -> None:
    said = str(describe(ADDRESS, kind("password hunter2\n  refused.")))

    assert "(password *** refused)" in said
