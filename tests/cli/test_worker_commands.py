"""The commands of workers, as a person types them: limits over all workers, wrong ones, and an agent that nobody has."""

import asyncio
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.workers.test_worker_limits import told
from tests.workers.test_workers import until, working

from treadle import ConfigurationError, open_journal, submit
from treadle.cli.commands.workers import _limit  # the reader of one flag, without a process for each value
from treadle.cli.exits import UsageError
from treadle.mock import MockProvider, Turn
from treadle.testing import call
from treadle.workers import Limit, result

RAW = Path(__file__).parents[1] / "toolsets/mcp_raw_server.py"

pytestmark = pytest.mark.row("W13")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("fair sessions=20 each=tenant", Limit(name="fair", sessions=20, each="tenant")),
        (
            "key-1 requests=500 tokens=200000 models=openai-chat:*,x tenants=a agents=b,c",
            Limit(
                name="key-1", requests_per_minute=500, tokens_per_minute=200_000,
                models=["openai-chat:*", "x"], tenants=["a"], agents=["b", "c"],
            ),
        ),
    ],
)  # fmt: skip
def test_words_are_a_limit(words: str, limit: Limit) -> None:
    assert _limit(words) == limit


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("fair sessions=0", "sessions= is a whole number above 0; got '0'"),
        ("fair sessions=many", "whole number above 0; got 'many'"),
        ("fair requests=-5", "whole number above 0"),
        ("fair tokens=1.5", "whole number above 0"),
        ("fair sessions=٣", "whole number above 0"),
        ("fair sessions=", "'sessions=' is invalid"),
        ("fair sessions", "'sessions' is invalid"),
        ("fair speed=4", "'speed=4' is invalid. After its name a limit has some of sessions="),
        ("fair sessions=2 sessions=3", "'sessions=3' is invalid"),
    ],
)
def test_words_that_are_none_are_refused_in_a_sentence(words: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        _limit(words)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (["fair sessions=2", "fair sessions=3"], "the same name"),
        (["fair sessions=two"], "whole number"),
    ],
)
def test_a_worker_with_a_wrong_limit_ends_before_it_begins(
    treadle: Any, tmp_path: Path, limits: list[str], says: str
) -> None:
    words = [word for limit in limits for word in ("--limit", limit)]
    ended = treadle("worker", *at(tmp_path), "-m", "openai-chat:mock", *words)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert not (tmp_path / "agent.db").exists()


async def test_a_limit_of_the_command_line_holds(treadle: Any, tmp_path: Path) -> None:
    address = str(tmp_path / "agent.db")
    async with MockProvider([Turn(text="done", gate="later")]) as provider:
        for n in range(3):
            await submit(address, "default", f"Task {n}", tenant="acme")
        words = ["worker", *at(tmp_path), "-C", str(tmp_path), *treadle.served(provider)]
        worker = treadle.start(
            *words, "--limit", "fair sessions=1 each=tenant", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await provider.wait_requests(1)
            while not any("limit 'fair' of tenant 'acme'" in why for one in await told(address) for why in one.waiting):
                pass
            assert len(provider.requests) == 1
        finally:
            worker.kill()
            worker.wait()


async def test_a_worker_starts_an_mcp_server_once_for_all_tasks_but_those_of_tenants(
    treadle: Any, tmp_path: Path
) -> None:
    address, calls = str(tmp_path / "agent.db"), Turn(calls=(call("mcp__raw__echo", text="x"),))
    treadle("mcp", "add", "raw", "--", sys.executable, "-S", "-E", str(RAW), str(tmp_path), "", code=0)
    async with MockProvider([calls, "done"] * 3) as provider, open_journal(address) as journal:
        words = [*at(tmp_path), "-C", str(tmp_path), *treadle.served(provider), "--tools", "mcp"]
        worker = treadle.start(
            "worker", *words, "--allow", "mcp__raw__echo", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for tenant in ("", "", "acme"):
            end = await result(journal, await submit(journal, "default", "Echo it", tenant=tenant))
            assert end.text == "done"
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 60) == 0
    assert provider.requests[1].body["messages"][-1]["content"].count("x") >= 1
    log = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] for line in log].count("started") == 2
    assert log[-1] == "end of input"


