"""What is written to a session can be read again, and one session that cannot be read never hides the others."""

import re
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from session_tools import Bank, waiting_session

from treadle import Agent, ConfigurationError, Done, NotDone, Session, open_journal, open_session
from treadle.errors import JournalError, NoRunYet, NoSuchPoint, NothingToResume, RunCompleted, UnknownSession, shown
from treadle.events import ModelFinished, RunStarted, SessionChanged
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.messages import Message, Text
from treadle.ports import Journal
from treadle.resolve.archives import expire_sessions, import_session, list_doubts
from treadle.testing import ScriptedModel, text


@pytest.mark.row("ST07", "SF15")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"status": "gone"}, "status must be 'active' or 'suspended' or 'completed' or 'failed' or 'deleted' or None; got 'gone'."),
        ({"if_head": True}, "if_head must be a whole number or None; got True."),
        ({"reason": 5}, "reason"),
        ({"reason": "\ud800"}, "reason"),
        ({"by": 5}, "by"),
        ({"metadata": [1]}, "metadata must be a mapping or None; got [1]."),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": MappingProxyType({"a": 1})}, "metadata must be a mapping or None; got mappingproxy({'a': 1})."),
        ({"metadata": {"a": {1}}}, "The metadata cannot be stored: $.a is a set, which JSON cannot hold."),
        ({"metadata": {"a": "\ud800"}}, "metadata"),
        ({"metadata": {"n": float("nan")}}, "metadata"),
        ({"metadata": {1: 2}}, "metadata"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_change_that_could_not_be_read_back_is_refused(journal: Journal, words: Any, message: str) -> None:
    async with open_session(journal, id="s") as session:
        with pytest.raises(ConfigurationError, match=re.escape(message)):
            await session.change(**{"status": "suspended", **words})
        assert session.state.head == 0
    async with open_session(journal, id="s") as session:
        assert session.state.own_status == "active"


@pytest.mark.row("ST07", "SF15")
@pytest.mark.parametrize("name", [5, None, "\ud800"])
async def test_a_model_whose_name_is_no_text_is_refused_before_anything_is_written(journal: Journal, name: Any) -> None:
    async with open_session(journal, id="s") as session:
        with pytest.raises(ConfigurationError, match="name must be a string"):
            await Agent(ScriptedModel([text("x")], name=name)).run("go", session=session)
        assert await session.events() == ()


@pytest.mark.row("ST07", "SF15")
async def test_a_store_refuses_an_event_that_it_could_not_read_back(tmp_path: Path) -> None:
    store = SqliteJournal(tmp_path / "a.db")
    await store.create("s")
    wrong = SessionChanged(session_id="s", seq=1, at=1.0, reason=5)  # type: ignore[arg-type]  # what a mistake would store
    with pytest.raises(JournalError, match="cannot store"):
        await store.append("s", [wrong], state="active", durable=True)
    assert await store.read("s") == ()
    await store.close()


@pytest.mark.row("ST07", "SF15")
@pytest.mark.parametrize("at", ["1e300", "-1", "253402300800.0"])
async def test_an_import_with_an_absurd_time_is_refused(journal: Journal, at: str) -> None:
    session = await waiting_session(journal, "s")
    lines = [line.decode() for line in await session.export()]
    for number, line in enumerate(lines):
        if '"approval.requested"' in line:
            expires = line.partition('"expires_at":')[2].split(",")[0].rstrip("}")
            with pytest.raises(JournalError, match="is not a time"):
                await import_session(
                    MemoryJournal(), [*lines[:number], line.replace(expires, at), *lines[number + 1 :]]
                )
            return
    pytest.fail("nothing waits")


@pytest.mark.row("ST07")
async def test_one_session_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    path, bank = tmp_path / "a.db", Bank()
    async with open_journal(path) as journal:
        await waiting_session(journal, "good")
        await waiting_session(journal, "bad")
        await bank.break_off(journal, "doubtful")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER event_is_never_changed")
        connection.execute("UPDATE event SET body = '{}' WHERE session_id = 'bad' AND seq = 2")
    connection.close()
    async with open_journal(path) as journal:
        assert [one.session_id for one in await journal.approvals()] == ["good"]
        assert [one.session_id for one in await list_doubts(journal)] == ["doubtful"]
        assert {info.id for info in await journal.sessions()} == {"good", "bad", "doubtful"}
        gone = await expire_sessions(journal, before=1e12, even_open=True)
        assert set(gone) == {"good", "doubtful"}


@pytest.mark.row("ST12")
async def test_a_journal_that_does_not_exist_is_not_made_for_a_session_that_must_exist(tmp_path: Path) -> None:
    for journal in (tmp_path / "mispelt.db", str(tmp_path / "mispelt.db")):
        with pytest.raises(UnknownSession, match=r"no journal '.*mispelt\.db'"):
            async with open_session(journal, id="s", must_exist=True):
                pass
    assert not list(tmp_path.iterdir())
    with pytest.raises(UnknownSession, match="no session 's' in the journal memory"):
        async with open_session("memory:", id="s", must_exist=True):
            pass


@pytest.mark.row("ST12")
async def test_a_session_that_must_exist_is_not_made(journal: Journal) -> None:
    with pytest.raises(UnknownSession, match="no session 'mispelt'"):
        async with open_session(journal, id="mispelt", must_exist=True):
            pass
    assert await journal.sessions() == ()
    with pytest.raises(ConfigurationError, match="must_exist"):
        async with open_session(journal, must_exist=True):
            pass
    async with open_session(journal, id="empty"):
        pass
    async with open_session(journal, id="empty", must_exist=True) as session:
        assert session.state.head == 0


@pytest.mark.row("ST12")
async def test_why_there_is_nothing_to_resume_is_told_apart(journal: Journal) -> None:
    agent = Agent(ScriptedModel([text("x")]))
    async with open_session(journal, id="s") as session:
        with pytest.raises(NoRunYet):
            await agent.resume(session)
        await agent.run("go", session=session)
        with pytest.raises(RunCompleted):
            await agent.resume(session)
    assert issubclass(NoRunYet, NothingToResume)
    assert issubclass(RunCompleted, NothingToResume)


@pytest.mark.row("ST07")
@pytest.mark.parametrize("first", ["\u202e", "\x00", "\u200b \u2028", " " * 1000 + "late"])
async def test_a_session_whose_first_task_shows_no_word_is_readable_after_the_next_one(
    journal: Journal, first: str
) -> None:
    async with open_session(journal, id="s") as session:
        for task in (first, "Pay invoice 7"):
            await Agent(ScriptedModel([text("Done.")])).run(task, session=session)
    async with open_session(journal, id="s") as again:
        assert len(again.messages) == 4
    assert [info.task for info in await journal.sessions()] == ["Pay invoice 7"]


class _Mute:
    """A value that refuses to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class _Markup(str):
    """A text of a class of its own, which encoders refuse."""

    __slots__ = ()


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


_UNFIT = {
    "nested": _nested(3000),
    "nested in an object": {"a": _nested(3000)},
    "mute": _Mute(),
    "a mute key": {_Mute(): 1},
    "many digits": 10**5000,
    "a list of many digits": [10**5000],
    "a class of text": _Markup("x"),
    "an object": {1: object()},
}


@pytest.mark.row("ST07", "SF15")
@pytest.mark.parametrize("name", _UNFIT)
async def test_a_value_that_cannot_be_shown_is_refused_with_a_sentence(journal: Journal, bank: Bank, name: str) -> None:
    value: Any = _UNFIT[name]
    session = await waiting_session(journal, "w")
    asked = session.approvals()[0].id
    await bank.break_off(journal, "d")
    async with open_session(journal, id="d") as doubtful:
        call_id = (await doubtful.doubts())[0].call_id
        refused: list[Callable[[], Awaitable[Any]]] = [
            lambda: session.answer(value, "allow"),
            lambda: session.answer(asked, value),
            lambda: session.answer(asked, "allow", arguments={"amount": value}),
            lambda: session.answer(asked, "allow", arguments=value),
            lambda: session.answer(asked, "allow", reason=value),
            lambda: session.answer(asked, "allow", by=value),
            lambda: session.steer(value),
            lambda: session.mark(value),
            lambda: session.fork(id=value),
            lambda: session.change(status=value),
            lambda: session.change(metadata={"a": value}),
            lambda: session.change(reason="x", if_head=[value]),  # type: ignore[arg-type]  # as above
            lambda: session.export(redactor=[value]),  # type: ignore[arg-type]  # as above
            lambda: _events(session, [value]),
            lambda: import_session(journal, [value]),
            lambda: _opened([value]),
            lambda: session.move(value),
            lambda: doubtful.resolve(value, NotDone),
            lambda: doubtful.resolve(call_id, value),
            lambda: doubtful.resolve(call_id, Done(value)),
            lambda: doubtful.resolve(call_id, NotDone, by=value),
            lambda: import_session(journal, [], id=value),
        ]
        for number, one in enumerate(refused):
            with pytest.raises((ConfigurationError, NoSuchPoint, JournalError)) as raised:
                await one()
            assert len(str(raised.value)) < 500, number
    async with open_session(journal, id="w", must_exist=True) as again:
        assert [one.id for one in await again.approvals()] == [asked]


@pytest.mark.row("ST07")
@pytest.mark.parametrize(
    ("option", "ask"),
    [
        ("to", lambda session: session.move("\ud800")),
        ("by", lambda session: session.move("b", by="\ud800")),
        ("reason", lambda session: session.move("b", reason="\ud800")),
        ("by", lambda session: session.change(by="\ud800")),
        ("reason", lambda session: session.change(reason="\ud800")),
        ("by", lambda session: session.set_mode("plan", by="\ud800")),
        ("by", lambda session: session.compact(by="\ud800")),
    ],
)
async def test_a_text_that_cannot_be_stored_is_refused_by_the_name_of_its_option(option: str, ask: Any) -> None:
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match=f"^{option} cannot be stored"):
            await ask(session)

        assert not await session.events()


async def _events(session: Session, after: Any) -> None:
    await session.events(after)


async def _opened(journal: Any) -> None:
    async with open_session(journal, id="x"):
        pass


@pytest.mark.row("ST07")
def test_any_value_is_shown_in_few_characters() -> None:
    assert shown("a" * 10_000_000) == "'" + "a" * 79
    assert shown(_nested(100_000), 40) == "[[[[[[[...]]]]]]]"
    assert shown(_Mute()) == "<_Mute>"
    assert "bits" in shown(10**5000)
    assert len(shown({"a": [1] * 1000}, 60)) == 60


@pytest.mark.row("ST07")
@pytest.mark.unchecked("its events contradict each other on purpose")
async def test_events_that_contradict_each_other_are_one_clear_error_wherever_they_are_read(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "agent.db")
    finished = ModelFinished(
        session_id="s", seq=2, at=2.0, cost="much", message=Message(role="assistant", parts=(Text("a"),))
    )
    await journal.adopt("s", [RunStarted(session_id="s", seq=1, at=1.0, task="go"), finished], state="running")

    with pytest.raises(JournalError, match=r"session 's' contradict each other at event 2 \(model.finished\)"):
        async with open_session(journal, id="s"):
            pass
    assert await expire_sessions(journal, before=1e12) == ()
    assert await list_doubts(journal) == ()
    await journal.close()
