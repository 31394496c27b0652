"""Clocks, chance and faults that a test controls."""

import asyncio
import doctest
import itertools
import sys
import types

import pytest

import treadle.testing
from treadle.budgets import Price
from treadle.errors import ConfigurationError, IncompleteStream, JournalError, ModelUnavailable
from treadle.ports import Clock, ModelEnd, ModelRequest, Randomness, TextDelta
from treadle.testing import FakeClock, FaultyJournal, FaultyModel, FixedRandomness, ScriptedModel

REQUEST = ModelRequest(messages=())


async def sleep(clock: Clock, seconds: float) -> float:
    woken = asyncio.Event()
    clock.call_later(seconds, woken.set)
    await woken.wait()
    return clock.monotonic()


def test_time_stands_still_until_it_is_advanced():
    clock = FakeClock(now=1000.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (1002.5, 2.5)


def test_timers_ring_in_order_each_at_its_own_time():
    clock, rung = FakeClock(), []

    def again():
        rung.append(("again", clock.monotonic()))

    clock.call_later(3, lambda: rung.append(("late", clock.monotonic())))
    clock.call_later(1, lambda: (rung.append(("early", clock.monotonic())), clock.call_later(1, again)))
    clock.call_later(1, lambda: rung.append(("second", clock.monotonic())))
    clock.advance(10)

    assert rung == [("early", 1.0), ("second", 1.0), ("again", 2.0), ("late", 3.0)]
    assert clock.waits == [3, 1, 1, 1]
    assert clock.monotonic() == 10


def test_a_cancelled_timer_does_not_ring():
    clock, rung = FakeClock(), []
    clock.call_later(1, lambda: rung.append(1)).cancel()
    clock.advance(5)
    assert rung == []


def test_time_never_goes_back_but_the_peoples_clock_may():
    clock = FakeClock(now=1000.0)
    for seconds in (-1, float("nan")):
        with pytest.raises(ConfigurationError, match=r"takes 0 seconds or more|must be a number"):
            clock.advance(seconds)
    clock.shift(-3600)
    assert (clock.now(), clock.monotonic()) == (-2600.0, 0.0)


async def test_a_test_can_wait_until_somebody_waits():
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(sleep(clock, 60))
        await clock.wait_waits(1)
        clock.advance(60)
    assert sleeper.result() == 60
    await clock.wait_waits(1)


async def test_an_automatic_clock_jumps_from_timer_to_timer_when_nothing_else_happens():
    clock = FakeClock(auto=True)
    assert await asyncio.gather(sleep(clock, 3600), sleep(clock, 5), sleep(clock, 86400)) == [3600, 5, 86400]
    assert await sleep(clock, 1) == 86401


async def test_an_automatic_clock_lets_coroutines_finish_first():
    clock, log = FakeClock(auto=True), []

    async def work():
        for _ in range(20):
            await asyncio.sleep(0)
        log.append(clock.monotonic())

    await asyncio.gather(work(), sleep(clock, 10))
    assert log == [0.0]


def test_an_automatic_clock_works_on_one_loop_after_another():
    clock = FakeClock(auto=True)

    async def leave_a_timer():
        clock.call_later(1, lambda: None)

    asyncio.run(leave_a_timer())
    assert asyncio.run(sleep(clock, 5)) == 5


def test_fixed_chance_repeats_its_last_number_and_never_a_token():
    chance: Randomness = FixedRandomness([0.1, 0.9])
    assert [chance.random() for _ in range(3)] == [0.1, 0.9, 0.9]
    tokens = [chance.token() for _ in range(100)]
    assert len(set(tokens)) == 100
    assert all(len(token) == 16 and token.isalnum() and token == token.lower() for token in tokens)


@pytest.mark.parametrize("values", [[], [1.0], [-0.1], [float("nan")]])
def test_chance_outside_its_range_is_refused(values):
    with pytest.raises(ConfigurationError, match="values must be"):
        FixedRandomness(values)


class CountingJournal:
    """Takes every operation and counts those that reached it."""

    location = "nowhere"

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        async def operation(*args, **words):
            self.done.append(name)
            return name

        return operation


OPERATIONS = (
    lambda journal: journal.create("s"),
    lambda journal: journal.append("s", [], state="active", durable=True),
    lambda journal: journal.flush(),
    lambda journal: journal.read("s", after=1),
    lambda journal: journal.sessions(),
    lambda journal: journal.put("s", None),
    lambda journal: journal.inbox("s"),
    lambda journal: journal.consume("s", [], 1),
    lambda journal: journal.put_blob(b""),
    lambda journal: journal.blob("d"),
)


async def test_a_journal_fails_at_each_operation_in_turn_until_none_is_left():
    for n in itertools.count(1):
        inner = CountingJournal()
        journal = FaultyJournal(inner, fail_at=n)
        failures = 0
        for operation in OPERATIONS:
            try:
                await operation(journal)
            except JournalError:
                failures += 1
        await journal.close()
        assert journal.operations == len(OPERATIONS)
        if not journal.has_failed:
            break
        assert failures == 1
        assert len(inner.done) == len(OPERATIONS)  # all but one operation, and close
    assert n == len(OPERATIONS) + 1
    assert journal.location == "nowhere"


async def test_a_journal_can_fail_after_the_deed():
    inner = CountingJournal()
    journal = FaultyJournal(inner, fail_at=1, when="after", error=OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        await journal.flush()
    assert inner.done == ["flush"]
    assert await journal.blob("d") == "blob"


async def test_a_model_fails_at_each_part_in_turn_until_none_is_left():
    seen = []
    for n in itertools.count(1):
        model = FaultyModel(ScriptedModel(["abc"]), fail_at=n, error=IncompleteStream("cut"))
        parts = []
        try:
            async for part in model.stream(REQUEST):
                parts.append(part)
        except IncompleteStream:
            pass
        seen.append(len(parts))
        if not model.has_failed:
            break
    assert seen == [0, 1, 2, 3, 4]
    assert parts[:-1] == [TextDelta("a"), TextDelta("b"), TextDelta("c")]
    assert isinstance(parts[-1], ModelEnd)
    assert (model.name, model.price) == ("scripted", Price(input=0, output=0))


async def test_a_model_fails_as_unavailable_by_default_and_only_once():
    model = FaultyModel(ScriptedModel(["abc"]), fail_at=1)
    with pytest.raises(ModelUnavailable):
        _ = [part async for part in model.stream(REQUEST)]
    assert len([part async for part in model.stream(REQUEST)]) == 4


async def test_closing_a_faulty_models_stream_closes_the_models_own():
    closed = []

    class Watched(ScriptedModel):
        async def stream(self, request):
            try:
                yield TextDelta("a")
                yield TextDelta("b")
            finally:
                closed.append(True)

    stream = FaultyModel(Watched(["x"]), fail_at=0).stream(REQUEST)
    await anext(stream)
    await stream.aclose()
    assert closed == [True]


def test_a_negative_place_for_a_fault_is_refused():
    with pytest.raises(ConfigurationError, match="number of an operation, from 1"):
        FaultyModel(ScriptedModel(["abc"]), fail_at=-1)


KINDS = {name for name in treadle.testing.__all__ if isinstance(vars(treadle.testing)[name], types.UnionType)}
"""Names of kinds of values: what they stand for has the examples."""


@pytest.mark.parametrize("name", sorted({*treadle.testing.__all__} - KINDS))
def test_every_public_name_has_an_example_and_it_is_true(name):
    noun = vars(treadle.testing)[name]
    found = [
        test
        for test in doctest.DocTestFinder(recurse=False).find(noun, globs=vars(sys.modules[noun.__module__]).copy())
        if test.examples
    ]
    assert found, f"{name} has no example"
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0


def test_the_public_names_are_sorted_and_there():
    assert treadle.testing.__all__ == sorted(treadle.testing.__all__)
    assert all(vars(treadle.testing)[name] for name in treadle.testing.__all__)
