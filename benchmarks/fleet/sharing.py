"""Scenarios of work that is shared: evenly, fast, and fairly."""

import asyncio
import time
from collections import Counter
from typing import Any

from fleet.fleet import Fleet, fleet_of, quantiles
from fleet.member import Spread

from treadle import submit
from treadle.workers import result

__all__ = ["fairness", "latency", "share", "throughput"]

PATIENCE_SECONDS = 300.0


async def share(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Count which worker ends how many of equal tasks."""
    async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.5) as fleet:
        await fleet.begin(workers)
        await fleet.ready(workers)
        await submit_all(fleet, "clerk", count)
        await ended(fleet, count)
    done = Counter(act.worker for act in fleet.acts if act.what == "end")
    equal = count / workers
    apart = max(abs(done[f"w{n + 1}"] - equal) for n in range(workers)) / equal
    return {"tasks": count, "by_worker": dict(sorted(done.items())), "furthest_from_equal": round(apart, 3)}


async def latency(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Measure from the call of submit to the first request, one task at a time, on idle workers."""
    begun: dict[str, float] = {}
    async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.0) as fleet:
        await fleet.begin(workers)
        await fleet.ready(workers)
        for n in range(count + 2):
            at = time.time()
            session_id = await submit(fleet.journal, "clerk", f"Task {n}")
            begun[session_id] = at
            await result(fleet.journal, session_id, timeout=PATIENCE_SECONDS)
            await asyncio.sleep(0.2)  # the workers are idle again
            fleet.look()
    took = [act.at - begun[act.session] for act in fleet.acts if act.what == "ask"]
    return {"tasks": count, "submit_to_first_request": quantiles(took[2:])}


async def fairness(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Measure how long another tenant's single task waits while one tenant's many are worked off."""
    async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.05) as fleet:
        await submit_all(fleet, "clerk", count, tenant="many")
        await fleet.begin(workers)
        await fleet.until(lambda acts: sum(act.what == "ask" for act in acts) >= min(20, count), PATIENCE_SECONDS)
        at = time.time()
        one = await submit(fleet.journal, "clerk", "One", tenant="one")
        await fleet.until(lambda acts: any(act.session == one for act in acts), PATIENCE_SECONDS)
    asked = {act.session: act.at for act in fleet.acts if act.what == "ask"}
    before = sum(at < other < asked[one] for other in asked.values())
    return {"tasks": count, "waited_ms": round((asked[one] - at) * 1000, 1), "begun_before_it": before}


async def throughput(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Measure tasks a second for 1, 2, 4 ... workers, and what the database does for each event."""
    rows, size = [], 1
    while size <= workers:
        async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.0, concurrency=8) as fleet:
            await fleet.begin(size)
            await fleet.ready(size)
            await submit_all(fleet, "clerk", count)
            await ended(fleet, count)
            await fleet.end()
            await fleet.journal.close()
            asked = [act.at for act in fleet.acts if act.what == "ask"]
            seconds = max(act.at for act in fleet.acts) - min(asked)
            rows.append({"workers": size, "tasks_a_second": round(count / seconds, 1), **database_work(fleet, count)})
        size *= 2
    return {"tasks": count, "rows": rows}


def database_work(fleet: Fleet, count: int) -> dict[str, Any]:
    """Return what PostgreSQL counted: all connections have ended, and have handed in their counts."""
    if fleet.server is None:
        return {}
    with fleet.server.connect("public") as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        words = "SELECT active_time, xact_commit FROM pg_stat_database WHERE datname = current_database()"
        active, commits = connection.execute(words).fetchone()
    with fleet.server.connect("journal_1") as connection:
        events = connection.execute("SELECT count(*) FROM event").fetchone()[0]
    return {
        "events_a_task": round(events / count, 1),
        "database_ms_an_event": round(active / events, 3),
        "commits_an_event": round(commits / events, 2),
    }


async def submit_all(fleet: Fleet, agent: str, count: int, *, tenant: str = "") -> list[str]:
    """Submit tasks as fast as the journal takes them."""
    ids: list[str] = []
    for first in range(0, count, 200):
        some = [submit(fleet.journal, agent, f"Task {n}", tenant=tenant) for n in range(first, min(count, first + 200))]
        ids += await asyncio.gather(*some)
    return ids


async def ended(fleet: Fleet, count: int) -> None:
    """Return when so many tasks have ended."""
    await fleet.until(lambda acts: sum(act.what == "end" for act in acts) >= count, PATIENCE_SECONDS)
