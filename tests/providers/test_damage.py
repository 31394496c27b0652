"""Damage: bytes that are not UTF-8, control characters and half surrogates. Text is repaired; arguments never are."""

import json

import pytest
from chat_server import STREAM_HEAD, Script, answer
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import DIALECTS, Anthropics, Chats, Geminis, Responseses, Till, outcome, play, sse

from invariants import check_session
from treadle import Agent
from treadle.drivers.react import ReActDriver
from treadle.messages import Text, ToolCall
from treadle.ports import CallReady, ModelEnd, ModelRequest
from treadle.testing import ScriptedModel
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


def streamed(dialect: str, arguments: str) -> str:
    """Return a stream with one call of these arguments, in one piece."""
    match dialect:
        case "chat":
            return sse(Chats.calls(Chats.call("a", arguments)), Chats.delta("tool_calls"), "[DONE]")
        case "responses":
            call = Responseses.call("a", arguments)
            return sse(Responseses.done(0, call), Responseses.completed(call))
        case "anthropic":
            end = (Anthropics.reason("tool_use"), Anthropics.stop)
            return sse(Anthropics.start, *Anthropics.call(0, "a", arguments), *end)
        case _:
            return sse(Geminis.chunk(Geminis.call("a", json.loads(arguments)), finish="STOP"))


def whole(dialect: str, arguments: str) -> str:
    """Return a body in one piece with one call of these arguments."""
    match dialect:
        case "chat":
            body = Chats.message("tool_calls", tool_calls=[Chats.call("a", arguments)])
        case "responses":
            body = Responseses.completed(Responseses.call("a", arguments))["response"]
        case "anthropic":
            block = {"type": "tool_use", "id": "a", "name": "pay", "input": json.loads(arguments)}
            body = {"type": "message", "content": [block], "stop_reason": "tool_use"}
        case _:
            body = Geminis.chunk(Geminis.call("a", json.loads(arguments)), finish="STOP")
    return json.dumps(body)


def damaged(text: str, damage: bytes) -> bytes:
    """Put damage into text. Arguments that are text themselves hold the bytes one level deeper: so does their escape."""
    return text.encode().replace(MARK.encode(), damage)


@pytest.mark.row("N03", "PF25")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("form", [streamed, whole])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_damaged_arguments_are_invalid_and_nothing_runs(dialect, form, damage):
    till = Till()
    content_type = "text/event-stream" if form is streamed else "application/json"

    script = answer(damaged(form(dialect, json.dumps({"to": f"x{MARK}y"})), damage), content_type=content_type)
    result = await play(dialect, script, till=till)

    assert outcome(result) == (True, ["invalid_json"])
    assert till.paid == []
    await check_session(result.session)


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_arguments_that_are_sent_as_an_object_are_not_mended_either(dialect, damage):
    till = Till()
    arguments = json.dumps({"to": f"x{MARK}y"})
    text = streamed(dialect, arguments).replace(json.dumps(arguments), arguments)

    result = await play(dialect, answer(damaged(text, damage)), till=till)

    assert outcome(result) == (True, ["invalid_json"])
    assert till.paid == []


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", [b"\xff", b"\x01", b"\\ud83d"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_damage_behind_a_backslash_or_in_a_key_is_damage(dialect, damage):
    till = Till()
    for made in ({f"to{MARK}": "x"}, {"to": f"\\{MARK}"}, {"to": f"{MARK}\\ude00"}, {"to": f"\\ud83d{MARK}"}):
        result = await play(dialect, answer(damaged(streamed(dialect, json.dumps(made)), damage)), till=till)
        assert outcome(result) == (True, ["invalid_json"])
    assert till.paid == []


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", [b"\x01", b"\xff", b"\\ud83d"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_damaged_name_is_no_tool_of_ours(dialect, damage):
    till = Till()
    text = streamed(dialect, "{}").replace('"pay"', f'"pay{MARK}"')

    result = await play(dialect, answer(damaged(text, damage)), till=till)

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
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_that_is_cut_at_any_byte_of_the_network_is_the_same(dialect):
    text = json.loads(json.dumps(streamed(dialect, json.dumps({"to": "å🙂"}, ensure_ascii=False))))
    body = (
        text.encode() if dialect == "gemini" else text.replace("\\u00e5", "å").replace("\\ud83d\\ude42", "🙂").encode()
    )

    for at in range(0, len(body), 7):
        till = Till()

        async def script(writer, at=at):
            writer.write(STREAM_HEAD + body[:at])
            await writer.drain()
            writer.write(body[at:])
            await writer.drain()
            raise ConnectionError

        result = await play(dialect, script, till=till)
        assert till.paid == [{"to": "å🙂"}], at
        assert result.completed


TEXTS = {
    "chat": lambda words: [Chats.delta(content=one) for one in words] + [Chats.delta("stop"), "[DONE]"],
    "responses": lambda words: [
        *({"type": "response.output_text.delta", "output_index": 0, "delta": one} for one in words),
        Responseses.completed(),
    ],
    "anthropic": lambda words: [
        *(Anthropics.start, *Anthropics.text(0, *words)),
        *(Anthropics.reason("end_turn"), Anthropics.stop),
    ],
    "gemini": lambda words: [*(Geminis.chunk({"text": one}) for one in words), Geminis.chunk(finish="STOP")],
}


@pytest.mark.row("PF11", "PF25")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_is_joined_and_the_rest_of_its_damage_is_replaced(dialect):
    text = sse(*TEXTS[dialect](["x\ud83d", "\ude00y", f"{MARK}z\ud83d"]))

    result = await play(dialect, answer(damaged(text, b"\xff\x00")))

    assert result.text == "x😀y\ufffdz\ufffd"
    await check_session(result.session)


@pytest.mark.row("N03")
@pytest.mark.parametrize("damage", [b"\xff", b"\x01", b"\\ud83d"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_damaged_decision_is_not_carried_out(dialect, damage):
    till = Till()
    decision = json.dumps({"type": "call_tool", "tool": "pay", "args": {"to": f"x{MARK}y"}})
    script: Script = answer(damaged(sse(*TEXTS[dialect]([decision])), damage))
    good = answer(sse(*TEXTS[dialect]([json.dumps({"type": "final_answer", "answer": "Done."})])))

    result = await play(dialect, script, good, till=till, driver=ReActDriver())

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
