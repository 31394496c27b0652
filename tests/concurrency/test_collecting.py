"""Full collections of garbage are put off while very many objects are held for a moment."""

import gc
from collections.abc import Iterator

import pytest

from treadle.concurrency import full_collections_put_off


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.row("N10")
def test_no_full_collection_comes_by_itself_until_the_last_has_ended():
    before = gc.get_threshold()
    seen: list[int] = []
    with full_collections_put_off(), full_collections_put_off():
        gc.callbacks.append(lambda phase, about: seen.append(about["generation"]))
        kept = [[] for _ in range(300_000)]
        gc.callbacks.pop()

    assert len(kept) == 300_000
    assert set(seen) == {0, 1}
    assert gc.get_threshold() == before


def test_what_the_program_sets_meanwhile_stays():
    with full_collections_put_off():
        gc.set_threshold(900, 8, 7)

    assert gc.get_threshold() == (900, 8, 7)


def test_an_error_puts_nothing_off_for_ever():
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="no"), full_collections_put_off():
        raise ValueError("no")

    assert gc.get_threshold() == before


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with full_collections_put_off():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
