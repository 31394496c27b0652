"""Many people watch one session: it is followed once, and each of them is told all of it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
from tests.workers.test_workers import working
from web_site import PAYS, Client, Site, site_of, until

from treadle import Agent, open_session, resolve_model, submit
from treadle.events import AnyEvent, ModelDelta, encode_event
from treadle.journals.memory import MemoryJournal
from treadle.mock import MockProvider, Turn
from treadle.ports import HasLive
from treadle.web import Access, new_token

STORY = "Once upon a time there was a worker that said what it thought. " * 4


class Watcher:
    """Somebody whose page is told what happens in a session."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.bytes = 0
        self.names: list[str] = []
        self.text = ""

    async def next(self) -> str:
        """Take the next server-sent event. Return its name; nothing where the connection has ended."""
        lines = []
        while (line := await self._answer.content.readuntil(b"\n", max_size=2**26)).strip() or not lines:
            if not line:
                return ""
            self.bytes += len(line)
            lines += [] if line.startswith(b":") else [line] if line.strip() else []
        name, body = (line.split(b": ", 1)[1] for line in lines)
        self._take(name.decode().strip(), json.loads(body))
        return self.names[-1]

    def _take(self, name: str, value: dict[str, Any]) -> None:
        self.names.append(name)
        if name == "state":
            self.text = value["text"]
        elif name == "text":
            self.text += value["text"]
        elif value.get("type", "").startswith("model."):
            self.text = ""

    async def reads(self, name: str) -> None:
        while self.names[-1:] != [name]:
            assert await self.next(), f"It ended before {name}."

    async def reads_text(self, text: str) -> None:
        while text not in self.text:
            assert await self.next(), f"It ended before {text}."


@asynccontextmanager
async def watching(http: aiohttp.ClientSession, site: Site, session_id: str, **options: Any) -> AsyncIterator[Watcher]:
    async with http.get(f"{site.url}/api/v1/live", params={"session": session_id}, **options) as answer:
        assert answer.status == 200, await answer.text()
        yield Watcher(answer)


def following() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("treadle web watches")]


async def follows_nothing() -> bool:
    return not following()


def said(session_id: str, text: str) -> str:
    return f"{encode_event(ModelDelta(session_id=session_id, text=text)).decode()}\n"


async def test_a_session_is_followed_once_for_all_who_watch_it_and_no_longer_than_somebody_does(site: Site) -> None:
    session_id = await site.run(PAYS, "Pay invoice 7", agent="elsewhere")
    async with site.browser() as ada, AsyncExitStack() as pages:
        everybody = [await pages.enter_async_context(watching(ada.http, site, session_id)) for _ in range(12)]
        await asyncio.gather(*[one.reads("state") for one in everybody])
        assert following() == [f"treadle web watches {session_id}"]
        async with open_session(site.journal, id=session_id) as session:
            await session.change(metadata={"seen": True})
        await asyncio.gather(*[one.reads("event") for one in everybody])
        await pages.aclose()
        await until(follows_nothing)


async def test_who_comes_in_the_middle_of_an_answer_reads_all_of_it_and_then_its_end(site: Site) -> None:
    async with MockProvider([Turn(text=STORY, pieces=8, gate="later", hold_after_pieces=4)]) as provider:
        session_id = await submit(site.journal, "elsewhere", "Tell a story")
        agent = Agent(resolve_model("openai-chat:mock", base_url=provider.base_url, api_key="sk-mock"))
        async with site.browser() as ada, watching(ada.http, site, session_id) as first, asyncio.timeout(60):
            await first.reads("state")
            async with working(site.journal, {"elsewhere": lambda: agent}):
                await first.reads_text("Once upon")
                async with watching(ada.http, site, session_id) as second:
                    await second.reads("state")
                    assert second.text == first.text
                    provider.gate("later").open()
                    await asyncio.gather(first.reads("end"), second.reads("end"))
            assert first.names[-3:] == second.names[-3:] == ["event", "event", "end"]


async def test_a_secret_that_comes_in_two_pieces_is_shown_to_nobody(site: Site) -> None:
    session_id = await submit(site.journal, "elsewhere", "Tell a secret")
    assert isinstance(site.journal, HasLive)
    pieces = [
        said(session_id, text) for text in ("It is sk-ant-api03-", "abcdefghijklmnopqrstuvwxyz0123456789 or so. ")
    ]
    async with site.browser() as ada, watching(ada.http, site, session_id) as watcher, asyncio.timeout(60):
        await watcher.reads("state")
        await until(site.journal.tell_live, session_id=session_id, number=9, pieces=pieces[:1], told=0)
        await watcher.reads_text("It is")
        await site.journal.tell_live(session_id, 9, pieces, 1)
        await watcher.reads_text("or so.")
        assert watcher.text.strip() == "It is [redacted] or so."


