"""The limits of one run, its guards, and what a model costs. Values only; reads no clock."""

import difflib
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, UnknownBudget, shown
from treadle.fields import Documented, NamedOptions, checked, explained
from treadle.messages import Usage

__all__ = ["Budget", "Deadline", "Guards", "Price", "as_decimal", "budget_from", "epoch_seconds"]


class Budget(msgspec.Struct, Documented, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions):
    """The ten limits of one run. None means no limit.

    Example:
        Budget(max_model_turns=20, max_total_cost=0.50)

    Raises:
        ConfigurationError: A limit is negative, not a number, or of the wrong kind.
    """

    max_model_turns: int | None = 50
    """Model responses in one run, not counting the closing request."""
    max_tool_calls: int | None = 500
    """Calls proposed in one run. Denied, invalid and unknown calls count."""
    max_parallel_tool_calls: int | None = 16
    """Calls that run at the same time; the others queue."""
    max_wall_time_seconds: float | None = 3600
    """Seconds of running time; time spent paused does not count."""
    max_input_tokens: int | None = 5_000_000
    """Prompt tokens of all model calls together, including cached ones."""
    max_output_tokens: int | None = 500_000
    """Completion tokens of all model calls together."""
    max_total_cost: float | Decimal | None = None
    """The cost, in the currency of the model's price (US dollars in the price data)."""
    max_tool_result_chars: int | None = 50_000
    """Characters of one result that the model is shown."""
    max_retries_per_model_call: int | None = 4
    """Attempts of one model call beyond the first."""
    max_retries_per_tool_call: int | None = 2
    """Attempts of one tool call beyond the first, if its effect allows any."""

    def __post_init__(self) -> None:
        cost: object = self.max_total_cost
        if isinstance(cost, str):  # as a journal holds an exact amount of money
            msgspec.structs.force_setattr(self, "max_total_cost", _amount(cost))
        for name in self.__struct_fields__:
            _check_limit(name, getattr(self, name))


