"""The words of the gate: what a schema wants, what a value is, and where a text stops being JSON; each at its limits."""

import datetime as dt
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from treadle.errors import ConfigurationError, InvalidArguments, ToolDefinitionError
from treadle.validation import NotJson, Schema, parse_arguments, shape, shape_of_schema
from treadle.validation.plain import (
    damaged_byte,
    damaged_json,
    is_damaged,
    is_damaged_throughout,
    joined,
    repaired,
    repaired_value,
)
from treadle.validation.schema import bounded, field_path, phrase
from treadle.validation.typed import Typed

# --- schemas


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"minProperties": 1, "maxProperties": 2}, "1..2 properties"),
        ({"maxProperties": 1}, "at most 1 property"),
        ({"uniqueItems": False}, "a value that fits the schema"),
        ({"propertyNames": {"minLength": 2}}, "names at least 2 characters"),
        ({"not": {}}, "nothing"),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"anyOf": [{"type": "string"}, {"type": "string"}]}, "string"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, "at least 1, at most 2"),
        ({"type": ["integer", "null"], "minimum": 1, "maximum": 2}, "integer or null 1..2"),
        ({"minimum": 1, "maximum": 2, "multipleOf": 0.5}, "1..2, a multiple of 0.5"),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 9}, "more than 1, less than 9"),
        ({"exclusiveMinimum": True, "minimum": 1}, "at least 1"),
        ({"type": "number", "exclusiveMinimum": 0}, "number, more than 0"),
        ({"type": "number", "exclusiveMaximum": 0.0}, "number, less than 0.0"),
        ({"minimum": 0, "maximum": 0}, "0..0"),
        ({"contains": {"type": "null"}, "minContains": 3}, "at least 3 of them null"),
        ({"enum": list(range(20))}, "one of " + ", ".join(map(str, range(20)))),
        ({"enum": list(range(22))}, "one of " + ", ".join(map(str, range(20))) + ", and 2 more"),
        ({"type": "string", "pattern": "x" * 284}, "string, pattern " + "x" * 284),
        ({"type": "string", "pattern": "x" * 285}, "string, pattern " + "x" * 281 + "..."),
        # Three levels of alternatives, and no more.
        ({"not": {"not": {"not": {"not": {"type": "null"}}}}}, "not not not a value that fits the schema"),
        ({"contains": {"contains": {"contains": {"contains": {}}}}}, "at least 1 of them at least 1 of them at least 1 of them a value that fits the schema"),
        (True, "a value that fits the schema"),
        (False, "nothing"),
    ],
)  # fmt: skip
def test_the_constraint_of_a_field_is_told_in_a_few_words(schema: Any, words: str) -> None:
    assert phrase(schema, {}) == words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "a string"),
        ({"type": "null"}, "null"),
        (True, "any value"),
        (None, "any value"),
        ({}, "any value"),
        ({"type": "array", "items": {"properties": {"a": {}}}}, "an array, each item an object with a"),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "$defs": {"A": {"properties": {"a": {}}}}}, "an object with a or null"),
        ({"type": "boolean"}, "a boolean"),
        ({"type": "number", "minimum": 1}, "a number, at least 1"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, "an integer 1..3"),
        ({"type": "array"}, "an array"),
        ({"type": "object"}, "an object"),
        ({"const": 1}, "exactly 1"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "null"}}}}},
         "an array, each item an array, each item an array, each item an array"),
        ({"anyOf": [{"anyOf": [{"anyOf": [{"anyOf": [{"type": "null"}]}]}]}]}, "null"),
        ({"oneOf": [{"type": "string"}, {"properties": {"a": {}}}]}, "a string or an object with a"),
        ({"properties": {"k" * 70: {}}}, "an object with " + "k" * 60),
        ({"properties": {f"k{number}": {} for number in range(21)}}, "an object with " + ", ".join(f"k{number}" for number in range(20)) + ", and 1 more"),
    ],
)  # fmt: skip
def test_what_a_schema_wants_is_told_with_its_article(schema: Any, words: str) -> None:
    assert shape_of_schema(schema) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"), (True, "a boolean"), (1, "an integer"), (1.5, "a number"), ("x", "a string"),
        ([], "an empty array"), ((), "an empty array"), ({}, "an empty object"),
        ([{"a": 1}, {"a": 2}], "an array of 2, the first an object with a"),
        ([[[1]], 2], "an array of 2, the first an array of 1, the first an array of 1, the first an integer"),
    ],
)  # fmt: skip
def test_a_value_has_a_shape_as_deep_as_its_first_items(value: Any, words: str) -> None:
    assert shape(value) == words


