"""How fast the page is with many sessions, and what watching costs a worker: `python benchmarks/web.py PART [--sessions N] [--waiting N]`.

`lists`: the server's own processor time for each page, and the whole time of a request. `browser`: when a page is drawn and takes input, in
Chromium. `watchers`: the turns a second of a worker with 40 sessions, and its processor time for each, alone and with 100 pages that follow
its sessions live; by turns, six times; for a model that answers at once, and for one that speaks for half a second. Processor time is printed
because other programs of the machine do not change it.
"""

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from treadle import Agent, open_journal, open_session, submit, tool
from treadle.ports import Journal
from treadle.testing import ScriptedModel
from treadle.workers import result

PAGES = {
    "inbox": "/inbox",
    "inbox, last page": "/inbox?page=1000000",
    "sessions": "/sessions",
    "sessions, page 90": "/sessions?page=90",
    "sessions by text": "/sessions?text=ticket+99",
    "fleet": "/fleet",
    "costs by tenant": "/costs?by=tenant",
}
TURNS = {"busy": 49, "talker": 9}
"""Of each agent, for a task."""
AGENTS = """
from treadle import Agent, tool
from treadle.testing import ScriptedModel, Turn, call, text

@tool(effect="read")
async def look(n: int) -> str:
    "Look."
    return "seen"

def said(request):
    return sum(message.role == "assistant" for message in request.messages)

def at_once(request):
    return call("look", n=said(request)) if said(request) < 48 else text("Done.")

def speaking(request):
    calls = (call("look", n=said(request)),) if said(request) < 8 else ()
    return Turn(text="I look at it once more. " * 8, calls=calls, pieces=20, gap_ms=25)

busy = Agent(ScriptedModel([at_once]), tools=[look], name="busy")
talker = Agent(ScriptedModel([speaking]), tools=[look], name="talker")
"""


@tool(effect="unsafe")
async def pay(account: str) -> str:
    """Pay an account."""
    return "paid"


async def fill(file: Path, sessions: int, waiting: int) -> None:
    async with open_journal(file) as journal:
        for number in range(waiting):
            async with open_session(journal) as session:
                await session.change(metadata={"tenant": f"t{number % 7}"})
                turns = [{"calls": [{"name": "pay", "arguments": {"account": str(number)}}]}]
                agent = Agent(ScriptedModel(turns), tools=[pay], name=f"agent{number % 5}")
                await agent.run(f"Pay {number}", session=session)
        for number in range(sessions - waiting):
            await submit(journal, f"agent{number % 5}", f"Look into ticket {number}", tenant=f"t{number % 7}")


@asynccontextmanager
async def process(*words: str, **streams: int) -> AsyncIterator[asyncio.subprocess.Process]:
    made = await asyncio.create_subprocess_exec(sys.executable, "-m", "treadle", *words, **streams)
    try:
        yield made
    finally:
        made.terminate()
        await made.wait()


@asynccontextmanager
async def served(file: Path) -> AsyncIterator[tuple[int, str]]:
    """Run `treadle web`. Return its process and its link."""
    words = ("web", "--journal", str(file), "--no-browser", "--by", "bench")
    async with process(*words, stderr=asyncio.subprocess.PIPE) as made:
        assert made.stderr is not None
        yield made.pid, (await made.stderr.readline()).decode().strip()


