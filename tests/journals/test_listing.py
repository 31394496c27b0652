"""A journal is listed by filters and a cursor, and followed while others write to it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from journal_events import note, notes

from treadle.errors import ConfigurationError, JournalError
from treadle.events import AnyEvent, RunFinished, RunPaused, RunResumed, RunStarted, SessionChanged, SessionForked
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal, SessionFilter


async def fill(journal: Journal) -> None:
    """Make sessions: `a`, `b` and `c` at the same time, then a fork of `a`, then a deleted one."""
    started = [
        ("a", "completed", RunStarted(seq=1, at=10.0, task="Pay the RENT")),
        ("b", "paused", RunStarted(seq=1, at=10.0, task="Read 100% of it")),
        ("c", "failed", RunStarted(seq=1, at=10.0, task="Éclair")),
    ]
    for name, state, event in started:
        await journal.create(name)
        await journal.append(name, [event], state=state, durable=False)
    await journal.append("b", [SessionChanged(seq=2, at=10.0, metadata={"tenant": "K7"})], state="paused", durable=True)
    await journal.append("c", [SessionChanged(seq=2, at=10.0, status="suspended")], state="failed", durable=True)
    forked = (note(1, at=20.0), SessionForked(seq=2, at=20.0, parent_id="a", parent_seq=1))
    tenant = SessionChanged(seq=3, at=20.0, metadata={"tenant": "K7", "other": 1})
    await journal.adopt("fork", (*forked, tenant), state="stopped")
    await journal.create("gone")
    await journal.purge("gone", SessionChanged(seq=1, at=5.0, status="deleted"))


FILTERS = [
    ({}, ["fork", "c", "b", "a", "gone"]),
    ({"run_statuses": ("completed", "failed")}, ["c", "a"]),
    ({"statuses": ("suspended",)}, ["c"]),
    ({"statuses": ("completed", "paused")}, ["b", "a"]),
    ({"statuses": ("active", "stopped", "deleted")}, ["fork", "gone"]),
    ({"run_statuses": ("completed",), "statuses": ("suspended",)}, ["c", "a"]),
    ({"without_deleted": True}, ["fork", "c", "b", "a"]),
    ({"parent_id": "a"}, ["fork"]),
    ({"parent_id": "b"}, []),
    ({"tenant": "K7"}, ["fork", "b"]),
    ({"tenant": ""}, ["c", "a", "gone"]),
    ({"tenant": "K7", "run_statuses": ("paused",)}, ["b"]),
    ({"since": 10.0}, ["fork", "c", "b", "a"]),
    ({"since": 10.1}, ["fork"]),
    ({"text": "rent"}, ["a"]),
    ({"text": "100% O"}, ["b"]),
    ({"text": "_"}, []),
    ({"text": "FORK"}, ["fork"]),
    ({"limit": 2}, ["fork", "c"]),
    ({"limit": 0}, []),
    ({"limit": 1, "text": "a"}, ["c"]),
]


@pytest.mark.parametrize(("asked", "names"), FILTERS, ids=[str(asked) for asked, _ in FILTERS])
async def test_a_list_names_the_sessions_for_which_every_condition_holds(journal: Journal, asked, names):
    await fill(journal)
    assert [info.id for info in await journal.sessions(SessionFilter(**asked))] == names


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
async def test_pages_by_cursor_name_every_session_once(journal: Journal, limit: int):
    await fill(journal)
    seen: list[str] = []
    after = ""
    while page := await journal.sessions(SessionFilter(limit=limit, after=after)):
        assert len(page) <= limit
        seen += [info.id for info in page]
        after = page[-1].cursor

    assert seen == ["fork", "c", "b", "a", "gone"]


async def test_a_session_that_changes_between_two_pages_hides_no_other(journal: Journal):
    await fill(journal)
    (_, last) = await journal.sessions(SessionFilter(limit=2))
    await journal.append("c", [note(3, at=99.0)], state="failed", durable=True)

    assert [info.id for info in await journal.sessions(SessionFilter(after=last.cursor))][-2:] == ["a", "gone"]


@pytest.mark.parametrize(
    ("asked", "fault"), [({"after": "yesterday"}, "not a cursor"), ({"limit": -1}, "must be 0 or more")]
)
async def test_a_filter_that_no_list_can_answer_is_refused(journal: Journal, asked, fault: str):
    with pytest.raises(ConfigurationError, match=fault):
        await journal.sessions(SessionFilter(**asked))


async def test_a_tenant_can_be_taken_away(journal: Journal):
    await journal.create("s")
    for seq, tenant in enumerate(("K7", "K8", None), 1):
        change = SessionChanged(seq=seq, at=1.0, metadata={"tenant": tenant})
        await journal.append("s", [change], state="active", durable=False)
        await journal.append("s", [], state="active", durable=False)
        assert [info.tenant for info in await journal.sessions()] == [tenant or ""]


# --- following -------------------------------------------------------------------------------------------------------


async def rest(followed: AsyncIterator[AnyEvent]) -> list[int]:
    return [event.seq async for event in followed]


async def test_a_run_is_followed_to_its_end(journal: Journal):
    await journal.create("s")
    following = asyncio.create_task(rest(journal.follow("s")))
    late = asyncio.create_task(rest(journal.follow("s", after=2)))
    run = [
        RunStarted(seq=1, at=1.0, task="x"),
        note(2),
        RunPaused(seq=3, at=1.0, reason="approval_required"),
        RunResumed(seq=4, at=1.0),
        RunFinished(seq=5, at=1.0, status="completed", reason="completed", completed=True),
    ]
    for event in run:
        await journal.append("s", [event], state="running", durable=event.seq % 2 == 0)
        await asyncio.sleep(0)

    assert await following == [1, 2, 3, 4, 5]
    assert await late == [3, 4, 5]
    assert await rest(journal.follow("s")) == [1, 2, 3, 4, 5]


async def test_following_ends_when_it_is_left_and_leaves_nothing(journal: Journal):
    await journal.create("s")
    await journal.append("s", notes(1, 2), state="running", durable=True)
    seen = []
    async for event in journal.follow("s"):
        seen.append(event.seq)
        if event.seq == 2:
            break
    following = asyncio.create_task(rest(journal.follow("s", after=2)))
    await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following

    assert seen == [1, 2]


async def test_whoever_follows_a_journal_that_is_closed_is_told(journal: Journal):
    await journal.create("s")
    following = asyncio.create_task(rest(journal.follow("s")))
    await asyncio.sleep(0)
    await journal.close()
    with pytest.raises(JournalError, match="closed"):
        await following


async def test_an_old_file_is_listed_without_being_changed(tmp_path: Path):
    old = tmp_path / "old.db"
    old.write_bytes((Path(__file__).parent / "corpus" / "v1.sqlite").read_bytes())
    journal = SqliteJournal(old, read_only=True)
    active = await journal.sessions(SessionFilter(without_deleted=True))
    everything = await journal.sessions()
    await journal.close()

    assert active == everything
    assert len(everything) > 0