@pytest.mark.parametrize(
    ("schema", "value", "constraint"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"b": ["c"], "d": {"minProperties": 1}}}, {"b": 1}, "required together with b"),
        ({"dependentRequired": {"b": ["c"], "a": ["c"], "d": ["e"]}}, {"b": 1}, "required together with b or a"),
        ({"required": ["c"]}, {}, "required"),
    ],
    ids=["in old drafts", "several", "by itself"],
)  # fmt: skip
def test_a_missing_property_is_told_with_what_requires_it(schema: Any, value: Any, constraint: str) -> None:
    assert Schema(schema, where="x").violations(value) == [{"field": "c", "constraint": constraint, "value": None}]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "none"),
        (20, ", ".join(f"k{n}" for n in range(20))),
        (22, ", ".join(f"k{n}" for n in range(20)) + " and 2 more"),
    ],
)
def test_an_unknown_property_is_told_with_the_first_known_ones(count: int, words: str) -> None:
    schema = Schema({"properties": {f"k{n}": {} for n in range(count)}, "additionalProperties": False}, where="x")

    assert schema.violations({"z": 1})[0]["constraint"] == f"no such property (known: {words})"


def test_two_faults_of_one_field_are_one_row_with_both_and_neither_twice() -> None:
    both = Schema({"allOf": [{"minimum": 5}, {"multipleOf": 2}, {"minimum": 5}]}, where="x")

    assert both.violations(1) == [{"field": "", "constraint": "at least 5; a multiple of 2", "value": 1}]


@pytest.mark.parametrize(("items", "rows"), [(49, 49), (50, 50), (51, 50), (4998, 50), (5000, 1)])
def test_so_many_faults_are_told_and_of_a_large_value_the_first(items: int, rows: int) -> None:
    assert len(Schema({"items": {"type": "null"}}, where="x").violations([1] * items)) == rows


def test_a_schema_that_json_cannot_hold_is_refused_with_what_it_belongs_to() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"not": deep}
    for schema in ({"const": 10**5000}, {"const": {1}}, deep, {"default": b"x"}):
        with pytest.raises(ToolDefinitionError, match="The output of 'pay' cannot be used"):
            Schema(schema, where="output of 'pay'")


@pytest.mark.parametrize(
    ("value", "fields"),
    [({"kind": "a", "n": 2.0}, ["n"]), ({"kind": "b", "n": 2.0}, []), ({"kind": "a", "n": 2}, [])],
)
def test_a_whole_float_is_no_integer_in_the_alternative_that_is_meant(value: Any, fields: list[str]) -> None:
    kinds = [
        {"properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}},
        {"properties": {"kind": {"const": "b"}, "n": {"type": "number"}}},
    ]

    assert [found["field"] for found in Schema({"oneOf": kinds}, where="x").check_result(value)] == fields


# --- rows


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1 << 13_999, 1 << 13_999),
        (1 << 14_000, "an integer of about 4214 digits"),
        ([10**5000], "an array of 1 items"),
        ([0] * 99, [0] * 99),
        ([0] * 100, "an array of 100 items"),
        ("x" * 200, "x" * 200),
    ],
    ids=range(6),
)
def test_a_long_value_is_told_in_words(value: Any, shown: Any) -> None:
    assert bounded(value) == shown


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ([], ""),
        (["a", 0, "b"], "a[0].b"),
        ([0, "a"], "[0].a"),
        (["a-b"], "a-b"),
        (["a", "x y"], 'a["x y"]'),
        (["k" * 300 + " "], '["' + "k" * 200 + '"]'),
    ],
    ids=range(6),
)
def test_a_path_is_written_as_people_write_it(path: Any, written: str) -> None:
    assert field_path(path) == written


