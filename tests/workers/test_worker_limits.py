"""Limits over all workers that share a journal."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from treadle import Agent, ConfigurationError
from treadle.errors import ModelUnavailable
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish, Text
from treadle.ports import ModelEnd
from treadle.testing import FakeClock, ScriptedModel, text
from treadle.workers import Limit, Worker, list_workers, result, submit
from treadle.workers.limits import LimitedModel, Limits, Subject

pytestmark = pytest.mark.row("W13")


class Busy:
    """An agent's model that counts how many of a tenant's sessions speak side by side."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go_on = asyncio.Event()

    def make(self) -> Agent:
        async def answer(request: Any) -> Any:
            tenant = request.messages[0].text.split()[0]
            self.now[tenant] += 1
            self.most[tenant] = max(self.most[tenant], self.now[tenant])
            await self.go_on.wait()
            self.now[tenant] -= 1

        return Agent(Awaiting(answer))


class Awaiting:
    """A model whose answer is waited for."""

    name, price = "test:awaiting", None

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    async def stream(self, request: Any) -> Any:
        await self._answer(request)
        yield ModelEnd(parts=(Text(text="done"),), finish=Finish.STOP)


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_no_more_sessions_of_a_tenant_are_under_way_than_the_limit_over_all_workers(address: str) -> None:
    busy = Busy()
    limits = [Limit(name="fair", sessions=2, each="tenant")]
    ids = [await submit(address, "clerk", f"many {n}", tenant="many") for n in range(6)]
    workers = [Worker(address, {"clerk": busy.make}, name=f"w{n}", concurrency=4, limits=limits) for n in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        async with asyncio.timeout(60):
            while busy.now["many"] < 2:
                await asyncio.sleep(0.02)  # sleep: the workers of the journal tell nobody
            other = await submit(address, "clerk", "one 1", tenant="one")  # another tenant is not in the way
            while busy.now["one"] < 1:
                await asyncio.sleep(0.02)  # sleep: as above
            while not any("limit 'fair' of tenant 'many'" in why for one in await told(address) for why in one.waiting):
                await asyncio.sleep(0.1)  # sleep: as above
        busy.go_on.set()
        for session_id in [*ids, other]:
            assert (await result(address, session_id, timeout=60)).completed
    finally:
        busy.go_on.set()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
    assert busy.most == Counter(many=2, one=1)


async def told(address: str) -> Any:
    from treadle import open_journal

    async with open_journal(address) as journal:
        return await list_workers(journal)


def limits_of(journal: Any, clock: Any, *limits: Limit) -> Limits:
    return Limits(journal, limits, clock)


async def test_requests_a_minute_hold_over_workers_and_go_on_when_the_minute_has_passed() -> None:
    journal, clock = MemoryJournal(), FakeClock()
    limit = Limit(name="key", requests_per_minute=3, models=["test:*"])
    one, two = limits_of(journal, clock, limit), limits_of(journal, clock, limit)
    subject = Subject(model="test:x")
    begun = [await limits._try(limit, subject) for limits in (one, two, one)]
    assert begun == [0.0, 0.0, 0.0]
    wait = await two._try(limit, subject)
    assert 55 <= wait <= 66
    clock.advance(wait - 1)
    assert await one._try(limit, subject) > 0
    clock.advance(1.5)
    assert await one._try(limit, subject) == 0
    assert await one.admit("else:y") == ()


async def test_tokens_are_counted_and_too_many_requests_slow_all_workers() -> None:
    journal, clock = MemoryJournal(), FakeClock()
    limit = Limit(name="key", tokens_per_minute=100)
    one, two = limits_of(journal, clock, limit), limits_of(journal, clock, limit)
    holding = await one.admit("m")
    await one.spent(holding, "m", 100)
    assert await two._try(limit, Subject(model="m")) > 50
    clock.advance(70)
    assert await two._try(limit, Subject(model="m")) == 0

    class Refusing(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            raise ModelUnavailable("slow down", status=429, retry_after_seconds=20)
            yield

    model = LimitedModel(Refusing([text("x")]), one)
    with pytest.raises(ModelUnavailable):
        async for _ in model.stream(None):  # type: ignore[arg-type]
            pass
    assert await two._try(limit, Subject(model=model.name)) == pytest.approx(20)
    clock.advance(21)
    assert await two._try(limit, Subject(model=model.name)) == 0


async def test_a_limit_of_each_tenant_is_counted_for_each() -> None:
    limits = limits_of(MemoryJournal(), FakeClock(), limit := Limit(name="t", requests_per_minute=1, each="tenant"))
    assert await limits._try(limit, Subject(tenant="a")) == 0
    assert await limits._try(limit, Subject(tenant="a")) > 0
    assert await limits._try(limit, Subject(tenant="b")) == 0


def test_a_limit_with_no_meaning_is_refused_in_a_sentence() -> None:
    def make() -> Agent:
        return Agent(ScriptedModel([text("x")]))

    for wrong, says in (
        ({"name": "x"}, "limits nothing"),
        ({"name": "", "sessions": 1}, "printable"),
        ({"name": "x", "sessions": 0}, "above 0"),
        ({"name": "x", "sessions": 1, "each": "day"}, "each"),
        ({"name": "x", "sessions": 1, "tenants": "acme"}, "list of strings"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            Worker("agent.db", {"clerk": make}, limits=[Limit(**wrong)])  # type: ignore[arg-type]
    twice = [Limit(name="x", sessions=1), Limit(name="x", sessions=2)]
    with pytest.raises(ConfigurationError, match="same name"):
        Worker("agent.db", {"clerk": make}, limits=twice)
