"""Older journal files: they open for ever, are changed whole or not at all, and a copy from before stays beside them."""

import asyncio
import hashlib
import logging
import os
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from journal_events import kept_session, notes, one_of_each, whole_session

import program
from treadle.errors import JournalError
from treadle.events import SessionChanged
from treadle.journals.sqlite import STEPS, VERSION, SqliteJournal, backup_of, build, migrate, open_sqlite
from treadle.sessions.session import fold

CORPUS = Path(__file__).parent / "corpus"
V1 = CORPUS / "v1.sqlite"

KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from treadle.journals.sqlite import migrate

path, moment = Path(sys.argv[1]), sys.argv[2]
connection = sqlite3.connect(path, isolation_level=None)

def reached(name):
    if name == moment:
        os.kill(os.getpid(), signal.SIGKILL)

migrate(connection, path, reached=reached)
"""

OPENS = """
import asyncio, sys
from treadle.journals.sqlite import open_sqlite

async def main():
    await (await open_sqlite(sys.argv[1])).close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    copy = tmp_path / "journal.db"
    shutil.copyfile(V1, copy)
    return copy


def run_code(code: str, path: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    words = [program.CODE, code, str(path), *arguments]
    return program.run(words, folder=path.parent, environment=os.environ)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def schema_of(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()


@pytest.mark.row("Q14")
@pytest.mark.parametrize("version", range(1, VERSION + 1))
async def test_a_file_of_each_version_opens_folds_and_goes_on(tmp_path: Path, version: int) -> None:
    path = tmp_path / "journal.db"
    shutil.copyfile(CORPUS / f"v{version}.sqlite", path)
    journal = await open_sqlite(path)

    assert fold("weather", await journal.read("weather")).run_status == "completed"
    assert await journal.read("weather") == whole_session("weather")
    infos = {info.id: info for info in await journal.sessions()}
    assert (infos["kinds"].own_status, infos["weather"].own_status) == ("active", "active")
    if "kept" in infos:  # from version 2 on
        assert await journal.read("kept") == kept_session()
        assert (infos["kept"].status, infos["kept"].parent_id) == ("suspended", "weather")
    assert [message.id for message in await journal.inbox("weather")] == ["m2"]
    assert await journal.blob(hashlib.sha256(b"kept bytes").hexdigest()) == b"kept bytes"
    changed = SessionChanged(seq=11, at=7.0, status="suspended")
    await journal.append("weather", [changed], state="completed", durable=True)
    assert {info.id: info.status for info in await journal.sessions()}["weather"] == "suspended"
    await journal.close()
    assert version_of(path) == VERSION


@pytest.mark.row("Q14")
async def test_an_old_file_becomes_what_a_new_one_is(path: Path, tmp_path: Path) -> None:
    await (await open_sqlite(path)).close()
    new = tmp_path / "new.db"
    with closing(sqlite3.connect(new, isolation_level=None)) as connection:
        build(connection)

    assert schema_of(path) == schema_of(new)
    assert len(STEPS) == VERSION


@pytest.mark.row("Q14")
async def test_a_private_copy_from_before_stays_beside_and_operators_are_told_where(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="treadle"):
        await (await open_sqlite(path)).close()
        await (await open_sqlite(path)).close()

    copy = backup_of(path, 1)
    assert version_of(copy) == 1
    assert copy.stat().st_mode & 0o777 == 0o600
    assert caplog.text.count(str(copy)) == 1
    assert sorted(file.name for file in path.parent.iterdir()) == ["journal.db", "journal.db.v1.bak"]
    restored = await open_sqlite(copy)
    assert await restored.read("kinds") == one_of_each()[: len(await restored.read("kinds"))]
    await restored.close()


@pytest.mark.row("Q14")
async def test_a_reader_changes_no_old_file(path: Path) -> None:
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    journal = await open_sqlite(path, read_only=True)

    assert {info.own_status for info in await journal.sessions()} == {"active"}
    assert await journal.read("weather") == whole_session("weather")
    await journal.close()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["journal.db"]


@pytest.mark.row("Q14")
@pytest.mark.parametrize("moment", ["begun", "copied", "changed"])
async def test_a_migration_that_is_killed_leaves_the_old_file_and_the_next_one_succeeds(
    path: Path, moment: str
) -> None:
    killed = await asyncio.to_thread(run_code, KILLED, path, moment)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert version_of(path) == 1
    journal = await open_sqlite(path)
    assert await journal.read("weather") == whole_session("weather")
    await journal.append("weather", notes(11, 11), state="running", durable=True)
    await journal.close()
    assert version_of(path) == VERSION


@pytest.mark.row("Q14")
async def test_a_migration_without_room_for_the_copy_leaves_the_file_as_it_is(path: Path) -> None:
    backup_of(path, 1).mkdir()  # nothing can take its place
    before = path.read_bytes()

    with pytest.raises(JournalError, match="older schema and could not be brought to"):
        await open_sqlite(path)

    assert version_of(path) == 1
    assert path.read_bytes() == before
    backup_of(path, 1).rmdir()
    await (await open_sqlite(path)).close()
    assert version_of(path) == VERSION


@pytest.mark.row("Q14")
async def test_many_processes_that_open_an_old_file_at_once_all_succeed(path: Path) -> None:
    opening = (asyncio.to_thread(run_code, OPENS, path) for _ in range(4))

    assert [opened.returncode for opened in await asyncio.gather(*opening)] == [0, 0, 0, 0]
    assert version_of(path) == VERSION
    assert version_of(backup_of(path, 1)) == 1


@pytest.mark.row("Q14")
def test_a_file_that_another_process_has_brought_up_to_date_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, path)
        backup_of(path, 1).unlink()
        migrate(connection, path)

    assert version_of(path) == VERSION
    assert not backup_of(path, 1).exists()


@pytest.mark.row("Q14")
@pytest.mark.parametrize("moment", ["begun", "copied", "changed"])
def test_a_migration_that_is_interrupted_leaves_the_file_and_passes_the_interruption_on(
    path: Path, moment: str
) -> None:
    def reached(name: str) -> None:
        if name == moment:
            raise KeyboardInterrupt

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(KeyboardInterrupt):
            migrate(connection, path, reached=reached)
        assert not connection.in_transaction

    assert version_of(path) == 1


@pytest.mark.row("Q14")
def test_a_fault_after_which_sqlite_has_gone_back_by_itself_names_the_copy(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:

        def reached(name: str) -> None:
            if name == "changed":
                connection.execute("ROLLBACK")
                raise sqlite3.OperationalError("disk I/O error")

        with pytest.raises(JournalError, match=r"It was not changed\. A copy of it is") as caught:
            migrate(connection, path, reached=reached)

    assert str(backup_of(path, 1)) in str(caught.value)
    assert version_of(path) == 1


@pytest.mark.row("ST12")
async def test_a_purge_removes_the_copies_that_would_keep_what_was_purged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await open_sqlite(path)
    half_made = path.with_name(f"{path.name}.v2.bak.4711")  # a process was killed while it made that
    half_made.write_bytes(b"weather")
    others = [path.with_name(name) for name in ("other.db.v1.bak", "journal.db.v1.bak.txt", "journal.db.bak")]
    for other in others:
        other.write_bytes(b"")
    assert backup_of(path, 1).exists()

    await purge(journal, "weather")

    assert not backup_of(path, 1).exists()
    assert not half_made.exists()
    assert all(other.exists() for other in others)
    assert str(backup_of(path, 1)) in caplog.text
    await journal.close()


@pytest.mark.row("ST12")
async def test_a_copy_that_cannot_be_removed_is_named(path: Path) -> None:
    journal = await open_sqlite(path)
    backup_of(path, 1).unlink()
    backup_of(path, 1).mkdir()
    with pytest.raises(JournalError, match=r"was purged .* still hold it .*journal\.db\.v1\.bak"):
        await purge(journal, "weather")
    await journal.close()


async def purge(journal: SqliteJournal, session_id: str) -> None:
    await journal.create(session_id)
    tombstone = SessionChanged(session_id=session_id, seq=1, at=7.0, status="deleted")
    await journal.purge(session_id, tombstone)
    assert len(await journal.read(session_id)) == 1