# --- from text


@pytest.mark.parametrize(
    ("commas", "is_refused"), [(100_000, False), (100_001, True)]
)  # fmt: skip
def test_so_many_values_may_stand_in_one_call(commas: int, is_refused: bool) -> None:
    text = '{"a":[' + "0," * commas + "0]}"
    if not is_refused:
        assert len(parse_arguments(text)["a"]) == commas + 1
        return
    with pytest.raises(NotJson, match="too large: more than 100000 values") as caught:
        parse_arguments(text)
    assert caught.value.snippet.endswith("0]}<HERE>")
    assert str(caught.value).endswith("Send fewer, or in several calls.")


def test_a_text_that_is_too_long_is_shown_where_it_becomes_so() -> None:
    with pytest.raises(NotJson, match="at line 2, column 5") as caught:
        parse_arguments("{\n" + " " * 4 + '"a": 1}', max_chars=6)
    assert caught.value.snippet == r'{\n    <HERE>"a": 1}'


@pytest.mark.parametrize(
    ("text", "reason", "repair"),
    [
        ('{"a": 1,}', "trailing comma", "Remove the comma."),
        ("{a: 1}", "a key without double quotes", "Use plain double quotes around keys and strings."),
        (r'{"a": "\q"}', "an escape that JSON does not have", r"Write a backslash as \\."),
        ('{"a": 1', "the text ends too early", "Send the complete JSON object again."),
        ('{"a": 1} x', "more text after the end of the JSON value", "Send exactly one JSON object."),
        ('{"a": 1e999}', "a number too large", "Send a smaller one, or a string."),
        ("{" + '"a":{' * 64 + "}" * 65, "nested deeper than 64 levels", "Flatten the arguments."),
        (f'{{"{"k" * 44}": 1, "{"k" * 44}": 2}}', 'duplicate key "' + "k" * 44 + '"', "Send each key once."),
        (f'{{"{"k" * 46}": 1, "{"k" * 46}": 2}}', 'duplicate key "' + "k" * 45 + '..."', "Send each key once."),
        ('{"a": -1e400}', "a number too large", "Send a smaller one, or a string."),
    ],
    ids=range(10),
)
def test_what_is_wrong_is_told_with_its_repair(text: str, reason: str, repair: str) -> None:
    with pytest.raises(NotJson) as caught:
        parse_arguments(text)

    assert caught.value.reason == reason
    assert str(caught.value).endswith(repair)


def test_arguments_that_are_not_an_object_are_told_by_their_shape() -> None:
    with pytest.raises(InvalidArguments, match=r"got an array of 2, the first an integer\."):
        parse_arguments("[1, 2]")


# --- the form of an answer


class Town(msgspec.Struct):
    name: str
    people: int = 0


def test_a_form_that_is_no_object_is_wrapped_with_its_definitions_beside_it() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "items": {"$ref": "#/$defs/N"},
        "$defs": {"N": {"type": "integer"}},
    }
    typed = Typed(schema, where="output")

    assert typed.schema == {
        "$schema": schema["$schema"],
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
        "required": ["value"],
        "additionalProperties": False,
        "$defs": schema["$defs"],
    }
    old = Typed(
        {"type": "array", "items": {"$ref": "#/definitions/N"}, "definitions": {"N": {"type": "null"}}}, where="o"
    )
    assert sorted(old.schema) == ["additionalProperties", "definitions", "properties", "required", "type"]
    assert old.schema["properties"] == {"value": {"type": "array", "items": {"$ref": "#/definitions/N"}}}


