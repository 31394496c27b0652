"""What a survey of mutations showed that no test noticed: what a model call has used counts beside it before it is recorded."""

from treadle.budgets import Budget, Meter, Spent
from treadle.engine.interrupts import Interrupt
from treadle.engine.model_calls.reservations import Reservations
from treadle.messages import Usage, user_message
from treadle.ports import ModelRequest
from treadle.testing import FakeClock

REQUEST = ModelRequest(messages=(user_message("go"),))


def two() -> tuple[Reservations, Reservations]:
    """Return the purses of two runs that draw from one budget of 100 tokens of output."""
    top = Meter(Budget(max_output_tokens=100))
    first, second = (Reservations(Meter(Budget(), above=top), Spent, Interrupt(FakeClock())) for _ in range(2))
    return first, second


async def test_what_a_call_has_used_is_used_for_the_run_beside_it_at_once() -> None:
    first, second = two()
    assert await first.take(REQUEST, None) is None
    first.settle(Usage(output_tokens=100), None)

    reached = await second.take(REQUEST, None)

    assert reached is not None
    assert (reached.budget, reached.used, reached.limit) == ("max_output_tokens", 100, 100)


async def test_a_call_that_has_used_nothing_gives_all_of_its_reserve_back() -> None:
    first, second = two()
    assert await first.take(REQUEST, None) is None
    first.settle(None, None)

    assert await second.take(REQUEST, None) is None
