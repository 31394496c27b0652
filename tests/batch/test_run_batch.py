"""A batch in one process: rows, scores, budgets, rate limits, and what the same call does again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, Price, allow, open_journal, open_session, tool
from treadle.batch import BatchProgress, BatchRow, BatchTask, contains, exact, read_rows, run_batch
from treadle.errors import AgentChanged, ModelRejected, ModelUnavailable
from treadle.messages import Usage
from treadle.ports import Journal, ModelRequest
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text
from treadle.workers import Limit

TASKS = [BatchTask(id=f"q{n}", task=f"double {n}", expected=str(2 * n), metadata={"n": n}) for n in range(1, 6)]


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    async with open_journal("memory:") as store:
        yield store


def _said(request: ModelRequest) -> str:
    return next(message.text for message in reversed(request.messages) if message.role == "user")


def _double(request: ModelRequest) -> Any:
    return text(str(2 * int(_said(request).split()[1])))


def _doubling(**options: Any) -> Agent:
    return Agent(ScriptedModel([_double], price=Price(input=1, output=1)), **options)


async def test_each_task_has_a_row_with_its_answer_its_score_and_its_metadata(journal: Journal, tmp_path: Path) -> None:
    summary = await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl", score=exact)

    rows = {row.id: row for row in read_rows(tmp_path / "r.jsonl")}
    assert [rows[task.id].text for task in TASKS] == ["2", "4", "6", "8", "10"]
    assert all(row.passed and row.score == 1.0 and row.metadata["n"] == int(row.id[1:]) for row in rows.values())
    assert (summary.tasks, summary.completed, summary.passed, summary.unfinished) == (5, 5, 5, 0)
    assert summary.cost == sum(row.amount for row in rows.values()) > 0


async def test_the_same_call_runs_nothing_again_with_or_without_the_results(journal: Journal, tmp_path: Path) -> None:
    agent = _doubling()
    await run_batch(agent, TASKS, journal=journal, results=tmp_path / "r.jsonl")
    before = (tmp_path / "r.jsonl").read_text().splitlines()

    await run_batch(agent, TASKS, journal=journal, results=tmp_path / "r.jsonl")
    await run_batch(agent, TASKS, journal=journal, results=tmp_path / "other.jsonl")

    assert len(agent.model.requests) == 5  # type: ignore[attr-defined]
    assert (tmp_path / "r.jsonl").read_text().splitlines() == before
    assert sorted((tmp_path / "other.jsonl").read_text().splitlines()) == sorted(before)


async def test_a_last_line_that_a_kill_has_cut_off_is_made_again(journal: Journal, tmp_path: Path) -> None:
    await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl")
    whole = (tmp_path / "r.jsonl").read_bytes()
    (tmp_path / "r.jsonl").write_bytes(whole[:-20])

    await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl")

    assert (tmp_path / "r.jsonl").read_bytes() == whole


async def test_another_name_runs_all_tasks_again(journal: Journal) -> None:
    agent = _doubling()
    await run_batch(agent, TASKS, journal=journal)
    await run_batch(agent, TASKS, journal=journal, name="again")

    assert len(agent.model.requests) == 10  # type: ignore[attr-defined]
    assert {row.group["batch"]: row.requests for row in await journal.usage(("batch",))} == {"batch": 5, "again": 5}


async def test_each_repetition_has_a_row_of_its_own(journal: Journal) -> None:
    rows: list[BatchRow] = []
    await run_batch(_doubling(), TASKS[:2], journal=journal, repeat=3, on_row=rows.append)

    assert sorted(row.key for row in rows) == [(name, n) for name in ("q1", "q2") for n in (1, 2, 3)]
    assert len({row.session_id for row in rows}) == 6


async def test_texts_and_objects_are_tasks_too(journal: Journal) -> None:
    rows: list[BatchRow] = []
    await run_batch(
        _doubling(), ["double 4", {"id": 7, "task": "double 5", "level": 2}], journal=journal, on_row=rows.append
    )

    assert {row.id: (row.text, row.metadata) for row in rows} == {"1": ("8", {}), "7": ("10", {"level": 2})}


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([BatchTask(id="a", task="x"), BatchTask(id="a", task="y")], "Two tasks have the id 'a'"),
        ([{"id": "a"}], "A task needs the field `task`"),
        ([{"id": 1.5, "task": "x"}], "The id of a task is a text or a whole number"),
        ([7], "tasks must be a list of values, each a BatchTask"),
        (["  "], "Task '1' is empty"),
    ],
)
async def test_a_wrong_task_is_refused_with_what_to_do(journal: Journal, tasks: list[Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await run_batch(_doubling(), tasks, journal=journal)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": 0}, r"concurrency=...\) is a whole number from 1 to 99,999"),
        ({"repeat": -1}, r"repeat=...\) is a whole number from 1"),
        ({"name": ""}, "name=...\\) has 1 to 200"),
        ({"total_budget": -1}, "is not negative"),
        ({"limits": [Limit(name="x", sessions=3)]}, "limits sessions"),
        ({"score": lambda task, row: 7}, "A score is a number from 0 to 1"),
    ],
)
async def test_a_wrong_option_is_refused_with_what_to_do(journal: Journal, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await run_batch(_doubling(), TASKS, journal=journal, **options)


async def test_a_task_that_has_changed_is_refused(journal: Journal, tmp_path: Path) -> None:
    await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl")
    changed = [BatchTask(id="q1", task="double 100")]

    for results in (tmp_path / "r.jsonl", None):
        with pytest.raises(ConfigurationError, match="Task 'q1' was run with another text"):
            await run_batch(_doubling(), changed, journal=journal, results=results)


async def test_an_agent_that_has_changed_is_refused(journal: Journal, tmp_path: Path) -> None:
    await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl")

    for results in (tmp_path / "r.jsonl", None):
        with pytest.raises(AgentChanged, match=r"The agent has changed since the batch 'batch' began \(model\)"):
            await run_batch(Agent(ScriptedModel([_double], name="other")), TASKS, journal=journal, results=results)


async def test_a_file_that_is_not_of_a_batch_stays_as_it_is(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("my notes\n")

    with pytest.raises(ConfigurationError, match="line 1 is not a row of a batch"):
        await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl")

    assert (tmp_path / "r.jsonl").read_text() == "my notes\n"


async def test_two_processes_do_not_write_the_same_results(journal: Journal, tmp_path: Path) -> None:
    gate, is_asked = asyncio.Event(), asyncio.Event()

    async def late(request: ModelRequest) -> Any:
        is_asked.set()
        await gate.wait()
        return text("2")

    first = asyncio.create_task(
        run_batch(Agent(ScriptedModel([late])), TASKS[:1], journal=journal, results=tmp_path / "r.jsonl")
    )
    await is_asked.wait()
    with pytest.raises(ConfigurationError, match="Another process writes the results"):
        await run_batch(_doubling(), TASKS, journal=journal, results=tmp_path / "r.jsonl")
    gate.set()
    assert (await first).completed == 1


# --- scores


async def test_a_score_may_be_a_number_a_truth_or_none_and_asynchronous(journal: Journal) -> None:
    async def score(task: BatchTask, row: BatchRow) -> float | bool | None:
        return {"q1": 0.25, "q2": True, "q3": None}.get(task.id, False)

    rows: dict[str, BatchRow] = {}
    await run_batch(_doubling(), TASKS[:4], journal=journal, score=score, on_row=lambda row: rows.update({row.id: row}))

    assert {name: (row.score, row.passed) for name, row in rows.items()} == {
        "q1": (0.25, False),
        "q2": (1.0, True),
        "q3": (None, None),
        "q4": (0.0, False),
    }


def test_exact_compares_without_white_space_and_contains_in_any_case() -> None:
    task = BatchTask(id="q", task="?", expected=42)
    row = BatchRow(id="q", task="?", status="completed", text=" 42\n")

    assert exact(task, row)
    assert not exact(BatchTask(id="q", task="?", expected="4"), row)
    assert contains(
        BatchTask(id="q", task="?", expected="paris"), BatchRow(id="q", task="?", status="", text="It is PARIS.")
    )
    assert exact(BatchTask(id="q", task="?"), row) is None


async def test_a_score_that_raises_makes_a_row_that_says_so_and_is_made_again(journal: Journal, tmp_path: Path) -> None:
    def broken(task: BatchTask, row: BatchRow) -> bool:
        raise KeyError("rubric")

    summary = await run_batch(_doubling(), TASKS[:2], journal=journal, results=tmp_path / "r.jsonl", score=broken)
    assert summary.failed == 2
    assert {row.status for row in read_rows(tmp_path / "r.jsonl")} == {"error"}

    summary = await run_batch(_doubling(), TASKS[:2], journal=journal, results=tmp_path / "r.jsonl", score=exact)
    assert (summary.tasks, summary.completed, summary.passed) == (2, 2, 2)


# --- failures


def _failing(request: ModelRequest) -> Any:
    return ValueError("no such model") if _said(request) == "double 3" else _double(request)


async def test_a_run_that_fails_has_a_row_and_the_others_go_on(journal: Journal) -> None:
    rows: list[BatchRow] = []
    agent = Agent(ScriptedModel([_failing]))
    summary = await run_batch(agent, TASKS, journal=journal, on_row=rows.append)

    assert (summary.completed, summary.failed) == (4, 1)
    assert {row.id: row.status for row in rows if row.status != "completed"} == {"q3": "error"}


async def test_with_on_error_stop_no_further_task_begins(journal: Journal) -> None:
    refused = Agent(
        ScriptedModel(
            [
                lambda request: (
                    ModelRejected("The key is wrong.", status=401) if _said(request) == "double 2" else _double(request)
                )
            ]
        )
    )
    summary = await run_batch(refused, TASKS, journal=journal, concurrency=1, on_error="stop")

    assert (summary.tasks, summary.failed, summary.unfinished, summary.ended_by) == (2, 1, 3, "error")


async def test_only_failed_continues_runs_that_were_stopped_and_replaces_their_rows(
    journal: Journal, tmp_path: Path
) -> None:
    works: list[bool] = []

    def sometimes(request: ModelRequest) -> Any:
        return (
            _double(request)
            if works or _said(request) != "double 3"
            else ModelRejected("The key is wrong.", status=401)
        )

    agent = Agent(ScriptedModel([sometimes]))
    results = tmp_path / "r.jsonl"
    assert (await run_batch(agent, TASKS, journal=journal, results=results)).failed == 1
    works.append(True)
    assert (await run_batch(agent, TASKS, journal=journal, results=results)).failed == 1

    summary = await run_batch(agent, TASKS, journal=journal, results=results, only_failed=True)

    assert (summary.tasks, summary.completed) == (5, 5)
    assert len(list(read_rows(results))) == 5


async def test_a_run_that_waits_for_a_person_continues_once_it_is_answered(journal: Journal, tmp_path: Path) -> None:
    @tool(effect="unsafe")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), text("done")]), tools=[pay])
    results = tmp_path / "r.jsonl"
    assert (await run_batch(agent, TASKS[:1], journal=journal, results=results)).paused == 1
    (row,) = read_rows(results)
    assert (row.status, row.reason) == ("paused", "approval_required")
    assert (await run_batch(agent, TASKS[:1], journal=journal, results=results)).paused == 1

    (approval,) = await journal.approvals()
    async with open_session(journal, id=row.session_id) as session:
        await session.answer(approval.id, "allow")
    assert (await run_batch(agent, TASKS[:1], journal=journal, results=results)).completed == 1
    assert [row.text for row in read_rows(results)] == ["done"]


# --- stopping


async def test_stop_begins_no_further_task_and_the_same_call_continues(journal: Journal, tmp_path: Path) -> None:
    stop = asyncio.Event()
    results = tmp_path / "r.jsonl"
    summary = await run_batch(
        _doubling(), TASKS, journal=journal, results=results, concurrency=1, stop=stop, on_row=lambda row: stop.set()
    )
    assert (summary.tasks, summary.unfinished, summary.ended_by) == (1, 4, "stop")

    assert (await run_batch(_doubling(), TASKS, journal=journal, results=results)).tasks == 5


async def test_a_cancelled_batch_continues_the_runs_that_it_had_cut_off(journal: Journal, tmp_path: Path) -> None:
    is_asked = asyncio.Event()

    async def slow_once(request: ModelRequest) -> Any:
        if not is_asked.is_set():
            is_asked.set()
            await asyncio.Event().wait()
        return _double(request)

    agent = Agent(ScriptedModel([slow_once]))
    results = tmp_path / "r.jsonl"
    running = asyncio.create_task(run_batch(agent, TASKS, journal=journal, results=results, concurrency=1))
    await is_asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    summary = await run_batch(agent, TASKS, journal=journal, results=results)

    assert (summary.tasks, summary.completed) == (5, 5)


async def test_a_total_budget_stops_the_batch_and_a_larger_one_continues_it(journal: Journal, tmp_path: Path) -> None:
    answer = Turn(text="4", usage=Usage(input_tokens=1_000_000, output_tokens=0))
    agent = Agent(ScriptedModel([answer], price=Price(input=1, output=1)))
    results = tmp_path / "r.jsonl"

    stopped = await run_batch(agent, TASKS, journal=journal, results=results, total_budget=3.5, concurrency=2)

    assert (stopped.tasks, stopped.cost, stopped.unfinished, stopped.ended_by) == (3, 3, 2, "total_budget")
    summary = await run_batch(agent, TASKS, journal=journal, results=results, total_budget=9)
    assert (summary.completed, summary.cost, summary.unfinished, summary.ended_by) == (5, 5, 0, "")
    assert [row.cost for row in await journal.usage(("batch",))] == [5]


# --- rate limits


async def test_a_rate_limit_slows_all_tasks_and_fails_none(journal: Journal) -> None:
    clock = FakeClock(auto=True)
    limited = iter([ModelUnavailable("slow down", status=429, retry_after_seconds=20)] * 2)
    asked: list[float] = []
    seen: list[BatchProgress] = []

    def reply(request: ModelRequest) -> Any:
        asked.append(clock.monotonic())
        return next(limited, None) or _double(request)

    agent = Agent(ScriptedModel([reply]))
    summary = await run_batch(agent, TASKS, journal=journal, concurrency=2, clock=clock, on_progress=seen.append)

    assert summary.completed == 5
    assert asked[0] == 0
    assert all(at >= 20 for at in asked[1:])
    assert all(at >= 40 for at in asked[2:])
    assert len(asked) == 7


async def test_a_rate_limit_is_not_a_retry_of_the_run(journal: Journal) -> None:
    clock = FakeClock(auto=True)
    errors = iter([ModelUnavailable("overloaded", status=529)] * 6)
    agent = Agent(ScriptedModel([lambda request: next(errors, None) or _double(request)]))

    summary = await run_batch(agent, TASKS[:1], journal=journal, clock=clock)

    assert (summary.completed, summary.failed) == (1, 0)
    assert max(clock.waits) >= 16


async def test_progress_says_how_far_the_batch_is(journal: Journal) -> None:
    seen: list[BatchProgress] = []
    await run_batch(_doubling(), TASKS, journal=journal, concurrency=1, on_progress=seen.append)

    assert [(one.done, one.running, one.total) for one in seen[:3]] == [(0, 1, 5), (1, 0, 5), (1, 1, 5)]
    assert str(seen[-1]).startswith("5 of 5 (100 %) done, 0 failed, 0 running, $0.0")


async def test_progress_counts_failures_of_its_own_tasks_and_not_of_others_that_the_results_hold(
    journal: Journal, tmp_path: Path
) -> None:
    model = ScriptedModel(
        [lambda request: _double(request) if _said(request) != "double 1" else ModelRejected("No.", status=400)]
    )
    places = {"journal": journal, "results": tmp_path / "r.jsonl", "concurrency": 1}
    seen: list[BatchProgress] = []
    await run_batch(Agent(model), TASKS[:2], **places, on_progress=seen.append)
    assert (seen[-1].done, seen[-1].failed) == (2, 1)

    await run_batch(Agent(model), TASKS[:3], **places, on_progress=seen.append)
    assert (seen[-1].done, seen[-1].failed) == (3, 1)
    await run_batch(Agent(model), TASKS[3:], **places, on_progress=seen.append)
    assert (seen[-1].done, seen[-1].failed) == (2, 0)


async def test_tokens_a_minute_hold_over_the_whole_batch(journal: Journal) -> None:
    limit = Limit(name="key", tokens_per_minute=1_000_000)
    summary = await run_batch(_doubling(), TASKS, journal=journal, limits=[limit])

    assert summary.completed == 5


async def test_tools_of_each_task_fail_alone_and_are_counted(journal: Journal) -> None:
    @tool(effect="unsafe")
    def divide(by: int) -> float:
        """Divide."""
        return 1 / by

    agent = Agent(ScriptedModel([lambda request: text("done") if request.messages[-1].role == "tool" else call("divide", by=0)]),
                  tools=[divide], policy=allow("divide"))  # fmt: skip
    summary = await run_batch(agent, TASKS[:3], journal=journal)

    assert summary.tool_failures == {"divide: failed": 3}
    assert summary.tool_calls == 3
