"""The recipes, each behind the server that it is for: started as a process, asked over HTTP, and ended with SIGTERM."""

import ast
import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession
from serving import RECIPES, SECONDS, asked, environment, events, pytest_passes, served, up_to

from treadle import Agent, Approval, RunResult, Session, ToolContext, Worker, open_journal, open_session
from treadle.ports import Journal, ModelRequest
from treadle.testing import ScriptedModel

DESK = [RECIPES / "support_desk.py", RECIPES / "test_support_desk.py"]


async def test_a_ticket_survives_the_restart_of_its_desk_and_waits_for_a_person(tmp_path: Path) -> None:
    outcome = {"solved": True, "refunded_euros": 20, "summary": "Refunded."}
    slow = {"calls": [{"name": "find_orders", "arguments": {"customer": "ada"}}], "delay_ms": 60_000}
    refund = {"calls": [{"name": "refund", "arguments": {"order": "order-17", "euros": 20}}]}
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("support_desk", tmp_path, [slow]) as address:
            ticket = (await asked(client, "POST", f"{address}/tickets", json={"text": "My parcel is lost"}))[1]["id"]
            begun = await up_to(events(client, f"{address}/tickets/{ticket}/events"), "start")
        with served("support_desk", tmp_path, [refund, {"text": json.dumps(outcome)}]) as address:
            paused = await up_to(events(client, f"{address}/tickets/{ticket}/events"), "paused")
            (waiting,) = (await asked(client, "GET", f"{address}/approvals"))[1]
            place = f"{address}/tickets/{ticket}/approvals/{waiting['id']}"
            first, _ = await asked(client, "POST", place, json={"answer": "allow", "by": "bo"})
            end = await up_to(events(client, f"{address}/tickets/{ticket}/events", after=paused["seq"]), "completed")
            second, _ = await asked(client, "POST", place, json={"answer": "deny", "by": "cy"})
    assert begun["type"] == "start"
    assert waiting["arguments"] == {"order": "order-17", "euros": 20}
    assert (first, second) == (200, 409)
    assert end["output"] == outcome


def test_the_desk_and_its_test_are_130_lines_and_pass(tmp_path: Path) -> None:
    files = DESK
    assert sum(len(file.read_text().splitlines()) for file in files) <= 130
    assert "1 passed" in pytest_passes(files[1], tmp_path)


def test_the_desk_and_its_test_are_written_in_25_words_of_treadle() -> None:
    """Its words: the names that are imported, and what is used of the values that those are or return."""
    trees = [ast.walk(ast.parse(file.read_text())) for file in DESK]
    nodes = [node for tree in trees for node in tree]
    imports = [one for one in nodes if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("treadle")]
    names = {one.name for node in imports for one in node.names}
    kinds = (Agent, Approval, Journal, RunResult, Session, ToolContext, Worker)
    members = {name for kind in kinds for name in dir(kind)} - {*dir(asyncio.Task), "id"}
    words = names | {one.attr for one in nodes if isinstance(one, ast.Attribute) and one.attr in members}

    assert {"Agent", "open_session", "encode_sse", "answer", "resume", "idempotency_key"} <= words
    assert len(words) <= 25, sorted(words)


def update(number: int, text: str) -> dict[str, Any]:
    return {"number": number, "chat": "c", "text": text}


async def test_a_bot_answers_each_update_once_and_one_after_the_other(tmp_path: Path) -> None:
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("webhook", tmp_path, [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]) as address:

            async def deliver(number: int, text: str) -> int:
                return (await asked(client, "POST", f"{address}/webhook", json=update(number, text)))[0]

            async with elsewhere(tmp_path / "bot.db", "chat-c"):
                refused = await deliver(1, "Hello")
            first = await asyncio.gather(*(deliver(1, "Hello") for _ in range(3)))
            later = [await deliver(number, "And?") for number in (1, 2, 2, 3)]
            sent = (await asked(client, "GET", f"{address}/outbox"))[1]
    assert (refused, first, later) == (503, [200] * 3, [200] * 4)
    assert [one["text"] for one in sent] == ["One.", "Two.", "Three."]


@asynccontextmanager
async def elsewhere(path: Path, session_id: str) -> AsyncIterator[None]:
    """Let a process other than the server run a session meanwhile."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def answer(_: ModelRequest) -> str:
        begun.set()
        await over.wait()
        return "From elsewhere."

    async with open_session(path, id=session_id) as session:
        running = asyncio.create_task(Agent(ScriptedModel([answer])).run("Hello", session=session))
        await begun.wait()
        yield
        over.set()
        await running


async def test_a_bot_that_was_killed_answers_the_update_that_is_delivered_again(tmp_path: Path) -> None:
    slow = {"text": "Never sent.", "delay_ms": 60_000}
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("webhook", tmp_path, [slow], is_killed=True) as address:
            lost = asyncio.create_task(asked(client, "POST", f"{address}/webhook", json=update(1, "Hello")))
            async with open_journal(str(tmp_path / "bot.db")) as journal:
                while [one.run_status for one in await journal.sessions()] != ["running"]:
                    await asyncio.sleep(0.05)  # sleep: a messenger is told nothing while its update is answered
        with pytest.raises(ClientError):
            await lost
        with served("webhook", tmp_path, [{"text": "One."}]) as address:
            while (await asked(client, "POST", f"{address}/webhook", json=update(1, "Hello")))[0] != 200:
                pass
            sent = (await asked(client, "GET", f"{address}/outbox"))[1]
    assert [one["text"] for one in sent] == ["One."]


async def test_a_tenant_sees_its_own_chats_and_costs_and_ends_at_its_own_budget(tmp_path: Path) -> None:
    turn = {"text": "Yes.", "usage": {"input_tokens": 2_000_000, "output_tokens": 0}}

    async def ask(key: str, chat: str) -> tuple[int, Any]:
        return await asked(client, "POST", f"{address}/chats/{chat}", json={"text": "Is it?"}, headers={"key": key})

    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("tenants", tmp_path, [turn]) as address:
            answers = [await ask("key-of-ada", "one") for _ in range(3)]
            assert (await ask("key-of-bo", "one"))[0] == 404
            assert (await ask("key-of-eve", "one"))[0] == 401
            assert (await ask("key-of-bo", "two"))[0] == 200
            usage = (await asked(client, "GET", f"{address}/usage", headers={"key": "key-of-ada"}))[1]
    assert [status for status, _ in answers] == [200, 200, 429]
    assert "The budget of tenant 'K7', user 'ada' in" in answers[2][1]["detail"]
    assert [(row["tenant"], row["user"], float(row["cost"])) for row in usage] == [("K7", "ada", 1.0)]


@contextmanager
def working(folder: Path, turns: list[dict[str, Any]], *words: str) -> Iterator[None]:
    """Run a worker beside the server."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, env=environment(folder, turns), stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait() == 0


