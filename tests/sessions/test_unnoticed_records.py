"""What a survey of mutations showed that no test noticed: what sessions keep, and what is told of them to people."""

import asyncio
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from session_tools import Bank, look_tool, pay_tool, stored_session

from treadle import (
    Agent,
    Approval,
    ConfigurationError,
    Done,
    Effect,
    JournalError,
    Preview,
    Price,
    Suspended,
    UnknownApproval,
    allow,
    ask,
    open_session,
)
from treadle.context.compaction import Compaction
from treadle.events import ApprovalRequested, MessageAdded, ModelFinished, ToolFinished, ToolResolved
from treadle.journals.memory import MemoryJournal
from treadle.messages import Message, Text, Thinking, ToolCall, user_message
from treadle.sessions.checkpoints import fold
from treadle.sessions.reading import _is_long, explained
from treadle.sessions.transfer import unpack
from treadle.state.adding_up import add_up
from treadle.state.doubts import resolution_message
from treadle.state.inbox import LeftAnswer
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CallStatus, ToolResult
from treadle.validation.characters import joined, repaired

# --- records are whole


def test_what_a_suspended_call_asks_is_recorded_with_every_field_of_the_request() -> None:
    approval = Approval(
        id="a", session_id="child", call_id="c", tool="pay", arguments={"n": 1}, digest="d", effect=Effect.KEYED,
        requested_at=3.0, expires_at=4.0, rule="ask pay", reason="Why.", replaces="first", approval_type="unfit_edit",
        action="Pay 1", target="bank", risk="payment", preview=Preview(text="1"), expected_result="Paid.",
        rollback="Ask for it.", scope="session", rules=("pay(n=1)",), path=("clerk",), edited={"n": 2},
    )  # fmt: skip

    (asked,) = Suspended("a person", approvals=[approval]).event(call_id="top", tool="clerk").asks

    renamed = {"id": "approval_id", "requested_at": "at"}
    not_recorded = {"answer", "root_id"}
    fields = [name for name in Approval.__struct_fields__ if name not in not_recorded]
    defaults = ApprovalRequested(approval_id="", tool="", arguments={}, digest="", effect=Effect.READ, expires_at=0.0)
    for name in fields:
        stored = renamed.get(name, name)
        assert getattr(asked, stored) == getattr(approval, name), name
        assert getattr(asked, stored) != getattr(defaults, stored), f"{name}: the test must not use a default"


def test_a_message_of_the_inbox_is_stored_without_its_id_and_what_it_does_not_say() -> None:
    left = LeftAnswer(id="m", approval_id="a", answer="allow", reason="Yes.")

    body = left.body

    assert "id" not in body
    assert {"approval_id": "a", "answer": "allow", "reason": "Yes."}.items() <= body.items()
    assert None not in body.values()
    assert left.kind == "answer"


async def test_a_purged_session_says_why_nothing_is_left_of_it(journal: Any) -> None:
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.delete(purge=True)
        events = await session.events()

    assert [(event.session_id, event.seq, event.status, event.reason) for event in events] == [
        ("s", 1, "deleted", "Its events were removed.")
    ]


def test_events_that_are_no_list_are_refused_by_the_name_of_the_parameter() -> None:
    with pytest.raises(ConfigurationError, match=r"\bevents\b.*list of events"):
        add_up(fold("s", []), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "number"), [([], 1), (["", "{}"], 2), (["", "", "no JSON"], 3)], ids=["none", "not a header", "no JSON"]
)
def test_what_is_no_export_is_refused_with_the_number_of_its_line(lines: list[str], number: int) -> None:
    with pytest.raises(JournalError, match=rf"[Ll]ine {number}\b"):
        unpack(lines)


# --- doubts


def test_what_the_model_is_told_of_a_resolution_has_the_id_by_which_it_is_told_once() -> None:
    resolved = ToolResolved(call_id="p", tool="pay", outcome="done", value={"n": 1}, by="ada", seq=7)

    told = resolution_message(resolved)

    assert (told.message_id, told.source) == ("resolved:p:7", "runtime")


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


# --- sessions that carry out the calls of others


