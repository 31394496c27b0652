"""The person's side of a doubt: a payment of unknown outcome is found, looked into and ended, and the model continues from there."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from session_tools import Bank, held_tool, waiting_session

from invariants import check_session
from pipeline_tools import DyingJournal
from treadle import (
    Agent,
    ConfigurationError,
    Done,
    NotDone,
    SessionHeld,
    StopReason,
    Unknown,
    ask,
    open_journal,
    open_session,
)
from treadle.errors import JournalError, UnknownDoubt
from treadle.events import ToolResolved
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.resolve.archives import expire_sessions, list_doubts
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


def told(done: Any) -> JsonObject:
    """What the model was told of call `p`."""
    results = [part for message in done.messages for part in message.results if part.call_id == "p"]
    value: JsonObject = msgspec.json.decode(results[-1].content)
    return value


async def resolutions(session: Any) -> list[ToolResolved]:
    return [event for event in await session.events() if isinstance(event, ToolResolved)]


@pytest.mark.row("ST10", "HF3")
async def test_a_payment_in_doubt_is_listed_with_what_one_needs_to_look_into_it(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal, key=lambda arguments: arguments["invoice"])
    async with open_session(journal, id="s") as session:
        [doubt] = session.doubts()
    assert (doubt.call_id, doubt.tool, doubt.arguments, doubt.is_told) == ("p", "pay", {"invoice": "7"}, False)
    assert (doubt.business_key, doubt.key[:3], doubt.session_id) == ('"7"', "tk_", "s")


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("journal", ["memory", "sqlite", "postgres"], indirect=True)
async def test_the_receipt_becomes_the_result_when_the_model_was_not_told_yet(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await session.resolve("p", Done({"receipt": 4711}), by="ada", reason="Seen in the bank's list.")
        assert session.doubts() == await list_doubts(journal) == ()
        done = await bank.agent(text("Paid.")).resume(session)
        [resolved] = await resolutions(session)
        await check_session(session)

    assert (done.reason, done.text, bank.paid, told(done)) == ("completed", "Paid.", ["7"], {"receipt": 4711})
    assert (done.in_doubt, done.next_safe_action) == ((), StopReason.COMPLETED.next_safe_action)
    assert (resolved.outcome, resolved.by, resolved.reason, resolved.value) == (
        "done", "ada", "Seen in the bank's list.", {"receipt": 4711},
    )  # fmt: skip
    assert resolved.at > 0


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("outcome", [*map(Done, (None, False, "", [], "text")), Unknown], ids=str)
async def test_a_result_of_nothing_can_be_said_and_that_nobody_knows(
    journal: Journal, bank: Bank, outcome: Any
) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await session.resolve("p", outcome, by="ada", reason="The bank does not answer.")
        done = await bank.agent(text("Well.")).resume(session)
        await check_session(session)
        [said] = await resolutions(session)
    status = "outcome_unknown" if outcome is Unknown else "ok"
    assert ([(one.id, one.status, one.attempts) for one in done.tool_calls], bank.paid) == ([("p", status, 1)], ["7"])
    assert (done.text, said.by, said.reason) == ("Well.", "ada", "The bank does not answer.")


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize(("policy", "reason", "paid"), [(None, "completed", 2), (ask("pay"), "approval_required", 1)])
async def test_what_was_not_done_may_run_and_is_decided_anew(
    journal: Journal, bank: Bank, policy: Any, reason: str, paid: int
) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await session.resolve("p", NotDone)
        done = await bank.agent(text("Paid."), policy=policy).resume(session)
    assert (done.reason, len(bank.paid)) == (reason, paid)


@pytest.mark.row("ST10", "HF3")
async def test_after_an_unknown_payment_the_report_says_what_is_to_do(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        done = await bank.agent(text("I do not know.")).resume(session)
    report = done.report()

    assert (report["status"], report["completed"]) == ("completed", True)
    assert "pay (p)" in report["next_safe_action"]
    assert "None needed" not in report["next_safe_action"]
    assert [(one["name"], one["status"], one["attempts"]) for one in report["tool_calls"]] == [
        ("pay", "outcome_unknown", 1)
    ]
    assert [(one["call_id"], one["tool"], one["arguments"], one["is_told"]) for one in report["in_doubt"]] == [
        ("p", "pay", {"invoice": "7"}, True)
    ]


@pytest.mark.row("ST10", "H22")
async def test_a_resolution_is_told_after_the_results_of_calls_that_wait(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        asking = [call("pay", id="q", invoice="8")]
        waits = await bank.agent(asking, policy=ask("pay")).resume(session)
        await session.resolve("p", Done({"receipt": 4711}))
        [approval] = session.approvals()
        await session.answer(approval.id, "deny")
        model = ScriptedModel([text("I see.")])
        await Agent(model, tools=[bank.tool()], policy=ask("pay")).resume(session)
        await check_session(session)
        kinds = {event.type for event in await session.events()}
    last, before = model.requests[0].messages[-1], model.requests[0].messages[-2]

    assert waits.reason == StopReason.APPROVAL_REQUIRED
    assert ([one.call_id for one in before.results], last.role) == (["q"], "user")
    assert "4711" in last.text
    assert "history.repaired" not in kinds


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize(
    ("outcome", "words"),
    [(Done({"receipt": 4711}), 'was carried out.*{"receipt":4711}'), (NotDone, "was not carried out"), (Unknown, "stays unknown")],
)  # fmt: skip
async def test_a_model_that_was_told_unknown_is_told_the_resolution_with_its_next_request(
    journal: Journal, bank: Bank, outcome: Any, words: str
) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("I do not know.")).resume(session)
        [doubt] = session.doubts()
        assert doubt.is_told
        await session.resolve("p", outcome, by="ada")
        assert session.doubts() == ()
    async with open_session(journal, id="s") as session:
        assert session.doubts() == ()
        model = ScriptedModel([text("I see.")])
        done = await Agent(model, tools=[bank.tool()]).run("And now?", session=session)
        await check_session(session)
    said = [message.text for message in model.requests[0].messages if message.role == "user"]
    assert any(re.search(words, one) for one in said), said
    assert (done.in_doubt, bank.paid) == ((), ["7"])


@pytest.mark.row("HF3")
async def test_a_second_resolution_is_told_who_was_first_and_unknown_may_be_corrected(
    journal: Journal, bank: Bank
) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await session.resolve("p", Unknown, by="ada")
        await session.resolve("p", Done(1), by="kim")
        with pytest.raises(UnknownDoubt, match=r"already: done, by kim at 20\d\d-"):
            await session.resolve("p", NotDone)
        with pytest.raises(UnknownDoubt, match="In doubt: none"):
            await session.resolve("q", NotDone)
        assert [(one.by, one.outcome) for one in await resolutions(session)] == [("ada", "unknown"), ("kim", "done")]


@pytest.mark.parametrize("outcome", [None, "done", True, Done(float("nan")), Done({1})])
async def test_what_resolves_nothing_is_refused_and_nothing_is_written(
    journal: Journal, bank: Bank, outcome: Any
) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        with pytest.raises(ConfigurationError, match="Done"):
            await session.resolve("p", outcome)
        assert [doubt.call_id for doubt in session.doubts()] == ["p"]
        assert await resolutions(session) == []


async def test_a_call_that_is_under_way_is_in_no_doubt_and_cannot_be_resolved(journal: Journal) -> None:
    tool, entered, gate = held_tool()
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([call("pay", id="p"), text("Paid.")]), tools=[tool])
        running = asyncio.create_task(agent.run("go", session=session))
        await entered.wait()
        assert session.doubts() == ()
        assert await list_doubts(journal) == ()
        with pytest.raises(SessionHeld):
            await session.resolve("p", Done("paid"))
        gate.open()
        assert (await running).in_doubt == ()


@pytest.mark.row("ST10", "HF3")
async def test_a_doubt_that_a_person_is_asked_about_can_be_resolved_instead(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([text("Paid.")]), tools=[bank.tool()], in_doubt="ask")
        paused = await agent.resume(session)
        assert (paused.reason, [one.call_id for one in paused.in_doubt]) == ("approval_required", ["p"])
        await session.resolve("p", Done({"receipt": 1}))
        assert await session.approvals() == ()
        done = await agent.resume(session)
        await check_session(session)
    assert (done.reason, bank.paid, told(done)) == ("completed", ["7"], {"receipt": 1})


@pytest.mark.row("ST10")
async def test_a_doubt_that_a_new_task_leaves_behind_is_told_with_its_resolution(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await session.resolve("p", Done({"receipt": 4711}))
        model = ScriptedModel([text("I see.")])
        await Agent(model, tools=[bank.tool()]).run("Something else", session=session)
        await check_session(session)
        assert session.doubts() == ()
    said = [message.text for message in model.requests[0].messages if message.role == "user"]
    assert any("was carried out" in one and "4711" in one for one in said)


@pytest.mark.row("ST11", "ST10")
@pytest.mark.parametrize("purge", [False, True])
async def test_retention_keeps_what_waits_for_a_person_or_is_in_doubt(
    journal: Journal, bank: Bank, purge: bool
) -> None:
    await bank.break_off(journal, "crashed")
    await bank.break_off(journal, "told")
    await waiting_session(journal, "waits")
    for name, turns in (("told", [text("Unknown.")]), ("over", [text("Hello.")])):
        async with open_session(journal, id=name) as session:
            agent = bank.agent(*turns)
            await (agent.resume(session) if name == "told" else agent.run("Hi", session=session))
    late = time.time() + 1e6
    assert await expire_sessions(journal, before=late, purge=purge) == ("over",)
    assert {doubt.session_id for doubt in await list_doubts(journal)} == {"crashed", "told"}
    gone = await expire_sessions(journal, before=late, purge=purge, even_open=True)
    assert set(gone) - {"over"} == {"crashed", "told", "waits"}
    assert await list_doubts(journal) == ()


async def test_what_another_process_carries_out_is_in_no_doubt_until_that_process_is_gone(
    tmp_path: Path, postgres_url: str
) -> None:
    for place in (tmp_path / "journal.db", postgres_url):
        tool, entered, gate = held_tool()
        async with open_journal(place) as journal, open_journal(place) as other:
            async with open_session(DyingJournal(journal, call_id="p"), id="s", on_store_failure="stop") as session:
                agent = Agent(ScriptedModel([call("pay", id="p"), text("Paid.")]), tools=[tool])
                running = asyncio.create_task(agent.run("go", session=session))
                await entered.wait()
                assert await list_doubts(other) == ()
                async with open_session(other, id="s") as watching:
                    assert await watching.doubts() == ()
                gate.open()
                with pytest.raises(JournalError, match="gone"):
                    await running
            assert [doubt.call_id for doubt in await list_doubts(other)] == ["p"]


class Counting(SqliteJournal):
    """Counts the sessions that are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read_ids: list[str] = []

    async def read(self, session_id: str, *, after: int = 0) -> Any:
        self.read_ids.append(session_id)
        return await super().read(session_id, after=after)


