"""Patterns: what is cheap is looked for, what would take long is refused. And how many look at once."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import Rejected
from treadle.toolsets.files.reading import matching, weight
from treadle.toolsets.files.root import give_way, seated


@pytest.mark.parametrize(
    ("pattern", "weighs"),
    [("error", 5), (r"def \w+\(", 16), (r"\d{4}-\d{2}-\d{2}", 82), ("(a|b)*c", 5), (r"\w{100}!?", 1002), (r"(a{1,40}){1,40}b", 1601), (r"\p{L}{40}", 400)],
)  # fmt: skip
def test_a_pattern_weighs_what_it_is_with_its_repetitions_written_out(pattern, weighs):
    assert weight(pattern) == weighs
    assert matching(pattern, ignore_case=True)("x" * 300) in (True, False)


@pytest.mark.row("N10")
@pytest.mark.parametrize("pattern", [r"((a{0,30}){0,30}){0,30}b", r"(?:\w{50}){20}", "a{999999999}"])
def test_patterns_whose_repetitions_multiply_are_refused(pattern):
    with pytest.raises(Rejected, match="Use smaller numbers"):
        matching(pattern, ignore_case=False)


@given(st.text(st.sampled_from("ab(){}[]\\w|*+?,0123^"), max_size=30))
def test_weighing_takes_any_text(pattern):
    assert 0 <= weight(pattern) <= 10_000


def test_seats_are_free_again_whatever_happens_and_after_a_fork():
    with pytest.raises(ValueError, match="broke"), seated():
        raise ValueError("broke")

    holding, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with seated():
            holding.set()
            go_on.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(30)
    with seated():
        child = os.fork()
        if child == 0:
            with seated():
                give_way()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    go_on.set()
    thread.join(30)
