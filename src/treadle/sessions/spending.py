"""Spending: what the runs of a tenant have cost in a period, counted by all processes of a journal. Ends no run itself."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from treadle.budgets import TenantBudget, as_decimal, plain
from treadle.canonical import digest
from treadle.errors import ConfigurationError, JournalError, shown
from treadle.fields import Documented, checked
from treadle.ports import Clock, Journal, Randomness
from treadle.redaction import redacted_logger
from treadle.sessions.answering import time_of
from treadle.sessions.counting import SharedCounts, counted_everywhere
from treadle.stops import LimitReached
from treadle.tools import JsonObject

__all__ = ["BudgetLeft", "Purse", "Receipt", "budgets_left"]

logger = redacted_logger(__name__)

_FORGOTTEN_SECONDS = 900.0
"""A call that reserved so long ago has ended with its process. Its cost is unknown: what it reserved counts."""
_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m", "ever": ""}


class _Reserved(msgspec.Struct):
    amount: Decimal
    at: float


class _Account(msgspec.Struct):
    """What one budget has paid in one period, and what is reserved."""

    spent: Decimal = Decimal(0)
    reserved: dict[str, _Reserved] = {}
    largest: dict[str, Decimal] = {}
    """The most that one call has cost, by model: no call reserves less."""
    tenant: str = ""
    """Whose it is, for whom looks at it: this, and the four below, are of the last call that reserved."""
    each: str = ""
    per: str = ""
    period: str = ""
    limit: Decimal = Decimal(0)

    def room_for(self, name: str, model: str, wanted: Decimal, limit: Decimal, now: float) -> bool | None:
        """Reserve for a call where there is room. Return whether there was; None where that shows once others have returned theirs."""
        for old in [key for key, one in self.reserved.items() if now - one.at > _FORGOTTEN_SECONDS]:
            self.spent += self.reserved.pop(old).amount
        wanted = max(wanted, self.largest.get(model, wanted))
        if self.spent + wanted > limit or (not wanted and self.spent >= limit):
            return False
        # Until one call of a model has come back, its cost is a guess: no second one begins.
        is_first = bool(wanted and self.reserved) and model not in self.largest
        if is_first or self.spent + sum(one.amount for one in self.reserved.values()) + wanted > limit:
            return None
        self.reserved[name] = _Reserved(wanted, now)
        return True

    def pay(self, name: str, model: str, cost: Decimal | None) -> None:
        """Count what a call has cost, and give the rest of its reserve back. An unknown cost is what was reserved."""
        reserved = self.reserved.pop(name, None)
        paid = cost if cost is not None else Decimal(0) if reserved is None else reserved.amount
        self.spent += paid
        if paid > self.largest.get(model, 0):
            self.largest[model] = paid


class _Budget(msgspec.Struct, frozen=True):
    """One budget that binds a session, in one period."""

    place: str
    whose: str
    limit: Decimal
    reserve: Decimal
    tenant: str
    each: str
    per: str
    period: str


class Receipt(msgspec.Struct, frozen=True):
    """What a call has reserved."""

    name: str
    model: str
    holding: tuple[_Budget, ...]


class Purse:
    """What pays for the model calls of one run: every tenant budget that binds its session."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        randomness: Randomness,
        budgets: Sequence[TenantBudget],
        metadata: JsonObject,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._randomness = randomness
        self.budgets = tuple(budgets)
        self._metadata = metadata
        self._accounts = SharedCounts(journal, clock, "spending", _Account)

    async def reserve(self, model: str, wanted: Decimal) -> Receipt | LimitReached | None:
        """Reserve for one call. Return the receipt, the budget that has no room, or None where it may have after others have paid.

        Raises:
            JournalError: The store failed.
        """
        name, holding = self._randomness.token(), _tightest(self._binding(await time_of(self._journal, self._clock)))
        taken: list[_Budget] = []
        for budget in holding:
            async with self._accounts.counting(budget.place) as (account, now):
                account.tenant, account.each, account.limit = budget.tenant, budget.each, budget.limit
                account.per, account.period = budget.per, budget.period
                has_room = account.room_for(name, model, max(wanted, budget.reserve), budget.limit, now)
                spent = account.spent
            if not has_room:
                await self.pay(Receipt(name, model, tuple(taken)), Decimal(0))
                used, limit = plain(spent), plain(budget.limit)
                reached = LimitReached(budget="tenant_budget", used=used, limit=limit, whose=budget.whose)
                return None if has_room is None else reached
            taken.append(budget)
        return Receipt(name, model, holding)

    async def pay(self, receipt: Receipt, cost: Decimal | None) -> None:
        """Count what a call has cost; None where that is unknown."""
        for budget in receipt.holding:
            try:
                async with self._accounts.counting(budget.place) as (account, _):
                    account.pay(receipt.name, receipt.model, cost)
            except (
                JournalError
            ) as error:  # it cannot be refused any more: what it has reserved stays reserved, and counts
                logger.warning("What a request has cost could not be counted for %s: %s", budget.whose, error)

    def _binding(self, now: float) -> Iterator[_Budget]:
        """Yield the budgets that bind the session."""
        tenant = self._metadata.get("tenant") or ""
        for budget in self.budgets:
            value = self._metadata.get(budget.each) if budget.each else ""
            is_theirs = budget.tenant in (None, tenant) and (tenant or budget.each)
            if not is_theirs or (budget.each and value in (None, "")):
                continue
            period = datetime.fromtimestamp(now, UTC).strftime(_FORMATS[budget.per])
            place = digest([tenant, budget.each, value, budget.per, period, budget.tenant])[:24]
            words = [f"tenant {tenant!r}"] if tenant else []
            words += [f"{budget.each} {value!r}"] if budget.each else []
            whose = ", ".join(words) + (f" in {period}" if period else "")
            limit, reserve = as_decimal(budget.max_total_cost), as_decimal(budget.reserve)
            each = f"{budget.each} {value}" if budget.each else ""
            yield _Budget(f"spending/{place}", whose, limit, reserve, str(tenant), each, budget.per, period)


