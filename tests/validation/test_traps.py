"""The measured traps of the parts that we build on: each is shown to be there, and shown not to reach a call."""

import math

import jiter
import jsonschema_rs
import msgspec
import pydantic
import pytest

from treadle.errors import ToolDefinitionError
from treadle.tooling.decorators import tool
from treadle.validation import NotData, NotJson, Schema, data_of, parse_arguments

# A trap that no longer snaps fails the first half of its test: then what we do about it may go.


@pytest.mark.row("V13", "MF1")
def test_jiter_makes_a_large_number_infinite_although_told_to_refuse_infinity():
    assert math.isinf(jiter.from_json(b"1e400", allow_inf_nan=False))

    with pytest.raises(NotJson, match="too large"):
        parse_arguments('{"a": 1e400}')


@pytest.mark.parametrize(
    ("value", "written"), [(math.nan, b"null"), ({1}, b"[1]"), (b"x", b'"eA=="')], ids=["NaN", "set", "bytes"]
)
def test_msgspec_writes_what_json_does_not_have_as_something_else(value, written):
    assert msgspec.json.encode(value) == written

    with pytest.raises(NotData):
        data_of({"a": value})


@pytest.mark.row("MF7")
def test_lone_surrogates_break_encoders():
    with pytest.raises(UnicodeEncodeError):
        msgspec.json.encode("\ud800")
    with pytest.raises(UnicodeEncodeError):
        jsonschema_rs.is_valid({"type": "string"}, "\ud800")

    with pytest.raises(NotData):
        data_of("\ud800")
    with pytest.raises(NotJson):
        parse_arguments('{"a": "\\ud800"}')
    assert Schema({"type": "string"}, where="output").check_result("\ud800") != []


@pytest.mark.row("V11")
def test_the_validator_takes_a_whole_float_for_an_integer():
    assert jsonschema_rs.is_valid({"type": "integer"}, 3.0)

    assert Schema({"type": "integer"}, where="output").check_result(3.0) != []


def test_the_validator_ignores_formats():
    assert jsonschema_rs.is_valid({"type": "string", "format": "date"}, "soon")

    assert Schema({"type": "string", "format": "date"}, where="parameters").violations("soon") != []


def test_the_validator_misreads_very_long_integers():
    assert jsonschema_rs.is_valid({"type": "integer", "maximum": 5}, 10**5000)

    assert Schema({"type": "integer", "maximum": 5}, where="parameters").violations(10**5000) != []


def test_no_remote_reference_is_fetched(tmp_path):
    remote = tmp_path / "schema.json"
    remote.write_text('{"type": "integer"}')
    assert not jsonschema_rs.is_valid({"$ref": remote.as_uri()}, "x")

    with pytest.raises(ToolDefinitionError, match="only references within"):
        Schema({"$ref": remote.as_uri()}, where="parameters")


@pytest.mark.row("V03")
def test_pydantic_alone_would_turn_a_text_into_a_number():
    @tool
    def pay(amount: int) -> None: ...

    assert pydantic.TypeAdapter(int).validate_python("3") == 3
    assert pay.convert({"amount": "3"}) == {"amount": 3}

    assert Schema(pay.parameters, where="parameters").violations({"amount": "3"}) == [
        {"field": "amount", "constraint": "integer", "value": "3"}
    ]
