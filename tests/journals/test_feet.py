"""Files under a run's feet: a journal that is deleted, replaced, cut or reached by another name. With real files and processes."""

import asyncio
import hashlib
import itertools
import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from journal_events import notes, whole_session
from journal_places import FilePlace, nothing

from treadle import Agent, open_session, tool
from treadle.errors import JournalError, SessionHeld
from treadle.journals.sqlite import open_sqlite
from treadle.testing import ScriptedModel, call, text

StartChild = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def delete(path: Path) -> None:
    path.unlink()


def delete_with_log(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink()


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def empty_log(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


DAMAGES = [delete, delete_with_log, delete_log, replace, move_away, cut, empty, empty_log]


@pytest.mark.row("ST05")
@pytest.mark.row("SF12")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_file_that_is_lost_in_mid_run_is_noticed_before_the_next_durable_commit(
    path: Path, damage: Callable[[Path], None]
):
    journal = await open_sqlite(path)
    await journal.create("s")
    await journal.append("s", notes(1, 50), state="running", durable=True)
    damage(path)
    with pytest.raises(JournalError):
        await journal.append("s", notes(51, 51), state="running", durable=True)
    with pytest.raises(JournalError):
        await journal.append("s", notes(51, 51), state="running", durable=True)
    with suppress(JournalError):
        await journal.close()
    if damage in (delete, delete_with_log, move_away):
        assert not path.exists()


@pytest.mark.row("ST05")
@pytest.mark.unchecked
async def test_an_unsafe_call_does_not_run_once_the_journal_was_deleted(path: Path):
    paid: list[int] = []

    @tool(effect="read", permission="allow")
    async def lose() -> str:
        """Delete the journal."""
        delete_with_log(path)
        return "gone"

    @tool(effect="unsafe", permission="allow")
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    agent = Agent(ScriptedModel([call("lose"), call("pay"), text("Done.")]), tools=[lose, pay])
    with suppress(JournalError):
        async with open_session(path, id="s") as session:
            result = await agent.run("Pay", session=session)
            assert result.unstored
    assert paid == []


@pytest.mark.row("SF12")
async def test_a_log_that_is_lost_after_a_kill_is_noticed(path: Path, start_child: StartChild):
    child = start_child("append_for_ever", path, "holds")
    while int(await asyncio.to_thread(child.stdout.readline)) < 20:
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    delete_log(path)
    Path(f"{path}-shm").unlink(missing_ok=True)
    async with FilePlace(path).opened() as journal:
        await journal.create("s")
        for _ in range(2):
            with pytest.raises(JournalError, match=r"though event \d+ was stored.*-wal file was removed"):
                await journal.acquire("s", on_lost=nothing, on_message=nothing)


async def store_held(path: Path, first: int, last: int, *, name: str = "s") -> None:
    """Store events as the holder of their session does."""
    async with FilePlace(path).opened() as journal:
        await journal.create(name)
        lease = await journal.acquire(name, on_lost=nothing, on_message=nothing)
        await journal.append(name, notes(first, last), state="running", durable=True)
        await lease.release()


async def test_a_journal_that_was_made_anew_knows_nothing_of_the_one_before(path: Path):
    for _ in range(2):
        await store_held(path, 1, 5)
        path.unlink()


async def test_what_was_seen_of_many_sessions_is_in_one_small_file(path: Path):
    for number in range(200):
        await store_held(path, 1, 5, name=f"s{number}")

    (seen,) = Path(f"{path}.locks").iterdir()
    assert seen.stat().st_blocks * 512 <= 1_000_000
    assert seen.stat().st_size <= 65_536 * 64


@pytest.mark.row("SF12")
async def test_a_file_of_before_with_what_was_seen_of_one_session_is_read_once_more_and_removed(path: Path):
    await store_held(path, 1, 5)
    folder = Path(f"{path}.locks")
    (seen,) = folder.iterdir()
    journal = next(one for one in seen.read_bytes().split(b"\0") if one)[:32]
    alone = folder / f"{hashlib.sha256(b's').hexdigest()[:32]}.seen"
    alone.write_bytes(b"%s%020d" % (journal, 9))

    with pytest.raises(JournalError, match=rf"ends at event 5 in the journal, though event 9 was stored.*rm {alone}"):
        await store_held(path, 6, 6)
    alone.write_bytes(b"%s%020d" % (journal, 5))
    await store_held(path, 6, 6)

    assert list(folder.iterdir()) == [seen]


async def test_two_sessions_with_one_place_raise_no_false_alarm(path: Path):
    places: dict[int, str] = {}
    for number in itertools.count():
        place = int(hashlib.sha256(f"s{number}".encode()).hexdigest()[:32], 16) % 65_536
        if place in places:
            break
        places[place] = f"s{number}"
    await store_held(path, 1, 9, name=places[place])
    await store_held(path, 1, 2, name=f"s{number}")
    await store_held(path, 10, 10, name=places[place])


@pytest.mark.row("SF12")
async def test_an_older_copy_in_the_place_of_the_journal_is_noticed(path: Path):
    await store_held(path, 1, 5)
    backup = shutil.copy(path, path.with_name("backup.db"))
    await store_held(path, 6, 9)
    shutil.copy(backup, path)
    async with FilePlace(path).opened() as journal:
        with pytest.raises(JournalError, match=r"ends at event 5.*event 9 was stored.*run: rm .*seen"):
            await journal.acquire("s", on_lost=nothing, on_message=nothing)


@pytest.mark.row("SF13")
@pytest.mark.row("ST05")
async def test_a_symlink_to_a_journal_shares_its_locks(path: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)
    async with FilePlace(path).opened() as one, FilePlace(link).opened() as two:
        await one.create("s")
        lease = await one.acquire("s", on_lost=nothing, on_message=nothing)
        with pytest.raises(SessionHeld):
            await two.acquire("s", on_lost=nothing, on_message=nothing)
        await lease.release()


@pytest.mark.row("SF13")
async def test_a_hard_link_to_a_journal_is_refused(path: Path, tmp_path: Path):
    async with FilePlace(path).opened() as journal:
        await journal.create("s")
        os.link(path, tmp_path / "link.db")
        with pytest.raises(JournalError, match="has 2 names"):
            await open_sqlite(tmp_path / "link.db")
        await journal.append("s", notes(1, 1), state="running", durable=True)


@pytest.mark.row("ST06")
async def test_a_lock_that_cannot_be_written_is_released_with_its_descriptor(
    path: Path, run_child: Callable[..., list[str]]
):
    assert run_child("acquire_on_full_disk", path) == ["refused 5", "descriptors 0", "taken"]


# --- a changed byte --------------------------------------------------------------------------------------------------


async def content_of(path: Path) -> object:
    async with FilePlace(path).opened(read_only=True) as journal:
        sessions = sorted(info.id for info in await journal.sessions())
        return {
            name: (tuple(await journal.read(name)), tuple(await journal.inbox(name)))
            for name in {"weather", "other", *sessions}
        }


@pytest.mark.row("SF14")
@pytest.mark.row("ST09")
async def test_no_file_with_a_changed_byte_is_opened_with_other_content_in_silence(path: Path):
    rounds = int(os.environ.get("TREADLE_BYTES", "60"))
    await FilePlace(path).store(whole_session("weather"), session_ids=("weather", "other"))
    before, clean = path.read_bytes(), await content_of(path)
    chance = random.Random(7)
    noticed = 0
    for _ in range(rounds):
        place = chance.randrange(len(before))
        changed = bytes([(before[place] + chance.randrange(1, 256)) % 256])
        path.write_bytes(before[:place] + changed + before[place + 1 :])
        try:
            found = await content_of(path)
        except JournalError:
            noticed += 1
            continue
        assert found == clean, f"byte {place} became {changed!r}"
    assert noticed


@pytest.mark.row("ST09")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE event SET body = replace(body, '\"seq\":3', '\"seq\": 3') WHERE seq = 3",
        "UPDATE event SET sum = NULL WHERE seq = 3",
        "UPDATE event SET sum = randomblob(16) WHERE seq = 3",
    ],
)
async def test_an_edited_event_is_reported_with_its_place(path: Path, change: str):
    place = FilePlace(path)
    await place.store(notes(1, 5))
    place.run("DROP TRIGGER event_is_never_changed", change)
    async with place.opened() as journal:
        with pytest.raises(JournalError, match=r"Session 's' is damaged: event 3 .*checksum"):
            await journal.read("s")
        assert len(await journal.sessions()) == 1


@pytest.mark.row("SF14", "ST09")
@pytest.mark.parametrize(
    "change", ["task = 'Another'", "status = 'archived'", "updated_at = updated_at + 1", "head = 99"]
)
async def test_a_changed_row_of_a_session_is_reported_when_it_is_opened(path: Path, change: str):
    place = FilePlace(path)
    await place.store(whole_session("s"))
    place.run(f"UPDATE session SET {change}")
    with pytest.raises(JournalError, match="Session 's' is damaged"):
        await place.stored()


@pytest.mark.row("SF15")
@pytest.mark.parametrize("at", [1e300, -1e300, 253_402_300_800.0])
async def test_an_event_with_a_time_that_no_calendar_has_is_not_stored(path: Path, at: float):
    event = msgspec.structs.replace(notes(1, 1)[0], at=at)
    async with FilePlace(path).opened() as journal:
        with pytest.raises(JournalError, match="which is out of range"):
            await journal.adopt("s", [event], state="active")
        assert await journal.sessions() == ()
