"""Scripts: what a file may say, and what is wrong with it otherwise."""

import json
import re

import pytest

from treadle.errors import ConfigurationError
from treadle.messages import Finish, Usage
from treadle.mock.script import finish_of, fragments
from treadle.testing import Script, ScriptedCall, Turn, call, load_script, parse_script, text

WHOLE = {
    "text": "I look.",
    "calls": [{"name": "a", "arguments": {"x": 1.5, "y": "ü"}, "id": "c1"}, {"name": "b", "arguments": '{"x": '}, {"name": "c", "id": None}],
    "thinking": "Hm.",
    "finish": "tool_calls",
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 3}},
    "status": 200,
    "headers": {"Retry-After": 2, "x-more": "yes"},
    "delay_ms": 1,
    "gap_ms": 0.5,
    "chunk_size": 7,
    "pieces": 2,
    "interleave": True,
    "prefix": "\ufeff",
    "newline": "\r\n",
    "cut": "mid-arguments",
    "cut_by": "reset",
    "gate": "g",
    "hold_after_call": 1,
}  # fmt: skip


def test_every_key_of_a_turn_is_read():
    assert parse_script(json.dumps([WHOLE])).turns == (
        Turn(
            text="I look.",
            calls=(
                ScriptedCall(name="a", arguments='{"x": 1.5, "y": "ü"}', id="c1"),
                ScriptedCall(name="b", arguments='{"x": '),
                ScriptedCall(name="c", id=None),
            ),
            thinking="Hm.",
            finish="tool_calls",
            usage=Usage(input_tokens=9, output_tokens=4, cached_input_tokens=3),
            headers={"Retry-After": "2", "x-more": "yes"},
            delay_ms=1,
            gap_ms=0.5,
            chunk_size=7,
            pieces=2,
            interleave=True,
            prefix=b"\xef\xbb\xbf",
            newline="\r\n",
            cut="mid-arguments",
            cut_by="reset",
            gate="g",
            hold_after_call=1,
        ),
    )


def test_usage_may_stand_in_our_words_and_null_sends_none():
    ours, none, unset = parse_script('[{"usage": {"input_tokens": 5, "output_tokens": 6}}, {"usage": null}, {}]').turns
    assert ours.usage == Usage(input_tokens=5, output_tokens=6)
    assert none.usage is None
    assert unset == Turn()


def test_raw_bodies_may_be_text_json_or_bytes():
    turns = parse_script('[{"body": "<html>"}, {"body": {"a": 1}}, {"body_base64": "/w=="}, {"body": ""}]').turns
    assert [turn.body for turn in turns] == [b"<html>", b'{"a": 1}', b"\xff", b""]


BAD = {
    "": "s.json is not JSON",
    "[" * 100_000: "s.json is not JSON",
    "{}": "s.json must be a list of turns; got {}",
    "[]": "s.json is an empty list",
    '["hi"]': "s.json: turn [0]: Expected `object`, got `str`",
    '[{}, {"txt": "hi"}]': "s.json: turn [1] has the unknown key 'txt'; did you mean 'text'?",
    '[{"zebra": 1}]': "turn [0] has the unknown key 'zebra'; known are text, calls,",
    '[{"text": "a", "text": "b"}]': "the key 'text' occurs twice",
    '[{"delay_ms": NaN}]': "NaN is not a JSON value",
    '[{"delay_ms": 1e999}]': "turn [0]: delay_ms must be a number of 0 or more; got inf",
    '[{"text": 1}]': "turn [0].text: Expected `str | null`, got `int`",
    '[{"calls": [{}]}]': "turn [0].calls[0]: Object missing required field `name`",
    '[{"calls": [{"name": "a"}, {"name": "b", "argument": {}}]}]': "calls[1] has the unknown key 'argument'; did you mean 'arguments'?",
    '[{"calls": [{"name": "a", "arguments": {"x": 1e999}}]}]': "turn [0]: The arguments of call('a') are not JSON",
    '[{"usage": {"input_tokens": -3}}]': "usage.input_tokens: Expected `int` >= 0",
    '[{"usage": {"prompt_tokens_details": {"x": 1}}}]': "usage.prompt_tokens_details has the unknown key 'x'",
    '[{"status": 99}]': "status: Expected `int` >= 200",
    '[{"chunk_size": 0}]': "chunk_size must be a number of 1 or more; got 0",
    '[{"cut": "mid-word"}]': "cut: Invalid enum value 'mid-word'",
    '[{"cut": "mid-text"}]': "turn [0]: cut 'mid-text' needs a text",
    '[{"cut": "mid-arguments", "text": "a"}]': "cut 'mid-arguments' needs a call",
    '[{"cut_by": "reset"}]': "cut_by needs cut",
    '[{"headers": {"a b": "c"}}]': "turn [0]: headers has 'a b'",
    '[{"headers": {"a": "b\\r\\nc: d"}}]': "turn [0]: headers has 'a'",
    '[{"headers": {"a": true}}]': "headers[...]: Expected `int | float | str`, got `bool`",
    '[{"body": "", "body_base64": ""}]': "body or body_base64, not both",
    '[{"body_base64": "?"}]': "body_base64: Invalid base64 encoded string",
    '[{"prefix": "\\ud800"}]': "body and prefix take no lone surrogates",
    '[{"hold_after_call": 0}]': "need a gate to wait at",
    '[{"gate": "g", "hold_after_call": 0}]': "hold_after_call is 0, but the last call is -1",
}


