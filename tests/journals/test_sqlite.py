"""The journal in a SQLite file: what survives, what is refused, and what it leaves alone. With real files and processes."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from journal_events import note, notes, whole_session
from journal_places import FilePlace, raw

from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals.sqlite import (
    Kind,
    SqliteJournal,
    build,
    kind_of,
    open_sqlite,
    open_writer,
)
from treadle.state import LeftCancellation

CHILD = Path(__file__).parent / "journal_child.py"
V1 = Path(__file__).parent / "corpus" / "v1.sqlite"

StartChild = Callable[..., Any]
RunChild = Callable[..., list[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


# --- what survives ---------------------------------------------------------------------------------------------------


def test_a_durable_append_returns_after_its_log_is_synced(path: Path, tmp_path: Path):
    """The kernel is asked: a killed process proves nothing of a power cut."""
    if shutil.which("strace") is None:
        pytest.skip("seeing what is synced needs strace")
    trace = tmp_path / "trace.txt"
    traced = subprocess.run(
        ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fsync,fdatasync,pwrite64,write", "-e", "signal=none",
         sys.executable, str(CHILD), "append_durably", str(path)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    if "ptrace" in traced.stderr:
        pytest.skip("seeing what is synced needs the right to trace a process")
    assert traced.returncode == 0, traced.stderr

    acts = [act for line in trace.read_text().splitlines() if (act := act_in(line, f"{path}-wal>"))]
    first, last = acts.index("begins"), len(acts) - acts[::-1].index("returned")

    assert [act for act, _ in groupby(acts[first:last])] == ["begins", "log written", "log synced", "returned"] * 3


def act_in(line: str, log: str) -> str | None:
    """Return what a line of the trace says has happened, when it has ended."""
    is_over = "<unfinished" not in line
    if "BEGINS" in line:
        return "begins"
    if "RETURNED" in line:
        return "returned"
    if "pwrite64(" in line and log in line:
        return "log written"
    if is_over and ("sync resumed>" in line or ("sync(" in line and log in line)):
        return "log synced"
    return None


def test_a_locked_file_does_not_keep_a_process_from_ending(path: Path, start_child: StartChild):
    child = start_child("leave_when_told", path)
    assert child.stdout.readline() == "open\n"
    with FilePlace(path).locked():
        child.communicate("go\n", timeout=60)
    assert child.returncode == 0
    assert asyncio.run(FilePlace(path).stored()) == ()


async def test_closing_stores_what_is_queued_and_leaves_one_file(path: Path):
    journal = await open_sqlite(path)
    await journal.create("s")
    await journal.append("s", notes(1, 100), state="running", durable=False)
    await journal.close()

    assert names(path.parent) == [path.name]
    assert await FilePlace(path).stored() == notes(1, 100)


# --- several writers -------------------------------------------------------------------------------------------------


async def test_an_append_that_is_waited_for_takes_along_those_that_nobody_waits_for(path: Path):
    journal = await open_sqlite(path)
    await journal.create("s")
    for seq in range(1, 200, 2):
        await journal.append("s", [note(seq)], state="running", durable=False)
        await journal.append("s", [note(seq + 1)], state="running", durable=True)
        with raw(path) as other:
            (head,) = other.execute("SELECT head FROM session").fetchone()
            assert head == seq + 1
    await journal.close()


# --- files that are refused ------------------------------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


def one_letter(path: Path) -> None:
    path.write_bytes(b"x")


def text(path: Path) -> None:
    path.write_text("[defaults]\nmodel = demo\n" * 1000)


def foreign(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def foreign_with_id(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("PRAGMA application_id = 7")


def newer(path: Path) -> None:
    asyncio.run(FilePlace(path).store())
    with raw(path) as connection:
        connection.execute("PRAGMA user_version = 7")


def truncated(path: Path) -> None:
    asyncio.run(FilePlace(path).store(notes(1, 200)))
    os.truncate(path, 4096 * 2)


def cut_in_its_first_page(path: Path) -> None:
    asyncio.run(FilePlace(path).store())
    os.truncate(path, 700)


@pytest.mark.row("SF3")
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
@pytest.mark.parametrize(
    "make", [garbage, one_letter, text, foreign, foreign_with_id, newer, truncated, cut_in_its_first_page]
)
def test_a_file_that_is_no_journal_is_refused_and_stays_untouched(path: Path, make: Callable, read_only: bool):
    make(path)
    before = snapshot(path.parent)

    with pytest.raises(JournalError, match=str(path)) as refusal:
        asyncio.run(open_and_list(path, read_only=read_only))

    assert snapshot(path.parent) == before
    assert "\n" not in str(refusal.value)


async def open_and_list(path: Path, *, read_only: bool = False) -> None:
    async with FilePlace(path).opened(read_only=read_only) as journal:
        await journal.sessions()


@pytest.mark.row("SF3")
def test_another_programs_unfinished_log_stays_untouched(path: Path, tmp_path: Path):
    live = tmp_path / "live" / "theirs.db"
    live.parent.mkdir()
    with raw(live) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO bookmarks VALUES ('x')")
        crashed = tmp_path / "crashed"
        shutil.copytree(live.parent, crashed)
    before = snapshot(crashed)
    assert set(before) == {"theirs.db", "theirs.db-wal", "theirs.db-shm"}

    with pytest.raises(JournalError, match="another program"):
        asyncio.run(open_sqlite(crashed / "theirs.db"))

    assert snapshot(crashed) == before


async def test_a_folder_and_a_pipe_are_no_journals(tmp_path: Path):
    with pytest.raises(JournalError, match="is a folder"):
        await open_sqlite(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="not a regular file"):
        await open_sqlite(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    with pytest.raises(JournalError, match="cannot be opened"):
        await open_sqlite(tmp_path / "file" / "journal.db")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing" / "journal.db")
    with pytest.raises(JournalError, match="cannot be opened"):
        await open_sqlite(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_is_no_file_name_is_refused(name: str):
    with pytest.raises(JournalError, match="is not a file name"):
        SqliteJournal(name)


@pytest.mark.row("SF3")
async def test_corrupt_pages_are_told_when_they_are_read_and_the_file_is_left_as_it_is(path: Path):
    await FilePlace(path).store(notes(1, 2000))
    content = bytearray(path.read_bytes())
    for page in range(len(content) // 4096 // 2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 4096] = b"\xa5" * 4096
    path.write_bytes(content)

    journal = await open_sqlite(path)
    with pytest.raises(JournalError, match=r"is damaged.*safe place"):
        await journal.read("s")
    await journal.close()

    assert path.read_bytes() == content


# --- rights, locks, full disks ---------------------------------------------------------------------------------------


@pytest.mark.row("AT-SECRETS-MODES")
@pytest.mark.parametrize("umask", ["000", "022", "077", "777"])
def test_all_files_are_private_whatever_the_umask(tmp_path: Path, run_child: RunChild, umask: str):
    rights = run_child("make", tmp_path / "state" / "treadle" / "journal.db", umask)
    assert rights == ["0o700", "0o700", "0o600", "0o600", "0o600"]


async def test_an_empty_file_becomes_a_private_journal(path: Path):
    path.touch()
    path.chmod(0o644)
    await FilePlace(path).store()
    assert await FilePlace(path).stored() == notes(1, 3)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o700)


@pytest.mark.row("SF4")
def test_a_read_only_folder_is_told(open_folder: Path, run_child: RunChild):
    open_folder.chmod(0o555)
    (said,) = run_child("open_as_nobody", open_folder / "journal.db", "writing")
    assert said.startswith(f"The journal {open_folder / 'journal.db'} cannot be opened: Permission denied")
    assert names(open_folder) == []


@pytest.mark.row("SF4")
def test_a_read_only_file_is_told_before_the_first_event_and_can_be_read(open_folder: Path, run_child: RunChild):
    path = open_folder / "journal.db"
    asyncio.run(FilePlace(path).store())
    path.chmod(0o444)
    open_folder.chmod(0o555)

    (said,) = run_child("open_as_nobody", path, "writing")
    (read,) = run_child("open_as_nobody", path, "read_only")

    assert said == f"The journal {path} cannot be written: {path} is read-only. Change its permissions or name another."
    assert read == "opened 3"
    assert names(open_folder) == [path.name]


@pytest.mark.row("SF4")
@pytest.mark.parametrize("mode", ["writing", "read_only"])
def test_an_unreadable_file_is_told(open_folder: Path, run_child: RunChild, mode: str):
    path = open_folder / "journal.db"
    asyncio.run(FilePlace(path).store())
    path.chmod(0o000)
    (said,) = run_child("open_as_nobody", path, mode)
    assert said.startswith(f"The journal {path} cannot be")


@pytest.mark.row("SF2")
async def test_a_file_locked_while_it_is_opened_is_told_after_a_bounded_wait(path: Path):
    path.touch()
    with FilePlace(path).locked(), pytest.raises(JournalError, match="locked"):
        await open_sqlite(path, busy_seconds=0.05)
    await FilePlace(path).store()


@pytest.mark.row("SF1")
def test_a_file_that_may_not_grow_is_told_and_keeps_what_it_has(path: Path, run_child: RunChild):
    last, complaint = run_child("fill", path, 300_000)

    assert complaint.startswith(f"The journal {path} cannot be read or written")
    assert int(last) > 10
    assert asyncio.run(FilePlace(path).stored()) == (
        *(note(seq, "x" * 1000) for seq in range(1, int(last) + 1)),
        note(int(last) + 1, "after"),
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a full disk needs the right to mount a small one: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.row("SF1")
async def test_a_full_disk_is_told_and_the_journal_goes_on_when_there_is_room(small_disk: Path):
    journal = await open_sqlite(small_disk / "journal.db")
    await journal.create("s")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    kept: list[AnyEvent] = []

    async def fill() -> None:
        while True:
            event = note(len(kept) + 1, "x" * 5000)
            await journal.append("s", [event], state="running", durable=True)
            kept.append(event)

    with pytest.raises(JournalError, match=r"is full\. Free some space"):
        await fill()
    assert await journal.read("s") == tuple(kept)

    ballast.unlink()
    last = note(len(kept) + 1, "after")
    await journal.append("s", [last], state="running", durable=True)
    await journal.close()

    assert await FilePlace(small_disk / "journal.db").stored() == (*kept, last)


@pytest.mark.row("SF1")
async def test_a_journal_on_a_full_disk_is_told_when_it_is_opened(small_disk: Path):
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(bytes(2_000_000))
    with pytest.raises(JournalError, match=r"is full|No space"):
        await open_sqlite(small_disk / "journal.db")


# --- reading only ----------------------------------------------------------------------------------------------------


async def test_reading_only_makes_nothing(path: Path):
    with pytest.raises(JournalError, match="No such file"):
        await open_sqlite(path.parent / "folder" / "journal.db", read_only=True)
    assert names(path.parent) == []

    await FilePlace(path).store(whole_session("s"))
    before = snapshot(path.parent)
    journal = await open_sqlite(path, read_only=True)
    assert await journal.read("s") == whole_session("s")
    assert [info.id for info in await journal.sessions()] == ["s"]
    assert await journal.inbox("s") == ()
    assert await journal.blob("0" * 64) is None
    for write in (
        journal.create("t"),
        journal.append("s", notes(11, 11), state="running", durable=False),
        journal.put("s", LeftCancellation(id="m")),
        journal.put_blob(b"x"),
    ):
        with pytest.raises(JournalError, match="reading only"):
            await write
    await journal.flush()
    await journal.close()
    assert snapshot(path.parent) == before


async def test_an_empty_file_is_no_journal_to_read(path: Path):
    path.touch()
    with pytest.raises(JournalError, match="is empty"):
        await open_sqlite(path, read_only=True)
    assert snapshot(path.parent) == {path.name: b""}


async def test_reading_only_sees_what_a_live_writer_stores(path: Path):
    writer = await open_sqlite(path)
    reader = await open_sqlite(path, read_only=True)
    await writer.create("s")
    for seq in range(1, 4):
        await writer.append("s", notes(seq, seq), state="running", durable=True)
        assert await reader.read("s") == notes(1, seq)
    await writer.close()
    assert await reader.read("s") == notes(1, 3)
    await reader.close()


def test_reading_only_sees_what_a_killed_process_left(path: Path, start_child: StartChild):
    assert start_child("crash", path).wait() == -signal.SIGKILL
    before = names(path.parent)

    async def read() -> tuple[AnyEvent, ...]:
        async with FilePlace(path).opened(read_only=True) as journal:
            return tuple(await journal.read("s"))

    assert asyncio.run(read()) == notes(1, 3)
    assert names(path.parent) == before


# --- the tables ------------------------------------------------------------------------------------------------------


async def test_a_path_may_hold_any_character(tmp_path: Path):
    path = tmp_path / "a?b#c%20 ü'\"&mode=ro" / "j;:memory:.db"
    await FilePlace(path).store()
    assert await FilePlace(path).stored() == notes(1, 3)
    with chdir(path.parent):
        journal = SqliteJournal(path.name)
    assert await journal.read("s") == notes(1, 3)
    assert journal.location == str(path)
    await journal.close()
    assert names(path.parent) == [path.name]


async def test_a_journal_never_used_leaves_no_file(path: Path):
    await SqliteJournal(path).close()
    assert names(path.parent) == []


async def test_a_file_that_has_no_log_yet_and_is_locked_is_told_after_a_bounded_wait(path: Path):
    await FilePlace(path).store()
    with raw(path) as other:
        assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)

    with FilePlace(path).locked(), pytest.raises(JournalError, match="Another program keeps the journal"):
        open_writer(path, 0.05)

    assert await FilePlace(path).stored() == notes(1, 3)


@pytest.mark.parametrize("moment", ["PRAGMA user_version", "SELECT count(*) FROM sqlite_schema"])
def test_a_file_that_another_process_makes_meanwhile_is_never_taken_for_a_strangers(path: Path, moment: str) -> None:
    with raw(path) as ours, closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:

        def make(statement: str) -> None:
            if statement == moment:
                with suppress(sqlite3.OperationalError):  # it waits for whoever looks
                    build(other)

        ours.set_trace_callback(make)
        assert kind_of(ours)[0] in (Kind.EMPTY, Kind.OURS)
        ours.set_trace_callback(None)

        build(other)
        assert kind_of(ours)[0] is Kind.OURS
