"""What a survey of mutations showed that no test noticed: how many steps a pattern may take."""

import pytest

from treadle.validation import Schema


def fits(pattern: str, text: str) -> bool:
    return not Schema({"type": "string", "pattern": pattern}, where="parameters").violations(text)


@pytest.mark.row("H21")
@pytest.mark.parametrize(("length", "is_fitting"), [(5, True), (18, True), (24, False), (3000, False)])
def test_a_pattern_that_looks_around_fits_nothing_that_takes_it_too_many_steps(length: int, is_fitting: bool) -> None:
    assert fits(r"^(?:(?:a|aa)+c(?!x)|a*)$", "a" * length) == is_fitting


@pytest.mark.row("H21")
@pytest.mark.parametrize("length", [5, 24, 3000])
def test_a_pattern_that_does_not_look_around_takes_as_many_steps_as_its_text_is_long(length: int) -> None:
    assert fits(r"^(?:(?:a|aa)+c|a*)$", "a" * length)
    assert not fits(r"^(?:(?:a|aa)+c|a*)$", "a" * length + "b")
