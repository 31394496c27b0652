"""Damage: bytes that are not UTF-8, control characters and half surrogates. Text is repaired; arguments never are."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from chat_server import STREAM_HEAD, answer
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import NAMES, Anthropics, Chats, Responseses, Till, damaged, outcome, play, said, sse

from invariants import check_session
from treadle import Agent
from treadle.drivers.react import ReActDriver
from treadle.messages import Text, ToolCall
from treadle.ports import CallReady, ModelEnd, ModelRequest
from treadle.providers.payload import to_json
from treadle.testing import ScriptedModel, Turn, call
from treadle.validation import NotJson, parse_arguments
from treadle.validation.plain import damaged_json, is_damaged, joined, repaired

MARK = "DAMAGE"
"""Stands for the damage in a stream that is still text."""

DAMAGE = {
    "a byte that is not UTF-8": b"\xff",
    "half of a character's bytes": b"\xf0\x9f",
    "a character in the wrong encoding": b"\xed\xa0\xbd\xed\xb8\x80",
    "a control character": b"\x01",
    "a NUL": b"\x00",
    "a bare tab": b"\t",
    "the first half of a pair": b"\\ud83d",
    "the second half of a pair": b"\\ude00",
    "the halves of a pair in the wrong order": b"\\ude00\\ud83d",
}
EACH_LEVEL = (b"\xff", b"\x01", b"\\ud83d")
"""Damage of bytes, of JSON and of characters: one of each, where a dialect differs only in where its text stands."""


def paying(name: str, arguments: Any, *, stream: bool = True) -> bytes:
    """Return an answer with one call of these arguments, in one piece."""
    turn = Turn(calls=(call("pay", arguments=json.dumps(arguments, ensure_ascii=False)),), pieces=1)
    return said(name, turn, stream=stream)


@pytest.mark.row("N03", "PF25", "P-CONVERSE")
@pytest.mark.parametrize(
    ("name", "damage"),
    [*(("openai-chat", damage) for damage in DAMAGE.values()), *itertools.product(NAMES[1:], EACH_LEVEL)],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_damaged_arguments_are_invalid_and_nothing_runs(name, stream, damage):
    till = Till()
    content = damaged(name, paying(name, {"to": f"x{MARK}y"}, stream=stream), damage)

    result = await play(name, answer(content), till=till)

    assert outcome(result) == (True, ["invalid_json"])
    assert till.paid == []
    await check_session(result.session)


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", EACH_LEVEL)
@pytest.mark.parametrize("name", ["openai-chat", "openai", "cohere"])
async def test_arguments_that_are_sent_as_an_object_are_not_mended_either(name, damage):
    till = Till()
    arguments = {"to": f"x{MARK}y"}
    whole = paying(name, arguments, stream=False).decode()
    as_object = whole.replace(json.dumps(json.dumps(arguments)), json.dumps(arguments))
    assert as_object != whole

    result = await play(name, answer(damaged(name, as_object, damage)), till=till)

    assert outcome(result) == (True, ["invalid_json"])
    assert till.paid == []


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", EACH_LEVEL)
@pytest.mark.parametrize("name", NAMES)
async def test_damage_behind_a_backslash_or_in_a_key_is_damage(name, damage):
    till = Till()
    for made in ({f"to{MARK}": "x"}, {"to": f"\\{MARK}"}, {"to": f"{MARK}\\ude00"}, {"to": f"\\ud83d{MARK}"}):
        result = await play(name, answer(damaged(name, paying(name, made), damage)), till=till)
        assert outcome(result) == (True, ["invalid_json"])
    assert till.paid == []


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", EACH_LEVEL)
@pytest.mark.parametrize("name", NAMES)
async def test_a_damaged_name_is_no_tool_of_ours(name, damage):
    till = Till()
    content = said(name, Turn(calls=(call(f"pay{MARK}"),)))

    result = await play(name, answer(damaged(name, content, damage)), till=till)

    assert outcome(result) == (True, ["unknown_tool"])
    assert till.paid == []
    await check_session(result.session)


def pieces(dialect: str, parts: list[bytes]) -> bytes:
    """Return a stream whose arguments come in these pieces of JSON text, each one the inside of a string of the wire."""
    marks = [f"{MARK}{place};" for place in range(len(parts))]
    match dialect:
        case "chat":
            first = Chats.calls(Chats.call("a", ""))
            grow = [Chats.calls({"index": 0, "function": {"arguments": mark}}) for mark in marks]
            text = sse(first, *grow, Chats.delta("tool_calls"), "[DONE]")
        case "responses":
            call = Responseses.call("a", "")
            grow = [Responseses.piece(0, "fc_a", mark) for mark in marks]
            text = sse(Responseses.added(0, call), *grow, Responseses.done(0, call), Responseses.completed(call))
        case _:
            end = (Anthropics.reason("tool_use"), Anthropics.stop)
            text = sse(Anthropics.start, *Anthropics.call(0, "a", *marks), *end)
    made = text.encode()
    for mark, part in zip(marks, parts, strict=True):
        made = made.replace(mark.encode(), part)
    return made


SPLIT = {
    "the halves of a pair": [rb"{\"to\": \"x\ud83d", rb"\ude00y\"}"],
    "the bytes of a character": [b'{\\"to\\": \\"x\xf0\x9f', b'\x98\x80y\\"}'],
    "the bytes of a character, one by one": [b'{\\"to\\": \\"x\xf0', b"\x9f", b"\x98", b'\x80y\\"}'],
    "an escape": [rb"{\"to\": \"x\\ud8", rb"3d\\ude", rb"00y\"}"],
    "an escape at its backslash": [rb"{\"to\": \"x\\", rb"ud83d\\", rb"ude00y\"}"],
}


@pytest.mark.row("PF25")
@pytest.mark.parametrize("parts", SPLIT.values(), ids=SPLIT)
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_a_character_that_is_split_over_events_is_joined(dialect, parts):
    till = Till()

    result = await play(dialect, answer(pieces(dialect, parts)), till=till)

    assert outcome(result) == (True, ["ok"])
    assert till.paid == [{"to": "x😀y"}]
    await check_session(result.session)


@pytest.mark.row("PF25", "PF11")
@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_that_the_network_cuts_in_two_is_the_same(name):
    body = paying(name, {"to": "å🙂"})
    inside = body.index("🙂".encode()) + 2 if "🙂".encode() in body else len(body) // 2

    for at in (1, inside, len(body) - 1):
        till = Till()

        async def script(writer, at=at):
            writer.write(STREAM_HEAD + body[:at])
            await writer.drain()
            writer.write(body[at:])
            await writer.drain()
            raise ConnectionError

        result = await play(name, script, till=till)
        assert till.paid == [{"to": "å🙂"}], at
        assert result.completed


@pytest.mark.row("PF11", "PF25")
@pytest.mark.parametrize("name", NAMES)
async def test_text_is_joined_and_the_rest_of_its_damage_is_replaced(name):
    text = damaged(name, said(name, Turn(text="(x\ud83d)(\ude00y)(DAMAGEz\ud83d)", pieces=1)), b"\xff\x00")

    result = await play(name, answer(text))

    assert result.text == "(x\ufffd)(\ufffdy)(\ufffdz\ufffd)"
    await check_session(result.session)


@pytest.mark.row("PF25")
@pytest.mark.parametrize("name", NAMES)
async def test_the_halves_of_a_character_that_come_in_two_pieces_are_joined(name):
    result = await play(name, answer(said(name, Turn(text="x\ud83d\ude00y", pieces=2))))

    assert result.text == "x😀y"


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", EACH_LEVEL)
@pytest.mark.parametrize("name", NAMES)
async def test_a_damaged_decision_is_not_carried_out(name, damage):
    till = Till()
    decision = json.dumps({"type": "call_tool", "tool": "pay", "args": {"to": f"x{MARK}y"}})
    bad = answer(damaged(name, said(name, Turn(text=decision, pieces=1)), damage))
    good = answer(said(name, Turn(text=json.dumps({"type": "final_answer", "answer": "Done."}))))

    result = await play(name, bad, good, till=till, driver=ReActDriver())

    assert outcome(result) == (True, [])
    assert till.paid == []


class Halved:
    """A model of somebody else's whose arguments hold the halves of a pair."""

    name, price = "halved", None

    def __init__(self, arguments: str) -> None:
        self._call = ToolCall(id="a", name="pay", arguments=arguments)

    async def stream(self, request: ModelRequest):
        if len(request.messages) > 1:
            yield ModelEnd(parts=(Text("Done."),))
            return
        yield CallReady(self._call)
        yield ModelEnd(parts=(self._call,))