def narrow(address: Any) -> socket.socket:
    """Return a socket that keeps little of what has not been read: the sender has to wait soon."""
    made = socket.socket(address[0], socket.SOCK_STREAM)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


async def test_who_does_not_read_holds_up_nobody_and_is_told_the_state_in_place_of_what_was_missed(site: Site) -> None:
    session_id = await submit(site.journal, "elsewhere", "Tell a long story")
    assert isinstance(site.journal, HasLive)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(90))
        ada = await stack.enter_async_context(site.browser())
        jar, connector = ada.http.cookie_jar, aiohttp.TCPConnector(socket_factory=narrow)
        idle = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar, connector=connector))
        slow = await stack.enter_async_context(watching(idle, site, session_id, read_bufsize=1024))
        fast = await stack.enter_async_context(watching(ada.http, site, session_id))
        await asyncio.gather(slow.reads("state"), fast.reads("state"))
        for number in range(9, 24):
            pieces = [said(session_id, f"{number}: {STORY * 400}\n")]
            await until(site.journal.tell_live, session_id=session_id, number=number, pieces=pieces, told=0)
            await fast.reads_text(f"{number}: {STORY}")
        assert (await ada.post("/api/v1/sessions", {"act": "cancel", "ids": [session_id]}))[0] == 200
        await fast.reads("end")
        await slow.reads("end")
        assert slow.text == fast.text
        assert slow.names.count("state") > 1
        assert slow.names.count("text") < fast.names.count("text")


async def test_a_session_of_another_tenant_is_not_watched_with_those_who_may(site: Site) -> None:
    session_id = await site.run(PAYS, "Pay for acme", tenant="acme", agent="elsewhere")
    tokens, secrets = zip(*[new_token(one, tenants=[one]) for one in ("acme", "globex")], strict=True)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(site_of(site.journal, access=Access(tokens=tokens)))
        acme, globex = [await stack.enter_async_context(other.program(secret)) for secret in secrets]
        own = await stack.enter_async_context(watching(acme.http, other, session_id))
        await own.reads("state")
        assert (await globex.get("/api/v1/live", session=session_id))[0] == 404


async def test_a_session_in_which_nothing_runs_is_at_its_end_at_once(site: Site) -> None:
    session_id = await site.run([{"text": "Done."}], "Do it")
    async with site.browser() as ada, watching(ada.http, site, session_id) as watcher, asyncio.timeout(60):
        await watcher.reads("end")
        assert watcher.names == ["state", "end"]
        assert following() == []


class Counting(MemoryJournal):
    """A journal that counts how often the events of a session are read from the first on."""

    reads = 0

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        self.reads += not after
        return await super().read(session_id, after=after)


async def test_a_page_that_many_people_look_at_is_made_once_for_all_who_are_shown_the_same() -> None:
    (token, secret), (other, foreign) = new_token("bo", role="operate"), new_token("eve", tenants=["acme"])
    async with AsyncExitStack() as stack:
        journal = Counting()
        site = await stack.enter_async_context(site_of(journal, access=Access(tokens=[token, other])))
        session_id = await site.run([{"text": "Done."}], "Do it")
        ada, cy = [await stack.enter_async_context(site.browser(name=name)) for name in ("ada", "cy")]
        bo, eve = [await stack.enter_async_context(site.program(one)) for one in (secret, foreign)]
        await asyncio.gather(*[one.get("/api/v1/sessions") for one in (ada, cy, bo, eve)])
        before = journal.reads
        shown = await asyncio.gather(*[part_of(one, session_id) for one in (ada, cy, bo) * 5])
        assert len({text for _, text in shown}) == 1
        assert journal.reads == before + 1
        assert (await part_of(eve, session_id))[0] == 404
        async with open_session(journal, id=session_id) as session:
            await session.change(metadata={"seen": "by bo"})
        for one in (ada, cy, bo):
            await until(is_shown, client=one, session_id=session_id, text="by bo")


async def part_of(client: Client, session_id: str) -> tuple[int, str]:
    async with client.http.get(f"{client.url}/session", params={"id": session_id}, headers={"X-Part": "1"}) as answer:
        return answer.status, await answer.text()


async def is_shown(client: Client, session_id: str, text: str) -> bool:
    return text in (await part_of(client, session_id))[1]