@pytest.mark.parametrize(
    ("text", "data", "message"),
    [
        ('{"value": [1, 2]}', [1, 2], ""),
        ('```json\n{"value": [1]}\n```', [1], ""),
        ('```\n{"value": [1]}```\n', [1], ""),
        ("", None, "It is empty."),
        ("``` \n \n```", None, "It is empty."),
        ("[1]", [1], ""),
        ("1", None, "`value`: array; got 1."),
        ('Of two:\n```json\n{"value": [1, 2]}\n```\nThat is all.', [1, 2], ""),
        ('```json\n{"value": [1]}\n```\nor\n```json\n{"value": [2]}\n```', None, "It is not JSON"),
        ('```json\n{"value": [1]}\n```\nor {"value": [2]}', None, "It is not JSON"),
        ('{"value": [1],}', None, "It is not JSON: trailing comma at line 1, column 15"),
        ('{"value": ["x"]}', None, "`value[0]`: integer; got 'x'."),
        ("{}", None, "`value`: required."),
        ('{"value": [], "more": 1}', None, "`more`: no such property (known: value); got 1."),
    ],
    ids=range(14),
)
def test_an_answer_is_read_strictly(text: str, data: Any, message: str) -> None:
    reading = Typed(list[int], where="output").read(text)

    assert reading.data == data
    assert reading.message.startswith(message)
    assert bool(reading.violations) is bool(message)


@pytest.mark.parametrize("count", [10, 12])
def test_ten_violations_of_an_answer_are_told_and_how_many_more_there_are(count: int) -> None:
    reading = Typed(list[int], where="output").check({"value": ["x"] * count})

    assert reading.message.count("integer; got") == 10
    assert ("more are wrong." in reading.message) is (count > 10)
    assert len(reading.violations) == count
    if count > 10:
        assert reading.message.endswith(" 2 more are wrong.")


def test_a_struct_is_a_form_and_its_values_are_made() -> None:
    typed = Typed(Town, where="output")
    towns = Typed(list[Town], where="output")

    assert typed.schema["type"] == "object"
    assert "$ref" not in typed.schema
    assert typed.value(typed.read('{"name": "Bree"}').data) == Town("Bree")
    assert towns.value(towns.read('{"value": [{"name": "Bree", "people": 3}]}').data) == [Town("Bree", 3)]
    assert typed.read('{"name": "Bree", "people": "many"}').violations


class City(msgspec.Struct):
    name: str
    people: int
    mayor: str


class Lake(pydantic.BaseModel):
    name: str
    depth: int


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "42", 42),
        (bool, "true", True),
        (Literal["yes", "no"], "yes", "yes"),
        (Literal["yes", "no"], '"no"', "no"),
        (Literal["1", "2"], "1", "1"),
        (dt.date, "2026-11-30", dt.date(2026, 11, 30)),
        (Town | City, '{"name": "Bree", "people": 3}', Town("Bree", 3)),
        (Town | City, '{"value": {"name": "Bree", "people": 3, "mayor": "Ada"}}', City("Bree", 3, "Ada")),
        (Town | Lake, '{"name": "Como", "depth": 410}', Lake(name="Como", depth=410)),
        (Town | Lake | None, "null", None),
        (Town | str, '{"name": "Bree"}', Town("Bree")),
        (Town | str, 'It is:\n```json\n{"name": "Bree"}\n```', Town("Bree")),
        (Town | str, "I do not know.", "I do not know."),
        (Town | str, "```python\nprint({})\n```", "```python\nprint({})\n```"),
        (list[Town] | str, '[{"name": "Bree"}]', [Town("Bree")]),
        (int | str, '{"a": 1}', '{"a": 1}'),
        (str, "{}", "{}"),
        (str | None, "null", "null"),
    ],
    ids=range(18),
)
def test_an_answer_without_its_wrapper_is_read_and_a_text_where_it_may_be_one(kind: Any, text: str, value: Any) -> None:
    typed = Typed(kind, where="output")
    reading = typed.read(text)

    assert reading.violations == ()
    assert typed.value(reading.data) == value


