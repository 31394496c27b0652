"""Budgets: the limits of one run, what it has spent, and the meter that compares the two. Values only; reads no clock."""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, UnknownBudget, shown
from treadle.fields import Documented, NamedOptions, check_fields, check_least, checked, explained
from treadle.messages import Usage
from treadle.stops import LimitReached

__all__ = [
    "Budget",
    "Deadline",
    "Guards",
    "Meter",
    "Price",
    "Spent",
    "TenantBudget",
    "as_decimal",
    "budget_from",
    "epoch_seconds",
    "plain",
]


# --- The limits of one run, its guards, and what a model costs. Values only; reads no clock.


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
        check_fields("Budget", self)
        check_least("Budget", self, self.__struct_fields__, 0)
        check_least("Budget", self, ("max_parallel_tool_calls", "max_tool_result_chars"), 1)


class TenantBudget(
    msgspec.Struct, Documented, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedOptions
):
    """What all runs of a tenant may cost together in a period, over all processes that share a journal.

    Before each model call its estimated cost is reserved, and afterwards what it has cost is counted. A call that does not fit is not made.

    Example:
        Agent(model, tenant_budgets=[TenantBudget(max_total_cost=50), TenantBudget(max_total_cost=2, per="day", each="user")])

    Raises:
        ConfigurationError: A field is of the wrong kind, or the cost is negative.
    """

    max_total_cost: float | Decimal
    """The cost, in the currency of the models' prices."""
    per: Literal["day", "month", "ever"] = "month"
    """The period: a day or a month of UTC, or `ever`."""
    tenant: str | None = None
    """Only this tenant; None for each tenant, for itself. The key `tenant` of a session's metadata says whose it is."""
    each: str = ""
    """A key of the session's metadata, such as `user` or `api_key`: each of its values has the budget for itself. Empty for the tenant as a whole.
    Sessions without the key are not bound by it."""
    reserve: float | Decimal = 0
    """What each call reserves at least. A call reserves its estimate, and no less than the model's dearest call so far: set it to the most that one
    call can cost, and not even a first dear call exceeds the budget."""

    def __post_init__(self) -> None:
        check_fields("TenantBudget", self)
        check_least("TenantBudget", self, ("max_total_cost", "reserve"), 0)


