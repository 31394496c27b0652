"""Healing: histories that crashes, edits and compilers broke are made whole before they are sent; the store is not."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_tools import echo_tool
from treadle import Agent, open_session, resolve_model
from treadle.context.compaction import Compaction
from treadle.context.repair import HistoryRepair
from treadle.engine.model_calls.reservations import encodable_message
from treadle.events import MessageAdded, ModelFinished
from treadle.messages import Message, Result, Text, Thinking, ToolCall, user_message
from treadle.ports import SessionView
from treadle.testing import MockProvider, ScriptedModel, call, text


def said(*ids: str, words: str = "") -> Message:
    parts = [Text(words)] if words else []
    return Message(role="assistant", parts=(*parts, *(ToolCall(id=one, name="echo", arguments="{}") for one in ids)))


def told(*ids: str) -> Message:
    return Message(role="tool", parts=tuple(Result(call_id=one, name="echo", content=f"result {one}") for one in ids))


USER = user_message("go")
BROKEN = {
    "a call without its result": [USER, said("a", "b"), told("a")],
    "a call without any results": [USER, said("a"), user_message("and?")],
    "a result without its call": [USER, told("x"), said(words="done")],
    "results in another order": [USER, said("a", "b"), told("b", "a")],
    "results in two messages": [USER, said("a", "b"), told("a"), told("b")],
    "a result twice": [USER, said("a"), told("a"), told("a")],
    "a result that comes later": [USER, said("a"), user_message("wait"), told("a")],
    "one id twice in one message": [USER, said("a", "a"), told("a")],
    "one id in two steps": [USER, said("a"), said("a"), told("a"), told("a")],
    "one id in two steps that are whole": [USER, said("a"), told("a"), said("b", "a"), told("b", "a")],
    "an empty message": [USER, Message(role="assistant", parts=()), user_message("again")],
    "a result before its call": [USER, told("a"), said("a")],
    "an open call at the end": [USER, said("a")],
}


@pytest.mark.row("M14")
@pytest.mark.parametrize(
    "dialect",
    [
        *("openai-chat", "openai", "anthropic", "gemini", "bedrock", "cohere"),
        *(pytest.param(cloud, marks=pytest.mark.soak) for cloud in ("bedrock-claude", "vertex")),
    ],
)
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_history_is_sent_whole_and_the_repair_is_told(broken, dialect):
    async with MockProvider(["fine"]) as mock, open_session("memory:") as session:
        await session.ledger.record(*(MessageAdded(message=message, source="import") for message in broken))
        session.state.open.clear()  # as an edited or imported journal would have it
        stored = session.messages

        class AsStored:
            def compile(self, session: SessionView) -> list[Message]:
                return [*broken, user_message("new")]

        agent = Agent(resolve_model(f"{dialect}:m", base_url=mock.base_url), compiler=AsStored())
        result = await agent.run("new", session=session)
        events = await session.events()

    assert (result.text, mock.refusals) == ("fine", [])
    assert [event.type for event in events].count("history.repaired") == 1
    assert result.messages[: len(stored)] == stored


@pytest.mark.row("M14")
async def test_a_sound_history_is_sent_as_it_is_and_nothing_is_told():
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([call("echo"), call("echo", x=1), text("done")]), tools=[echo_tool()]).run(
            "go", session=session
        )
        types = {event.type for event in await session.events()}
        healer = HistoryRepair()
        assert healer.repair_history(session.messages) == (session.messages, ())
        assert healer.repair_history(session.messages) == (session.messages, ())
    assert "history.repaired" not in types


@pytest.mark.row("M14")
def test_what_was_known_of_one_history_says_nothing_of_another():
    broken = (USER, said("a"), user_message("and?"))
    healer = HistoryRepair()
    assert healer.repair_history([said(words="hi"), USER, USER]) == ((said(words="hi"), USER, USER), ())

    _, told_of_stored = healer.repair_history(broken, is_stored=True)
    sound = (USER, said("a"), told("a"))
    assert healer.repair_history(sound, is_stored=True) == (sound, ())
    _, told_of_longer = healer.repair_history((*sound, said("b")), is_stored=True)

    assert told_of_stored
    assert told_of_longer


@pytest.mark.row("M14")
def test_an_id_that_comes_again_is_told_apart_with_its_result():
    healed, repairs = HistoryRepair().repair_history([USER, said("a"), told("a"), said("a_2", "a"), told("a_2", "a")])

    assert [call.id for message in healed for call in message.calls] == ["a", "a_2", "a_3"]
    assert [result.content for message in healed for result in message.results] == [
        "result a",
        "result a_2",
        "result a",
    ]
    assert len(repairs) == 1


@pytest.mark.row("M14")
def test_an_id_of_the_known_history_is_known_when_it_comes_again():
    healer = HistoryRepair()
    begun = (USER, said("a"), told("a"))
    assert healer.repair_history(begun, is_stored=True) == (begun, ())

    healed, repairs = healer.repair_history((*begun, said("a"), told("a")), is_stored=True)

    assert (healed[3].calls[0].id, len(repairs)) == ("a_2", 1)
    assert healer.repair_history((*begun, said("b"), told("b")), is_stored=True)[1] == ()


@pytest.mark.row("M14")
@pytest.mark.unchecked("it records a message without a run")
async def test_an_empty_answer_is_stored_and_never_sent():
    async with open_session("memory:") as session:
        empty = Message(role="assistant", parts=())
        await session.ledger.record(MessageAdded(message=USER), ModelFinished(message=empty, finish="stop"))
        model = ScriptedModel([text("done")])
        await Agent(model).run("new", session=session)

        assert empty in session.messages
    assert model.requests[0].messages == (USER, user_message("new"))


parts = st.one_of(
    st.builds(lambda ids: said(*ids), st.lists(st.sampled_from("abc"), min_size=1, max_size=3)),
    st.builds(lambda ids: told(*ids), st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)),
    st.just(USER),
    st.just(said(words="words")),
    st.just(Message(role="assistant", parts=())),
)


@pytest.mark.row("M14")
@settings(max_examples=300)
@given(st.lists(parts, max_size=8))
def test_whatever_the_history_each_call_has_one_result_right_behind_it(messages):
    before = [msgspec.json.encode(message) for message in messages]
    healed, repairs = HistoryRepair().repair_history(messages)

    for spoken, behind in itertools.zip_longest(healed, healed[1:]):
        ids = [one.id for one in spoken.calls]
        if ids:
            assert behind is not None
            assert [result.call_id for result in behind.results] == ids
        assert len(ids) == len(set(ids))
        assert spoken.parts
    every = [call.id for message in healed for call in message.calls]
    assert len(every) == len(set(every))
    assert [message.role for message in healed if message.role == "user"].count("user") == messages.count(USER)
    assert HistoryRepair().repair_history(healed) == (healed, ())
    assert bool(repairs) == (healed != tuple(messages))
    assert [msgspec.json.encode(message) for message in messages] == before


# --- characters


def test_a_compaction_is_stored_with_words_that_every_journal_can_hold():
    parts = (Text("a\ud800b"), Thinking(text="c\udfffd"), ToolCall(id="c", name="n\ud800", arguments='{"a":"\ud800"}'))
    message = Message(role="assistant", parts=parts, origin="m")

    stored = encodable_message(message)

    assert msgspec.json.decode(msgspec.json.encode(stored), type=Message) == stored
    assert (stored.role, stored.origin, stored.parts[0]) == ("assistant", "m", Text("a\ufffdb"))
    assert Compaction(tier="x", begin=0, end=1, messages=(stored,)).messages == (stored,)