async def test_only_sessions_that_may_hold_a_doubt_are_read(tmp_path: Path, bank: Bank) -> None:
    journal = Counting(tmp_path / "journal.db")
    await bank.break_off(journal, "crashed")
    await bank.break_off(journal, "told")
    async with open_session(journal, id="told") as session:
        await bank.agent(text("Unknown.")).resume(session)
        await session.fork(id="fork")
        await session.rewind(0)
    for name in ("a", "b", "c"):
        async with open_session(journal, id=name) as session:
            await bank.agent(call("pay", invoice="8"), text("Paid.")).run("Pay", session=session)
    async with open_session(journal, id="new"):
        pass
    journal.read_ids.clear()
    assert {doubt.session_id for doubt in await list_doubts(journal)} == {"crashed", "told", "fork"}
    assert set(journal.read_ids) == {"crashed", "fork", "told"}
    await journal.close()


# --- a call that equals one in doubt


def by_invoice(arguments: JsonObject) -> Any:
    return arguments["invoice"]


def broken(arguments: JsonObject) -> Any:
    raise KeyError("invoice")


@pytest.mark.row("ST10")
@pytest.mark.parametrize(
    ("key", "arguments", "asks"),
    [
        (None, {"invoice": "7"}, True),
        (None, {"invoice": "8"}, False),
        (None, {"invoice": "7", "note": "again"}, False),
        (by_invoice, {"invoice": "7"}, True),
        (by_invoice, {"invoice": "7", "note": "again"}, True),
        (by_invoice, {"invoice": "8"}, False),
        (broken, {"invoice": "8"}, True),
    ],
)
@pytest.mark.parametrize("effect", ["unsafe", "keyed"])
async def test_a_call_that_equals_one_in_doubt_asks_before_it_runs(
    journal: Journal, bank: Bank, key: Any, arguments: JsonObject, asks: bool, effect: Any
) -> None:
    await bank.break_off(journal, key=key)
    async with open_session(journal, id="s") as session:
        again = call("pay", id="again", arguments=arguments)
        agent = bank.agent(again, text("Paid."), effect=effect, key=key)
        done = await agent.resume(session)
        assert (done.reason, len(bank.paid)) == (("approval_required", 1) if asks else ("completed", 2))
        if not asks:
            return
        [approval] = done.approvals
        what = 'its key "7"' if key is by_invoice else "its arguments"
        assert (approval.rule, approval.arguments) == ("equals a call in doubt", arguments)
        assert f"p of pay in {what}" in approval.reason
        await session.answer(approval.id, "allow", by="ada")
        done = await agent.resume(session)
        assert (done.reason, len(bank.paid)) == ("completed", 2)
        await check_session(session)


