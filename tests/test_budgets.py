"""Prices: what a limit on cost stands on. The limits themselves are in tests/loop."""

from decimal import Decimal

import pytest

from treadle import ConfigurationError, Price
from treadle.messages import Usage


@pytest.mark.row("B03")
@pytest.mark.parametrize("value", [-1, "1", True, float("nan"), float("inf"), Decimal("NaN"), Decimal("-0.1")])
@pytest.mark.parametrize("name", ["input", "output", "cached_input"])
def test_a_price_that_would_make_a_limit_on_cost_mean_nothing_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=f"The price '{name}' must be a number of 0 or more"):
        Price(**{"input": 1, "output": 1, name: value})


def test_a_price_counts_in_exact_decimals():
    price = Price(input=0.1, output=Decimal(3), cached_input=0)

    assert price.cost(Usage(input_tokens=30, cached_input_tokens=20, output_tokens=1)) == Decimal("0.000004")
