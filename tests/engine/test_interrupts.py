"""An interrupt reaches everything that waits for it, in the order in which it began to wait."""

from functools import partial

import pytest

from treadle.engine.interrupts import Interrupt
from treadle.stops import Stop, StopReason
from treadle.testing import FakeClock


@pytest.mark.row("H22")
def test_an_interrupt_calls_back_in_the_order_of_registration() -> None:
    interrupt, heard = Interrupt(FakeClock()), list[int]()
    for number in range(100):
        interrupt.on_trip(partial(heard.append, number))

    interrupt.trip(Stop(reason=StopReason.CANCELLED, message="Cancelled."))

    assert heard == [*range(100)]
