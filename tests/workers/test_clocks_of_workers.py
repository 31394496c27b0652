"""Workers and submitters whose clocks are five minutes apart: real commands, moved by `libfaketime`. Nothing waits for a clock."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.workers.test_workers import until

from treadle import open_journal
from treadle.mock import MockProvider, Turn
from treadle.workers import list_workers

LIBRARIES = sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))
AHEAD, BEHIND, RIGHT = 300, -300, 0

pytestmark = [
    pytest.mark.row("W13"),
    pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed: apt-get install faketime"),
]


async def started(folder: Path, apart: int, *words: str) -> asyncio.subprocess.Process:
    """Start a command whose clock is so many seconds ahead."""
    faked = {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME": f"{apart:+d}"} if apart else {}
    faked |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "treadle", *words, cwd=folder,
        env={**os.environ, "TREADLE_HOME": str(folder), "OPENAI_API_KEY": "sk-mock", **faked},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@asynccontextmanager
async def at_work(
    folder: Path, address: str, provider: MockProvider, apart: int, name: str = "w"
) -> AsyncIterator[asyncio.subprocess.Process]:
    words = ["--journal", address, "-m", "openai-chat:mock", "--base-url", provider.base_url, "--name", name]
    process = await started(folder, apart, "worker", "-C", str(folder), *words)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("address", "worker", "submitter"),
    [
        ("sqlite", AHEAD, BEHIND),
        pytest.param("sqlite", BEHIND, AHEAD, marks=pytest.mark.soak),
        pytest.param("postgres", BEHIND, AHEAD, marks=pytest.mark.soak),
    ],
    indirect=["address"],
)
async def test_a_task_begins_at_once_whatever_the_clocks_say(
    tmp_path: Path, address: str, worker: int, submitter: int
) -> None:
    async with MockProvider([Turn(text="done")]) as provider, at_work(tmp_path, address, provider, worker):
        submit = await started(tmp_path, submitter, "submit", "Do it", "--journal", address, "--wait")
        async with asyncio.timeout(60):
            output, complaints = await submit.communicate()
    assert (submit.returncode, output.decode()) == (0, "done\n"), complaints.decode()


@pytest.mark.soak
async def test_what_a_worker_with_another_clock_leaves_is_taken_over_and_watched_to_its_end(
    tmp_path: Path, address: str
) -> None:
    async with MockProvider([Turn(text="lost", gate="never"), Turn(text="done")]) as provider:
        submit = await started(tmp_path, RIGHT, "submit", "Do it", "--journal", address)
        session_id = (await submit.communicate())[0].decode().strip()
        async with at_work(tmp_path, address, provider, AHEAD, "ahead"):
            await provider.wait_requests(1)
            watch = await started(tmp_path, AHEAD, "sessions", "watch", session_id, "--journal", address)
        async with at_work(tmp_path, address, provider, BEHIND, "behind"), asyncio.timeout(60):
            output, complaints = await watch.communicate()
    assert watch.returncode == 0, complaints.decode()
    assert "done" in output.decode() + complaints.decode()


async def test_a_worker_whose_clock_is_not_its_databases_says_so(tmp_path: Path, postgres_url: str) -> None:
    async with (
        MockProvider([Turn(text="done")]) as provider,
        open_journal(postgres_url) as journal,
        at_work(tmp_path, postgres_url, provider, AHEAD) as worker,
    ):
        await until(lambda: list_workers(journal))
        worker.terminate()
        complaints = (await worker.communicate())[1].decode()
    assert "clock of worker w is 300 seconds ahead of the database's" in complaints
    assert "begins so much too early" in complaints
