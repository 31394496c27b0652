"""Batches of OpenAI and Anthropic: submitted once, whatever ends the process, and answered at half the price."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, Price, allow, resolve_model, tool
from treadle.batch import exact, read_rows, run_batch
from treadle.batch.vendor import VendorBatches, VendorModel
from treadle.messages import Usage
from treadle.testing import FakeClock, MockProvider, ScriptedModel, Turn, call

DIALECTS = ("openai", "openai-chat", "anthropic")
TASKS = [{"id": f"q{n}", "task": f"Say {n}", "expected": str(n)} for n in range(5)]
USAGE = Usage(input_tokens=1_000_000, output_tokens=1_000_000)


def said(body: Any) -> str:
    """Return the last word of the task."""
    last = (body.get("messages") or body["input"])[-1]["content"]
    return str(last if isinstance(last, str) else last[-1]["text"]).split()[-1]


def answer(body: Any) -> Turn:
    return Turn(text=said(body), usage=USAGE)


def agent_at(provider: MockProvider, dialect: str, **options: Any) -> Agent:
    model = resolve_model(f"{dialect}:mock", base_url=provider.base_url, api_key="k", price=Price(input=1, output=3))
    return Agent(model, **options)


def submissions(provider: MockProvider) -> int:
    return sum(one.method == "POST" and one.path.endswith("/batches") for one in provider.requests)


async def run(provider: MockProvider, dialect: str, folder: Path, tasks: Any = TASKS, **options: Any) -> Any:
    agent = options.pop("agent", None) or agent_at(provider, dialect)
    return await run_batch(
        agent,
        tasks,
        journal=folder / "r.db",
        results=folder / "r.jsonl",
        score=exact,
        concurrency=100,
        vendor_batch=True,
        **options,
    )


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_all_tasks_are_one_batch_at_half_the_price(dialect: str, tmp_path: Path) -> None:
    async with MockProvider(answer) as provider:
        summary = await run(provider, dialect, tmp_path)

    assert (summary.completed, summary.passed, summary.cost) == (5, 5, 10)
    assert submissions(provider) == 1
    assert provider.refusals == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_batch_that_was_submitted_before_a_kill_is_collected_and_not_submitted_again(
    dialect: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "r.batches.jsonl"
    async with MockProvider(answer) as provider:
        running = asyncio.create_task(run(provider, dialect, tmp_path))
        while not ledger.exists() or ledger.read_text().count("\n") < 2:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})

        summary = await run(provider, dialect, tmp_path)

    assert (summary.passed, submissions(provider)) == (5, 1)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_batch_that_arrived_while_the_process_died_is_found_at_the_vendor(dialect: str, tmp_path: Path) -> None:
    ledger = tmp_path / "r.batches.jsonl"
    async with MockProvider(answer) as provider:
        await run(provider, dialect, tmp_path, TASKS[:1])  # another batch, which is not taken for it
        running = asyncio.create_task(run(provider, dialect, tmp_path))
        while ledger.read_text().count("\n") < 4:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        lines = ledger.read_text().splitlines(keepends=True)
        ledger.write_text("".join(lines[:3]) + lines[3][:9])  # killed before its id was written

        summary = await run(provider, dialect, tmp_path)

    assert (summary.passed, submissions(provider)) == (5, 2)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_batch_that_never_arrived_is_submitted(dialect: str, tmp_path: Path) -> None:
    ledger = tmp_path / "r.batches.jsonl"
    async with MockProvider(answer) as provider:
        running = asyncio.create_task(run(provider, dialect, tmp_path))
        while not ledger.exists() or ledger.read_text().count("\n") < 2:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
    ledger.write_text(ledger.read_text().splitlines(keepends=True)[0])

    async with MockProvider(answer) as provider:  # a vendor that has never heard of it
        agent = agent_at(provider, dialect)
        summary = await run(provider, dialect, tmp_path, agent=agent)

    assert (summary.passed, submissions(provider)) == (5, 1)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_that_fails_fails_its_task_alone_and_only_failed_asks_again(
    dialect: str, tmp_path: Path
) -> None:
    refused = [True]

    def reply(body: Any) -> Turn:
        return Turn(status=400, error="No.") if said(body) == "3" and refused else answer(body)

    async with MockProvider(reply) as provider:
        first = await run(provider, dialect, tmp_path)
        refused.clear()
        second = await run(provider, dialect, tmp_path, only_failed=True)

    assert (first.passed, first.failed) == (4, 1)
    assert (second.passed, second.failed) == (5, 0)
    assert submissions(provider) == 2


async def test_each_step_of_all_tasks_is_one_batch(tmp_path: Path) -> None:
    @tool(effect="read")
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    def reply(body: Any) -> Any:
        last = body["messages"][-1]
        return last["content"] if last["role"] == "tool" else call("double", number=int(said(body)))

    async with MockProvider(reply) as provider:
        agent = agent_at(provider, "openai-chat", tools=[double], policy=allow("double"))
        await run(provider, "openai-chat", tmp_path, agent=agent)

    assert [row.text for row in sorted(read_rows(tmp_path / "r.jsonl"), key=lambda row: row.id)] == list("02468")
    assert submissions(provider) == 2


async def test_the_file_names_each_request_and_its_batch(tmp_path: Path) -> None:
    async with MockProvider(answer) as provider:
        await run(provider, "anthropic", tmp_path)

    lot, batch = map(json.loads, (tmp_path / "r.batches.jsonl").read_text().splitlines())
    assert len(lot["requests"]) == 5
    assert (batch["lot"], batch["batch"]) == (lot["lot"], "msgbatch_1")


async def test_what_cannot_be_batched_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Vendor batches need a model of openai:, openai-chat:, anthropic:"):
        await run_batch(
            Agent(ScriptedModel(["x"])), ["a"], journal="memory:", results=tmp_path / "r", vendor_batch=True
        )
    with pytest.raises(ConfigurationError, match="needs the agent itself, and results="):
        await run_batch(Agent(ScriptedModel(["x"])), ["a"], journal="memory:", vendor_batch=True)


async def test_what_was_gathered_is_submitted_while_another_task_waits_for_something_else(tmp_path: Path) -> None:
    clock = FakeClock()
    batches = VendorBatches(tmp_path / "r.batches.jsonl", lambda: 2, clock)  # and one of the two never asks
    async with MockProvider(["done"]) as provider, batches.open():
        model = resolve_model("anthropic:mock", base_url=provider.base_url, api_key="k")
        asked = asyncio.create_task(Agent(VendorModel(model, batches)).run("Go"))
        await clock.wait_waits(1)
        assert submissions(provider) == 0

        clock.advance(5)

        assert (await asked).text == "done"
