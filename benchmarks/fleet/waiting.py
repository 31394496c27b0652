"""Scenarios of sessions that wait: for a person, for a limit, or beside a slow tenant."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
from fleet.fleet import Fleet, fleet_of, quantiles
from fleet.member import Spread
from fleet.sharing import PATIENCE_SECONDS

from treadle import open_session, submit
from treadle.events import RunResumed
from treadle.mock import MockProvider, Turn

__all__ = ["limits", "noisy", "paused"]

MINUTE = 60.0
REQUESTS_A_MINUTE = 60
SIDE_BY_SIDE = 3
ANSWERS = 20
MANY = 1000
CALM_SECONDS = 10.0
"""How long an idle worker is looked at beside many sessions."""
WAKE_SECONDS = 60.0


async def paused(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Measure an idle worker's memory beside paused sessions, and how soon an answer wakes one."""
    chance = random.Random(seed)
    async with fleet_of(spread, lease_seconds=lease_seconds) as fleet:
        await fleet.begin()
        await fleet.ready(1)
        first = await submit(fleet.journal, "asker", "Pay")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await fleet.journal.approvals():
                await asyncio.sleep(0.1)
        await asyncio.sleep(CALM_SECONDS if count >= MANY else 0.5)
        before = usage(fleet)
        ids = await multiply(fleet, first, count)
        await asyncio.sleep(CALM_SECONDS if count >= MANY else 0.5)
        idle = usage(fleet)
        took = [await answered(fleet, session_id) for session_id in chance.sample(ids, min(ANSWERS, count))]
        after = usage(fleet)
    return {
        "paused": count,
        "answered": len(took),
        "worker_memory_mb": {"with_one": before[0], "with_all": idle[0], "after_answers": after[0]},
        "idle_cpu_share": round((after[1] - before[1]) / (after[2] - before[2]), 3),
        "answer_to_resumed": quantiles(took),
    }


async def multiply(fleet: Fleet, session_id: str, count: int) -> list[str]:
    """Store as many paused sessions as if each had been run."""
    events = await fleet.journal.read(session_id)
    ids = [f"paused-{n}" for n in range(count)]
    for first in range(0, count, 100):
        some = ids[first : first + 100]
        await asyncio.gather(*[adopt(fleet, one, events) for one in some])
    return ids


async def adopt(fleet: Fleet, session_id: str, events: Any) -> None:
    own = [msgspec.structs.replace(event, session_id=session_id) for event in events]
    await fleet.journal.adopt(session_id, own, state="paused")


async def answered(fleet: Fleet, session_id: str) -> float:
    """Allow a session's call; return after how many seconds a worker had resumed its run."""
    async with open_session(fleet.journal, id=session_id) as session:
        (asked,) = session.approvals()
        at = time.time()
        await session.answer(asked.id, "allow")
    async with asyncio.timeout(WAKE_SECONDS):
        async for event in fleet.journal.follow(session_id):
            if isinstance(event, RunResumed):
                return event.at - at
    raise RuntimeError(f"Session {session_id} has ended without being resumed.")


def usage(fleet: Fleet) -> tuple[float, float, float]:
    """Return a worker's own memory in megabytes, its processor seconds, and the time."""
    (process,) = fleet.processes.values()
    status = Path(f"/proc/{process.pid}/status").read_text()
    memory = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return round(int(memory.split()[1]) / 1024, 1), (int(stat[11]) + int(stat[12])) / 100, time.monotonic()


class Counted:
    """A mock provider's answers, and when which tenant asked."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self.asked: defaultdict[str, list[float]] = defaultdict(list)
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def __call__(self, body: Any) -> Turn:
        tenant = next(one["content"] for one in body["messages"] if one["role"] == "user").split()[0]
        self.asked[tenant].append(time.time())
        self._now[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self._now[tenant])
        await asyncio.sleep(self._seconds[tenant])
        self._now[tenant] -= 1
        return Turn(text="Done.")

    def most_in_a_minute(self, tenant: str) -> int:
        """Return how many requests came at most in any 60 seconds."""
        asked = self.asked[tenant]
        return max((sum(at <= other < at + MINUTE for other in asked) for at in asked), default=0)


async def limits(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Have three tenants' tasks wait for limits, and count at the provider what came."""
    tenants = ("ada", "bob", "cyd")
    counted = Counted(dict.fromkeys(tenants, 0.3))
    both = [
        {"name": "minute", "requests_per_minute": REQUESTS_A_MINUTE, "each": "tenant"},
        {"name": "side by side", "sessions": SIDE_BY_SIDE, "each": "tenant"},
    ]
    async with (
        MockProvider(counted) as provider,
        fleet_of(spread, lease_seconds=lease_seconds, limits=both, base_url=provider.base_url) as fleet,
    ):
        await fleet.begin(workers)
        await fleet.ready(workers)
        for n in range(count * REQUESTS_A_MINUTE + 30):
            await asyncio.gather(*[submit(fleet.journal, "talker", f"{one} {n}", tenant=one) for one in tenants])
        await asyncio.sleep(count * MINUTE)
    by_tenant = {
        one: {
            "requests": len(counted.asked[one]),
            "most_in_a_minute": counted.most_in_a_minute(one),
            "most_side_by_side": counted.most[one],
        }
        for one in tenants
    }
    is_clean = all(
        one["most_in_a_minute"] <= REQUESTS_A_MINUTE and one["most_side_by_side"] <= SIDE_BY_SIDE
        for one in by_tenant.values()
    )
    return {
        "limit": {"requests_a_minute": REQUESTS_A_MINUTE, "side_by_side": SIDE_BY_SIDE},
        "by_tenant": by_tenant,
        "is_clean": is_clean,
    }


async def noisy(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Measure one tenant's tasks alone, and beside a tenant with many slow ones, by turns."""
    counted = Counted({"calm": 0.05, "slow": 3.0})
    fair = [{"name": "fair", "sessions": 6, "each": "tenant"}]
    took: dict[bool, list[float]] = {False: [], True: []}
    async with (
        MockProvider(counted) as provider,
        fleet_of(spread, lease_seconds=lease_seconds, limits=fair, base_url=provider.base_url) as fleet,
    ):
        await fleet.begin(workers)
        await fleet.ready(workers)
        for is_beside in (False, True) * 2:
            slow = [await submit(fleet.journal, "talker", f"slow {n}", tenant="slow") for n in range(count * is_beside)]
            await asyncio.sleep(2 * is_beside)
            for n in range(count // 2):
                took[is_beside].append(await begun_after(fleet, counted, f"calm {n}"))
            for session_id in slow:
                async with open_session(fleet.journal, id=session_id) as session:
                    await session.cancel()
            await asyncio.sleep(4 * is_beside)
    alone, beside = quantiles(took[False]), quantiles(took[True])
    return {
        "tasks": count,
        "alone": alone,
        "beside_a_slow_tenant": beside,
        "p95_ratio": round(beside["p95_ms"] / alone["p95_ms"], 2),
    }


async def begun_after(fleet: Fleet, counted: Counted, task: str) -> float:
    """Submit a task; return after how many seconds its request came."""
    before, at = len(counted.asked["calm"]), time.time()
    await submit(fleet.journal, "talker", task, tenant="calm")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(counted.asked["calm"]) <= before:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.15)
    return counted.asked["calm"][-1] - at
