"""What a survey of mutations showed that no test noticed: a scope ends silently by its interrupt alone."""

import asyncio

import pytest

from treadle.engine.interrupts import Interrupt
from treadle.testing import FakeClock


async def test_a_cancellation_that_the_body_raises_by_itself_leaves_the_scope() -> None:
    scope = Interrupt(FakeClock()).cancel_scope()

    with pytest.raises(asyncio.CancelledError), scope:
        raise asyncio.CancelledError

    assert not scope.has_cut
