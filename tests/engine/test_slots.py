"""Slots: whoever holds one gives it back, whatever happens to the call."""

import asyncio

import pytest

from treadle.engine.tool_calls.invocation import Slots


async def free(slots, most=10):
    """Return how many slots are free, and leave them free."""
    with await slots.take(most) as held:
        return len(held)


async def test_as_many_are_taken_as_are_free_and_none_is_waited_for():
    slots = Slots(3)

    with await slots.take(2) as two, await slots.take(2) as one:
        assert (len(two), len(one), await free(slots)) == (2, 1, 0)

    assert await free(slots) == 3


async def test_without_a_limit_each_call_finds_a_slot():
    assert await free(Slots(None), 1000) == 1000


async def test_slots_are_given_back_where_the_start_could_not_be_stored():
    slots = Slots(2)

    with pytest.raises(OSError), await slots.take(2):
        raise OSError("disk full")

    assert await free(slots) == 2


async def test_what_does_not_start_gives_its_slot_back_at_once():
    slots = Slots(3)

    with await slots.take(3) as held:
        held.keep(1)

        assert await free(slots) == 2

    assert await free(slots) == 3


async def test_a_slot_that_was_handed_on_is_given_back_by_its_new_holder_alone():
    slots = Slots(2)

    with await slots.take(2) as held:
        slot = held.transfer()
    assert await free(slots) == 1

    with slot, slot:  # given back once, however often it is left
        pass
    assert await free(slots) == 2


async def test_who_waits_gets_the_slot_that_is_given_back():
    slots = Slots(1)
    held = await slots.wait()
    waiting = asyncio.create_task(slots.wait())
    await asyncio.sleep(0)
    assert not waiting.done()

    held.keep(0)

    with await waiting as one:
        assert len(one) == 1
    assert await free(slots) == 1
