"""Servers that repeat themselves: one call that is reported twice is one call, and calls that share an index are all kept."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from chat_server import STREAM_HEAD, Script, answer
from wire import (
    Anthropics,
    Chats,
    Geminis,
    Responseses,
    Till,
    blocks,
    converse,
    events_of,
    given,
    outcome,
    play,
    said,
    sse,
    stream_of,
    used,
)

from invariants import check_session
from treadle import Agent, RunResult, StopReason, open_session, resolve_model
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish, Text, ToolCall
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

ONE = '{"sum": 1}'
TWO = '{"sum": 2}'

A = Responseses.call("a", ONE)
B = Responseses.call("b", TWO)
SAID = Responseses.message("I pay.")


def stream(*values: object) -> Script:
    return answer(sse(*values))


def chat(*values: object) -> Script:
    return stream(*values, Chats.delta("tool_calls"), "[DONE]")


def claude(*values: object) -> Script:
    return stream(Anthropics.start, *values, Anthropics.reason("tool_use"), Anthropics.stop)


def paid(index: int) -> list[tuple[str, int, JsonObject]]:
    """Return the events of a call of Converse."""
    return [("start", index, used("a", "pay")), ("delta", index, given(ONE)), ("stop", index, {})]


def whole(value: object) -> Script:
    return answer(sse(value).removeprefix("data: ").strip(), content_type="application/json")


ONCE = {
    "responses: two indexes": ("responses", stream(Responseses.done(0, A), Responseses.done(1, A), Responseses.completed(A))),
    "responses: two indexes, in pieces": (
        "responses",
        stream(
            *(Responseses.added(0, A), Responseses.piece(0, "fc_a", ONE), Responseses.added(1, A)),
            *(Responseses.piece(1, "fc_a", ONE), Responseses.done(0, A), Responseses.done(1, A), Responseses.completed(A, A)),
        ),
    ),
    "responses: again under a new item id": (
        "responses",
        stream(Responseses.done(0, A), Responseses.completed(Responseses.call("a", '{"sum":1}', item_id="other"))),
    ),
    "responses: again under new ids": (
        "responses",
        stream(Responseses.done(0, A), Responseses.completed(Responseses.call("x", ONE, item_id="other"))),
    ),
    "responses: again at another place": ("responses", stream(Responseses.done(0, SAID), Responseses.done(1, A), Responseses.completed(A, SAID))),
    "responses: a whole body": ("responses", whole(Responseses.completed(A, A)["response"])),
    "chat: two indexes": ("chat", chat(Chats.calls(Chats.call("a", ONE)), Chats.calls(Chats.call("a", '{"sum":1}', index=1)))),
    "chat: one index": ("chat", chat(Chats.calls(Chats.call("a", ONE)), Chats.calls(Chats.call("a", ONE)))),
    "chat: no index": ("chat", chat(Chats.calls(Chats.call("a", ONE, index=None)), Chats.calls(Chats.call("a", ONE, index=None)))),
    "chat: in pieces": (
        "chat",
        chat(
            *(Chats.calls(Chats.call("a", "")), Chats.calls(Chats.call(None, ONE, name=""))),
            *(Chats.calls(Chats.call("a", "", index=1)), Chats.calls(Chats.call(None, ONE, index=1, name=""))),
        ),
    ),
    "chat: a message after its deltas": (
        "chat",
        chat(
            *(Chats.delta(content="I "), Chats.delta(content="pay."), Chats.calls(Chats.call("a", ONE))),
            Chats.message("tool_calls", content="I pay.", tool_calls=[Chats.call("a", ONE, index=None)]),
        ),
    ),
    "chat: a message with new ids": ("chat", chat(Chats.calls(Chats.call("a", ONE)), Chats.message(tool_calls=[Chats.call("x", ONE, index=None)]))),
    "chat: a message without ids": ("chat", chat(Chats.calls(Chats.call(None, ONE)), Chats.message(tool_calls=[Chats.call(None, ONE, index=None)]))),
    "chat: a message beside an empty delta": (
        "chat",
        chat(
            {"choices": [{"index": 0, "delta": {}, "message": {"tool_calls": [Chats.call("a", ONE, index=None)]}}]},
        ),
    ),
    "chat: a whole body": ("chat", whole(Chats.message("tool_calls", tool_calls=[Chats.call("a", ONE), Chats.call("a", ONE)]))),
    "anthropic: the message starts again": (
        "anthropic",
        claude(*Anthropics.call(0, "a", ONE), Anthropics.start, *Anthropics.call(0, "a", '{"sum":', "1}")),
    ),
    "anthropic: the message starts again under new ids": (
        "anthropic",
        claude(*Anthropics.call(0, "a", ONE), Anthropics.start, *Anthropics.call(0, "x", ONE)),
    ),
    "chat: two messages": (
        "chat",
        stream(Chats.message(tool_calls=[Chats.call("a", ONE)]), Chats.message("tool_calls", tool_calls=[Chats.call("x", ONE)]), "[DONE]"),
    ),
    "anthropic: a second start alone": ("anthropic", claude(Anthropics.start, *Anthropics.call(0, "a", ONE))),
    "anthropic: a second start inside a block": (
        "anthropic",
        claude(*Anthropics.call(0, "a", ONE)[:2], Anthropics.start, *Anthropics.call(0, "a", ONE)[2:]),
    ),
    "anthropic: the message starts again after it broke off": (
        "anthropic",
        claude(*Anthropics.call(0, "a", '{"sum"')[:2], Anthropics.start, *Anthropics.call(0, "a", ONE)),
    ),
    "anthropic: the start of a block comes twice": ("anthropic", claude(Anthropics.call(0, "a")[0], *Anthropics.call(0, "a", ONE))),
    "anthropic: two indexes": ("anthropic", claude(*Anthropics.call(0, "a", ONE), *Anthropics.call(1, "a", ONE))),
    "anthropic: with the start and in pieces": (
        "anthropic",
        claude(
            *blocks(0, {"type": "tool_use", "id": "a", "name": "pay", "input": {"sum": 1}}), *Anthropics.call(1, "a", ONE)
        ),
    ),
    "bedrock: two indexes": ("bedrock", answer(converse(*paid(0), *paid(1)))),
    "bedrock: the message starts again": ("bedrock", answer(converse(*paid(0), ("begin", 0, {}), *paid(0)))),
    "gemini: two chunks": (
        "gemini",
        stream(Geminis.chunk(Geminis.call("a", {"sum": 1})), Geminis.chunk(Geminis.call("a", {"sum": 1}), finish="STOP")),
    ),
    "gemini: one chunk": ("gemini", stream(Geminis.chunk(Geminis.call("a", {"sum": 1}), Geminis.call("a", {"sum": 1.0}), finish="STOP"))),
}  # fmt: skip


@pytest.mark.row("N02", "PF21")
@pytest.mark.parametrize(("dialect", "script"), ONCE.values(), ids=ONCE)
async def test_a_call_that_is_reported_twice_runs_once(dialect, script):
    till = Till()

    result = await play(dialect, script, till=till)

    assert outcome(result) == (True, ["ok"])
    assert till.paid == [{"sum": 1}]
    await check_session(result.session)


KEPT = {
    "responses: one index": ("responses", stream(Responseses.done(0, A), Responseses.done(0, B), Responseses.completed(A, B))),
    "responses: one index, not listed": ("responses", stream(Responseses.done(0, A), Responseses.done(0, B), Responseses.completed())),
    "responses: one index, in turns": (
        "responses",
        stream(
            *(Responseses.added(0, A), Responseses.added(0, B), Responseses.piece(0, "fc_a", ONE)),
            *(Responseses.piece(0, "fc_b", TWO), Responseses.done(0, A), Responseses.done(0, B), Responseses.completed(A, B)),
        ),
    ),
    "responses: one item id": (
        "responses",
        stream(
            *(Responseses.done(0, Responseses.call("a", ONE, item_id="fc")),),
            *(Responseses.done(1, Responseses.call("b", TWO, item_id="fc")), Responseses.completed()),
        ),
    ),
    "responses: listed only": ("responses", stream(Responseses.done(0, A), Responseses.completed(B, A))),
    "responses: listed in another order": ("responses", stream(Responseses.done(0, A), Responseses.done(1, B), Responseses.completed(B, A))),
    "chat: one index": ("chat", chat(Chats.calls(Chats.call("a", ONE), Chats.call("b", TWO)))),
    "chat: one index, in turns": (
        "chat",
        chat(
            *(Chats.calls(Chats.call("a", '{"sum"')), Chats.calls(Chats.call("b", '{"sum"'))),
            *(Chats.calls(Chats.call("a", ": 1}", name="")), Chats.calls(Chats.call("b", ": 2}", name=""))),
        ),
    ),
    "chat: in the message only": (
        "chat",
        chat(Chats.calls(Chats.call("a", ONE)), Chats.message(tool_calls=[Chats.call("a", ONE), Chats.call("b", TWO)])),
    ),
    "anthropic: one index": ("anthropic", claude(*Anthropics.call(0, "a", ONE), *Anthropics.call(0, "b", TWO))),
    "anthropic: one index, the first left open": ("anthropic", claude(*Anthropics.call(0, "a", ONE)[:2], *Anthropics.call(0, "b", TWO))),
    "anthropic: the message starts again with more": (
        "anthropic",
        claude(
            *Anthropics.call(0, "a", ONE), Anthropics.start, *Anthropics.call(0, "a", ONE), *Anthropics.call(1, "b", TWO)
        ),
    ),
    "gemini: ids that are missing": ("gemini", stream(Geminis.chunk(Geminis.call(None, {"sum": 1}), Geminis.call(None, {"sum": 2}), finish="STOP"))),
}  # fmt: skip


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize(("dialect", "script"), KEPT.values(), ids=KEPT)
async def test_two_calls_that_share_a_wrapping_both_run(dialect, script):
    till = Till()

    result = await play(dialect, script, till=till)

    assert outcome(result) == (True, ["ok", "ok"])
    assert sorted(one["sum"] for one in till.paid) == [1, 2]
    await check_session(result.session)


@pytest.mark.row("N02", "PF22")
async def test_a_call_whose_arguments_went_to_another_block_is_not_executed():
    first, second = Anthropics.call(0, "a", ONE), Anthropics.call(0, "b", TWO)
    till = Till()

    result = await play("anthropic", claude(first[0], second[0], second[1], first[2], second[2]), till=till)

    assert outcome(result) == (True, ["skipped", "ok"])
    assert till.paid == [{"sum": 2}]


MAYBE = {
    "responses: one id, two actions": ("responses", stream(Responseses.done(0, A), Responseses.done(1, {**B, "call_id": "a"}), Responseses.completed())),
    "responses: another action in the final output": ("responses", stream(Responseses.done(0, A), Responseses.completed({**B, "call_id": "a"}))),
    "chat: one id, two actions": ("chat", chat(Chats.calls(Chats.call("a", ONE)), Chats.calls(Chats.call("a", TWO, index=1)))),
    "chat: no ids": ("chat", chat(Chats.calls(Chats.call(None, ONE)), Chats.calls(Chats.call(None, ONE, index=1)))),
    "chat: a call of the old form and one of the new": (
        "chat",
        chat(Chats.delta(function_call={"name": "pay", "arguments": ONE}), Chats.calls(Chats.call("a", ONE))),
    ),
    "chat: deltas after a message": ("chat", chat(Chats.message(tool_calls=[Chats.call("a", ONE)]), Chats.calls(Chats.call("x", ONE, index=1)))),
    "chat: a message with one more": (
        "chat",
        chat(Chats.calls(Chats.call("a", ONE)), Chats.message(tool_calls=[Chats.call("x", ONE), Chats.call("y", ONE)])),
    ),
    **{f"chat: one with an id and one without, {form}": ("chat", made) for form, made in {
        "streamed": chat(Chats.calls(Chats.call(None, ONE)), Chats.calls(Chats.call("a", ONE, index=1))),
        "whole": whole(Chats.message("tool_calls", tool_calls=[Chats.call("a", ONE), Chats.call(None, ONE)])),
    }.items()},
    "anthropic: the message starts again at another index": (
        "anthropic",
        claude(*Anthropics.text(0, "I pay."), *Anthropics.call(1, "a", ONE), Anthropics.start, *Anthropics.call(0, "x", ONE)),
    ),
    "anthropic: one with an id and one without": ("anthropic", claude(*Anthropics.call(0, "", ONE), *Anthropics.call(1, "a", ONE))),
    "responses: the response starts again": (
        "responses",
        stream(Responseses.done(0, A), {"type": "response.created", "response": {}}, Responseses.done(0, Responseses.call("x", ONE)), Responseses.completed()),
    ),
    "responses: a final output with one more": (
        "responses",
        stream(Responseses.done(0, A), Responseses.completed(Responseses.call("x", ONE), Responseses.call("y", ONE))),
    ),
    "responses: one with an id and one without": (
        "responses",
        stream(Responseses.done(0, {**A, "call_id": None, "id": None}), Responseses.done(1, A), Responseses.completed()),
    ),
    "gemini: one with an id and one without": (
        "gemini",
        stream(Geminis.chunk(Geminis.call(None, {"sum": 1}), Geminis.call("a", {"sum": 1}), finish="STOP")),
    ),
    "anthropic: one id, two actions, the first left open": ("anthropic", claude(*Anthropics.call(0, "a", ONE)[:-1], *Anthropics.call(0, "a", TWO))),
    "anthropic: one id, two actions": ("anthropic", claude(*Anthropics.call(0, "a", ONE), *Anthropics.call(1, "a", TWO))),
    "gemini: one id, two actions": ("gemini", stream(Geminis.chunk(Geminis.call("a", {"sum": 1}), Geminis.call("a", {"sum": 2}), finish="STOP"))),
    "gemini: no ids": ("gemini", stream(Geminis.chunk(Geminis.call(None, {"sum": 1}), Geminis.call(None, {"sum": 1}), finish="STOP"))),
}  # fmt: skip


@pytest.mark.row("N02", "PF21")
@pytest.mark.parametrize(("dialect", "script"), MAYBE.values(), ids=MAYBE)
async def test_where_two_calls_may_be_meant_a_person_is_asked_about_the_second(dialect, script):
    till = Till()

    result = await play(dialect, script, till=till)

    assert result.reason is StopReason.APPROVAL_REQUIRED
    assert till.paid == [{"sum": 1}]
    (approval,) = result.session.approvals()
    assert approval.rule == "possible repetition of a call"
    await check_session(result.session)


@pytest.mark.row("N02", "PF21")
async def test_equal_calls_under_different_ids_are_two_calls_where_nothing_is_reported_twice():
    till = Till()

    result = await play("chat", chat(Chats.calls(Chats.call("a", ONE), Chats.call("b", ONE, index=1))), till=till)

    assert outcome(result) == (True, ["ok", "ok"])


@pytest.mark.row("N02", "PF21")
async def test_a_call_that_was_cut_off_and_comes_again_under_new_ids_runs_once_and_nobody_is_asked():
    till = Till()
    again = Responseses.call("x", ONE)
    script = stream(Responseses.added(0, A), Responseses.piece(0, "fc_a", ONE), Responseses.completed(again))

    result = await play("responses", script, till=till)

    assert outcome(result) == (True, ["skipped", "ok"])
    assert till.paid == [{"sum": 1}]


@pytest.mark.row("N02")
@pytest.mark.parametrize(("answered", "paid"), [("allow", 2), ("deny", 1)])
async def test_the_question_stays_open_until_a_person_answers_it(answered, paid):
    till = Till()
    model = ScriptedModel([[call("pay", id="a", sum=1), call("pay", id="a", sum=2)], text("Done.")])
    agent = Agent(model, tools=till.tools)
    async with open_session(MemoryJournal()) as session:
        await agent.run("go", session=session)

        again = await agent.resume(session)
        assert (again.reason, len(till.paid)) == (StopReason.APPROVAL_REQUIRED, 1)

        await session.answer(session.approvals()[0].id, answered)
        done = await agent.resume(session)
        assert (done.completed, len(till.paid)) == (True, paid)
        await check_session(session)


@pytest.mark.row("N02")
@pytest.mark.parametrize("ids", [("a", "a"), (None, None)])
async def test_reads_that_may_be_one_run_without_a_question(ids):
    till = Till()
    made = [Geminis.call(one, {"n": n}, name="look") for n, one in enumerate(ids)]

    result = await play("gemini", stream(Geminis.chunk(*made, finish="STOP")), till=till)

    assert outcome(result) == (True, ["ok", "ok"])
    assert till.seen == [{"n": 0}, {"n": 1}]


@pytest.mark.row("PF21")
async def test_text_that_a_message_repeats_after_its_deltas_is_said_once():
    deltas = [Chats.delta(content="I "), Chats.delta(content="think"), Chats.delta(reasoning_content="hm")]
    message = Chats.message("stop", content="I think so.", reasoning_content="hm")

    result = await play("chat", stream(*deltas, message, "[DONE]"))

    assert result.text == "I think so."


@pytest.mark.row("PF21")
@pytest.mark.parametrize("again", [("I think so.",), ("I ", "think", " so.")])
async def test_text_of_a_message_that_starts_again_is_said_once(again):
    first = [*Anthropics.text(0, "I ", "think so."), Anthropics.start, *Anthropics.text(0, *again)]

    result = await play("anthropic", stream(Anthropics.start, *first, Anthropics.reason("end_turn"), Anthropics.stop))

    assert result.messages[-1].parts == (Text("I think so."),)


@pytest.mark.row("PF21")
async def test_text_that_broke_off_before_the_message_started_again_is_not_repeated():
    first = [*Anthropics.text(0, "I ")[:2], Anthropics.start, *Anthropics.text(0, "I ", "think so.")]

    result = await play("anthropic", stream(Anthropics.start, *first, Anthropics.reason("end_turn"), Anthropics.stop))

    assert result.messages[-1].parts == (Text("I think so."),)


EARLY = {
    "responses": (
        (Responseses.done(0, Responseses.call("a", ONE, name="look")),),
        (Responseses.done(0, Responseses.call("b", TWO, name="look")), Responseses.completed(Responseses.call("x", ONE, item_id="y", name="look"))),
    ),
    "chat": (
        (Chats.calls(Chats.call("a", ONE, name="look")),),
        (Chats.calls(Chats.call("b", TWO, name="look")), Chats.message("tool_calls", tool_calls=[Chats.call("x", ONE, name="look")]), "[DONE]"),
    ),
    "anthropic": (
        (Anthropics.start, *Anthropics.call(0, "a", ONE, name="look")),
        (*Anthropics.call(0, "b", TWO, name="look"), Anthropics.start, *Anthropics.call(0, "a", ONE, name="look"), Anthropics.reason("tool_use"), Anthropics.stop),
    ),
    "gemini": (
        (Geminis.chunk(Geminis.call("a", {"sum": 1}, name="look")),),
        (Geminis.chunk(Geminis.call("a", {"sum": 1}, name="look"), Geminis.call("b", {"sum": 2}, name="look"), finish="STOP"),),
    ),
}  # fmt: skip


@pytest.mark.row("N02", "PF21", "PF22")
@pytest.mark.parametrize("dialect", EARLY)
async def test_a_read_that_started_early_is_the_call_that_is_reported_again(dialect):
    before, after = EARLY[dialect]
    till = Till()

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + sse(*before).encode())
        await till.has_seen.wait()
        writer.write(sse(*after).encode())
        await writer.drain()
        raise ConnectionError

    result = await play(dialect, script, till=till)

    assert outcome(result) == (True, ["ok", "ok"])
    assert till.seen == [{"sum": 1}, {"sum": 2}]
    await check_session(result.session)


class Forgetful:
    """A model whose final message lacks a call that was ready early."""

    name, price = "forgetful", None

    def __init__(self, first: ToolCall) -> None:
        self._first = first

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
        if len(request.messages) > 1:
            yield ModelEnd(parts=(Text("Done."),), finish=Finish.STOP)
            return
        yield CallReady(self._first)
        yield ModelEnd(parts=(ToolCall(id="b", name="pay", arguments=TWO),), finish=Finish.CALLS)


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("name", ["look", "pay"])
async def test_a_call_that_is_missing_from_the_final_message_gets_its_result(name):
    till = Till()

    result = await Agent(Forgetful(ToolCall(id="a", name=name, arguments=ONE)), tools=till.tools).run("go")

    assert outcome(result) == (True, ["ok", "ok"])
    assert [one["sum"] for one in (*till.seen, *till.paid)] == ([1, 2] if name == "look" else [2, 1])
    await check_session(result.session)


# --- calls whose end the server never sends, or whose start it sends again -------------------------------------------


ENDED = {
    "anthropic": ("content_block_start", "content_block_stop"),
    "bedrock": ("contentBlockStart", "contentBlockStop"),
    "cohere": ("tool-call-start", "tool-call-end"),
}
"""How each begins and ends a call."""


def unended(name: str, arguments: str, *, is_ended: bool, begins_again: bool = False) -> bytes:
    start, end = ENDED[name]
    turn = Turn(calls=(call("pay", id="a", arguments=arguments or "{}"),), pieces=1)
    events = events_of(name, said(name, turn))
    kinds = [kind or payload["type"] for kind, payload in events]
    again = [events[kinds.index(start)]] if begins_again else []
    at = kinds.index(end)
    return stream_of(name, [*events[:at], *again, *events[at if is_ended else at + 1 :]])


async def ran(dialect: str, body: bytes, till: Till) -> RunResult:
    async with MockProvider([Turn(body=body), "Done."]) as provider:
        model = resolve_model(f"{dialect}:m", base_url=provider.base_url, api_key="k")
        return await Agent(model, tools=till.tools).run("go")


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize("dialect", ENDED)
async def test_a_call_without_arguments_whose_end_is_missing_is_not_executed(dialect: str) -> None:
    till = Till()

    result = await ran(dialect, unended(dialect, "", is_ended=False), till)

    assert outcome(result) == (True, ["skipped"])
    assert till.paid == []


@pytest.mark.row("N02", "PF22")
@pytest.mark.parametrize(("arguments", "is_ended"), [("", True), (ONE, False)], ids=["none", "whole"])
@pytest.mark.parametrize("dialect", ENDED)
async def test_a_call_that_ended_or_has_whole_arguments_is_executed(
    dialect: str, arguments: str, is_ended: bool
) -> None:
    till = Till()

    result = await ran(dialect, unended(dialect, arguments, is_ended=is_ended), till)

    assert outcome(result) == (True, ["ok"])
    assert till.paid == [json.loads(arguments or "{}")]


@pytest.mark.row("N02", "PF21")
@pytest.mark.parametrize("arguments", [ONE, '{"sum"'], ids=["whole", "half"])
@pytest.mark.parametrize("dialect", ENDED)
async def test_a_call_that_begins_again_and_ends_at_once_does_not_lose_its_arguments(
    dialect: str, arguments: str
) -> None:
    till = Till()

    result = await ran(dialect, unended(dialect, arguments, is_ended=True, begins_again=True), till)

    assert result.reason is StopReason.APPROVAL_REQUIRED
    assert till.paid == ([{"sum": 1}] if arguments == ONE else [])