async def test_a_task_for_an_agent_that_no_worker_has_is_stored_and_reported(treadle: Any, tmp_path: Path) -> None:
    address = str(tmp_path / "agent.db")
    words = ["submit", "Do it", "--journal", address, "--agent", "nobody"]
    async with working(address):
        await until(lambda: told(address))
        submitted = await asyncio.to_thread(treadle, *words)
    assert submitted.returncode == 0
    assert submitted.stdout.startswith("s_")
    assert "No running worker has the agent 'nobody' (known: clerk): the task waits" in submitted.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("import nothing_like_this", "line 1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("def (:", "line 1: SyntaxError"),
        ("x = 1", "holds no agent"),
        ("def make():\n    raise OSError('no key')\nAGENTS = {'clerk': make}", "'clerk' failed: OSError: no key ("),
        ("AGENTS = {'clerk': lambda: 5}", "'clerk' returned 5"),
    ],
)
def test_a_worker_whose_agents_cannot_be_made_says_why_and_loses_no_task(
    treadle: Any, tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "agents.py").write_text(content)
    submitted = treadle("submit", "Do it", *at(tmp_path), "--agent", "clerk")
    assert submitted.returncode == 0
    ended = treadle("worker", *at(tmp_path), "--agents", "agents.py")
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "bug in Treadle" not in ended.stderr
    assert "queued" in treadle("sessions", *at(tmp_path)).stdout


def test_what_cannot_be_submitted_is_refused_and_a_key_with_another_task_is_told(treadle: Any, tmp_path: Path) -> None:
    for words, says in (
        (["--agent", ""], "--agent must be the name of an agent"),
        (["--at", "soon"], "--at: write a time such as 2026-"),
        (["--priority", "1.5"], "whole number"),
        (["--tenant", "\udcff"], "tenant"),
    ):
        refused = treadle("submit", "Do it", *at(tmp_path), *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert says in refused.stderr
    first = treadle("submit", "Pay", *at(tmp_path), "--key", "k")
    again = treadle("submit", "Pay", *at(tmp_path), "--key", "k")
    other = treadle("submit", "Refund", *at(tmp_path), "--key", "k")
    assert first.stdout == again.stdout == other.stdout
    assert "another task" not in again.stderr
    assert "The key 'k' was already used for another task, which stands: 'Pay'" in other.stderr


@pytest.fixture
def treadle(treadle: Any) -> Any:
    treadle.environment["OPENAI_API_KEY"] = "sk-mock"
    return treadle


def at(folder: Path) -> list[str]:
    return ["--journal", str(folder / "agent.db")]


async def test_who_waits_where_nobody_works_is_told_which_journal_has_no_worker(treadle: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    async with working(str(other)):
        await until(lambda: told(str(other)))
        process = treadle.start("submit", "Do it", "--wait", *at(tmp_path))
        said = b""
        with process:
            try:
                while b"No worker is running" not in said:
                    line = await asyncio.to_thread(process.stderr.readline)
                    assert line, said
                    said += line
            finally:
                process.kill()
    assert f"on the journal {tmp_path / 'agent.db'}: the task waits until one starts".encode() in said


async def test_a_task_whose_session_is_deleted_while_it_waits_is_not_carried_out(treadle: Any, tmp_path: Path) -> None:
    gone = treadle("submit", "Do it", *at(tmp_path), "--agent", "clerk").stdout.strip()
    deleted = treadle("sessions", "rm", gone, *at(tmp_path))
    assert deleted.returncode == 0, deleted.stderr
    address = str(tmp_path / "agent.db")
    async with working(address) as worker:
        after = await submit(address, "clerk", "Do that")
        await result(address, after, timeout=60)
        assert worker.info is not None
    assert worker.info.done == 1
    resumed = treadle("resume", gone, *at(tmp_path))
    assert resumed.returncode == 2
    assert "delete" in resumed.stderr


def test_a_database_that_refuses_a_worker_is_told_in_a_sentence_without_its_password(
    treadle: Any, tmp_path: Path, postgres_url: str
) -> None:
    parts = urlsplit(postgres_url)
    wrong = parts._replace(netloc=f"nobody:Hunter-2-secret@{parts.hostname}:{parts.port}").geturl()
    ended = treadle("worker", "--journal", wrong, "-m", "openai-chat:mock")
    assert ended.returncode in (1, 2)
    assert "nobody" in ended.stderr
    assert "Hunter-2-secret" not in ended.stderr + ended.stdout


async def test_a_time_without_a_zone_is_refused_in_the_library(tmp_path: Path) -> None:
    address = tmp_path / "agent.db"
    with pytest.raises(ConfigurationError, match="time zone"):
        await submit(address, "clerk", "Do it", at=datetime(2026, 11, 30, 18))
    assert not address.exists()
