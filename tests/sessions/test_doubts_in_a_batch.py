"""A call that equals another one of its own response: the first ends unknown, so the second does not start unasked."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import act
from treadle import Agent, Budget, Session, Suspended, Tool, ToolContext, allow, ask, open_session
from treadle.events import ApprovalRequested, CallDecided, ToolSuspended
from treadle.journals.memory import MemoryJournal
from treadle.ports import Interceptor
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject, ToolResult

PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "ref": {"type": "integer"}},
    "required": ["to", "ref"],
}


class Office:
    """Pays, and loses the answer to the first request for each payee that is named."""

    def __init__(self, *loses: str) -> None:
        self.paid: list[tuple[str, int]] = []
        self._loses = set(loses)

    def tool(self, effect: str = "unsafe", **words: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> str:
            self.paid.append((arguments["to"], arguments["ref"]))
            if arguments["to"] in self._loses:
                self._loses.remove(arguments["to"])
                raise ConnectionError("the answer was lost")
            return "paid"

        key = lambda arguments: arguments["to"]
        words = {"name": "pay", "key": key, "retries": 0, **words}
        return Tool(description="Pay.", parameters=PARAMETERS, effect=effect, run=run, **words)


def agent_of(tool: Tool, *calls: Any, **words: Any) -> Agent:
    words = {"policy": allow("pay"), **words}
    return Agent(ScriptedModel([[*calls], text("Paid."), text("Paid.")]), tools=[tool], **words)


async def questions(session: Session) -> list[tuple[int, str]]:
    return [(one.arguments["ref"], one.rule) for one in await session.events() if isinstance(one, ApprovalRequested)]


PAIR = (call("pay", to="ann", ref=1), call("pay", to="ann", ref=2), call("pay", to="bob", ref=3))


@pytest.mark.row("ST13")
@pytest.mark.parametrize("effect", ["unsafe", "keyed"])
@pytest.mark.parametrize(("answer", "paid"), [("allow", [1, 3, 2]), ("deny", [1, 3])])
async def test_the_second_call_with_the_key_of_one_in_doubt_asks_a_person(
    effect: str, answer: Any, paid: list[int], tmp_path: Path
) -> None:
    office = Office("ann")
    agent = agent_of(office.tool(effect), *PAIR)
    async with open_session(tmp_path / "a.db", id="s") as session:
        paused = await agent.run("Pay", session=session)
        assert (paused.reason, [ref for _, ref in office.paid]) == ("approval_required", [1, 3])
        assert await questions(session) == [(2, "equals a call in doubt")]
        assert "whose outcome is unknown" in paused.approvals[0].reason
        await session.answer(paused.approvals[0].id, answer)
    async with open_session(tmp_path / "a.db", id="s") as session:
        await agent.resume(session)
        await check_session(session)

    assert [ref for _, ref in office.paid] == paid


@pytest.mark.row("ST13")
async def test_calls_that_a_person_has_allowed_are_not_asked_about_again() -> None:
    office = Office("ann")
    agent = agent_of(office.tool(), *PAIR, policy=ask("pay"))
    paused = await agent.run("Pay")
    for approval in paused.approvals:
        await paused.session.answer(approval.id, "allow")

    result = await agent.resume(paused.session)

    assert (result.reason, [ref for _, ref in office.paid]) == ("completed", [1, 2, 3])


SLOTS = {"resources": lambda arguments: {f"ref:{arguments['ref']}": "write"}}


@pytest.mark.row("ST13")
@pytest.mark.parametrize(
    ("effect", "words", "refs", "most", "paid", "asked"),
    [
        ("unsafe", {"key": None}, (1, 2, 1), 8, [1, 2], [1]),  # equal arguments are what makes two calls equal
        ("read", {}, (1, 2), 8, [1, 2], []),
        ("idempotent", {}, (1, 2), 8, [1, 2], []),
        ("keyed", SLOTS, (1, 2), 1, [1], [2]),
    ],
    ids=["without a key", "a read", "idempotent", "waits for a slot"],
)
async def test_a_call_is_held_back_where_it_equals_one_in_doubt_and_cannot_be_repeated(
    effect: str, words: Any, refs: tuple[int, ...], most: int, paid: list[int], asked: list[int]
) -> None:
    office = Office("ann")
    calls = [call("pay", to="ann", ref=ref) for ref in refs]

    budget = Budget(max_parallel_tool_calls=most)
    result = await agent_of(office.tool(effect, **words), *calls, budget=budget).run("Pay")

    assert sorted(ref for _, ref in office.paid) == paid
    assert [one.arguments["ref"] for one in result.approvals] == asked


class Rounding(Interceptor):
    """Gives every call the reference 5."""

    def before(self, call: Any) -> Any:
        return type(call)(id=call.id, name=call.name, arguments='{"to": "ann", "ref": 5}')

    def after(self, call: Any, result: ToolResult) -> ToolResult:
        return result


@pytest.mark.row("ST13")
async def test_what_is_asked_about_is_the_call_as_an_interceptor_left_it() -> None:
    office = Office("ann")
    agent = agent_of(office.tool(), *PAIR[:2], interceptors=[Rounding()])
    paused = await agent.run("Pay")
    assert paused.approvals[0].arguments == {"to": "ann", "ref": 5}
    await paused.session.answer(paused.approvals[0].id, "allow")

    result = await agent.resume(paused.session)

    assert (result.reason, office.paid) == ("completed", [("ann", 5), ("ann", 5)])


class LosesBehind(MemoryJournal):
    """A store in which the slot of another call becomes free while the lost end of the call `a` is being stored."""

    def __init__(self) -> None:
        super().__init__()
        self.storing = asyncio.Event()

    async def append(self, session_id: str, events: Any, **words: Any) -> None:
        if any(event.type == "tool.finished" and event.call_id == "a" for event in events):
            self.storing.set()
            for _ in range(50):
                await asyncio.sleep(0)
        await super().append(session_id, events, **words)


@pytest.mark.row("ST13")
async def test_a_call_does_not_start_behind_the_doubt_that_is_being_stored_before_it() -> None:
    office, journal = Office("ann"), LosesBehind()

    async def wait(arguments: JsonObject, ctx: ToolContext) -> None:
        await journal.storing.wait()

    words: Any = {"resources": lambda arguments: {f"ref:{arguments.get('ref')}": "write"}}
    tools = [office.tool("keyed", **words), act(wait, "wait", permission=None, **words)]
    calls = [call("wait"), call("pay", to="ann", ref=1, id="a"), call("pay", to="ann", ref=2)]
    async with open_session(journal) as session:
        budget = Budget(max_parallel_tool_calls=2)
        agent = Agent(ScriptedModel([calls, text("Paid.")]), tools=tools, policy=allow("*"), budget=budget)
        result = await agent.run("Pay", session=session)
        await check_session(session)

    assert [ref for _, ref in office.paid] == [1]
    assert [one.arguments["ref"] for one in result.approvals] == [2]


@pytest.mark.row("ST13")
@pytest.mark.parametrize("effect", ["unsafe", "keyed"])
@pytest.mark.parametrize(("answer", "paid"), [("allow", [1, 3, 2]), ("deny", [1, 3])])
async def test_a_call_that_had_waited_for_input_asks_when_one_that_it_equals_is_in_doubt_by_then(
    effect: str, answer: Any, paid: list[int], tmp_path: Path
) -> None:
    office = Office("ann")
    pay = office.tool(effect)

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        if not ctx.inputs:
            raise Suspended("the code of the bank")
        return await pay.run(arguments, ctx)

    agent = agent_of(msgspec.structs.replace(pay, run=run), *PAIR)
    async with open_session(tmp_path / "a.db", id="s") as session:
        waiting = await agent.run("Pay", session=session)
        assert (waiting.reason, office.paid) == ("input_required", [])
        for one in await session.events():
            if isinstance(one, ToolSuspended):
                await session.input(one.call_id, "1234")
    async with open_session(tmp_path / "a.db", id="s") as session:
        paused = await agent.resume(session)
        await check_session(session)
        assert (paused.reason, [ref for _, ref in office.paid]) == ("approval_required", [1, 3])
        assert await questions(session) == [(2, "equals a call in doubt")]
        await session.answer(paused.approvals[0].id, answer)
    async with open_session(tmp_path / "a.db", id="s") as session:
        done = await agent.resume(session)
        await check_session(session)

    assert (done.reason, [ref for _, ref in office.paid]) == ("completed", paid)


@pytest.mark.row("ST13")
async def test_a_call_that_waits_for_input_asks_when_it_continues_after_a_doubt_of_what_it_equals() -> None:
    office = Office("ann")
    pay = office.tool()

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        if arguments["ref"] == 1 and not ctx.inputs:
            raise Suspended("the code of the bank")
        return await pay.run(arguments, ctx)

    agent = agent_of(msgspec.structs.replace(pay, run=run), *PAIR)
    waiting = await agent.run("Pay")
    assert (waiting.reason, [ref for _, ref in office.paid]) == ("input_required", [2, 3])
    [suspended] = [one for one in await waiting.session.events() if isinstance(one, ToolSuspended)]
    await waiting.session.input(suspended.call_id, "1234")

    paused = await agent.resume(waiting.session)

    assert (paused.reason, [ref for _, ref in office.paid]) == ("approval_required", [2, 3])
    assert await questions(paused.session) == [(1, "equals a call in doubt")]
    decided = [one for one in await paused.session.events() if isinstance(one, CallDecided)]
    assert [one.decision for one in decided if one.call_id == suspended.call_id] == ["allow", "ask"]
    await check_session(paused.session)