def test_what_is_meant_as_an_object_is_corrected_where_text_is_allowed_too() -> None:
    typed = Typed(Town | str, where="output")

    assert typed.read('{"name": 7}').message == "`name`: string; got 7."
    assert typed.read('{"name": "Bree",}').message.startswith("It is not JSON")
    assert typed.wire_schema is None
    assert '"name"' in typed.told
    assert typed.shape == '{"name": <string>, "people": <integer> (may be left out)}'
    assert Typed(str, where="output").told == ""


class Odd:
    pass


def test_a_type_that_has_no_schema_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"The output of 'clerk' cannot be described in JSON Schema: .*Odd"):
        Typed(Odd, where="output of 'clerk'")


# --- characters

HALF, BYTE = "\ud83d", damaged_byte(0xE9)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("plain", "plain"),
        ("é", "é"),
        ("a" + HALF + "b", "a\ufffdb"),
        (HALF + "\ude00", "\U0001f600"),
        (BYTE, "\ufffd"),
        (damaged_byte(0x80), "\ufffd"),
        (damaged_byte(0x00) + "x" + damaged_byte(0x1F), "x"),
        (damaged_byte(0x09) + damaged_byte(0x0A) + damaged_byte(0x0D), "\t\n\r"),
        *(("".join(map(damaged_byte, one.encode())), one) for one in "é€😀ÿ"),
        ("".join(map(damaged_byte, b"\xe2\x82")), "\ufffd\ufffd"),
    ],
    ids=range(13),
)
def test_damaged_text_is_mended_where_it_is_only_read(text: str, read: str) -> None:
    assert repaired(text) == read
    assert repaired_value({text: [text, 1], "b": {"c": text}}) == {read: [read, 1], "b": {"c": read}}


def test_what_is_not_damaged_stays_the_same_object_and_what_is_joined_is_not_mended() -> None:
    value = {"a": ["é", {"b": None}], "c": 1}

    assert repaired_value(value) is value
    assert repaired_value(value["a"]) is value["a"]
    assert joined("a" + HALF) == "a" + HALF
    assert joined(BYTE + "x") == BYTE + "x"
    assert joined("x" + HALF + "\ude00") == "x\U0001f600"
    assert [joined("".join(map(damaged_byte, one.encode()))) for one in "é€😀ÿ"] == [*"é€😀ÿ"]
    assert [is_damaged(one) for one in ("", "é", HALF, BYTE)] == [False, False, True, True]


@pytest.mark.parametrize("byte", [0x00, 0x1F, 0x80, 0xFF])
def test_a_damaged_byte_is_two_halves_that_no_text_has(byte: int) -> None:
    assert damaged_byte(byte) == "\udfff" + chr(0xDC00 + byte)


def test_text_is_damaged_throughout_from_so_many_characters_on() -> None:
    assert not is_damaged_throughout("é" * 60_000 + HALF * 50_000)
    assert is_damaged_throughout(HALF * 50_001)


@pytest.mark.parametrize("before", ["", "\\"])
def test_damaged_json_can_be_stored_and_is_not_valid_json_wherever_the_damage_stands(before: str) -> None:
    text = '{"a": "' + before * 2 + HALF + '"}'
    stored = damaged_json(text)

    stored.encode()
    with pytest.raises(NotJson):
        parse_arguments(stored)
    assert ("\x1a" in stored) is bool(before)
    assert "\\ud83d" in stored
    assert damaged_json('{"a": "é"}') == '{"a": "é"}'