@pytest.mark.row("ST10")
@pytest.mark.parametrize(("outcome", "asks"), [(Done(1), False), (NotDone, False), (Unknown, True)])
async def test_a_resolved_doubt_asks_no_more_unless_it_stays_unknown(
    journal: Journal, bank: Bank, outcome: Any, asks: bool
) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("Unknown.")).resume(session)
        await session.resolve("p", outcome)
        done = await bank.agent(call("pay", id="q", invoice="7"), text("Paid.")).run("Again", session=session)
    assert (done.reason == "approval_required") is asks


@pytest.mark.row("ST10")
async def test_a_doubt_outlives_a_rewind_and_is_in_a_fork(journal: Journal, bank: Bank) -> None:
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("Unknown.")).resume(session)
        fork = await session.fork(id="f")
        await session.rewind(0)
        for one in (session, fork):
            assert [doubt.call_id for doubt in one.doubts()] == ["p"]
            done = await bank.agent(call("pay", id="q", invoice="7"), text("Paid.")).run("Again", session=one)
            assert done.reason == "approval_required"


def test_a_key_that_is_no_function_is_refused(bank: Bank) -> None:
    with pytest.raises(ConfigurationError, match="key must be a function"):
        bank.tool(key="invoice")


class _Ending(MemoryJournal):
    """A journal whose session ends its run just before somebody looks whether it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.end: Callable[[], Awaitable[object]] | None = None

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        if (end := self.end) is not None:
            self.end = None
            await end()
        return await super().held(session_ids)


@pytest.mark.row("ST10")
@pytest.mark.parametrize("how", ["session", "journal"])
async def test_a_call_whose_run_ends_while_somebody_looks_is_in_no_doubt(how: str) -> None:
    journal, (tool, begun, release) = _Ending(), held_tool()
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([call("pay"), text("Paid.")]), tools=[tool])
        running = asyncio.create_task(agent.run("go", session=session))
        await begun.wait()

        async def end() -> None:
            release.open()
            await running

        async with open_session(journal, id="s") as other:
            journal.end = end
            found = await other.doubts() if how == "session" else await list_doubts(journal)
    assert journal.end is None
    assert tuple(found) == ()


# --- what a person says is reported


@pytest.mark.row("HF3")
async def test_a_cancelled_run_decides_on_no_call_that_was_not_done_and_the_next_one_reports_what_the_person_said() -> (
    None
):
    bank, journal = Bank(), MemoryJournal()
    await bank.break_off(journal)

    async with open_session(journal, id="s") as session:
        await session.resolve("p", NotDone, by="ada")
        await session.cancel()
        before = session.state.head
        done = await bank.agent(text("x")).resume(session)
        recorded = [one.type for one in await session.events() if one.seq > before]
        model = ScriptedModel([text("I see.")])
        await Agent(model, tools=[bank.tool()]).run("And now?", session=session)
        await check_session(session)

    assert (done.reason, bank.paid) == ("cancelled", ["7"])
    assert recorded == ["run.resumed", "tool.in_doubt", "tool.finished", "run.finished"]
    assert any("was not carried out" in message.text for message in model.requests[0].messages)


# --- doubts


async def test_a_resolution_is_told_once_over_many_tasks_and_explained_with_its_value(journal: Any) -> None:
    bank = Bank()
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        await bank.agent(text("I do not know.")).resume(session)
        await session.resolve("p", Done({"receipt": 4711}), by="ada", reason="Seen.")
        await bank.agent(text("One.")).run("And now?", session=session)
        result = await bank.agent(text("Two.")).run("And now?", session=session)
        (explained_one,) = (await session.explain()).resolved

    told = [message.text for message in result.messages if "a person has checked it" in message.text]
    assert len(told) == 1
    assert (explained_one.call_id, explained_one.tool, explained_one.value) == ("p", "pay", {"receipt": 4711})
    assert (explained_one.by, explained_one.reason, explained_one.outcome) == ("ada", "Seen.", "done")
