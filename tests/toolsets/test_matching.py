"""Patterns: what is cheap runs here, what is not runs in a process that ends with its search."""

import os
import threading
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import Rejected
from treadle.toolsets.files.reading import matching, weight
from treadle.toolsets.files.root import give_way, seated

LINES = ["", "error at 12:30", "Straße 7", "x" * 300, "aaaaab", "(b)", "2024-01-02", "a{3}"]
HEAVY = {
    r"\w{100}!?": [3],
    r"(a{1,40}){1,40}b": [4],
    r"(?:[a-z]{1,10}[0-9]{0,10}){2,40}:": [],
    r"x{200,400}": [3],
    r"[\w ]{60}|a{5}b": [3, 4],
}
"""What none of them takes long for, and which lines it is in."""


def never() -> bool:
    return False


@pytest.fixture(autouse=True, scope="module")
def guard():
    """Start the guard process, which one heavy search starts and the process keeps: it is not one of a search's own."""
    with matching(r"\w{100}", ignore_case=False, is_cancelled=never):
        pass


def children() -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
            found.update(int(child) for child in (task / "children").read_text().split())
    return found


@pytest.mark.parametrize(
    "pattern",
    ["error", r"def \w+\(", r"\d{4}-\d{2}-\d{2}", r"(a|b)*c", r"[0-9a-f]{8}", r"\(x{2}\)", r"[{}]{3}", "x" * 250],
)
def test_the_patterns_of_every_day_are_light(pattern):
    assert weight(pattern) < 300


@pytest.mark.parametrize(
    "pattern", [*HEAVY, r"((a{0,30}){0,30}){0,5}b", r"(?P<n>ab){300}", r"\p{L}{40}", "a{999999999}"]
)
def test_patterns_whose_repetitions_multiply_are_heavy(pattern):
    assert weight(pattern) >= 300


@given(st.text(st.sampled_from("ab(){}[]\\w|*+?,0123^"), max_size=30))
def test_weighing_takes_any_text(pattern):
    assert 0 <= weight(pattern) <= 10_000


@pytest.mark.row("N10")
@pytest.mark.parametrize("pattern", HEAVY)
def test_a_heavy_pattern_finds_what_a_light_one_would_and_leaves_no_process(pattern):
    before = children()
    with matching(pattern, ignore_case=False, is_cancelled=never) as matches:
        found = [matches(line) for line in LINES]
        assert len(children() - before) == 1

    assert [index for index, is_found in enumerate(found) if is_found] == HEAVY[pattern]
    assert children() == before


def test_an_invalid_heavy_pattern_is_refused_in_the_words_of_the_engine():
    before = children()
    with pytest.raises(Rejected) as caught, matching(r"\w{100}(", ignore_case=True, is_cancelled=never):
        pass

    assert "unclosed group" in str(caught.value.body)
    assert children() == before


@pytest.mark.row("N10")
def test_a_cancelled_search_does_not_wait_for_its_process():
    looks = chain([False, False, False], repeat(True))
    with matching(r"((a{1,50}){1,50}){1,9}b", ignore_case=False, is_cancelled=lambda: next(looks)) as matches:
        assert not any(matches("a" * 4000 + "b!") for _ in range(1000))


def test_seats_are_free_again_whatever_happens_and_after_a_fork():
    with pytest.raises(ValueError, match="broke"), seated():
        raise ValueError("broke")

    holding, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with seated():
            holding.set()
            go_on.wait(30)

    threads = [threading.Thread(target=hold) for _ in range(1)]
    for thread in threads:
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
    for thread in threads:
        thread.join(30)
