"""The recipes, each behind the server that it is for: started as a process, asked over HTTP, and ended with SIGTERM."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from serving import RECIPES, SECONDS, asked, environment, events, pytest_passes, served, up_to


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
    files = [RECIPES / "support_desk.py", RECIPES / "test_support_desk.py"]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 130
    assert "1 passed" in pytest_passes(files[1], tmp_path)


async def test_a_bot_answers_each_update_once(tmp_path: Path) -> None:
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("webhook", tmp_path, [{"text": "One."}, {"text": "Two."}]) as address:
            for number, text in ((1, "Hello"), (1, "Hello"), (2, "And?")):
                await asked(client, "POST", f"{address}/webhook", json={"number": number, "chat": "c", "text": text})
            while len(sent := (await asked(client, "GET", f"{address}/outbox"))[1]) < 2:
                await asyncio.sleep(0.01)  # sleep: a messenger tells nobody that it has sent something
    assert [one["text"] for one in sent] == ["One.", "Two."]


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


async def test_a_ticket_behind_flask_is_run_by_a_worker(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [
        {"calls": [{"name": "refund", "arguments": {"order": "7", "euros": 20}}]},
        {"text": "Refunded."},
    ]
    words = ["worker", "--journal", "desk.db", "--agents", str(RECIPES / "flask_desk.py")]
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("flask_desk", tmp_path, turns) as address:
            ticket = (await asked(client, "POST", f"{address}/tickets", json={"text": "Lost"}))[1]["id"]
            worker = subprocess.Popen(
                [sys.executable, "-m", "treadle", *words],
                cwd=tmp_path,
                env=environment(tmp_path, turns),
                stderr=subprocess.DEVNULL,
            )
            try:
                while not (waiting := (await asked(client, "GET", f"{address}/approvals"))[1]):
                    await asyncio.sleep(0.05)  # sleep: HTTP tells nobody that a question has come
                place = f"{address}/tickets/{ticket}/approvals/{waiting[0]['id']}"
                await asked(client, "POST", place, json={"answer": "allow"})
                outcome = (await asked(client, "GET", f"{address}/tickets/{ticket}"))[1]
            finally:
                worker.terminate()
                worker.wait()
    assert outcome == {"status": "completed", "text": "Refunded."}