def levels(*turns: Any, policy: Any) -> Agent:
    """An agent whose tool is an agent whose tool is an agent that pays."""
    clerk = Agent(ScriptedModel(list(turns)), tools=[pay_tool([], permission=None)], policy=policy)
    middle = Agent(ScriptedModel([call("clerk", id="m", task="Pay 1"), text("Done.")]),
                   tools=[clerk.as_tool("clerk", "Pays.")], policy=allow("*"))  # fmt: skip
    return Agent(ScriptedModel([call("office", id="t", task="Pay 1"), text("Done.")]),
                 tools=[middle.as_tool("office", "Has it paid.")], policy=allow("*"))  # fmt: skip


async def test_a_second_answer_to_the_question_of_a_child_of_a_child_says_who_was_first(journal: Any) -> None:
    agent = levels(call("pay", id="p", amount=1), text("Paid."), policy=ask("pay"))
    async with open_session(journal, id="top") as session:
        paused = await agent.run("Pay 1", session=session)
        (approval,) = paused.approvals
        await session.answer(approval.id, "allow", by="ada")
        result = await agent.resume(session)

        assert result.text == "Done."
        with pytest.raises(UnknownApproval, match="ada"):
            await session.answer(approval.id, "deny", by="bob")


async def test_a_long_session_is_explained_while_others_continue() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([text("x")] * 130))
        for _ in range(130):
            await agent.run("go", session=session)
        count = len(await session.events())
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    before = turns
    explanation = await explained(journal, "s")
    watching.cancel()

    assert count > 500
    assert len(explanation.runs) == 130
    assert turns - before > 2


async def test_what_was_asked_beside_the_steps_is_explained_with_all_that_it_used() -> None:
    async def is_done(view: Any) -> bool:
        answers = [await view.ask([user_message(words)]) for words in ("Is it good?", "Is it whole?")]
        return answers == ["Yes.", "Yes."]

    price = Price(input=1, output=2)
    model = ScriptedModel([call("look"), text("Yes."), text("Yes.")], price=price)
    async with open_session(MemoryJournal(), id="s") as session:
        result = await Agent(model, tools=[look_tool()], done_when=is_done).run("go", session=session)
        acts = (await session.explain()).acts
        events = [event for event in await session.events() if event.type == "model.finished"]

    assert result.completed
    assert [(one.act.partition(":")[0], one.requests) for one in acts] == [("check", 1), ("check", 1)]
    assert [one.turns for one in events if one.act is not None] == [0, 0]  # none is a step of the run
    for act in acts:
        (used,) = (event for event in events if event.act == act.act)
        assert (act.input_tokens, act.output_tokens) == (used.usage.input_tokens, used.usage.output_tokens)
        assert min(act.input_tokens, act.output_tokens) > 0
        assert Decimal(act.cost or 0) == Decimal(used.cost or 0) > 0


# --- characters


@pytest.mark.parametrize("character", ["é", "€", "😀", "ÿ"])
def test_the_bytes_of_a_character_that_came_one_by_one_are_that_character(character: str) -> None:
    halves = "".join("\udfff" + chr(0xDC00 + byte) for byte in character.encode())

    assert joined(f"a{halves}b") == repaired(f"a{halves}b") == f"a{character}b"


def test_a_compaction_is_stored_with_words_that_every_journal_can_hold() -> None:
    from treadle.engine.model_calls.texts import encodable_message

    parts = (Text("a\ud800b"), Thinking(text="c\udfffd"), ToolCall(id="c", name="n\ud800", arguments='{"a":"\ud800"}'))
    message = Message(role="assistant", parts=parts, origin="m")

    stored = encodable_message(message)

    assert msgspec.json.decode(msgspec.json.encode(stored), type=Message) == stored
    assert (stored.role, stored.origin, stored.parts[0]) == ("assistant", "m", Text("a\ufffdb"))
    assert Compaction(tier="x", begin=0, end=1, messages=(stored,)).messages == (stored,)


@pytest.mark.parametrize(
    "said",
    [
        lambda words: MessageAdded(message=user_message(words)),
        lambda words: ModelFinished(message=Message(role="assistant", parts=(Text(text=words),))),
        lambda words: ToolFinished(
            call_id="c", result=ToolResult(call_id="c", name="t", status=CallStatus.OK, content=words)
        ),
    ],
    ids=["a message", "a response", "a result"],
)
def test_long_words_of_any_kind_are_looked_at_in_a_thread(said: Any) -> None:
    assert _is_long([said("x" * 150_000), said("x" * 50_001)])
    assert not _is_long([said("x" * 150_000), said("x" * 50_000)])
