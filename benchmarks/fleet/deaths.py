"""Scenarios in which workers or the database die under load: nothing may be lost, nothing done twice."""

import asyncio
import random
import signal
import time
from typing import Any

from fleet.fleet import Feeding, Fleet, fleet_of
from fleet.member import Spread
from fleet.verdict import verdict

__all__ = ["are_followed", "is_clean", "kills", "restarts", "stops"]

BACKLOG = 24


async def kills(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Kill workers with SIGKILL, each replaced at once."""
    chance, deaths = random.Random(seed), list[tuple[float, str]]()
    async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.1) as fleet:
        async with Feeding(fleet, "payer", backlog=BACKLOG) as feeding:
            await fleet.begin(workers)
            await fleet.ready(workers)
            for _ in range(count):
                await progress(fleet, chance)
                name = chance.choice(await fleet.at_work())
                deaths.append((time.time(), name))
                await fleet.kill(name)
                await fleet.begin()
        return {"kills": count, **await conclude(fleet, feeding, deaths)}


async def stops(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Stop workers with SIGSTOP for longer than their lease, and let them continue: they must notice that they are fenced."""
    chance, deaths = random.Random(seed), list[tuple[float, str]]()
    async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.3) as fleet:
        async with Feeding(fleet, "payer", backlog=BACKLOG) as feeding:
            await fleet.begin(workers)
            await fleet.ready(workers)
            for _ in range(count):
                await progress(fleet, chance)
                name = chance.choice(await fleet.at_work())
                deaths.append((time.time(), name))
                fleet.signal(name, signal.SIGSTOP)
                await asyncio.sleep(lease_seconds * chance.uniform(1.5, 3))
                fleet.signal(name, signal.SIGCONT)
        return {"stops": count, **await conclude(fleet, feeding, deaths)}


async def restarts(spread: Spread, count: int, workers: int, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Restart the database under load: by turns in order, and killed."""
    if spread == "file":
        raise SystemExit("A journal in a file has no server to restart: --spread postgres, or pgqueuer.")
    chance = random.Random(seed)
    async with fleet_of(spread, lease_seconds=lease_seconds, seconds=0.1) as fleet:
        assert fleet.server is not None
        async with Feeding(fleet, "payer", backlog=BACKLOG) as feeding:
            await fleet.begin(workers)
            await fleet.ready(workers)
            for number in range(count):
                await progress(fleet, chance)
                await asyncio.to_thread(fleet.server.crash if number % 2 else fleet.server.stop)
                await asyncio.sleep(chance.uniform(0, 1.5 * lease_seconds))
                await asyncio.to_thread(fleet.server.restart)
        return {"restarts": count, **await conclude(fleet, feeding, [])}


async def progress(fleet: Fleet, chance: random.Random) -> None:
    """Return when the fleet has done a few more things."""
    wanted = len(fleet.look()) + chance.randint(4, 30)
    await fleet.until(lambda acts: len(acts) >= wanted, 120)


async def conclude(fleet: Fleet, feeding: Feeding, deaths: list[tuple[float, str]]) -> dict[str, Any]:
    """Let the fleet finish what was submitted, and say what became of it."""
    begun = time.monotonic()
    try:
        await fleet.until(lambda acts: feeding.ids <= {act.session for act in acts if act.what == "end"}, 180)
        await settled(fleet)
    except TimeoutError:
        pass  # the counts say what is missing
    found = await verdict(fleet, feeding.ids, deaths)
    found["is_clean"] = is_clean(found) and are_followed(len(deaths), found["takeovers"]["count"])
    return {**found, "seconds_to_finish": round(time.monotonic() - begun, 1)}


async def settled(fleet: Fleet) -> None:
    """Return when no session is under way or waits any more."""
    from treadle.errors import JournalError
    from treadle.ports import SessionFilter

    async with asyncio.timeout(60):
        while True:
            try:
                if not await fleet.journal.sessions(SessionFilter(run_statuses=("queued", "running", "paused"))):
                    return
            except JournalError:
                pass
            await asyncio.sleep(0.2)


def are_followed(deaths: int, takeovers: int) -> bool:
    """Whether others continued what workers left that died or stood still. Of a few, none may have had a session."""
    return takeovers >= deaths // 3


def is_clean(found: dict[str, Any]) -> bool:
    """Whether nothing was lost or done twice."""
    return not (found["lost"] or found["duplicated"] or found["acts_after_fencing"])
