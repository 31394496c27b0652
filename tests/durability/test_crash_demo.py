"""Treadle's own rows of the crash demo's table, on one kill each. The rivals' are measured by hand: they need environments."""

import asyncio
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "benchmarks" / "crash" / "run.py"


@pytest.mark.soak  # the same kills as in `test_crash_points.py`, with the words of the demo
async def test_killed_around_a_payment_treadle_never_pays_twice_and_tells_what_is_so() -> None:
    demo = await asyncio.create_subprocess_exec(
        sys.executable, str(DEMO), "--kills", "1", "--peers", "treadle_peer",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, complaints = await demo.communicate()

    assert demo.returncode == 0, complaints.decode()
    assert rows(output.decode()) == [
        "| Treadle | before it paid | 1 | 1 | 1 | 0 | 0 | 0 | unknown 1 | 0 |",
        "| Treadle | after it paid | 1 | 1 | 0 | 1 | 0 | 0 | unknown 1 | 0 |",
        "| Treadle, tool with a `check` | before it paid | 1 | 1 | 0 | 1 | 0 | 0 | paid 1 | 0 |",
        "| Treadle, tool with a `check` | after it paid | 1 | 1 | 0 | 1 | 0 | 0 | paid 1 | 0 |",
    ]


def rows(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("| Treadle")]
