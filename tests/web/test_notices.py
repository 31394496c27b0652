"""What somebody should look at is told to a webhook or a command: signed, tried again, and at least once."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as receiving
from docs_src.verify_webhook import is_genuine
from web_site import PAYS, until

import program
from treadle import Agent, Budget, ConfigurationError, deny, open_journal, open_session, tool
from treadle.ports import Journal
from treadle.testing import ScriptedModel
from treadle.web import Notifier
from treadle.workers import shared_set

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
PAGE = "https://ops.example.com"


class Receiver:
    """A webhook on loopback: it keeps what it was sent, and refuses as often as it is told to."""

    def __init__(self) -> None:
        self.url = ""
        self.sent: list[dict[str, Any]] = []
        self.tries = 0
        self.refuses: Callable[[dict[str, Any]], bool] = lambda body: False
        self.genuine: list[bool] = []

    async def take(self, request: receiving.Request) -> receiving.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.genuine.append(is_genuine(SECRET, headers, body))
        self.tries += 1
        if self.refuses(json.loads(body)):
            return receiving.Response(status=503)
        self.sent.append(json.loads(body))
        return receiving.Response()

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [one for body in self.sent for one in body["notices"]]

    async def has(self, count: int) -> bool:
        return len(self.notices) >= count

    async def has_tried(self, count: int) -> bool:
        return self.tries >= count


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = receiving.Application()
    app.router.add_post("/in", made.take)
    runner = receiving.AppRunner(app)
    await runner.setup()
    await receiving.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    yield made
    await runner.cleanup()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with open_journal(tmp_path / "agent.db") as made:
        yield made


@asynccontextmanager
async def telling(journal: Journal, receiver: Receiver, **options: Any) -> AsyncIterator[None]:
    given = {"page": PAGE, "webhook": receiver.url, "secret": SECRET, "retry_seconds": 0.01, **options}
    task = asyncio.create_task(Notifier(journal, **given).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@tool(effect="unsafe")
async def pay(account: str, amount: float) -> str:
    """Pay an account."""
    return "paid"


@tool(effect="unsafe", permission="allow")
async def lose(account: str) -> str:
    """Pay, and hear nothing."""
    raise ConnectionResetError("The connection broke.")


async def run(journal: Journal, turns: Any, task: str = "Pay invoice 7", **options: Any) -> str:
    tenant = options.pop("tenant", "")
    async with open_session(journal) as session:
        if tenant:
            await session.change(metadata={"tenant": tenant})
        await Agent(ScriptedModel(list(turns)), tools=[pay, lose], name="clerk", **options).run(task, session=session)
    return session.id


async def test_a_request_is_told_once_signed_and_with_its_link(journal, receiver):
    session_id = await run(journal, PAYS, tenant="acme")
    async with telling(journal, receiver):
        await until(receiver.has, count=1)
    (notice,), (body,) = receiver.notices, receiver.sent
    (approval,) = await journal.approvals()
    assert receiver.genuine == [True]
    assert notice["link"] == f"{PAGE}/request?session={session_id}&id={approval.id}"
    assert (notice["kind"], notice["tenant"], notice["agent"]) == ("approval", "acme", "clerk")
    assert body["text"].startswith("Waits for approval: ")
    assert body["text"].endswith(notice["link"])
    assert "DE02" not in json.dumps(body).replace(notice["title"], "")


async def test_a_signature_of_another_secret_body_or_day_is_not_genuine():
    headers = {"webhook-id": "n_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert not is_genuine(SECRET, headers, b"{}")


async def test_what_is_not_taken_is_sent_again_until_it_is_and_holds_nothing_else_up(journal, receiver):
    refused = await run(journal, PAYS, "Pay invoice 1")
    receiver.refuses = lambda body: receiver.tries < 4 and any(one["session"] == refused for one in body["notices"])
    async with telling(journal, receiver):
        await until(receiver.has_tried, count=1)
        other = await run(journal, PAYS, "Pay invoice 2")
        await until(receiver.has, count=2)
    assert sorted(one["session"] for one in receiver.notices) == sorted([refused, other])
    assert all(receiver.genuine)


async def test_a_restart_neither_loses_nor_repeats(journal, receiver):
    told = await run(journal, PAYS, "Pay invoice 1")
    async with telling(journal, receiver):
        await until(is_kept, journal=journal, receiver=receiver, count=1)
    meanwhile = await run(journal, PAYS, "Pay invoice 2")
    async with telling(journal, receiver), telling(journal, receiver):  # two at once are as one
        await until(is_kept, journal=journal, receiver=receiver, count=2)
    assert [one["session"] for one in receiver.notices] == [told, meanwhile]


async def test_doubts_questions_sessions_set_aside_and_over_budget_are_told_and_old_ends_are_not(journal, receiver):
    spends = {"budget": Budget(max_model_turns=1), "policy": deny("pay")}
    calls = [{"calls": [{"name": "pay", "arguments": {"account": "DE02", "amount": 1}}]}] * 3
    await run(journal, calls, "Spent long ago", **spends)
    async with telling(journal, receiver):
        await until(is_kept, journal=journal, receiver=receiver, count=1)
        doubt = [{"calls": [{"name": "lose", "arguments": {"account": "DE02"}}]}, {"text": "I do not know."}]
        await run(journal, doubt, "Pay and lose it")
        aside = await run(journal, [{"text": "Done."}], "Kills its worker")
        async with open_session(journal, id=aside) as session:
            await session.change(status="suspended", reason="Its worker died 4 times.", by="worker")
        await run(journal, calls, "Spends", **spends)
        await until(receiver.has, count=3)
    told = {one["kind"]: one for one in receiver.notices}
    assert sorted(told) == ["doubt", "over_budget", "set_aside"]
    assert "Its worker died 4 times." in told["set_aside"]["title"]
    assert told["over_budget"]["title"].startswith("Spends: ")


async def is_kept(journal: Journal, receiver: Receiver, count: int) -> bool:
    """Whether so many notices are recorded as told: one that was sent and not yet recorded is sent again after a restart."""
    async with shared_set(journal, f"notices {receiver.url}") as told:
        return len(told) > count


async def test_many_at_once_are_one_message_to_people_and_each_to_programs(journal, receiver):
    for number in range(12):
        await run(journal, PAYS, f"Pay invoice {number}")
    async with telling(journal, receiver):
        await until(receiver.has, count=12)
    (body,) = receiver.sent
    assert body["text"].splitlines()[0] == f"12 waits for approval: {PAGE}/inbox"
    assert len({one["key"] for one in body["notices"]}) == 12


async def test_a_command_gets_the_text_and_the_json(journal, receiver, tmp_path):
    await run(journal, PAYS)
    out = tmp_path / "out"
    code = f"import pathlib, sys; pathlib.Path({str(out)!r}).write_text(sys.argv[-1] + chr(10) + sys.stdin.read())"
    async with telling(journal, receiver, webhook="", secret="", command=[sys.executable, "-c", code]):

        async def has_run() -> bool:
            return out.is_file() and out.read_text().endswith("}")

        await until(has_run)
    text, _, body = out.read_text().partition("\n")
    assert text == json.loads(body)["text"]


async def test_no_secret_and_nothing_that_hides_is_told(journal, receiver):
    await run(journal, [{"calls": [{"name": "lose", "arguments": {"account": "x"}}]}, {"text": "?"}])
    aside = await run(journal, [{"text": "Done."}], "sk-ant-api03-" + "a" * 80 + "\u202e\nnext")
    async with open_session(journal, id=aside) as session:
        await session.change(status="suspended", reason="x", by="worker")
    async with telling(journal, receiver):
        await until(receiver.has, count=2)
    said = json.dumps(receiver.sent)
    assert "sk-ant-api03" not in said
    assert "u202e" not in said
    assert all("\n" not in one["title"] for one in receiver.notices)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "either a webhook or a command"),
        ({"webhook": "https://a.example", "command": ["x"], "secret": SECRET}, "either a webhook or a command"),
        ({"webhook": "http://a.example/in", "secret": SECRET}, "only loopback may be http"),
        ({"webhook": "ftp://a.example", "secret": SECRET}, "is an address such as"),
        ({"webhook": "https://a:b@a.example", "secret": SECRET}, "without a password"),
        ({"webhook": "https://a.example"}, "openssl rand"),
        ({"webhook": "https://a.example", "secret": "whsec_c2hvcnQ="}, "at least 24 bytes"),
        ({"command": ["x"], "page": "ops.example.com"}, "page is an address"),
    ],
)
async def test_what_tells_nobody_is_refused(options, says):
    async with open_journal("memory:") as journal:
        with pytest.raises(ConfigurationError, match=says):
            Notifier(journal, **{"page": PAGE, **options})


async def test_the_command_line_tells_and_says_so(tmp_path, journal, receiver):
    await run(journal, PAYS)
    environment = {**os.environ, "TREADLE_WEBHOOK_SECRET": SECRET, "TREADLE_HOME": str(tmp_path / "home")}
    line = ["notify", "--journal", str(tmp_path / "agent.db"), "--page", PAGE, "--webhook", receiver.url]
    with program.start(line, folder=tmp_path, environment=environment) as started:
        lines = await asyncio.to_thread(lambda: [started.stderr.readline() for _ in range(2)])
        started.kill()
    assert lines[1] == b"1 notice was told.\n"
    assert len(receiver.notices) == 1


def test_the_command_line_says_what_it_needs(tmp_path):
    done = program.run(["notify"], folder=tmp_path, environment={**os.environ, "TREADLE_HOME": str(tmp_path / "home")})
    assert (done.returncode, b"Give --page" in done.stderr) == (2, True)