@pytest.mark.parametrize("content", BAD, ids=lambda content: content[:60])
def test_a_wrong_script_is_refused_with_its_place(content):
    with pytest.raises(ConfigurationError, match=re.escape(BAD[content])):
        parse_script(content, where="s.json")


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ConfigurationError, match=r"s is not JSON: .*\. A script is a JSON list of turns"):
        parse_script(b"\xff\xfe\xfa", where="s")


def test_a_script_is_read_from_a_file(tmp_path):
    file = tmp_path / "script.json"
    file.write_text('[{"text": "hi"}]', encoding="utf-8")
    assert load_script(file).turns == (text("hi"),)


def test_a_script_that_is_not_there_is_told_once_and_with_what_to_do(tmp_path):
    missing = tmp_path / "nope.json"
    for path in (tmp_path, "a\0b"):
        with pytest.raises(ConfigurationError, match=r"cannot be read|no file can have"):
            load_script(path)

    with pytest.raises(ConfigurationError) as told:
        load_script(missing)

    assert str(told.value) == f"Script {str(missing)!r} cannot be read: No such file or directory. Check its path."


@pytest.mark.row("D14")
def test_the_last_turn_repeats_unless_the_script_says_otherwise():
    assert Script(["a", "b"]).turn(7) == text("b")
    strict = Script(["a", "b"], exhausted="error")
    assert [strict.turn(index) for index in range(3)] == [text("a"), text("b"), None]


def test_a_turn_is_made_of_words_calls_and_lists_of_them():
    assert Script([[text("I "), "look.", call("a", x=1), call("b", id="c")], call("d")]).turns == (
        Turn(text="I look.", calls=(ScriptedCall(name="a", arguments='{"x": 1}'), ScriptedCall(name="b", id="c"))),
        Turn(calls=(ScriptedCall(name="d"),)),
    )


def test_a_list_keeps_the_faults_of_its_one_special_part():
    assert Script([["I look.", Turn(status=200, finish="length"), call("a")]]).turns == (
        Turn(text="I look.", finish="length", calls=(ScriptedCall(name="a"),)),
    )


@pytest.mark.parametrize(
    "turns", [[], "hi", [[]], [3], [None], [[text("a", finish="stop"), text("b", finish="length")]]]
)
def test_what_is_no_turn_is_refused(turns):
    with pytest.raises(ConfigurationError):
        Script(turns)


@pytest.mark.parametrize("arguments", [{"x": {1, 2}}, {"x": float("nan")}, {"x": b""}])
def test_arguments_that_are_no_json_are_refused(arguments):
    with pytest.raises(ConfigurationError, match="not JSON"):
        call("a", arguments=arguments)


def test_arguments_come_in_one_form():
    with pytest.raises(ConfigurationError, match="both"):
        call("a", arguments={}, x=1)


def test_finish_words_of_all_dialects_have_one_meaning():
    words = {
        "stop": Finish.STOP,
        "tool_calls": Finish.CALLS,
        "length": Finish.LENGTH,
        "content_filter": Finish.REFUSED,
        "odd": Finish.UNKNOWN,
    }
    assert {word: finish_of(Turn(finish=word)) for word in words} == words
    assert finish_of(Turn()) is Finish.STOP
    assert finish_of(Turn(calls=(call("a"),))) is Finish.CALLS
    assert finish_of(Turn(refusal="No.")) is Finish.REFUSED
    assert finish_of(Turn(finish=None)) is Finish.UNKNOWN


def test_fragments_join_to_the_whole():
    for words, pieces in (("", 3), ("a", 3), ("abcdefg", 3), ("abc", 1), ("äöü", 2)):
        split = fragments(words, pieces)
        assert "".join(split) == words
        assert len(split) <= pieces
        assert all(split)


@pytest.mark.parametrize(
    "words",
    [
        {"status": 42},
        {"cut": -1},
        {"pieces": 0},
        {"text": 3},
        {"body": "text"},
        {"calls": call("a")},
        {"calls": ("a",)},
        {"headers": {"a": "ü"}},
        {"chunk_size": 0},
        {"delay_ms": float("inf")},
        {"gap_ms": float("nan")},
        {"gate": "g", "hold_after_call": 0, "hold_after_pieces": 0, "calls": (call("a"),)},
    ],
)
def test_a_turn_that_cannot_be_is_refused_when_it_is_made(words):
    with pytest.raises(ConfigurationError):
        Turn(**words)


def test_null_means_none_given():
    assert parse_script('[{"calls": null, "finish": null, "text": null}]').turns == (Turn(),)
    assert parse_script('[{"finish": ""}]').turns == (Turn(finish=None),)


def test_turns_may_be_mappings_as_in_a_script_file() -> None:
    script = Script([{"text": "Hello.", "calls": [{"name": "look", "arguments": {"x": 1}}]}, "Done."])

    assert (script.turns[0].text, script.turns[0].calls[0].arguments) == ("Hello.", '{"x": 1}')
    with pytest.raises(ConfigurationError, match="texts"):
        Script([{"texts": "Hello."}])