def _amount(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ConfigurationError(f"Budget max_total_cost must be a number or None; got {shown(text)}.") from None


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
        check_fields("Guard", self)
        if self.budget_warning is not None and not 0 < self.budget_warning < 1:
            raise ConfigurationError(
                f"Guard budget_warning must be a part of a limit, between 0 and 1, or None; got {shown(self.budget_warning)}."
            )
        check_least("Guard", self, self.__struct_fields__[:-2], 1)


Deadline: TypeAlias = datetime | float
"""An instant: a datetime with its time zone, or seconds since 1970."""


_FARTHEST_SECONDS = 1e15
"""Millions of years: a time beyond that is a mistake, and so is NaN."""


def epoch_seconds(deadline: Deadline, *, name: str = "deadline") -> float:
    """Return an instant as seconds since 1970.

    Args:
        name: What it is, for messages.

    Raises:
        ConfigurationError: It is not an instant, or a datetime without a time zone, which could mean any of forty.
    """
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ConfigurationError(f"The {name} {deadline.isoformat()} has no time zone: give it one.")
        return deadline.timestamp()
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not abs(deadline) < _FARTHEST_SECONDS:
        raise ConfigurationError(f"A {name} is a datetime or seconds since 1970; got {shown(deadline)}.")
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
        check_fields("Price", self)
        check_least("Price", self, self.__struct_fields__, 0)

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


@explained
def as_decimal(number: Decimal | float) -> Decimal:
    """Turn 0.1 into the decimal that a person wrote, not into its binary neighbour."""
    return number if isinstance(number, Decimal) else Decimal(repr(number))


# --- What runs have used, and the meter that compares it with their budgets, in a tree of runs that call each other.
# Reads no clock.


class Spent(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What one run has used so far, folded from its events."""

    model_turns: int = 0
    """Model responses."""
    tool_calls: int = 0
    """Tool calls, those that were denied included."""
    uncovered_calls: int = 0
    """Calls that were proposed beyond the budget, and so neither run nor charged to it."""
    usage: Usage = Usage()
    """Tokens."""
    cost: Decimal | None = Decimal(0)
    """None as soon as one model call was unpriced."""
    wall_seconds: float = 0.0
    """Seconds that the run was under way; time in which it was paused does not count."""

    @explained
    def plus(self, usage: Usage, cost: str | None, *, turns: int, calls: int) -> "Spent":
        """Return the sum with one more response.

        Args:
            cost: As events hold it: an exact decimal, or None where nobody knows.
        """
        return msgspec.structs.replace(
            self,
            model_turns=self.model_turns + turns,
            tool_calls=self.tool_calls + calls,
            usage=self.usage + usage,
            cost=None if cost is None or self.cost is None else self.cost + _spent_amount(cost),
        )

    @explained
    def with_child(self, now: "Spent", before: "Spent") -> "Spent":
        """Return the sum with what a child has spent now and had not before. Time is not added: the caller waited meanwhile."""
        return msgspec.structs.replace(
            self,
            model_turns=self.model_turns + now.model_turns - before.model_turns,
            tool_calls=self.tool_calls + now.tool_calls - before.tool_calls,
            usage=self.usage + now.usage.minus(before.usage),
            cost=_difference(self.cost, now.cost, before.cost),
        )

    @explained
    def beyond(self, now: "Spent") -> "Spent":
        """Return what of this is not in another, later sum; nothing below zero."""
        usage = self.usage.minus(now.usage)
        cost = _difference(Decimal(0), self.cost, now.cost)
        return Spent(
            usage=Usage(input_tokens=max(usage.input_tokens, 0), output_tokens=max(usage.output_tokens, 0)),
            cost=Decimal(0) if cost is None else max(cost, Decimal(0)),
        )

    @explained
    def at_least(self, turns: int, calls: int) -> "Spent":
        """Return it with no fewer turns and calls than these."""
        return msgspec.structs.replace(
            self, model_turns=max(self.model_turns, turns), tool_calls=max(self.tool_calls, calls)
        )


def _difference(own: Decimal | None, now: Decimal | None, before: Decimal | None) -> Decimal | None:
    return None if own is None or now is None or before is None else own + now - before


@explained
def plain(number: Decimal | float) -> int | float | str:
    """Return a number as reports show it: money as an exact string, seconds rounded to milliseconds."""
    if isinstance(number, Decimal):
        return format(number.normalize(), "f")
    return number if isinstance(number, int) else round(number, 3)


def _spent_amount(cost: str) -> Decimal:
    try:
        return Decimal(cost)
    except InvalidOperation:
        raise ConfigurationError(f"cost must be an exact decimal as text, such as '0.25'; got {shown(cost)}.") from None


_TOTALS = (
    "max_model_turns",
    "max_tool_calls",
    "max_wall_time_seconds",
    "max_input_tokens",
    "max_output_tokens",
    "max_total_cost",
)
"""The budgets of a whole run; the others bound one call or one attempt."""


_UNITS: dict[str, type[float | Decimal]] = {"max_wall_time_seconds": float, "max_total_cost": Decimal}
"""Limits that are not counted in whole numbers."""


class Look(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What limits leave after so much was spent."""

    reached: LimitReached | None = None
    """The first limit that leaves no room for another model call."""
    counted: LimitReached | None = None
    """The limit on turns or calls that is arrived at."""
    exhausted: LimitReached | None = None
    """The first used-up limit but turns and calls: those leave room for the closing request."""
    calls_left: int | None = None
    """How many more calls may run; None for no limit."""
    is_last: bool = False
    """Whether one more response arrives at a limit on turns or calls."""


_ROOM = Look()


class Meter:
    """Compares what a run has spent with its budget. Asked before each model call and before each tool call.

    Meters form a tree: the run of an agent that is a tool draws from the budget of the run that called it, and that from
    its own caller's. What the children of a run spend counts to it at once, so children side by side share one remainder.

    Args:
        spent: What the run has spent by its recorded events, children that have ended included.
        above: The meter of the run that called this one.
        charged: What the run above has recorded of this one so far.
    """

    @checked
    def __init__(
        self,
        budget: Budget,
        *,
        spent: Callable[[], Spent] = Spent,
        above: "Meter | None" = None,
        charged: Callable[[], Spent] = Spent,
    ) -> None:
        self.budget = budget
        self.limits = {name: limit for name in _TOTALS if (limit := getattr(budget, name)) is not None}
        if budget.max_total_cost is not None:
            self.limits["max_total_cost"] = as_decimal(budget.max_total_cost)
        self._ends = tuple(self.limits.get(name, math.inf) for name in _TOTALS)
        self.spent = spent
        self.above = above
        self.charged = charged
        self.drawing: list[Meter] = []
        self._promised = (0, 0)  # turns and calls that are under way, and so not recorded yet
        self._reserved: Spent | None = None  # the total once the last model call is recorded
        self._is_under_way = False  # whether that is an estimate
        self.waiting: list[Callable[[], None]] = [] if above is None else above.waiting
        """Who is notified of a change of the reserves: one list for the whole tree."""
        if above is not None:
            above.drawing.append(self)

    def leave(self) -> None:
        """Draw no more from the meter above: what was spent is recorded there. May be called twice."""
        self.reserve(None)
        if self.above is not None and self in self.above.drawing:
            self.above.drawing.remove(self)

    @property
    def is_shared(self) -> bool:
        """Whether other runs at the same time draw from the same budget."""
        return self.above is not None or bool(self.drawing)

    @explained
    def reserve(self, total: Spent | None, *, is_under_way: bool = False) -> None:
        """Reserve for a model call what makes the run's total so much, and wake who waits for what others return.

        Args:
            total: The run's total once the call is recorded; None for no call.
            is_under_way: Whether that is an estimate; else it has been used and is about to be recorded.
        """
        self._reserved, self._is_under_way = total, is_under_way
        woken = tuple(self.waiting)
        self.waiting.clear()
        for wake in woken:
            wake()

    def on_return(self, wake: Callable[[], None]) -> None:
        """Call back once, as soon as a reserve of the tree has changed."""
        self.waiting.append(wake)

    @explained
    def has_room(self, spent: Spent, wanted: Spent) -> bool:
        """Whether a model call that may use so much fits in addition to those under way. Where there are none, it always does."""
        for meter, total in self._tree(spent):
            reserves = list(meter.reserves(self))
            for one in reserves:
                total = total.with_child(one, Spent())  # noqa: PLW2901 - a sum
            if reserves and meter.is_over(total.with_child(wanted, Spent())):
                return False
        return True

    def reserves(self, but: "Meter") -> "Iterator[Spent]":
        """Yield what each model call under way, here and below, has reserved and may still use."""
        if self is not but and self._is_under_way and self._reserved is not None:
            yield self._reserved.beyond(self.spent())
        for child in self.drawing:
            yield from child.reserves(but)

    @explained
    def is_over(self, spent: Spent) -> bool:
        """Whether so much is above a limit on tokens or money."""
        return any(
            used is not None and name in self.limits and used > self.limits[name]
            for name, used in _counts(spent)[3:]  # tokens and money
        )

    @property
    def has_cost_limit(self) -> bool:
        """Whether money is limited, here or above."""
        return any("max_total_cost" in meter.limits for meter, _ in self._tree(Spent()))

    @explained
    def look(self, spent: Spent) -> Look:
        """Return what the limits, here and above, leave after so much."""
        if self.above is not None or self.drawing:
            return self._look_at_tree(spent)
        (turns, calls, seconds, given, written, cost), usage = self._ends, spent.usage
        is_within = spent.model_turns < turns and spent.tool_calls < calls and spent.wall_seconds < seconds
        if not is_within or usage.input_tokens >= given or usage.output_tokens >= written:
            return self._look_at_tree(spent)
        if spent.cost is not None and spent.cost >= cost:
            return self._look_at_tree(spent)
        is_last, most = spent.model_turns + 1 >= turns, self.budget.max_tool_calls
        if most is None and not is_last:  # most runs, at most times
            return _ROOM
        return Look(calls_left=None if most is None else most - spent.tool_calls, is_last=is_last)

    def _look_at_tree(self, spent: Spent) -> Look:
        # A limit of 0 calls still leaves room for an answer, until something is called anyway.
        has_called = bool(spent.tool_calls or spent.uncovered_calls)
        reached = counted = exhausted = following = None
        for meter, total in self._tree(spent):
            turns, calls, *used = _counts(total)
            reached = reached or meter.first_reached((turns, calls if has_called else ("max_tool_calls", None), *used))
            counted = counted or meter.first_reached((calls, turns))
            following = following or meter.first_reached((calls, ("max_model_turns", total.model_turns + 1)))
            exhausted = exhausted or meter.first_reached(used)
        return Look(
            reached=reached,
            counted=counted,
            exhausted=exhausted,
            calls_left=self.calls_left(spent),
            is_last=following is not None,
        )

    @explained
    def all_reached(self, spent: Spent) -> tuple[LimitReached, ...]:
        """Return every limit, here or above, that leaves no room for another model call; the one of `reached` comes first."""
        has_called = bool(spent.tool_calls or spent.uncovered_calls)
        found = [
            meter.first_reached((count,))
            for meter, total in self._tree(spent)
            for count in _counts(total)
            if has_called or count[0] != "max_tool_calls"
        ]
        return tuple(one for one in found if one is not None)

    @explained
    def near(self, spent: Spent, seconds: float, part: float) -> "list[LimitReached]":
        """Return the limits of this run of which so large a part is used, and not yet all.

        Args:
            seconds: How long the run has been under way.
        """
        counts = {**dict(_counts(spent)), "max_wall_time_seconds": seconds}
        found = []
        for name, limit in self.limits.items():
            used = counts[name]
            if used is not None and limit > used and float(used) >= part * float(limit):
                shown_limit = limit if isinstance(limit, int) else float(limit)
                found.append(LimitReached(budget=name, used=plain(used), limit=shown_limit))
        return found

    @explained
    def left(self, spent: Spent) -> dict[str, int | float | Decimal]:
        """Return what is left of each limit, here or above, by its name: counts and tokens, seconds as a float, dollars as a Decimal.

        A limit on what is not known is left out.
        """
        found: dict[str, int | float | Decimal] = {}
        for meter, total in self._tree(spent):
            for name, used in _counts(total):
                if used is not None and (limit := meter.limits.get(name)) is not None:
                    rest = max(as_decimal(limit) - as_decimal(used), Decimal(0))
                    unit = _UNITS.get(name, int)
                    found[name] = min(found.get(name, unit(rest)), unit(rest))
        return found

    @explained
    def calls_left(self, spent: Spent, counted: int = 0) -> int | None:
        """Return how many more calls may run; None for no limit.

        Args:
            counted: Calls that have not started and are in `spent`, because they were proposed earlier.
        """
        least: int | None = None
        for meter, total in self._tree(spent):
            if (limit := meter.budget.max_tool_calls) is not None:
                left = max(limit - total.tool_calls + counted, 0)
                least = left if least is None else min(least, left)
        return least

    @explained
    def seconds_left(self, wall_seconds: float) -> float | None:
        """Return the running time that is left after so much, in seconds; None for no limit."""
        limit = self.budget.max_wall_time_seconds
        return None if limit is None else max(limit - wall_seconds, 0.0)

    @explained
    def promise_turn(self, spent: Spent) -> None:
        """Reserve the model call that now begins, so that another run does not take it too."""
        self._promised = (spent.model_turns + 1, spent.tool_calls)

    @explained
    def promise_calls(self, spent: Spent, wanted: int, *, are_counted: bool = False) -> int | None:
        """Reserve as many of the calls as are left, and return how many are; None for no limit.

        Args:
            wanted: How many calls.
            are_counted: Whether they were proposed earlier and so are reserved already. Fewer than all of them may be left
                where the budget has become smaller since, or others have used it up.
        """
        if are_counted:
            return self.calls_left(spent, wanted)
        left = self.calls_left(spent)
        self._promised = (spent.model_turns + 1, spent.tool_calls + (wanted if left is None else min(wanted, left)))
        return left

    def _tree(self, spent: Spent) -> "Iterable[tuple[Meter, Spent]]":
        """Return this meter and those above, each with what counts against it where this run has spent so much."""
        if self.above is None and not self.drawing:
            return ((self, spent),)
        return self._walk(spent)

    def _walk(self, spent: Spent) -> "Iterator[tuple[Meter, Spent]]":
        meter: Meter | None = self
        total = self.with_children(spent, None, spent)
        while meter is not None:
            yield meter, total
            above = meter.above
            if above is not None:
                total = above.with_children(above.spent(), meter, total)
            meter = above

    def with_children(self, own: Spent, known: "Meter | None", known_total: Spent) -> Spent:
        for child in self.drawing:
            now = known_total if child is known else child.under_way()
            own = own.with_child(now, child.charged())
        return own

    def under_way(self) -> Spent:
        own = self.spent()
        if self._reserved is not None and not self._is_under_way:  # used, and recorded in a moment
            own = own.with_child(self._reserved.beyond(own), Spent())
        return self.with_children(own, None, Spent()).at_least(*self._promised)

    @explained
    def first_reached(self, counts: "Sequence[_Count]") -> LimitReached | None:
        """Return the first of these that has arrived at its limit."""
        for name, used in counts:
            limit = self.limits.get(name)
            if limit is not None and used is not None and used >= limit:
                return LimitReached(
                    budget=name, used=plain(used), limit=limit if isinstance(limit, int) else float(limit)
                )
        return None


_Count: TypeAlias = tuple[str, int | float | Decimal | None]
"""The name of a budget, and how much of it is used; None where nobody knows."""


def _counts(spent: Spent) -> tuple[_Count, ...]:
    """Return how much of each total is used, turns and calls first."""
    return (
        ("max_model_turns", spent.model_turns),
        ("max_tool_calls", spent.tool_calls),
        ("max_wall_time_seconds", spent.wall_seconds),
        ("max_input_tokens", spent.usage.input_tokens),
        ("max_output_tokens", spent.usage.output_tokens),
        ("max_total_cost", spent.cost),
    )
