"""References within a schema: by path, by anchor, in circles and into nothing. Fetches nothing."""

from typing import Any

import pytest

from treadle.validation.schema import lookup, resolved

NUMBER = {"$anchor": "number", "type": "number"}
WORD = {"type": "string"}


@pytest.mark.parametrize(
    ("root", "reference", "found"),
    [
        ({"$defs": {"n": NUMBER}}, "#number", NUMBER),
        ({"definitions": {"w": WORD, "n": NUMBER}}, "#number", NUMBER),
        ({"$defs": {"t": True, "w": WORD}, "definitions": {"n": NUMBER}}, "#number", NUMBER),
        ({"$defs": {"n": NUMBER}}, "#elsewhere", {}),
        ({}, "#number", {}),
        ({"$defs": [NUMBER]}, "#number", {}),
        ({"$defs": {"a/b~c": WORD}}, "#/$defs/a~1b~0c", WORD),
        ({"$defs": {"a~1b": WORD, "a/b": NUMBER}}, "#/$defs/a~01b", WORD),  # a tilde is read after a slash
        ({"$defs": {"a~1b": WORD, "a/b": NUMBER}}, "#/$defs/a~1b", NUMBER),
        ({"$defs": {"a b": WORD}}, "#/$defs/a%20b", WORD),
        ({"prefixItems": [WORD, NUMBER]}, "#/prefixItems/1", NUMBER),
        ({"prefixItems": [WORD]}, "#/prefixItems/1", {}),
        ({"$defs": {"no": False}}, "#/$defs/no", {"not": {}}),
        ({"$defs": {"any": True}}, "#/$defs/any", {}),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "#/$defs/a", {}),
    ],
)
def test_a_reference_stands_for_what_it_names_and_for_anything_where_that_is_nothing(
    root: dict[str, Any], reference: str, found: object
) -> None:
    assert resolved({"$ref": reference}, root) == found


def test_the_keywords_beside_a_reference_win() -> None:
    assert resolved({"$ref": "#number", "type": "integer"}, {"$defs": {"n": NUMBER}})["type"] == "integer"


def test_a_reference_to_another_document_is_left_as_it_is() -> None:
    schema = {"$ref": "https://schemas.example/x"}

    assert resolved(schema, {}) == schema


def test_a_path_that_leads_through_a_plain_value_leads_to_nothing() -> None:
    assert lookup({"a": 1}, ["a", "b"]) == {}
