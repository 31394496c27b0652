"""Batches that are killed: the same command continues, does nothing twice, and ends with one row a task."""

import asyncio
import random
import shutil
import subprocess
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from treadle import open_journal
from treadle.batch import read_rows
from treadle.testing import MockProvider

AGENT = Path(__file__).with_name("payments.py")


def _begin(treadle: Any, tasks: int) -> Path:
    """Write the tasks, and return the ledger."""
    (treadle.folder / "tasks.jsonl").write_text(
        "".join(f'{{"id": "t{n}", "task": "invoice {n}"}}\n' for n in range(tasks))
    )
    shutil.copy(AGENT, treadle.folder / "payments.py")
    ledger = treadle.folder / "ledger.txt"
    treadle.environment["LEDGER"] = str(ledger)
    return Path(ledger)


_COMMAND = ("batch", "tasks.jsonl", "--agent", "payments.py", "-o", "results.jsonl")


def _killed_after(treadle: Any, payments: int, *more: str) -> None:
    """Run the batch until so many more payments were made, and kill it."""
    process = treadle.start(*_COMMAND, *more)
    while payments:
        line = process.stderr.readline()
        assert line, "it ended before it was killed"
        payments -= b"paid" in (line if isinstance(line, bytes) else line.encode())
    process.kill()
    process.communicate(60)


def _check(treadle: Any, ledger: Path, tasks: int, journal: str) -> None:
    rows = list(read_rows(treadle.folder / "results.jsonl"))
    assert Counter(row.id for row in rows) == Counter(f"t{n}" for n in range(tasks))
    assert all(row.status == "completed" for row in rows)
    paid = Counter(ledger.read_text().splitlines())
    assert max(paid.values()) == 1
    assert sum((row.amount for row in rows), Decimal(0)) == asyncio.run(_cost(journal))


async def _cost(journal: str) -> Decimal:
    async with open_journal(journal) as store:
        return sum((row.cost for row in await store.usage(("batch",))), Decimal(0))


def test_a_killed_batch_continues_with_the_same_command_and_pays_nothing_twice(treadle: Any) -> None:
    ledger = _begin(treadle, 24)
    for payments in (5, 9):
        _killed_after(treadle, payments)

    treadle(*_COMMAND, code=0)

    _check(treadle, ledger, 24, str(treadle.folder / "results.db"))


@pytest.mark.soak
def test_2000_tasks_that_are_killed_12_times_at_random_have_one_row_each_and_pay_nothing_twice(treadle: Any) -> None:
    ledger = _begin(treadle, 2000)
    for _ in range(12):
        _killed_after(treadle, random.randint(1, 150), "--concurrency", "16")

    treadle(*_COMMAND, "--concurrency", "16", code=0, is_apart=True)

    _check(treadle, ledger, 2000, str(treadle.folder / "results.db"))


def _with_killed_workers(treadle: Any, url: str, tasks: int, kills: int) -> None:
    """Run a batch by workers that are killed, and so is the process that collects."""
    ledger = _begin(treadle, tasks)
    workers = [_worker(treadle, url) for _ in range(4)]
    batch = (
        *_COMMAND[:2],
        "--workers",
        "--agent",
        "accountant",
        "-o",
        "results.jsonl",
        "--journal",
        url,
        "--concurrency",
        "64",
    )
    collector = treadle.start(*batch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for n in range(kills):
        victim = workers.pop(0)
        for _ in range(random.randint(1, tasks // (2 * kills))):
            victim.stderr.readline()
        victim.kill()
        victim.communicate(60)
        workers.append(_worker(treadle, url))
        if n % 3 == 1:
            collector.kill()
            collector.wait()
            collector = treadle.start(*batch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    readers = list[threading.Thread]()
    for worker in workers:  # one whose words nobody reads stops when the pipe is full
        readers.append(threading.Thread(target=worker.stderr.read, daemon=True))
        readers[-1].start()
    assert collector.wait(600) == 0
    for worker, reader in zip(workers, readers, strict=True):
        worker.terminate()
        worker.wait(60)
        reader.join()
        worker.stderr.close()
    _check(treadle, ledger, tasks, url)


def _worker(treadle: Any, url: str) -> Any:
    return treadle.start(
        "worker", "--agents", "payments.py", "--journal", url, "--concurrency", "4", stdout=subprocess.DEVNULL
    )


@pytest.mark.soak
def test_2000_tasks_over_four_workers_that_are_killed_12_times_have_one_row_each_and_pay_nothing_twice(
    treadle: Any, postgres_url: str
) -> None:
    _with_killed_workers(treadle, postgres_url, 2000, 12)


async def _with_vendor_batches(treadle: Any, model: str, tasks: int, kills: list[int]) -> int:
    """Run a batch at a vendor that is killed after so many requests each time. Return how many batches the vendor got."""
    _begin(treadle, tasks)
    async with MockProvider(["done"]) as provider:
        model_options = ("-m", f"{model}:mock", "--base-url", provider.base_url)
        command = ("batch", "tasks.jsonl", *model_options, "--vendor-batch", "-o", "results.jsonl")
        treadle.environment |= {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
        for requests in kills:
            process = treadle.start(*command)
            ended = asyncio.create_task(asyncio.to_thread(process.communicate, timeout=100))
            asked = asyncio.create_task(provider.wait_requests(len(provider.requests) + requests))
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)  # it may be over before
            asked.cancel()
            process.kill()
            await ended
        process = treadle.start(*command)
        _, said = await asyncio.to_thread(process.communicate, timeout=100)
        assert process.returncode == 0, said
        assert provider.refusals == []
        rows = list(read_rows(treadle.folder / "results.jsonl"))
        assert Counter(row.id for row in rows) == Counter(f"t{n}" for n in range(tasks))
        assert all(row.text == "done" for row in rows)
        return sum(one.method == "POST" and one.path.endswith("/batches") for one in provider.requests)


@pytest.mark.parametrize("model", ["openai", "anthropic"])
async def test_a_batch_at_a_vendor_that_is_killed_is_submitted_once(treadle: Any, model: str) -> None:
    assert await _with_vendor_batches(treadle, model, 12, [1, 2, 3]) == 1


@pytest.mark.soak
@pytest.mark.parametrize("model", ["openai", "openai-chat", "anthropic"])
async def test_a_batch_of_500_at_a_vendor_that_is_killed_12_times_at_random_is_submitted_once(
    treadle: Any, model: str
) -> None:
    kills = [random.randint(1, 3) for _ in range(12)]
    assert await _with_vendor_batches(treadle, model, 500, kills) == 1
