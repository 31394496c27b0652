"""Arguments and results at the gate: what is strict JSON, what fits a schema, what is data. Runs no tool."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InvalidArguments, ToolDefinitionError
from treadle.validation import (
    NotJson,
    Schema,
    parse_arguments,
    shape_mismatch,
)

# --- from text to an object ------------------------------------------------------------------------------------------

NOT_JSON = [
    ('{"a": 1,}', "trailing comma", 1, 9),
    ('{"a": [1, 2,], "b": 3}', "trailing comma", 1, 13),
    ("{\u201ca\u201d: 1}", "typographic quote", 1, 2),
    ('{"a": \u2018b\u2019}', "single quote", 1, 7),
    ("{'a': 1}", "single quote", 1, 2),
    ('{"a": NaN}', "NaN", 1, 7),
    ('{"a": nan}', "NaN", 1, 8),
    ('{"a": -Infinity}', "Infinity", 1, 8),
    ('{"a": 1e400}', "too large", 1, 7),
    ('{"a":\n [1, -2.5e999]}', "too large", 2, 6),
    ('{"a": "1e400", "b": 10e308}', "too large", 1, 21),
    ('{"a": 1' + "0" * 400 + ".0}", "too large", 1, 7),
    ('{"a": 1, "a": 2}', 'duplicate key "a"', 1, 14),
    ('{"x": [{"a": 1, "\\u0061": 2}]}', 'duplicate key "a"', 1, 26),
    ('{"a": "\\ud800"}', "surrogate", 1, 14),
    ('{"\\udc00": 1}', "surrogate", 1, 8),
    ('{"a": "\ud800"}', "surrogate", 1, 8),
    ('{"a": True}', "Python literal", 1, 7),
    ('{"a": "x\ny"}', "control character", 1, 9),
    ('{"a": "\x00"}', "control character", 1, 8),
    ('{"a": 1', "ends too early", 1, 8),
    ('{"a": "b', "ends too early", 1, 9),
    ("{", "ends too early", 1, 2),
    ('{"a": 1} and so on', "more text after", 1, 10),
    ('{"a": 1}{"a": 2}', "more text after", 1, 9),
    ('```json\n{"a": 1}\n```', "code fence", 1, 1),
    ('{"a": 1} // done', "comment", 1, 10),
    ('{"a": 01}', "not JSON", 1, 8),
    ('{"\u00e9\u00e9": "\u00fc",\n "b": }', "expected value", 2, 7),
    ("\ufeff{}", "expected value", 1, 1),
]


@pytest.mark.row("MF1", "V13")
@pytest.mark.parametrize(("text", "reason", "line", "column"), NOT_JSON)
def test_text_that_is_not_strict_json_is_refused_with_the_place_and_the_reason(text, reason, line, column):
    with pytest.raises(NotJson) as caught:
        parse_arguments(text)

    error = caught.value
    assert reason in error.reason
    assert (error.line, error.column) == (line, column)
    assert "<HERE>" in error.snippet
    assert error.snippet in str(error)
    assert str(error).endswith(".")
    msgspec.json.encode([str(error), error.snippet, error.reason])


@pytest.mark.row("MF1")
def test_the_snippet_marks_the_offending_place_and_stays_short():
    with pytest.raises(NotJson) as caught:
        parse_arguments('{"text": "' + "x" * 5000 + '", "quantity": 12,, "y": "' + "y" * 5000 + '"}')

    assert caught.value.snippet.startswith("xxx")
    assert '"quantity": 12,<HERE>,' in caught.value.snippet
    assert len(caught.value.snippet) <= 80


@pytest.mark.row("MF1", "V13")
@pytest.mark.parametrize("opening", ["[", '{"a":', '{"a":['], ids=["lists", "objects", "both"])
@pytest.mark.parametrize("levels", [300, 10_000, 100_000])
def test_ten_thousand_levels_are_refused_without_recursion(opening, levels):
    with pytest.raises(NotJson, match="nested"):
        parse_arguments(opening * levels)


@pytest.mark.row("V13")
def test_depth_counts_brackets_outside_of_strings_only():
    assert parse_arguments('{"a": "' + "[" * 500 + '"}') == {"a": "[" * 500}
    assert parse_arguments('{"a": [' + ",".join(["[]"] * 500) + "]}") == {"a": [[]] * 500}
    assert parse_arguments('{"a":' + "[" * 63 + "]" * 63 + "}")
    with pytest.raises(NotJson, match="deeper than 64 levels at line 1, column 69"):
        parse_arguments('{"a":' + "[" * 64 + "]" * 64 + "}")


@pytest.mark.row("MF1", "V13")
def test_ten_megabytes_are_refused_before_they_are_parsed():
    with pytest.raises(NotJson, match="10000010 characters, where 1000000 are allowed") as caught:
        parse_arguments('{"a": "' + "x" * 10_000_001 + '"}')

    assert len(str(caught.value)) < 300


def test_a_long_key_that_comes_twice_is_told_shortly():
    with pytest.raises(NotJson, match="duplicate key") as caught:
        parse_arguments(f'{{"{"k" * 100_000}": 1, "{"k" * 100_000}": 2}}')

    assert len(str(caught.value)) < 300


def test_the_bound_on_characters_is_exact():
    assert parse_arguments('{"a": 1}', max_chars=8) == {"a": 1}
    with pytest.raises(NotJson):
        parse_arguments('{"a": 1}', max_chars=7)


READ = [
    *((blank, {}) for blank in ("", " ", "\n\t ")),
    ('{"a": "\\u0000"}', {"a": "\0"}),
    ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
]


@pytest.mark.parametrize(("text", "arguments"), READ)
def test_no_text_means_no_arguments_and_what_is_escaped_is_text(text, arguments):
    assert parse_arguments(text) == arguments


@pytest.mark.row("MF2")
@pytest.mark.parametrize("value", [None, [], [{"a": 1}], "x", '{"a": 1}', 12, 1.5, True])
def test_json_that_is_no_object_is_invalid_arguments(value):
    with pytest.raises(InvalidArguments, match="one JSON object") as caught:
        parse_arguments(json.dumps(value))

    assert caught.value.details == ({"field": "", "constraint": "object", "value": value},)


@pytest.mark.parametrize("digits", [1, 19, 20, 400, 4300])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_up_to_4300_digits_survive_exactly(digits, sign):
    number = sign * (10**digits - 7)

    assert parse_arguments(f'{{"n": {number}, "s": "{number}"}}') == {"n": number, "s": str(number)}


def test_a_longer_integer_is_refused_at_its_place():
    with pytest.raises(NotJson, match="a number too large at line 1, column"):
        parse_arguments(f'{{"a": 1, "n": {"9" * 4301}}}')


@pytest.mark.parametrize("number", ["2" + "0" * 308 + ".0", "9" * 300 + "e9", "-" + "9" * 309 + ".5"])
def test_a_float_of_very_many_digits_is_refused(number):
    with pytest.raises(NotJson, match="a number too large"):
        parse_arguments(f'{{"a": {number}}}')


words = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(words, values, max_size=5)


@given(objects, st.booleans(), st.sampled_from([None, 1]))
def test_every_object_reads_as_the_standard_library_reads_it(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    assert parse_arguments(text) == json.loads(text)


@pytest.mark.row("MF1", "MF7")
@given(objects, st.data())
def test_no_mutation_raises_anything_but_the_two_errors(value, data):
    text = json.dumps(value)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        piece = data.draw(
            st.sampled_from(['"', ",", "{", "]", "1e999", "NaN", "\\ud800", "\ud800", "-", "\0"]) | st.text()
        )
        text = text[:at] + piece + text[at + cut :]
    try:
        parsed = parse_arguments(text)
    except NotJson as error:
        msgspec.json.encode([error.line, error.column, error.snippet, str(error)])
    except InvalidArguments as error:
        msgspec.json.encode(error.details)
    else:
        assert isinstance(parsed, dict)
        assert msgspec.json.decode(msgspec.json.encode(parsed)) == parsed


# --- every violation -------------------------------------------------------------------------------------------------


def obj(properties, **more):
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


QUANTITY = {"type": "integer", "minimum": 1, "maximum": 12}
PET = {
    "oneOf": [
        obj({"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1}}, required=["kind", "lives"]),
        obj({"kind": {"const": "dog"}, "tricks": {"type": "array", "items": {"type": "string"}}}, required=["kind"]),
    ]
}

VIOLATIONS = [
    ({"quantity": QUANTITY}, {"quantity": "many"}, [("quantity", "integer 1..12", "many")]),
    ({"quantity": QUANTITY}, {"quantity": 99}, [("quantity", "integer 1..12", 99)]),
    ({"quantity": QUANTITY}, {"quantity": 12.5}, [("quantity", "integer 1..12", 12.5)]),
    ({"quantity": QUANTITY}, {"quantity": True}, [("quantity", "integer 1..12", True)]),
    ({"quantity": QUANTITY}, {"quantity": None}, [("quantity", "integer 1..12", None)]),
    ({"n": {"type": "number", "minimum": 0}}, {"n": -1}, [("n", "number, at least 0", -1)]),
    ({"n": {"type": "number", "exclusiveMaximum": 5}}, {"n": 5}, [("n", "number, less than 5", 5)]),
    ({"n": {"type": "integer", "multipleOf": 5}}, {"n": 7}, [("n", "integer, a multiple of 5", 7)]),
    ({"e": {"enum": ["a", "b"]}}, {"e": "c"}, [("e", 'one of "a", "b"', "c")]),
    ({"e": {"const": 1}}, {"e": 2}, [("e", "exactly 1", 2)]),
    ({"s": {"type": "string", "minLength": 3}}, {"s": "ab"}, [("s", "string, at least 3 characters", "ab")]),
    ({"s": {"type": "string", "pattern": "^[a-z]+$"}}, {"s": "A1"}, [("s", "string, pattern ^[a-z]+$", "A1")]),
    ({"s": {"type": "string", "format": "date"}}, {"s": "soon"}, [("s", "string, format date", "soon")]),
    ({"s": {"type": ["string", "null"]}}, {"s": 1}, [("s", "string or null", 1)]),
    ({"s": {"anyOf": [QUANTITY, {"type": "null"}]}}, {"s": 0}, [("s", "integer 1..12 or null", 0)]),
    (
        {"items": {"type": "array", "items": obj({"quantity": QUANTITY})}},
        {"items": [{"quantity": "many"}, {"quantity": 3}, {"quantity": 0}]},
        [("items[0].quantity", "integer 1..12", "many"), ("items[2].quantity", "integer 1..12", 0)],
    ),
    ({"a": {"type": "array", "minItems": 3}}, {"a": [1]}, [("a", "array, at least 3 items", [1])]),
    ({"a": {"type": "array", "uniqueItems": True}}, {"a": [1, 1]}, [("a", "array, no item twice", [1, 1])]),
    ({"a": {"contains": {"type": "string"}}}, {"a": [1]}, [("a", "at least 1 of them string", [1])]),
    ({"a": {"prefixItems": [{}], "items": False}}, {"a": [1, 2]}, [("a[1]", "not allowed here", 2)]),
    ({"a": {}, "b": {}}, {"c": 1}, [("c", "no such property (known: a, b)", 1)]),
    ({"a": obj({"b": {}})}, {"a": {"x y": 1}}, [('a["x y"]', "no such property (known: b)", 1)]),
    ({"a": {"propertyNames": {"pattern": "^x"}}}, {"a": {"b": 1}}, [("a.b", "a property name: pattern ^x", "b")]),
    ({"a": {"not": {"type": "string"}}}, {"a": "b"}, [("a", "not string", "b")]),
    ({"a": {"dependentRequired": {"b": ["c"]}}}, {"a": {"b": 1}}, [("a.c", "required together with b", None)]),
    ({"a": {"if": {"required": ["b"]}, "then": {"required": ["c"]}}}, {"a": {"b": 1}}, [("a.c", "required", None)]),
    ({"pet": PET}, {"pet": {"kind": "cat", "lives": 0}}, [("pet.lives", "integer, at least 1", 0)]),
    ({"pet": PET}, {"pet": {"kind": "dog", "tricks": [1]}}, [("pet.tricks[0]", "string", 1)]),
    (
        {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}},
        {"a": 1},
        [("a", "only one of these, not several: integer or number", 1)],
    ),
    ({"a": {"allOf": [{"minimum": 3}, {"multipleOf": 2}]}}, {"a": 1}, [("a", "at least 3; a multiple of 2", 1)]),
    ({"a": {"$ref": "#/properties/b"}, "b": QUANTITY}, {"a": 0}, [("a", "integer 1..12", 0)]),
    ({"n": {"type": "number", "maximum": -2}}, {"n": 1}, [("n", "number, at most -2", 1)]),
    ({"n": {"exclusiveMinimum": 5}}, {"n": 5}, [("n", "more than 5", 5)]),
    ({"n": {"type": "integer", "minimum": -3, "maximum": 3}}, {"n": 5}, [("n", "integer -3..3", 5)]),
    ({"s": {"type": "string", "maxLength": 1}}, {"s": "ab"}, [("s", "string, at most 1 character", "ab")]),
    ({"a": {"type": "array", "maxItems": 2}}, {"a": [1, 2, 3]}, [("a", "array, at most 2 items", [1, 2, 3])]),
    ({"a": {"type": "array", "minItems": 1, "maxItems": 1}}, {"a": []}, [("a", "array, exactly 1 item", [])]),
    ({"a": {"minItems": 1, "maxItems": 3}}, {"a": []}, [("a", "1..3 items", [])]),
    ({"o": {"type": "object", "minProperties": 2}}, {"o": {}}, [("o", "object, at least 2 properties", {})]),
    ({"o": {"type": "object", "minProperties": 1}}, {"o": {}}, [("o", "object, at least 1 property", {})]),
    ({"a": {"contains": {"type": "string"}, "minContains": 2}}, {"a": []}, [("a", "at least 2 of them string", [])]),
    # What is long is cut, and what just fits is not.
    ({"e": {"const": "x" * 58}}, {"e": 2}, [("e", f'exactly "{"x" * 58}"', 2)]),
    ({"e": {"const": "x" * 59}}, {"e": 2}, [("e", f'exactly "{"x" * 56}...', 2)]),
    ({"s": {"const": 1}}, {"s": "x" * 200}, [("s", "exactly 1", "x" * 200)]),
    ({"s": {"const": 1}}, {"s": "x" * 201}, [("s", "exactly 1", "x" * 200 + "... (201 characters)")]),
    ({"a": {"const": 1}}, {"a": ["x" * 196]}, [("a", "exactly 1", ["x" * 196])]),
    ({"a": {"const": 1}}, {"a": ["x" * 197]}, [("a", "exactly 1", "an array of 1 items")]),
    ({"a": {"const": 1}}, {"a": {"b": "x" * 193}}, [("a", "exactly 1", "an object with 1 properties")]),
    ({"a": {"const": 1}}, {"a": {"b": "x" * 192}}, [("a", "exactly 1", {"b": "x" * 192})]),
    ({"a": {"const": 1}}, {"a": [1] * 201}, [("a", "exactly 1", "an array of 201 items")]),
]


@pytest.mark.row("V03", "V04", "MF2", "F03")
@pytest.mark.parametrize(("properties", "arguments", "rows"), VIOLATIONS)
def test_each_violation_names_the_field_the_constraint_and_the_value(properties, arguments, rows):
    found = Schema(obj(properties), where="parameters").violations(arguments)

    assert found == [{"field": field, "constraint": constraint, "value": value} for field, constraint, value in rows]


@pytest.mark.row("V04")
def test_all_violations_come_at_once_and_one_field_has_one_row():
    schema = Schema(
        obj({"quantity": QUANTITY, "planet": {"type": "string"}}, required=["quantity", "planet"]), where="parameters"
    )

    assert sorted(schema.violations({"quantity": 13.5, "speed": 9}), key=lambda row: row["field"]) == [
        {"field": "planet", "constraint": "required", "value": None},
        {"field": "quantity", "constraint": "integer 1..12", "value": 13.5},
        {"field": "speed", "constraint": "no such property (known: quantity, planet)", "value": 9},
    ]


def test_rows_and_values_are_bounded():
    schema = Schema({"type": "object", "additionalProperties": {"type": "integer"}}, where="parameters")

    rows = schema.violations({f"key{number}": "x" * 10_000 for number in range(500)})

    assert len(rows) == 50
    assert len(msgspec.json.encode(rows)) < 30_000


def test_a_hostile_number_of_wrong_items_still_has_an_answer():
    rows = Schema({"type": "array", "items": {"type": "integer"}}, where="x").violations(["x"] * 200_000)

    assert rows[0] == {"field": "[0]", "constraint": "integer", "value": "x"}


def test_a_property_that_is_wrong_is_not_called_unknown_as_well():
    schema = Schema({"properties": {"b": {"type": "string"}}, "unevaluatedProperties": False}, where="parameters")

    assert schema.violations({"b": 1}) == [{"field": "b", "constraint": "string", "value": 1}]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2024-02-30"),
        ("date-time", "2024-01-01T10:00:00Z", "2024-01-01 10 o'clock"),
        ("date-time", "2024-01-01T10:00:00", "2024-13-01T10:00:00"),
        ("time", "10:00:00+02:00", "25:00:00"),
        ("time", "10:00:00", "10"),
        ("uuid", "12345678-1234-5678-1234-567812345678", "1234"),
        ("email", "frodo@shire.example", "frodo"),
        ("uri", "https://shire.example/a?b=c", "not a uri"),
        ("ipv4", "127.0.0.1", "127.0.0.256"),
        ("ipv6", "::1", "::g"),
    ],
)
def test_formats_are_enforced(name, good, bad):
    schema = Schema({"type": "string", "format": name}, where="parameters")

    assert schema.violations(good) == []
    assert schema.violations(bad) == [{"field": "", "constraint": f"string, format {name}", "value": bad}]


@pytest.mark.row("AT-DATA-REFERENCES")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "intger"}, "not a valid JSON Schema"),
        ({"minimum": "x"}, r'the value is not of type "number" \(at minimum\)\.$'),
        ({"properties": {1: {}}}, r"cannot be written as JSON: \$\.properties has the key 1, which is not text"),
        ({"enum": [{1, 2}]}, r"cannot be written as JSON: \$\.enum\[0\] is a set"),
        ({"type": "object", "x": object()}, "cannot be written as JSON"),
        ({"pattern": "("}, "regex"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "only references within the schema"),
        ({"$ref": "file:///etc/hostname"}, "only references within the schema"),
        ({"properties": {"a": {"$ref": "https://schemas.example/x"}}}, "https://schemas.example/x"),
        ({"$ref": "#/nowhere"}, "nowhere"),
        ({"$schema": "http://schemas.example/own"}, "http://schemas.example/own"),
        ({"const": "\ud800"}, "cannot be written as JSON"),
        ({"default": object()}, "cannot be written as JSON"),
        ({"properties": {"a": {"default": float("nan")}}}, r"cannot be written as JSON: .*nan"),
        ({"maximum": float("inf")}, r"cannot be written as JSON: .*inf"),
        ([], "not a valid JSON Schema"),
    ],
)
def test_a_schema_that_is_none_or_points_elsewhere_is_a_definition_error(schema, words):
    with pytest.raises(ToolDefinitionError, match=words) as caught:
        Schema(schema, where="parameters of tool 'pay'")

    assert "The parameters of tool 'pay' cannot be used: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.row("H21")
@pytest.mark.parametrize(
    ("pattern", "text", "is_fitting"),
    [
        ("^(a+)+$", "a" * 50_000 + "!", False),
        # One that looks around is given so many steps, and fits nothing that would take more.
        (r"^(?=a)(?:(a|aa)(?=a))+b\1$", "a" * 50_000 + "!", False),
        ("^(?!-)[a-z-]+$", "a-b", True),
        ("^(?!-)[a-z-]+$", "-b", False),
        *((r"^(?:(?:a|aa)+c(?!x)|a*)$", "a" * length, length < 24) for length in (5, 18, 24, 3000)),
        # One that does not takes as many steps as its text is long.
        *((r"^(?:(?:a|aa)+c|a*)$", "a" * length, True) for length in (5, 24, 3000)),
        *((r"^(?:(?:a|aa)+c|a*)$", "a" * length + "b", False) for length in (5, 24, 3000)),
    ],
    ids=range(14),
)
def test_a_pattern_ends_whatever_it_is_and_fits_what_it_describes(pattern, text, is_fitting):
    found = Schema({"type": "string", "pattern": pattern}, where="parameters").violations(text)

    assert [row["field"] for row in found] == ([] if is_fitting else [""])


def test_an_integer_that_the_validator_would_misread_is_refused():
    row = Schema(obj({"n": {"type": "integer", "maximum": 5}}), where="parameters").violations({"n": 10**5000})

    assert "4300 digits" in row[0]["value"]


@pytest.mark.row("MF7")
@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\ud800": 1}, {1: 2}], ids=repr)
def test_a_value_that_is_no_json_is_a_violation_and_no_crash(value):
    rows = Schema({"type": "object"}, where="parameters").violations(value)

    assert [row["constraint"] for row in rows] == ["plain JSON"]
    msgspec.json.encode(rows)


# --- results, strictly -----------------------------------------------------------------------------------------------


@pytest.mark.row("V11", "F06")
@pytest.mark.parametrize(
    ("schema", "value", "fields"),
    [
        ({"type": "integer"}, 3, []),
        ({"type": "integer"}, 3.0, [""]),
        ({"type": "integer"}, True, [""]),
        ({"type": "integer"}, 1e300, [""]),
        ({"type": "integer"}, {"value": 3}, [""]),
        ({"type": "number"}, 3.0, []),
        ({"type": "number", "maximum": 3}, 3.0, []),
        ({"enum": [1.0, "integer"]}, 1.0, []),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3.0, [""]),
        ({"anyOf": [{"type": "integer"}, {"type": "number", "minimum": 3, "maximum": 3}]}, 3.0, []),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 3, []),
        (
            {"type": "object", "properties": {"n": {"type": "integer"}, "x": {"type": "number"}}},
            {"n": 2.0, "x": 2.0},
            ["n"],
        ),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, [1, None, 3.0], ["[2]"]),
        ({"anyOf": [obj({"n": {"type": "integer"}}), {"type": "null"}]}, {"n": 2.0}, ["n"]),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, [1, 2], [""]),
    ],
)
def test_results_are_checked_strictly(schema, value, fields):
    assert [row["field"] for row in Schema(schema, where="output").check_result(value)] == fields


@pytest.mark.row("F06")
def test_a_result_of_another_shape_is_told_by_its_keys():
    schema = obj({"severity": {"type": "string"}, "loss": {"type": "number"}})

    told = shape_mismatch(schema, {"severity_code": 3, "anatomy": "arm"})

    assert told == "Expected an object with severity, loss; got an object with severity_code, anatomy."


def test_a_reference_to_an_anchor_means_the_definition_that_has_it():
    schema = obj(
        {"a": {"$ref": "#second"}},
        **{"$defs": {"No": True, "A": {"$anchor": "first", "type": "string"}, "B": {"$anchor": "second", **QUANTITY}}},
    )

    assert Schema(schema, where="parameters").violations({"a": 0}) == [
        {"field": "a", "constraint": "integer 1..12", "value": 0}
    ]
