"""The tutorial: each step is started as its reader starts it, and asked over HTTP."""

import asyncio
from pathlib import Path

from aiohttp import ClientSession
from serving import SECONDS, TUTORIAL, asked, events, pytest_passes, served, up_to

LOOK = {"calls": [{"name": "find_orders", "arguments": {}}]}
REFUND = {"calls": [{"name": "refund", "arguments": {"order": "17"}}]}
DONE = {"text": "It is refunded."}


async def test_step_1_remembers_after_a_restart_and_has_40_lines(tmp_path: Path) -> None:
    async with ClientSession() as client:
        with served("chat_1", tmp_path, [{"text": "Hello Ada."}]) as address:
            said = [one async for one in events(client, f"{address}/chat/ada", text="I am Ada")]
        with served("chat_1", tmp_path, [{"text": "You are Ada."}]) as address:
            await up_to(events(client, f"{address}/chat/ada", text="Who am I?"), "completed")
            history = (await asked(client, "GET", f"{address}/chat/ada"))[1]
    assert "".join(one["text"] for one in said if one["type"] == "text") == "Hello Ada."
    assert [one["text"] for one in history] == ["I am Ada", "Hello Ada.", "Who am I?", "You are Ada."]
    assert len((TUTORIAL / "chat_1.py").read_text().splitlines()) <= 40


async def test_step_2_calls_a_tool(tmp_path: Path) -> None:
    async with ClientSession() as client:
        with served("chat_2", tmp_path, [LOOK, {"text": "It is lost."}]) as address:
            said = [one async for one in events(client, f"{address}/chat/ada", text="Where is my teapot?")]
    assert [one["tool"] for one in said if one["type"] == "call"] == ["find_orders"]
    assert said[-1]["text"] == "It is lost."


async def test_step_3_asks_a_person_and_refunds_after_the_answer(tmp_path: Path) -> None:
    async with ClientSession() as client:
        with served("chat_3", tmp_path, [REFUND, DONE]) as address:
            await up_to(events(client, f"{address}/chat/ada", text="Refund it"), "paused")
            (waiting,) = (await asked(client, "GET", f"{address}/approvals"))[1]
            place = f"{address}/chat/ada/approvals/{waiting['id']}"
            end = await up_to(events(client, place, answer="allow", by="bo"), "completed")
            second, _ = await asked(client, "POST", place, json={"answer": "deny", "by": "cy"})
    assert (waiting["tool"], waiting["arguments"]) == ("refund", {"order": "17"})
    assert end["text"] == "It is refunded."
    assert second == 409


async def test_step_4_continues_after_it_was_killed_and_after_sigterm(tmp_path: Path) -> None:
    slow = {**LOOK, "delay_ms": 60_000}
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("chat_4", tmp_path, [slow], is_killed=True) as address:
            await asked(client, "POST", f"{address}/chat/ada", json={"text": "Refund my teapot"})
        with served("chat_4", tmp_path, [REFUND]) as address:
            stream = events(client, f"{address}/chat/ada/events")
            paused = await up_to(stream, "paused")
            (waiting,) = (await asked(client, "GET", f"{address}/approvals"))[1]
        with served("chat_4", tmp_path, [DONE]) as address:
            place = f"{address}/chat/ada/approvals/{waiting['id']}"
            assert (await asked(client, "POST", place, json={"answer": "allow", "by": "bo"}))[0] == 200
            end = await up_to(events(client, f"{address}/chat/ada/events", after=paused["seq"]), "completed")
    assert end["text"] == "It is refunded."


async def test_step_4_passes_on_what_is_written_while_a_refund_waits(tmp_path: Path) -> None:
    async with ClientSession() as client, asyncio.timeout(SECONDS):
        with served("chat_4", tmp_path, [REFUND, DONE]) as address:
            await asked(client, "POST", f"{address}/chat/ada", json={"text": "Refund my teapot"})
            paused = await up_to(events(client, f"{address}/chat/ada/events"), "paused")
            assert (await asked(client, "POST", f"{address}/chat/ada", json={"text": "How long?"}))[0] == 202
            (waiting,) = (await asked(client, "GET", f"{address}/approvals"))[1]
            place = f"{address}/chat/ada/approvals/{waiting['id']}"
            assert (await asked(client, "POST", place, json={"answer": "allow", "by": "bo"}))[0] == 200
            end = await up_to(events(client, f"{address}/chat/ada/events", after=paused["seq"]), "completed")
            said = [one async for one in events(client, f"{address}/chat/ada/events") if one["type"] == "message"]
    assert end["text"] == "It is refunded."
    assert [one["text"] for one in said] == ["Refund my teapot", "How long?"]


def test_step_5_tests_the_chat(tmp_path: Path) -> None:
    assert "4 passed" in pytest_passes(TUTORIAL / "test_chat.py", tmp_path)