@pytest.mark.row("N03", "MF7")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ('{"to": "\ud83d\ude00"}', "ok"),
        ('{"to": "\ude00\ud83d"}', "invalid_json"),
        ('{"to": "\\\udcff"}', "invalid_json"),
        ('{"to": "\ud83d\\ude00"}', "invalid_json"),
        ('{"to": "\\ud83d\ude00"}', "invalid_json"),
    ],
    ids=ascii,
)
async def test_the_core_keeps_to_it_whatever_model_it_has(arguments, status):
    till = Till()

    result = await Agent(Halved(arguments), tools=till.tools).run("go")

    assert outcome(result) == (True, [status])
    assert till.paid == ([{"to": "😀"}] if status == "ok" else [])


@pytest.mark.row("N03")
async def test_a_decision_of_a_scripted_model_with_half_a_pair_is_not_carried_out():
    till = Till()
    decision = '{"type": "call_tool", "tool": "pay", "args": {"to": "\ud83d"}}'

    model = ScriptedModel([decision, '{"type": "final_answer", "answer": "Done."}'])
    result = await Agent(model, tools=till.tools, driver=ReActDriver()).run("go")

    assert (outcome(result), till.paid) == ((True, []), [])


strange = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)


@pytest.mark.row("N03")
@given(strange)
@settings(max_examples=300)
def test_what_is_mended_can_be_stored_and_what_is_text_stays_as_it_is(words):
    assert not is_damaged(repaired(words))
    assert isinstance(repaired(words).encode(), bytes)
    if not is_damaged(words):
        assert joined(words) == repaired(words) == damaged_json(words) == words


@pytest.mark.row("N03")
@given(strange, st.sampled_from(["\\", '"', "\\u", "\\ud83d", ""]), strange)
def test_damaged_json_is_invalid_wherever_the_damage_stands(before, near, after):
    words = joined(f'{{"a": "{before}{near}{after}"}}')
    if is_damaged(words):
        with pytest.raises(NotJson):
            parse_arguments(damaged_json(words))


def test_half_a_pair_beside_a_result_that_is_json_already_is_repaired():
    body = {"said": "half \ud800", "result": msgspec.Raw(b'{"total": 3}')}

    assert msgspec.json.decode(to_json(body)) == {"said": "half \ufffd", "result": {"total": 3}}