def used_seconds(pid: int) -> float:
    """Return the processor time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def looking(link: str) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector) as http, http.get(link):
        yield http, link.partition("/enter")[0]


async def has_read_all(http: aiohttp.ClientSession, url: str) -> None:
    while True:
        async with http.get(f"{url}/api/v1/sessions?size=1") as answer:
            if not (await answer.json())["unread"]:
                return
        await asyncio.sleep(0.2)


async def lists(file: Path, times: int = 20) -> None:
    async with served(file) as (pid, link), looking(link) as (http, url):
        begun, used = time.monotonic(), used_seconds(pid)
        await has_read_all(http, url)
        print(f"reads all sessions: {time.monotonic() - begun:.1f} s, processor {used_seconds(pid) - used:.1f} s")
        for name, path in PAGES.items():
            await asyncio.sleep(1)
            took, used = [], used_seconds(pid)
            for _ in range(times):
                begun = time.perf_counter()
                async with http.get(url + path) as answer:
                    size = len(await answer.read())
                took.append(1000 * (time.perf_counter() - begun))
            cost = 1000 * (used_seconds(pid) - used) / times
            print(
                f"{name:<20} processor {cost:6.1f} ms; request {min(took):6.1f} ms least, "
                f"{statistics.median(took):6.1f} ms median; {size // 1024} KB"
            )


async def in_browser(file: Path) -> None:
    from playwright.async_api import async_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    async with served(file) as (_, link), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page()
        await page.goto(link)
        url = link.partition("/enter")[0]
        while (await (await page.request.get(f"{url}/api/v1/sessions?size=1")).json())["unread"]:
            await asyncio.sleep(0.2)
        for name, path in PAGES.items():
            took = []
            for _ in range(10):
                await page.goto(url + path, wait_until="load")
                took.append(
                    await page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
                )
            print(f"{name:<20} interactive after {min(took):5.0f} ms least, {statistics.median(took):5.0f} ms median")
        await browser.close()


async def watchers(folder: Path, count: int = 100, sessions: int = 40, rounds: int = 6) -> None:
    file, agents = folder / "live.db", folder / "agents.py"
    agents.write_text(AGENTS)
    words = ("worker", "--agents", str(agents), "--journal", str(file), "--concurrency", str(sessions))
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_journal(file))
        worker = await stack.enter_async_context(process(*words, stderr=asyncio.subprocess.DEVNULL))
        page, link = await stack.enter_async_context(served(file))
        http, url = await stack.enter_async_context(looking(link))
        for agent, turns_each in TURNS.items():
            found: dict[bool, list[list[float]]] = {False: [], True: []}
            for number in range(2 * rounds):
                is_watched = bool(number % 2)
                worker.send_signal(signal.SIGSTOP)  # until everybody watches
                ids = [await submit(journal, agent, "Look") for _ in range(sessions)]
                async with AsyncExitStack() as pages:
                    for one in range(count if is_watched else 0):
                        watched = f"{url}/api/v1/live?session={ids[one % sessions]}"
                        answer = await pages.enter_async_context(http.get(watched))
                        assert answer.status == 200, await answer.text()
                    worker.send_signal(signal.SIGCONT)
                    turns = turns_each * sessions
                    found[is_watched].append(await turns_of(journal, ids, (worker.pid, page), turns))
            report(agent, count, found)


def report(agent: str, count: int, found: dict[bool, list[list[float]]]) -> None:
    middle = {one: [statistics.median(column) for column in zip(*found[one], strict=True)] for one in found}
    for is_watched, (rate, cost, of_page) in middle.items():
        print(
            f"{agent}, {count if is_watched else 'no':>3} watchers: {rate:5.0f} turns a second; "
            f"processor {1000 * cost:.3f} ms a turn of the worker, {1000 * of_page:.3f} ms of the page"
        )
    less = [100 * (middle[True][number] / middle[False][number] - 1) for number in (0, 1)]
    print(
        f"{agent}: watching changes turns a second by {less[0]:+.1f} %, the worker's processor time a turn by {less[1]:+.1f} %"
    )


async def turns_of(journal: Journal, ids: Sequence[str], pids: tuple[int, int], turns: int) -> list[float]:
    """Wait until the sessions have ended. Return the turns a second, and the processor time of each turn in both processes."""
    used, begun = [used_seconds(pid) for pid in pids], time.monotonic()
    for one in ids:
        ended = await result(journal, one, timeout=300)
        assert ended.completed, ended
    took = time.monotonic() - begun
    return [turns / took, *((used_seconds(pid) - before) / turns for pid, before in zip(pids, used, strict=True))]


async def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("lists", "browser", "watchers"))
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--journal", type=Path, help="keep the sessions in this file, and use those that it has")
    given = parser.parse_args(words)
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        file = given.journal or Path(folder) / "agent.db"
        if given.part == "watchers":
            return await watchers(Path(folder))
        if not file.exists():
            await fill(file, given.sessions, given.waiting)
        await (lists if given.part == "lists" else in_browser)(file)
    return None


if __name__ == "__main__":
    asyncio.run(main())
