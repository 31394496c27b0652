"""Fork, mark and rewind: the model sees another past, the journal keeps the whole one, and nothing is undone."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from session_tools import payer, stored_session, waiting_session

from treadle import Agent, SessionHeld, Tool, ToolContext, open_session
from treadle.errors import NoSuchPoint
from treadle.events import AnyEvent, ModelDiscarded, SessionForked, ToolStarted
from treadle.messages import ToolCall
from treadle.ports import Journal
from treadle.resolve.archives import import_session
from treadle.state import SessionState
from treadle.state.session import sums
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Effect, JsonObject


def said(model: ScriptedModel, request: int = -1) -> list[str]:
    return [message.text for message in model.requests[request].messages if message.text]


# --- fork


@pytest.mark.row("Q09")
async def test_a_fork_after_a_message_goes_on_by_itself_and_so_does_its_parent(journal: Journal) -> None:
    await stored_session(journal)
    ours, theirs = ScriptedModel([text("A")]), ScriptedModel([text("B")])
    async with open_session(journal, id="s") as parent:
        child = await parent.fork(message=6, id="s2")
        await payer(ours).run("Parent continues", session=parent)
        await payer(theirs).run("Child continues", session=child)

        assert [message.text for message in parent.messages][-4:] == [
            "Thanks",
            "You are welcome.",
            "Parent continues",
            "A",
        ]
        assert said(theirs) == ["Pay the invoice", "Paid 40.", "Child continues"]
        assert "Child continues" not in said(ours)
        assert (child.state.parent_id, child.state.parent_seq) == ("s", next_fork(await child.events()) - 1)
        assert child.state.run_status == "completed"
    infos = {info.id: info for info in await journal.sessions()}
    assert (infos["s2"].parent_id, infos["s"].parent_id) == ("s", None)


def next_fork(events: Sequence[AnyEvent]) -> int:
    (fork,) = [event for event in events if isinstance(event, SessionForked)]
    return fork.seq


@pytest.mark.row("Q09")
async def test_the_events_of_a_fork_are_its_own_and_fold_to_the_state_that_it_was_made_with(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as parent:
        child = await parent.fork(step=2)

        events = await journal.read(child.id)
        assert {event.session_id for event in events} == {child.id}
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(child.messages) == 5
    async with open_session(journal, id=child.id) as again:
        assert sums(again.state) == sums(child.state)


async def test_a_call_of_a_fork_has_another_idempotency_key_than_the_same_call_of_its_parent(journal: Journal) -> None:
    await stored_session(journal)
    paid: list[tuple[int, str]] = []
    async with open_session(journal, id="s") as parent:
        child = await parent.fork()
        for session in (parent, child):
            model = ScriptedModel([call("pay", amount=1), text("done")])
            await payer(model, paid).run("Again", session=session)

    assert [amount for amount, _ in paid] == [1, 1]
    assert len({key for _, key in paid}) == 2


async def test_a_fork_where_a_call_is_open_is_refused_and_the_nearest_point_is_named(journal: Journal) -> None:
    session = await waiting_session(journal)

    with pytest.raises(NoSuchPoint, match=r"a call has no result yet.*nearest such point is event \d+") as refused:
        await session.fork()

    nearest = int(str(refused.value).rpartition("is event ")[2].partition(";")[0])
    child = await session.fork(nearest)
    assert [message.text for message in child.messages] == ["Pay 7"]
    assert [info.id for info in await journal.sessions() if info.parent_id] == [child.id]


@pytest.mark.row("ST07")
@pytest.mark.parametrize(
    ("point", "words"),
    [
        (
            {"at": 1},
            "Event 1 of session 's' begins a task, which enters the conversation with the next event. Name event 0 or 2.",
        ),
        ({"at": 999}, "There is no event 999: the session's events have the numbers 1 to"),
        ({"at": -1}, "There is no event -1"),
        ({"at": "there"}, "has no mark 'there'. Marks: here, start."),
        ({"at": None}, "got None"),
        ({"at": True}, "A point is a mark or the number of an event; got True"),
        ({"at": 1.5}, "A point is a mark or the number of an event; got 1.5"),
        ({"at": b"x"}, "A point is a mark or the number of an event; got b'x'"),
        ({"step": 99}, "has no whole step 99"),
        ({"step": "2"}, "step is a whole number; got '2'"),
        ({"step": True}, "step is a whole number; got True"),
        ({"message": 99}, "has no point after message 99"),
        ({"message": 1.5}, "message is a whole number; got 1.5"),
        ({"at": 1, "step": 1}, "Name one point"),
    ],
    ids=str,
)
async def test_a_point_that_is_none_is_refused_with_its_name_and_value_and_nothing_is_made(
    journal: Journal, point: Any, words: str
) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.mark("start")
        await session.mark("here")
        if point != {"at": None}:  # a fork of no point is one of the end
            with pytest.raises(NoSuchPoint, match=re.escape(words)):
                await session.fork(**point)
        if [*point] == ["at"]:
            with pytest.raises(NoSuchPoint, match=re.escape(words)):
                await session.rewind(point["at"])

    assert [info.id for info in await journal.sessions()] == ["s"]


async def test_the_time_that_passed_before_a_fork_was_made_is_no_time_of_its_run(journal: Journal) -> None:
    state = SessionState("s")
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        child = await session.fork(step=1)
        events = await journal.read(child.id)
    for event in events:
        state.apply(event)

    assert state.run is not None
    assert state.run.last_at == events[-2].at


# --- mark and rewind


@pytest.mark.row("Q10")
async def test_after_a_rewind_the_model_sees_nothing_later_and_the_journal_keeps_everything(journal: Journal) -> None:
    model = ScriptedModel([text("one"), text("two"), text("three")])
    async with open_session(journal, id="s") as session:
        await payer(model).run("first", session=session)
        await session.mark("start")
        await payer(model).run("second", session=session)
        before = await session.events()

        rewound = await session.rewind("start")
        await payer(model).run("third", session=session)
        after = await session.events()

    assert said(model) == ["first", "one", "third"]
    assert (rewound.messages, rewound.dropped, rewound.effects, rewound.mark) == (2, 2, (), "start")
    assert "Nothing that a call changed after that point is left" in rewound.message
    assert tuple(after[: len(before)]) == tuple(before)
    async with open_session(journal, id="s") as again:
        assert [message.text for message in again.messages] == ["first", "one", "third", "three"]


@pytest.mark.row("Q10")
async def test_a_rewind_names_the_effects_that_it_does_not_undo_and_tells_the_model(journal: Journal) -> None:
    paid: list[tuple[int, str]] = []
    model = ScriptedModel([text("hello"), call("look"), call("pay", amount=40), text("Paid."), text("I see.")])
    async with open_session(journal, id="s") as session:
        await payer(model, paid).run("hi", session=session)
        await session.mark("before")
        await payer(model, paid).run("pay", session=session)
        rewound = await session.rewind("before")
        await payer(model, paid).run("continue", session=session)

    assert [(one.tool, one.status) for one in rewound.effects] == [("pay", "ok")]
    assert "Effects are not undone: pay (" in rewound.message
    assert (rewound.messages, rewound.dropped) == (2, 6)
    assert "pay" in said(model)[2]
    assert "not undone" in said(model)[2]
    assert said(model)[3:] == ["continue"]
    assert [amount for amount, _ in paid] == [40]


@pytest.mark.row("Q10")
async def test_a_rewind_never_leads_between_a_call_and_its_result(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        events = await session.events()
        refused = 0
        for event in events:
            try:
                child = await session.fork(event.seq)
            except NoSuchPoint:
                refused += 1
                with pytest.raises(NoSuchPoint):
                    await session.rewind(event.seq)
                continue
            calls = [call.id for message in child.messages for call in message.calls]
            results = [result.call_id for message in child.messages for result in message.results]
            assert calls == results
        assert await session.events() == events

    assert 0 < refused < len(events)


async def test_a_rewind_behind_a_call_that_waits_answers_it_first(journal: Journal) -> None:
    session = await waiting_session(journal)

    rewound = await session.rewind(2)

    assert session.approvals() == ()
    assert rewound.effects == ()
    assert [message.text for message in session.messages] == ["Pay 7"]
    assert [info.run_status for info in await journal.sessions()] == [session.state.run_status] == ["stopped"]
    calls = {event.call_id for event in await session.events() if event.type == "model.finished"} - {None}
    assert calls == set()
    finished = [event.result.status for event in await session.events() if event.type == "tool.finished"]  # type: ignore[union-attr]
    assert finished == ["ok", "cancelled"]
    model = ScriptedModel([text("Nothing to pay.")])
    assert (await payer(model).resume(session)).completed
    assert said(model) == ["Pay 7", "Hurry up"]


EARLY = ToolStarted(
    call_id="e1", tool="look", effect=Effect.READ, early=True, call=ToolCall(id="e1", name="look", arguments="{}")
)


@pytest.mark.row("H22")
@pytest.mark.unchecked("it records a start by hand, without a run and its decision")
@pytest.mark.parametrize("later", [(), (ModelDiscarded(calls=("e1",)),)], ids=["a crash", "a response that broke off"])
async def test_no_fork_mark_or_copy_shares_a_call_that_started_early_and_a_rewind_ends_it(
    journal: Journal, later: Sequence[AnyEvent]
) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.ledger.record(EARLY, *later)

        with pytest.raises(NoSuchPoint, match="has no result yet"):
            await session.fork(id="s2")
        with pytest.raises(NoSuchPoint, match="without a result"):
            await session.mark("here")
        with pytest.raises(NoSuchPoint, match="without a result"):
            await import_session(journal, await session.export(), id="s3")
        await session.rewind(2, tell_model=False)
        await session.mark("here")

    assert not session.state.early


async def test_a_rewound_run_goes_on_and_what_it_spent_stays_spent(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        first = await session.fork(step=2)
        spent = first.state.run.spent.model_turns  # type: ignore[union-attr]
        await first.rewind(2)
        result = await payer(ScriptedModel([text("Instead.")])).resume(first)

    assert result.completed
    assert result.spent.model_turns == spent + 1


async def test_a_way_that_was_left_can_be_forked_from_but_not_rewound_to(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        end = session.state.head
        await session.mark("late")
        await session.rewind(2, tell_model=False)

        with pytest.raises(NoSuchPoint, match="a rewind has discarded"):
            await session.rewind(end)
        with pytest.raises(NoSuchPoint, match="no mark 'late'"):
            await session.rewind("late")
        child = await session.fork(end)
        assert len(child.messages) == 8
        assert len(session.messages) == 1


async def test_a_rewind_to_the_very_beginning_leaves_nothing_to_resume(journal: Journal) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.rewind(0, tell_model=False)

        assert session.messages == ()
        assert session.state.run is None
        assert [info.run_status for info in await journal.sessions()] == [session.state.run_status] == ["active"]
        model = ScriptedModel([text("Hello.")])
        await payer(model).run("Anew", session=session)
        assert said(model) == ["Anew"]


async def test_a_mark_needs_a_name_and_a_whole_point(journal: Journal) -> None:
    session = await waiting_session(journal)

    with pytest.raises(NoSuchPoint, match="without a result"):
        await session.mark("here")
    for name in ("", "a\nb", "x" * 101):
        with pytest.raises(Exception, match="name of a mark must be 1 to 100"):
            await session.mark(name)


async def test_nothing_is_marked_or_rewound_while_a_run_is_under_way(journal: Journal) -> None:
    refused: list[str] = []

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        async with open_session(journal, id="s") as other:
            for act in (session.mark, other.mark, other.rewind):
                with pytest.raises(SessionHeld):
                    await act("a")
                refused.append(act.__name__)
        return "seen"

    try_all = Tool(name="try_all", description="Try.", parameters={}, effect="read", run=run)
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("try_all"), text("done")]), tools=[try_all]).run("go", session=session)

    assert refused == ["mark", "mark", "rewind"]