REFUND: list[dict[str, Any]] = [
    {"calls": [{"name": "refund", "arguments": {"order": "7", "euros": 20}}]},
    {"text": "Refunded."},
]


async def test_a_ticket_behind_flask_in_forked_processes_is_run_by_a_worker(tmp_path: Path) -> None:
    words = ["treadle", "worker", "--journal", "desk.db", "--agents", str(RECIPES / "flask_desk.py")]
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("flask_desk", tmp_path, REFUND) as address:
            ticket = (await asked(client, "POST", f"{address}/tickets", json={"text": "Lost"}))[1]["id"]
            with working(tmp_path, REFUND, *words):
                while not (waiting := (await asked(client, "GET", f"{address}/approvals"))[1]):
                    await asyncio.sleep(0.05)  # sleep: HTTP tells nobody that a question has come
                place = f"{address}/tickets/{ticket}/approvals/{waiting[0]['id']}"
                await asked(client, "POST", place, json={"answer": "allow"})
                outcome = (await asked(client, "GET", f"{address}/tickets/{ticket}"))[1]
    assert outcome == {"status": "completed", "text": "Refunded."}


async def test_a_ticket_behind_django_is_run_by_a_command_of_the_site(tmp_path: Path) -> None:
    words = ["django", "run_agents", "--settings", "django_desk.settings"]
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with (
            served("django_desk.views:application", tmp_path, REFUND) as address,
            working(tmp_path, REFUND, *words),
        ):
            ticket = (await asked(client, "POST", f"{address}/tickets", json={"text": "Lost"}))[1]["id"]
            paused = await up_to(events(client, f"{address}/tickets/{ticket}/events"), "paused")
            (waiting,) = (await asked(client, "GET", f"{address}/approvals"))[1]["approvals"]
            place = f"{address}/tickets/{ticket}/approvals/{waiting['id']}"
            assert (await asked(client, "POST", place, json={"answer": "allow"}))[0] == 200
            await up_to(events(client, f"{address}/tickets/{ticket}/events"), "completed")
    assert (paused["reason"], waiting["tool"]) == ("approval_required", "refund")


SENDING = """
from celery_chat import answer
print([answer.apply_async((chat, "Hello"), task_id=one).get() for chat, one in (("ada", "one"), ("bo", "two"))])
print(answer.apply_async(("ada", "Hello"), task_id="one").get(), answer.apply_async(("ada", "And?"), task_id="three").get())
"""


def test_a_message_to_a_worker_of_celery_is_answered_once_though_it_is_delivered_twice(tmp_path: Path) -> None:
    turns = [{"text": "One."}, {"text": "Two."}]
    for name in ("data_in", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "data_out").symlink_to("data_in")  # kombu's broker of files reads the one and writes the other
    places = {"BROKER": "filesystem://", "RESULTS": f"file://{tmp_path / 'results'}"}
    words = ["celery", "-A", "celery_chat", "worker", "--concurrency", "1", "--loglevel", "ERROR", "--without-gossip"]
    about = {**environment(tmp_path, turns), **places}
    worker = subprocess.Popen([sys.executable, "-m", *words], cwd=tmp_path, env=about, stdout=subprocess.DEVNULL)
    try:
        sent = subprocess.run([sys.executable, "-c", SENDING], cwd=tmp_path, env=about, capture_output=True, text=True)
    finally:
        worker.terminate()
        worker.wait()
    assert sent.stdout.splitlines() == ["['One.', 'Two.']", "One. Two."], sent.stderr


def test_a_notebook_runs_an_agent_in_the_loop_that_it_has(tmp_path: Path) -> None:
    from nbclient import NotebookClient
    from nbformat import NotebookNode, read, v4

    notebook: NotebookNode = read(RECIPES / "notebook.ipynb", as_version=4)
    notebook.cells.append(v4.new_code_cell('agent.run_sync("Pay")', metadata={"tags": ["raises-exception"]}))
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    *_, text, refused = [cell.outputs[0] for cell in notebook.cells if cell.outputs]
    page = (RECIPES.parents[1] / "docs" / "use" / "recipes.md").read_text()

    assert text.data["text/plain"] == "'It is paid.'"
    assert refused.evalue.endswith("in a notebook write `await`, such as `await agent.run(...)`.")
    assert "```python\n" + "\n\n".join(cell.source for cell in notebook.cells[:-1]) + "\n```" in page
