"""Modes: a person changes how much happens without a question, from any process, also while a run is under way."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import DyingJournal, Recorder, act, content, read, statuses, tool_of, types
from treadle import Agent, Budget, ConfigurationError, Decision, allow, ask, deny, open_session
from treadle.errors import JournalError, SessionNotActive, Transient
from treadle.journals.memory import MemoryJournal
from treadle.sessions.session import Session
from treadle.state import LeftMode
from treadle.testing import Gate, ScriptedModel, Turn, call, text
from treadle.tools import MODES

CHANGE = """
import asyncio, sys
from treadle import open_session

async def main():
    async with open_session(sys.argv[1], id="s") as session:
        await session.set_mode("plan", by="ada")

asyncio.run(main())
"""


def agent_of(*calls: Any, recorder: Any, **words: Any) -> Agent:
    tools = [read(recorder), act(recorder, "listed", permission=None), act(recorder, "pay", permission=None)]
    return Agent(ScriptedModel([list(calls), text("Done.")]), tools=tools, **words)


async def ran_in(mode: Any, **words: Any) -> Any:
    recorder = Recorder()
    async with open_session(MemoryJournal(), id="s") as session:
        if mode is not None:
            await session.set_mode(mode)
        agent = agent_of(call("look"), call("listed"), call("pay"), recorder=recorder, **words)
        result = await agent.run("go", session=session)
        await check_session(session)
        return [(one.decision, one.mode) for one in await types(result, "call.decided")]


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        (None, ["allow", "allow", "ask"]),
        ("ask", ["allow", "allow", "ask"]),
        ("accept-edits", ["allow", "allow", "ask"]),
        ("plan", ["allow", "deny", "deny"]),
        ("deny-unlisted", ["allow", "allow", "deny"]),
        ("bypass", ["allow", "allow", "allow"]),
    ],
)
async def test_a_mode_says_what_becomes_of_a_call_and_stands_in_its_decision(mode, kinds):
    assert await ran_in(mode, policy=allow("listed")) == [(kind, mode or "ask") for kind in kinds]


async def test_no_mode_lifts_a_denial_or_a_question_of_a_hook():
    class Asks:
        def before(self, call):
            return Decision(kind="ask", reason="sure?")

        def after(self, call, result):
            return result

    for mode in MODES:
        assert (await ran_in(mode, policy=deny("pay")))[2][0] == "deny"
    assert [kind for kind, _ in await ran_in("bypass", interceptors=[Asks()])] == ["ask"] * 3


@pytest.mark.row("R-MODE")
async def test_a_policy_and_a_tool_see_the_mode():
    seen, recorder = [], Recorder()

    class Looks:
        def decide(self, call, session):
            seen.append(session.mode)
            return Decision(kind="allow")

    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode("bypass")
        assert session.mode == "bypass"
        await agent_of(call("pay"), recorder=recorder, policy=Looks()).run("go", session=session)
        assert (session.mode, session.state.mode) == ("bypass", "bypass")

    assert (seen, recorder.contexts[0].decision.mode) == (["bypass"], "bypass")


@pytest.mark.row("R-MODE")
async def test_another_process_changes_the_mode_of_a_run_under_way(tmp_path):
    place = str(tmp_path / "agent.db")
    recorder, gate = Recorder(), Gate()
    changed = asyncio.Event()
    tools = [act(recorder, "pay", permission=None)]
    turn = Turn(calls=(call("pay"),), gate=gate, hold_after_call=0)
    model = ScriptedModel([turn, text("Done.")])

    def watch(event):
        if event.type == "mode.changed":
            changed.set()

    async with open_session(place, id="s") as session:
        run = asyncio.create_task(
            Agent(model, tools=tools, policy=allow("pay"), subscribers=[watch]).run("go", session=session)
        )
        while not session.is_running:
            await asyncio.sleep(0)
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", CHANGE, place], capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        await asyncio.wait_for(changed.wait(), 30)  # in the middle of a response, and without a step in between
        gate.open()
        result = await run
        await check_session(session)
        [event] = await types(result, "mode.changed")

    assert (statuses(result), recorder.runs) == (["denied"], 0)
    assert "Plan mode allows no changes" in content(result)["message"]
    assert (event.mode, event.before, event.by) == ("plan", "ask", "ada")


@pytest.mark.row("R-MODE")
async def test_the_last_of_several_changes_holds_and_stays_over_runs_forks_and_stores():
    journal = MemoryJournal()
    recorder = Recorder()
    async with open_session(journal, id="s") as session:
        for mode in ("plan", "bypass", "deny-unlisted"):
            await session.set_mode(mode)
        assert session.mode == "deny-unlisted"  # though no run has taken any of them in
        result = await agent_of(call("pay"), recorder=recorder).run("go", session=session)
        assert [one.mode for one in await types(result, "mode.changed")] == ["plan", "bypass", "deny-unlisted"]
        assert await journal.inbox("s") == ()
        forked = await session.fork(id="other")
        assert forked.mode == "deny-unlisted"
    async with open_session(journal, id="s") as session:
        assert session.mode == "deny-unlisted"
        result = await agent_of(call("pay"), recorder=recorder).run("more", session=session)
    assert (statuses(result)[-1], recorder.runs) == ("denied", 0)


@pytest.mark.row("R-MODE")
async def test_a_paused_run_goes_on_in_the_mode_that_it_was_given_since():
    for mode, expected in (("plan", ["denied"]), ("bypass", ["ok"])):
        recorder = Recorder()
        async with open_session(MemoryJournal(), id="s") as session:
            agent = agent_of(call("pay"), recorder=recorder)
            paused = await agent.run("go", session=session)
            assert paused.reason == "approval_required"
            await session.set_mode(mode)
            done = await agent.resume(session)
            await check_session(session)
        assert (statuses(done), recorder.runs) == (expected, expected.count("ok"))


@pytest.mark.row("R-MODE")
async def test_the_mode_of_the_session_on_top_holds_for_the_agents_that_carry_out_its_calls():
    recorder, journal = Recorder(), MemoryJournal()
    child = Agent(ScriptedModel([call("pay"), text("ok")]), tools=[tool_of(recorder, "pay")], policy=ask("pay"))
    lead = Agent(
        ScriptedModel([call("clerk", task="pay"), text("Done.")]),
        tools=[child.as_tool("clerk", "Pays.", effect="read")],
    )
    async with open_session(journal, id="s") as session:
        await session.set_mode("plan")
        done = await lead.run("go", session=session)
        [below] = [event.child_id for event in await session.events() if event.type == "child.started"]
    assert (done.completed, recorder.runs) == (True, 0)
    async with open_session(journal, id=below) as session:
        [decided] = [event for event in await session.events() if event.type == "call.decided"]
        assert (decided.decision, decided.mode) == ("deny", "plan")
        with pytest.raises(SessionNotActive):
            await session.set_mode("bypass")


@pytest.mark.parametrize("mode", ["dream", "", None, 3, ["plan"]])
async def test_a_mode_that_there_is_not_is_refused(mode):
    async with open_session(MemoryJournal(), id="s") as session:
        with pytest.raises(ConfigurationError, match="one of plan, ask, accept-edits"):
            await session.set_mode(mode)


PAYS = allow("pay")


class Deciding:
    """A policy made of a function of call and mode."""

    def __init__(self, decide: Callable[[Any, str], Decision]) -> None:
        self._decide = decide

    def decide(self, call: Any, session: Any) -> Decision:
        return self._decide(call, session.mode)


async def pays_after_a_change(
    mode: Any, *to: str, first: Any = "ask", policy: Any = PAYS, **words: Any
) -> tuple[Any, Recorder]:
    """Run one response: a person changes the mode while its first call runs, and behind that one is a payment to each of these."""
    paid, changed = Recorder(), asyncio.Event()

    async def slow(arguments: Any, ctx: Any) -> str:
        await session.set_mode(mode)
        await changed.wait()
        return "done"

    def watch(event: Any) -> None:
        if event.type == "mode.changed" and event.mode == mode:
            changed.set()

    own: Any = {"permission": None, "resources": lambda arguments: {arguments["to"]: "write"}}
    calls = [call("pay", id=call_id, to=name) for call_id, name in zip("bc", to or ("ann",), strict=False)]
    model = ScriptedModel([[call("send", id="a"), *calls], text("Done.")])
    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode(first)
        tools = [act(slow, "send"), act(paid, "pay", **own)]
        agent = Agent(model, tools=tools, policy=policy, subscribers=[watch], **words)
        result = await asyncio.wait_for(agent.run("go", session=session), 30)
        await check_session(session)
    return result, paid


def interrupts_in_plan_mode(call: Any, mode: str) -> Decision:
    return Decision(kind="deny" if mode == "plan" else "allow", reason="Look.", interrupt=mode == "plan")


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize(
    ("first", "mode", "policy", "reason", "told", "decided"),
    [
        ("ask", "plan", PAYS, "completed", ["ok", "denied"], [("allow", "ask"), ("deny", "plan")]),
        ("ask", "deny-unlisted", PAYS, "completed", ["ok", "ok"], [("allow", "ask"), ("allow", "deny-unlisted")]),
        ("bypass", "ask", None, "approval_required", ["ok"], [("allow", "bypass"), ("ask", "ask")]),
        ("ask", "plan", Deciding(interrupts_in_plan_mode), "cancelled", ["ok", "denied"], [("allow", "ask"), ("deny", "plan")]),
    ],
    ids=["denied", "still allowed", "only bypass had allowed it", "interrupted"],
)  # fmt: skip
async def test_a_call_that_has_not_started_is_decided_anew_when_the_mode_changes(
    first: str, mode: str, policy: Any, reason: str, told: list[str], decided: Any
) -> None:
    result, paid = await pays_after_a_change(mode, first=first, policy=policy)
    of_b = [(one.decision, one.mode) for one in await types(result, "call.decided") if one.call_id == "b"]

    assert (result.reason, statuses(result), paid.runs) == (reason, told, told[1:].count("ok"))
    assert [one.call_id for one in result.approvals] == ["b"] * (reason == "approval_required")
    assert of_b == decided


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize("interrupt", [False, True])
async def test_a_call_that_does_not_start_in_the_new_mode_keeps_no_slot_from_those_that_wait(interrupt: bool) -> None:
    def decide(call: Any, mode: str) -> Decision:
        is_plan = mode == "plan"
        return Decision(kind="deny" if is_plan else "allow", reason="Look.", interrupt=is_plan and interrupt)

    budget = Budget(max_parallel_tool_calls=1)
    result, paid = await pays_after_a_change("plan", "ann", "bob", policy=Deciding(decide), budget=budget)

    assert paid.runs == 0
    assert statuses(result) == ["ok", "denied", "skipped" if interrupt else "denied"]


@pytest.mark.row("R-MODE")
async def test_a_call_beside_one_that_interrupts_in_the_new_mode_does_not_start_either() -> None:
    def decide(call: Any, mode: str) -> Decision:
        stops = mode != "ask" and call.arguments.get("to") == "ann"
        return Decision(kind="deny" if stops else "allow", reason="Look.", interrupt=stops)

    result, paid = await pays_after_a_change("deny-unlisted", "bob", "ann", policy=Deciding(decide))

    assert (result.reason, statuses(result), paid.runs) == ("cancelled", ["ok", "skipped", "denied"], 0)


class ChangesBehind(MemoryJournal):
    """A store in which a change of mode is stored right behind an event of one type, of the call `a`."""

    def __init__(self, behind: str) -> None:
        super().__init__()
        self.behind = behind
        self.session: Session | None = None
        self.queued = asyncio.Event()

    async def append(self, session_id: str, events: Any, **words: Any) -> None:
        if any((event.type, event.call_id) == (self.behind, "a") for event in events):
            assert self.session is not None
            await self.session.set_mode("plan")
            await self.queued.wait()
            await passes()
        if any(event.type == "mode.changed" for event in events):
            await passes()
        await super().append(session_id, events, **words)

    async def inbox(self, session_id: str) -> Any:
        left = await super().inbox(session_id)
        if left:
            self.queued.set()
        return left


async def passes() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def run_with_a_change_behind(event: str, turn: Any, *tools: Any) -> Any:
    journal = ChangesBehind(event)
    async with open_session(journal, id="s") as session:
        journal.session = session
        agent = Agent(ScriptedModel([turn, text("Done.")]), tools=list(tools), policy=allow("*"))
        result = await asyncio.wait_for(agent.run("go", session=session), 30)
        await check_session(session)
        return result


@pytest.mark.row("R-MODE")
async def test_no_call_starts_by_the_mode_before_while_its_change_is_being_stored() -> None:
    recorder = Recorder()
    tools = [act(Recorder(), "send", permission=None), act(recorder, "pay", permission=None)]
    result = await run_with_a_change_behind("tool.finished", [call("send", id="a"), call("pay", id="b")], *tools)

    assert (statuses(result), recorder.runs) == (["ok", "denied"], 0)


@pytest.mark.row("R-MODE")
async def test_no_action_is_decided_by_the_mode_before_while_its_change_is_being_stored() -> None:
    decisions = []

    async def asks(arguments: Any, ctx: Any) -> str:
        decisions.append(await ctx.decide("pay", {}))
        return "asked"

    await run_with_a_change_behind("tool.started", [call("asks", id="a")], read(asks, "asks"))

    assert [(one.kind, one.mode) for one in decisions] == [("deny", "plan")]


@pytest.mark.row("R-MODE")
async def test_no_call_starts_early_by_the_mode_before_while_its_change_is_being_stored() -> None:
    gate, first, second = Gate(), Recorder(), Recorder()
    turn = Turn(calls=(call("look", id="a"), call("see", id="b")), gate=gate, hold_after_call=1)

    class OnlyInAskMode:
        def decide(self, call: Any, session: Any) -> Decision:
            return Decision(kind="allow" if session.mode == "ask" or call.name == "look" else "deny")

    journal = ChangesBehind("tool.started")
    async with open_session(journal, id="s") as session:
        journal.session = session
        tools = [read(first, "look"), read(second, "see")]
        agent = Agent(
            ScriptedModel([turn, text("Done.")]),
            tools=tools,
            policy=OnlyInAskMode(),
            subscribers=[lambda event: gate.open() if event.type == "mode.changed" else None],
        )
        result = await asyncio.wait_for(agent.run("go", session=session), 30)
        await check_session(session)

    assert (statuses(result), first.runs, second.runs) == (["ok", "denied"], 1, 0)


@pytest.mark.row("R-MODE", "SF1")
async def test_a_call_that_began_without_the_answer_it_waited_for_is_asked_about_anew_after_a_crash():
    journal, recorder = DyingJournal(), Recorder()
    journal.dies = False
    tools = [act(recorder, "save", permission=None, effect="idempotent")]
    async with open_session(journal, id="s") as session:
        first = await Agent(ScriptedModel([call("save")]), tools=tools, policy=ask("save")).run("go", session=session)
        await session.set_mode("bypass", by="ada")
        journal.dies = True
        with pytest.raises(JournalError):
            await Agent(ScriptedModel([text("Lost.")]), tools=tools).resume(session)
    journal.dies = False
    async with open_session(journal, id="s") as session:
        await session.set_mode("ask", by="ada")
        agent = Agent(ScriptedModel([text("Done.")]), tools=tools, policy=ask("save"))
        paused = await agent.resume(session)
        await check_session(session)
        assert (paused.reason, len(paused.approvals)) == ("approval_required", 1)
        assert paused.approvals[0].id != first.approvals[0].id
        await session.answer(paused.approvals[0].id, "allow")
        done = await agent.resume(session)
        await check_session(session)

    assert (done.text, recorder.runs) == ("Done.", 2)


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize("at", [None, "mark"])
@pytest.mark.parametrize("is_taken_in", [True, False])
async def test_a_fork_has_the_mode_that_a_person_has_said_last_and_not_that_of_its_point(
    at: str | None, is_taken_in: bool
) -> None:
    recorder, journal = Recorder(), MemoryJournal()
    async with open_session(journal, id="s") as session:
        await session.set_mode("bypass")
        await Agent(ScriptedModel([text("Hello.")])).run("One", session=session)
        await session.mark("mark")
        await session.set_mode("plan")
        if is_taken_in:
            await Agent(ScriptedModel([text("Hello.")])).run("Two", session=session)
        fork = await session.fork(at=at)
    async with open_session(journal, id=fork.id) as session:
        assert session.mode == "plan"
        result = await agent_of(call("pay"), recorder=recorder).run("Pay", session=session)
        await check_session(session)

    assert (statuses(result), recorder.runs) == (["denied"], 0)


@pytest.mark.row("R-MODE")
async def test_a_mode_of_a_newer_treadle_in_the_inbox_lifts_nothing_in_a_fork() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await session.set_mode("bypass")
        await Agent(ScriptedModel([text("Hello.")])).run("One", session=session)
        await session.set_mode("plan")
        await journal.put("s", LeftMode(id="newer", mode="dream"))
        fork = await session.fork()

    async with open_session(journal, id=fork.id) as session:
        assert session.mode == "plan"


@pytest.mark.row("R-MODE")
async def test_a_rewind_brings_back_no_mode_that_a_person_has_ended() -> None:
    recorder = Recorder()
    async with open_session(MemoryJournal(), id="s") as session:
        await session.set_mode("bypass")
        await Agent(ScriptedModel([text("Hello.")])).run("One", session=session)
        await session.mark("mark")
        await session.set_mode("plan")
        await session.rewind("mark")
        result = await agent_of(call("pay"), recorder=recorder).run("Pay", session=session)

    assert (statuses(result), recorder.runs, session.mode) == (["denied"], 0, "plan")


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize(
    ("before", "after", "effect", "attempts", "is_known"),
    [
        ("ask", "plan", "idempotent", 1, True),
        ("ask", "plan", "idempotent", 1, False),  # only left by the time of the failure
        ("ask", "plan", "keyed", 1, True),
        ("ask", "plan", "read", 2, True),
        ("bypass", "ask", "idempotent", 1, True),
        ("ask", "bypass", "idempotent", 2, False),
        ("ask", "deny-unlisted", "idempotent", 2, True),
        ("ask", "ask", "idempotent", 2, True),
    ],
)
async def test_a_call_is_not_tried_again_in_a_mode_in_which_it_would_not_start(
    before: Any, after: Any, effect: str, attempts: int, is_known: bool
) -> None:
    seen: list[int] = []
    changed = asyncio.Event()
    async with open_session(MemoryJournal(), id="s") as session:

        async def put(arguments: Any, ctx: Any) -> str:
            seen.append(1)
            if len(seen) == 1:
                await session.set_mode(after)
                if is_known and after != before:
                    await changed.wait()
                raise Transient("busy")
            return "put"

        await session.set_mode(before)
        policy = None if before == "bypass" else allow("put")
        model = ScriptedModel([call("put"), text("Done.")])
        watch = lambda event: changed.set() if event.type == "mode.changed" and event.mode == after else None
        agent = Agent(model, tools=[tool_of(put, "put", effect=effect)], policy=policy, subscribers=[watch])
        result = await agent.run("Put", session=session)
        await check_session(session)

    assert len(seen) == attempts
    assert statuses(result) == (["ok"] if attempts == 2 else ["failed"])
    [failed] = await types(result, "tool.attempt_failed")
    assert (failed.retry_in_seconds is None) == (is_known and attempts == 1)  # what will not come is not announced
