"""Programs that are not async: sessions, approvals, streams and other processes, over the one loop in the background."""

import asyncio
import multiprocessing
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle import Agent, ConfigurationError, Tool, open_session, submit, sync, tool
from treadle.testing import ScriptedModel, call, text
from treadle.workers import follow


def paying() -> tuple[Tool, list[int]]:
    paid: list[int] = []

    @tool(effect="keyed")
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    return pay, paid


def agent_with(pay: Tool) -> Agent:
    return Agent(ScriptedModel([call("pay", amount=7), text("Done.")]), tools=[pay], name="desk")


def test_a_plain_program_is_asked_answers_resumes_and_reads_what_happened(tmp_path: Path) -> None:
    pay, paid = paying()
    agent, place = agent_with(pay), tmp_path / "a.db"

    with sync.opened(open_session(place, id="7")) as session:
        paused = agent.run_sync("Pay 7", session=session)
        assert (paused.reason, paid) == ("approval_required", [])
    with sync.opened(open_session(place, id="7")) as session:
        (approval,) = sync.wait(session.approvals())
        sync.wait(session.answer(approval.id, "allow"))
        result = agent.resume_sync(session)

    assert (result.text, paid) == ("Done.", [7])
    types = [event.type for event in sync.each(follow(place, "7"))]
    assert (types[0], types[-1], types.count("run.started")) == ("run.started", "run.finished", 1)


def test_threads_share_the_loop_and_each_has_its_session(tmp_path: Path) -> None:
    def ask(number: int) -> str:
        with sync.opened(open_session(tmp_path / "a.db", id=str(number))) as session:
            return Agent(ScriptedModel([text(f"Answer {number}")])).run_sync("go", session=session).text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(16))) == [f"Answer {number}" for number in range(16)]
    assert sum(thread.name == "treadle-loop" for thread in threading.enumerate()) == 1


def test_the_text_of_a_run_is_read_as_it_comes() -> None:
    with sync.opened(Agent(ScriptedModel([text("Good morning.")])).stream("Greet")) as run:
        pieces = list(sync.each(run.text()))

    assert "".join(pieces) == run.result.text == "Good morning."


async def test_in_a_running_loop_one_sentence_says_what_to_write() -> None:
    agent = Agent(ScriptedModel([text("x")]))

    with pytest.raises(RuntimeError, match=r"in a notebook write `await`, such as `await agent\.run\(\.\.\.\)`"):
        agent.run_sync("go")
    with pytest.raises(RuntimeError, match="would block"), sync.opened(open_session("memory:")):
        pass


def _answer_in_a_fork(place: str, answers: "multiprocessing.SimpleQueue[str]") -> None:
    with sync.opened(open_session(place, id="child")) as session:
        answers.put(Agent(ScriptedModel([text("From the child.")])).run_sync("go", session=session).text)


def test_a_forked_worker_has_a_loop_of_its_own(tmp_path: Path) -> None:
    place = str(tmp_path / "a.db")
    assert Agent(ScriptedModel([text("Warm.")])).run_sync("go").text == "Warm."
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    child = context.Process(target=_answer_in_a_fork, args=(place, answers))
    child.start()
    child.join()

    assert (child.exitcode, answers.get()) == (0, "From the child.")


def test_a_task_is_submitted_without_a_loop(tmp_path: Path) -> None:
    session_id = sync.wait(submit(tmp_path / "a.db", "desk", "Pay 7"))

    with sync.opened(open_session(tmp_path / "a.db", id=session_id, must_exist=True)) as session:
        assert session.state.run_status == "queued"


class Lost(Exception):
    pass


@asynccontextmanager
async def kept(seen: list[str]) -> AsyncIterator[str]:
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(60):  # a time limit belongs to the task that set it
            yield "it"
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        seen.append("same task" if task is asyncio.current_task() else "another task")


@pytest.mark.parametrize("error", [Lost, KeyboardInterrupt, StopIteration, SystemExit])
def test_what_ends_the_block_ends_what_was_opened_in_its_own_task(error: type[BaseException]) -> None:
    seen: list[str] = []

    with pytest.raises(error), sync.opened(kept(seen)):
        raise error

    assert seen == ["Lost" if error is Lost else "CancelledError", "same task"]
    assert Agent(ScriptedModel([text("The loop lives.")])).run_sync("go").text == "The loop lives."


def test_what_is_not_asynchronous_is_refused_with_what_is() -> None:
    with pytest.raises(ConfigurationError, match="awaitable must be an Awaitable; got 3"):
        sync.wait(3)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match="items must be an AsyncIterable"):
        sync.each([1])  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match="manager must be an AbstractAsyncContextManager"):
        sync.opened("a.db")  # type: ignore[arg-type]  # wrong on purpose
