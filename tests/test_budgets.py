"""Prices: what a limit on cost stands on. The limits themselves are in tests/engine."""

from decimal import Decimal

import msgspec
import pytest

from treadle import Agent, Budget, ConfigurationError, Price
from treadle.budgets import Meter, Spent
from treadle.messages import Usage
from treadle.testing import ScriptedModel, Turn


@pytest.mark.row("B03")
@pytest.mark.parametrize("value", [-1, "1", True, float("nan"), float("inf"), Decimal("NaN"), Decimal("-0.1")])
@pytest.mark.parametrize("name", ["input", "output", "cached_input", "cache_write"])
def test_a_price_that_would_make_a_limit_on_cost_mean_nothing_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=f"Price {name} must be"):
        Price(**{"input": 1, "output": 1, name: value})


def test_a_price_counts_in_exact_decimals():
    price = Price(input=0.1, output=Decimal(3), cached_input=0)

    assert price.cost(Usage(input_tokens=30, cached_input_tokens=20, output_tokens=1)) == Decimal("0.000004")


@pytest.mark.row("B08", "W09")
def test_tokens_written_to_the_cache_cost_their_own_price_or_that_of_input():
    usage = Usage(input_tokens=6_100, cached_input_tokens=5_000, cache_written_tokens=1_000, output_tokens=50)

    assert Price(input=3, output=15, cached_input=0.3, cache_write=3.75).cost(usage) == Decimal("0.0063")
    assert Price(input=3, output=15, cached_input=0.3).cost(usage) == Decimal("0.00555")


@pytest.mark.row("B08")
def test_usage_of_older_journals_and_recordings_is_read_as_it_was_written():
    old = b'{"input_tokens":9,"cached_input_tokens":4}'
    usage = msgspec.json.decode(old, type=Usage)

    assert usage == Usage(input_tokens=9, cached_input_tokens=4, cache_written_tokens=0)
    assert msgspec.json.encode(usage) == old
    written = Usage(input_tokens=2, cache_written_tokens=2)
    assert usage + written + written == Usage(input_tokens=13, cached_input_tokens=4, cache_written_tokens=4)


@pytest.mark.parametrize("written", [0, 2])
async def test_a_report_tells_tokens_written_to_a_cache_where_there_are_any(written):
    usage = Usage(input_tokens=5, output_tokens=1, cache_written_tokens=written)
    report = (await Agent(ScriptedModel([Turn(text="done", usage=usage)])).run("go")).report()

    assert report["usage"]["input_tokens"] == 5
    assert report["usage"].get("cache_written_tokens", 0) == written
    assert ("cache_written_tokens" in report["usage"]) == bool(written)


def test_what_is_left_of_a_limit_in_dollars_is_exact():
    meter = Meter(Budget(max_total_cost=0.3, max_tool_calls=2, max_wall_time_seconds=9.5))

    left = meter.left(Spent(cost=Decimal("0.1"), tool_calls=1))

    assert (left["max_total_cost"], left["max_tool_calls"], left["max_wall_time_seconds"]) == (Decimal("0.2"), 1, 9.5)
