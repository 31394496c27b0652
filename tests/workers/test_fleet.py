"""Worker processes that are killed, stopped and cut off from their database: in `make soak`. How what they did is judged."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(__file__).resolve().parents[2] / "benchmarks" / "workers.py"
KILLS = os.environ.get("TREADLE_WORKER_KILLS", "2")
# One way each in which sessions are spread: `make soak` goes through all of them, for longer.

pytestmark = pytest.mark.row("N19")


async def measured(*words: str) -> dict[str, Any]:
    """Run a scenario as a person would; it ends with 1 where something was lost or done twice."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(COMMAND), *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, complaints = await process.communicate()
    assert process.returncode == 0, output.decode() + complaints.decode()
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.soak
@pytest.mark.usefixtures("postgres")
async def test_killed_workers_lose_nothing_and_do_nothing_twice() -> None:
    found = await measured("kills", "--spread", "pgqueuer", "--count", KILLS, "--workers", "2")
    assert found["completed"] == found["tasks"] > 0
    assert (found["lost"], found["duplicated"], found["acts_after_fencing"]) == (0, 0, 0)


@pytest.mark.soak
@pytest.mark.usefixtures("postgres")
async def test_a_worker_that_stood_still_for_longer_than_its_lease_does_nothing_that_is_anothers() -> None:
    found = await measured("stops", "--spread", "file", "--count", "1", "--workers", "2")
    assert found["completed"] == found["tasks"] > 0
    assert (found["lost"], found["duplicated"], found["acts_after_fencing"]) == (0, 0, 0)


@pytest.mark.soak
@pytest.mark.usefixtures("postgres")
async def test_a_database_that_is_restarted_and_killed_under_load_loses_nothing() -> None:
    found = await measured("restarts", "--spread", "postgres", "--count", "2", "--workers", "2")
    assert found["completed"] == found["tasks"] > 0
    assert (found["lost"], found["duplicated"], found["acts_after_fencing"]) == (0, 0, 0)


def test_what_a_scenario_counts_as_done_twice_lost_or_done_after_fencing() -> None:
    sys.path.insert(0, str(COMMAND.parent))
    try:
        from fleet.member import Act
        from fleet.verdict import after_fencing, judge
    finally:
        sys.path.remove(str(COMMAND.parent))
    one, two = Act(1.0, "w1", "unsafe", "s"), Act(3.0, "w2", "unsafe", "s")
    assert judge([one, two], [])["duplicated"] == 1
    assert judge([Act(1.0, "w1", "keyed", "s", "a"), Act(2.0, "w2", "keyed", "s", "b")], [])["duplicated"] == 1
    assert judge([one], [])["completed"] == 0
    assert after_fencing([one, two], [2.0], {}) == []
    assert after_fencing([one, two], [], {}) == [two]
    zombie = Act(4.0, "w1", "keyed", "s", "k")
    assert after_fencing([one, two, zombie], [2.0], {}) == [zombie]
    assert after_fencing([one, two, zombie], [2.0, 3.5], {}) == []
    assert after_fencing([one, two, zombie], [2.0], {"k": 2.5}) == [zombie]
    assert after_fencing([one, two, zombie], [2.0], {"k": 1.5}) == []  # under way when its worker was suspended
