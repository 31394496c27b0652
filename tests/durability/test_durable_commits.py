"""What survives a power cut: which commits a run asks its journal to sync. Everything else may be lost with the last second."""

from collections.abc import Sequence
from typing import Any

import pytest

from treadle import Agent, Decision, Done, Tool, ToolContext, allow, ask, open_session
from treadle.context import Summarize
from treadle.errors import JournalError, ModelRejected
from treadle.events import AnyEvent, ContextCompacted
from treadle.journals.memory import MemoryJournal
from treadle.ports import Hook
from treadle.state import Suspended
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject

ANYTHING: JsonObject = {"type": "object"}


class Noting(MemoryJournal):
    """A journal that notes the types of events in each commit that must survive a power cut, and in each other one."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[list[str]] = []
        self.loose: list[list[str]] = []

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        (self.synced if durable else self.loose).append([event.type for event in events])
        await super().append(session_id, events, state=state, durable=durable)

    def is_synced(self, kind: str) -> bool:
        """Return whether every commit with such an event was synced. There is at least one."""
        assert any(kind in types for types in (*self.synced, *self.loose)), f"no {kind} was recorded"
        return not any(kind in types for types in self.loose)


def tool_of(effect: Any, run: Any = None) -> Tool:
    async def acts(arguments: JsonObject, ctx: ToolContext) -> str:
        return "done"

    words: Any = {} if effect == "read" else {"permission": "allow"}
    return Tool(name="act", description="Act.", parameters=ANYTHING, effect=effect, run=run or acts, **words)


async def run(journal: Noting, tool: Tool, **words: Any) -> Any:
    async with open_session(journal, id="s") as session:
        model = ScriptedModel([call("act", id="a"), text("Done.")])
        return await Agent(model, tools=[tool], **words).run("go", session=session)


async def waits(arguments: JsonObject, ctx: ToolContext) -> str:
    raise Suspended("a letter from the bank")


def asking(effect: Any) -> Tool:
    """A tool that acts, and asks about an action of its own."""

    async def acts(arguments: JsonObject, ctx: ToolContext) -> str:
        await ctx.decide("delete", {"path": "a"}, effect=effect)
        return "done"

    return tool_of("unsafe", acts)


STARTS_AND_ENDS = ("run.started", "tool.started", "call.decided", "tool.finished", "run.finished")
BY_A_PROGRAM = {"policy": ask("act"), "approver": lambda approval: "allow"}


@pytest.mark.parametrize(
    ("tool", "words", "synced", "loose"),
    [
        (tool_of("unsafe"), {}, STARTS_AND_ENDS, ()),
        (tool_of("read"), {}, ("run.finished",), ("tool.started", "tool.finished")),
        (tool_of("unsafe", waits), {}, ("tool.suspended",), ()),
        (tool_of("unsafe"), BY_A_PROGRAM, ("approval.answered",), ()),
        (asking("unsafe"), {"policy": allow("*")}, ("action.decided",), ()),
        (asking("keyed"), {"policy": allow("*")}, ("action.decided",), ()),
        (asking("read"), {"policy": allow("*")}, (), ("action.decided",)),
    ],
    ids=["a call that acts", "a read", "a call that waits", "a program's answer", "an action", "a keyed action", "a reading action"],
)  # fmt: skip
async def test_what_acts_waits_or_is_answered_survives_a_power_cut_and_a_read_is_worth_no_wait_for_the_disk(
    tool: Tool, words: Any, synced: Sequence[str], loose: Sequence[str]
) -> None:
    journal = Noting()
    await run(journal, tool, **words)

    assert {kind: journal.is_synced(kind) for kind in (*synced, *loose)} == {
        **dict.fromkeys(synced, True),
        **dict.fromkeys(loose, False),
    }


async def test_a_question_and_its_answer_survive_a_power_cut() -> None:
    journal = Noting()
    paused = await run(journal, tool_of("unsafe"), policy=ask("act"))
    assert paused.reason == "approval_required"
    async with open_session(journal, id="s") as session:
        await session.answer(paused.approvals[0].id, "allow")
        done = await Agent(ScriptedModel([text("Done.")]), tools=[tool_of("unsafe")], policy=ask("act")).resume(session)

    assert done.completed
    for kind in ("run.paused", "run.resumed", "approval.answered", "tool.finished"):
        assert journal.is_synced(kind), kind


async def test_a_caller_knows_of_its_agents_session_after_a_power_cut() -> None:
    journal = Noting()
    child = Agent(ScriptedModel([text("Done.")]), tools=[])

    async with open_session(journal, id="s") as session:
        model = ScriptedModel([call("clerk", task="Act"), text("Done.")])
        await Agent(model, tools=[child.as_tool("clerk", "Acts.")], policy=allow("clerk")).run("go", session=session)

    assert journal.is_synced("child.started")


async def test_what_a_person_does_to_a_session_survives_a_power_cut() -> None:
    journal = Noting()
    await run(journal, tool_of("unsafe"))
    async with open_session(journal, id="s") as session:
        point = await session.mark("here")
        await Agent(ScriptedModel([text("Hello.")])).run("Hello", session=session)
        await session.rewind(point)
        await session.change(metadata={"team": "blue"})

    for kind in ("session.marked", "session.rewound", "session.changed"):
        assert journal.is_synced(kind), kind


class Breaking(Noting):
    """A journal whose process ends before the result of a call is stored."""

    is_broken = True

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if self.is_broken and any(event.type == "tool.finished" for event in events):
            raise JournalError("gone")
        await super().append(session_id, events, state=state, durable=durable)


async def broken_off() -> Breaking:
    """Return the journal of a run whose call may have acted."""
    journal = Breaking()
    with pytest.raises(JournalError):
        await run(journal, tool_of("unsafe"))
    journal.is_broken = False
    return journal


async def test_a_question_about_a_call_in_doubt_survives_a_power_cut() -> None:
    journal = await broken_off()
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([text("Done.")]), tools=[tool_of("unsafe")], in_doubt="ask")
        assert (await agent.resume(session)).reason == "approval_required"

    assert journal.is_synced("approval.requested")


async def test_how_a_call_in_doubt_ended_survives_a_power_cut() -> None:
    journal = await broken_off()
    async with open_session(journal, id="s") as session:
        await session.resolve("a", Done("done"), by="ada", reason="Seen.")
        journal.loose.clear()
        done = await Agent(ScriptedModel([text("Done.")]), tools=[tool_of("unsafe")]).resume(session)

    assert done.completed
    for kind in ("tool.resolved", "tool.finished", "run.resumed"):
        assert journal.is_synced(kind), kind


async def test_what_was_made_shorter_survives_a_power_cut_with_what_that_cost() -> None:
    async def large(arguments: JsonObject, ctx: ToolContext) -> str:
        return "x" * 9_000

    journal, model = Noting(), ScriptedModel([call("act"), text("Well."), text("A summary."), text("Done.")])
    agent = Agent(model, tools=[tool_of("read", large)], step_result_chars=5_000, compactor=Summarize(keep=1))
    async with open_session(journal, id="s") as session:
        assert (await agent.run("go", session=session)).completed
        await session.compact()
        assert (await agent.run("And now?", session=session)).completed
        events = await session.events()

    tiers = [event.tier for event in events if isinstance(event, ContextCompacted)]
    assert (tiers[0], len(tiers)) == ("limits", 2)
    assert journal.is_synced("context.compacted")
    assert [kinds for kinds in journal.synced if kinds == ["model.finished"]] == [["model.finished"]]


async def test_that_nothing_could_be_made_shorter_survives_a_power_cut() -> None:
    journal = Noting()
    agent = Agent(ScriptedModel([text("Done.")]), compactor=Summarize(keep=1))
    async with open_session(journal, id="s") as session:
        await session.compact()
        assert (await agent.run("go", session=session)).completed

    assert journal.is_synced("context.compaction_skipped")


async def test_a_task_that_a_hook_lets_in_after_all_survives_a_power_cut() -> None:
    journal, is_closed = Noting(), True

    async def guard(context: Any) -> Decision | None:
        return Decision(kind="deny", reason="not today") if is_closed else None

    agent = Agent(ScriptedModel([text("Done.")]), hooks=[Hook(at="prompt", run=guard)])
    async with open_session(journal, id="s") as session:
        assert (await agent.run("go", session=session)).reason == "task_denied"
        is_closed = False
        assert (await agent.resume(session)).completed

    assert journal.is_synced("message.added")


async def test_how_a_doubt_ended_that_the_model_knows_of_is_told_durably_when_its_run_continues() -> None:
    journal = await broken_off()
    async with open_session(journal, id="s") as session:
        refused = Agent(ScriptedModel([ModelRejected("no", status=400)]), tools=[tool_of("unsafe")])
        assert (await refused.resume(session)).reason == "model_error"
        await session.resolve("a", Done("done"), by="ada", reason="Seen.")
        journal.loose.clear()
        assert (await Agent(ScriptedModel([text("Done.")]), tools=[tool_of("unsafe")]).resume(session)).completed

    assert journal.is_synced("message.added")