def _amount(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ConfigurationError(f"Budget max_total_cost must be a number or None; got {shown(text)}.") from None


def _check_limit(name: str, value: Any) -> None:
    if value is None:
        return
    whole = name not in ("max_wall_time_seconds", "max_total_cost")
    kinds = (int,) if whole else (int, float, Decimal)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "a whole number" if whole else "a number"
        raise ConfigurationError(f"Budget {name} must be {kind} or None; got {_shown(value)}.")
    if (isinstance(value, Decimal) and value.is_nan()) or not value >= 0 or value == float("inf"):
        raise ConfigurationError(
            f"Budget {name} must be a finite number of 0 or more, or None for no limit; got {_shown(value)}."
        )
    if value == 0 and name in ("max_parallel_tool_calls", "max_tool_result_chars"):
        raise ConfigurationError(f"Budget {name} must be at least 1; got 0.")


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else f"{shown(value)}"


@checked
def budget_from(limits: Mapping[str, Any], base: Budget | None = None) -> Budget:
    """Return a budget from names and values, as a configuration file or a command line has them.

    Raises:
        UnknownBudget: There is no budget of that name; the message suggests the nearest.
        ConfigurationError: A value is not a limit.
    """
    known = Budget.__struct_fields__
    for name in limits:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UnknownBudget(f"Unknown budget {name!r}.{hint} The ten budgets are: {', '.join(known)}.")
    return msgspec.structs.replace(base or Budget(), **limits)


class Guards(msgspec.Struct, Documented, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions):
    """Limits on behaviour that makes no progress. None switches a guard off.

    They count tries. A try is one response of the model, however many calls it has. A resumed run starts all counts again.

    Example:
        Agent(model, guards=Guards(repeats=2))
    """

    repeats: int | None = 3
    """This many equal responses in a row end the run if their results were equal too; the calls of the last are not run.
    The same applies to a cycle of two to four responses. None also switches off `repeats_with_progress`."""
    repeats_with_progress: int | None = 10
    """The same limit if the results differ; never below `repeats`."""
    no_progress: int | None = 6
    """This many responses in a row that bring nothing new end the run. Before that the model is warned, and then such calls no longer
    run. Nothing new means that calls and results are nearly the same as before (except for white space, case and the form of
    numbers), or that the calls fail with the same message. Switched off if `repeats` is."""
    failures: int | None = 5
    """This many responses in a row with failed calls and no successful one end the run."""
    denials: int | None = 10
    """This many responses in a row with denied calls and no successful one end the run."""
    invalid_json: int | None = 3
    """This many responses in a row with arguments that are not valid JSON, and no successful call, end the run."""
    invalid_arguments: int | None = 3
    """This many responses in a row with arguments that do not fit the schema, and no successful call, end the run."""
    continuations: int | None = 3
    """How many times hooks may make a run continue at its end."""
    budget_warning: float | None = 0.8
    """Once this share of a limit is used, the event `budget.warned` is recorded, and the model is told how much is left."""
    finish_reasons: tuple[str, ...] = ()
    """Finish reasons of a provider, such as `recitation`, that end the run as `refused`."""

    def __post_init__(self) -> None:
        _check_finish_reasons(self.finish_reasons)
        part: object = self.budget_warning
        if part is not None and (isinstance(part, bool) or not isinstance(part, int | float) or not 0 < part < 1):
            raise ConfigurationError(
                f"Guard budget_warning must be a part of a limit, between 0 and 1, or None; got {shown(part)}."
            )
        for name in self.__struct_fields__[:-2]:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigurationError(
                    f"Guard {name} must be a whole number of 1 or more, or None; got {shown(value)}."
                )


def _check_finish_reasons(expected: object) -> None:
    if not isinstance(expected, tuple | list) or not all(isinstance(word, str) and word for word in expected):
        raise ConfigurationError(
            f"Guard finish_reasons must be strings such as ('recitation',); got {shown(expected)}."
        )


Deadline: TypeAlias = datetime | float
"""An instant: a datetime with its time zone, or seconds since 1970."""


_FARTHEST_SECONDS = 1e15
"""Millions of years: a time beyond that is a mistake, and so is NaN."""


def epoch_seconds(deadline: Deadline) -> float:
    """Return an instant as seconds since 1970.

    Raises:
        ConfigurationError: It is not an instant, or a datetime without a time zone, which could mean any of forty.
    """
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ConfigurationError(f"The deadline {deadline.isoformat()} has no time zone: give it one.")
        return deadline.timestamp()
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not abs(deadline) < _FARTHEST_SECONDS:
        raise ConfigurationError(f"A deadline is a datetime or seconds since 1970; got {shown(deadline)}.")
    return float(deadline)


class Price(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """What a model costs, per million tokens.

    Example:
        Price(input=1.25, output=10)

    Raises:
        ConfigurationError: A price is negative or no number: a limit on cost would mean nothing.
    """

    input: Decimal | float | int
    """Price of input tokens."""
    output: Decimal | float | int
    """Price of output tokens, reasoning tokens included."""
    cached_input: Decimal | float | int | None = None
    """Price of input tokens read from the provider's cache; None for the price of `input`."""
    cache_write: Decimal | float | int | None = None
    """Price of input tokens written to the provider's cache; None for the price of `input`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name in ("cached_input", "cache_write"):
                continue
            is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
            if not is_number or not Decimal(value).is_finite() or value < 0:
                raise ConfigurationError(
                    f"The price {name!r} must be a number of 0 or more, per million tokens; got {_shown(value)}."
                )

    @explained
    def cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one model call."""
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        fresh = max(usage.input_tokens - usage.cached_input_tokens - usage.cache_written_tokens, 0)
        millionths = (
            fresh * as_decimal(self.input)
            + usage.cached_input_tokens * as_decimal(cached)
            + usage.cache_written_tokens * as_decimal(written)
            + usage.output_tokens * as_decimal(self.output)
        )
        return millionths / 1_000_000


def as_decimal(number: Decimal | float) -> Decimal:
    """Turn 0.1 into the decimal that a person wrote, not into its binary neighbour."""
    return number if isinstance(number, Decimal) else Decimal(repr(number))