class BudgetLeft(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What is left of a tenant's budget in the period that is under way."""

    tenant: str
    """Whose it is."""
    each: str
    """For which user or key of the tenant, such as `user ada`; empty for all of it."""
    per: str
    """`day`, `month` or `ever`."""
    period: str
    """The day or month, such as `2026-12`; empty for `ever`."""
    limit: Decimal
    """The budget, as the last call found it."""
    spent: Decimal
    """What calls have cost."""
    reserved: Decimal
    """What calls that are under way may cost."""

    @property
    def left(self) -> Decimal:
        """What further calls may cost."""
        return max(Decimal(0), self.limit - self.spent - self.reserved)


@checked
async def budgets_left(journal: Journal, *, now: float, since: float | None = None) -> tuple[BudgetLeft, ...]:
    """Return what is left of the tenants' budgets of this day and month, the least first.

    Args:
        now: The time, in seconds since 1970.
        since: Only budgets from which a call was paid at this time or later; None for all.

    Raises:
        ConfigurationError: There is no such time.
        JournalError: The store failed.
    """
    try:
        today = datetime.fromtimestamp(now, UTC)
    except (OverflowError, ValueError, OSError):
        raise ConfigurationError(f"now is a time in seconds since 1970; got {shown(now)}.") from None
    found = [
        BudgetLeft(
            tenant=one.tenant,
            each=one.each,
            per=one.per,
            period=one.period,
            limit=one.limit,
            spent=one.spent,
            reserved=sum((call.amount for call in one.reserved.values()), Decimal(0)),
        )
        for one in await counted_everywhere(journal, "spending", _Account, since=since)
        if one.per and one.period == today.strftime(_FORMATS[one.per])
    ]
    return tuple(sorted(found, key=lambda one: (one.left, one.tenant, one.each)))


def _tightest(budgets: Iterable[_Budget]) -> tuple[_Budget, ...]:
    """Return the budgets, one for each account: a call is counted once in it, however many budgets it is for."""
    found: dict[str, _Budget] = {}
    for one in budgets:
        other = found.get(one.place, one)
        found[one.place] = msgspec.structs.replace(
            one, limit=min(one.limit, other.limit), reserve=max(one.reserve, other.reserve)
        )
    return tuple(found.values())
