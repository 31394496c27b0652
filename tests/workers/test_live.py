"""A follower sees what a model says while it says it, be it in another process."""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.workers.test_workers import working

import program
from treadle import Agent, open_journal, open_session, resolve_model
from treadle.errors import JournalError
from treadle.events import AnyEvent, ModelDelta, ModelFinished, ModelStarted, encode_event
from treadle.journals.sqlite_live import MOST_BYTES, SPOILED
from treadle.messages import Message, Text
from treadle.mock import MockProvider, Turn
from treadle.ports import HasLive
from treadle.sessions.live import END, LiveTeller
from treadle.workers import follow, submit

pytestmark = pytest.mark.row("W15")


STORY = "Once upon a time there was a worker that said what it thought. " * 4


@contextmanager
def working_elsewhere(address: str, folder: Path, provider: MockProvider) -> Iterator[None]:
    """A worker in a process of its own."""
    words = ["worker", "--journal", address, "-C", str(folder), "-m", "openai-chat:mock"]
    words += ["--base-url", provider.base_url]
    environment = {**os.environ, "TREADLE_HOME": str(folder), "OPENAI_API_KEY": "sk-mock"}
    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    process = program.start(words, folder=folder, environment=environment, **nowhere)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def collect(journal: str | Path, session_id: str, seen: list[AnyEvent], spoke: asyncio.Event) -> None:
    async for event in follow(journal, session_id, live=True):
        seen.append(event)
        if isinstance(event, ModelDelta):
            spoke.set()


def said(events: list[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ModelDelta))


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_follower_in_another_process_sees_an_answer_before_it_is_whole(address: str, tmp_path: Path) -> None:
    seen, spoke = list[AnyEvent](), asyncio.Event()
    async with MockProvider([Turn(text=STORY, gate="later", hold_after_pieces=3)]) as provider:
        session_id = await submit(address, "default", "Tell a story")
        async with asyncio.timeout(90):
            following = asyncio.create_task(collect(address, session_id, seen, spoke))
            with working_elsewhere(address, tmp_path, provider):
                await spoke.wait()
                assert STORY.startswith(said(seen))
                assert said(seen) != STORY
                provider.gate("later").open()
                await following
    assert said(seen) == STORY
    kinds = [type(event) for event in seen]
    deltas = [number for number, kind in enumerate(kinds) if kind is ModelDelta]
    assert kinds.index(ModelStarted) < deltas[0]
    assert deltas[-1] < kinds.index(ModelFinished)
    assert [event.seq for event in seen if event.seq] == list(range(1, len(seen) - len(deltas) + 1))
    assert not Path(f"{address}-live").exists()


async def test_the_answer_that_is_asked_again_after_a_kill_comes_in_its_place(address: str, tmp_path: Path) -> None:
    seen, spoke = list[AnyEvent](), asyncio.Event()
    turns = [Turn(text=STORY, gate=name, hold_after_pieces=3) for name in ("never", "later")]
    async with MockProvider(turns) as provider:
        session_id = await submit(address, "default", "Tell a story")
        async with asyncio.timeout(90):
            following = asyncio.create_task(collect(address, session_id, seen, spoke))
            with working_elsewhere(address, tmp_path, provider):
                await spoke.wait()
            with working_elsewhere(address, tmp_path, provider):
                while not has_spoken_again(seen):
                    spoke.clear()
                    await spoke.wait()
                provider.gate("later").open()
                await following
    begins = [number for number, event in enumerate(seen) if isinstance(event, ModelStarted)]
    assert len(begins) == 2
    assert STORY.startswith(said(seen[: begins[1]]))
    assert said(seen[begins[1] :]) == STORY
    assert isinstance(next(one for one in seen[begins[1] + 1 :] if not isinstance(one, ModelDelta)), ModelFinished)


def has_spoken_again(seen: list[AnyEvent]) -> bool:
    kinds = [type(event) for event in seen]
    return kinds.count(ModelStarted) == 2 and kinds[-1] is ModelDelta


async def test_two_followers_see_all_of_it_and_the_later_one_from_its_beginning(address: str) -> None:
    seen: tuple[list[AnyEvent], list[AnyEvent]] = ([], [])
    spoke = asyncio.Event(), asyncio.Event()

    async def tell(body: object) -> Turn:
        return Turn(text=STORY, pieces=8, gate="later", hold_after_pieces=3)

    async with MockProvider(tell) as provider, asyncio.timeout(90):
        session_id = await submit(address, "clerk", "Tell a story")
        model = resolve_model("openai-chat:mock", base_url=provider.base_url, api_key="sk-mock")
        async with working(address, {"clerk": lambda: Agent(model)}):
            first = asyncio.create_task(collect(address, session_id, seen[0], spoke[0]))
            await spoke[0].wait()
            second = asyncio.create_task(collect(address, session_id, seen[1], spoke[1]))
            provider.gate("later").open()
            await asyncio.gather(first, second)
    assert said(seen[0]) == STORY
    assert said(seen[1]) in ("", STORY)  # all of it, or none where the answer ended before it was heard


async def test_a_follower_that_may_not_write_next_to_the_journal_sees_whole_events(tmp_path: Path) -> None:
    journal, seen = tmp_path / "agent.db", list[AnyEvent]()
    Path(f"{journal}-live").write_text("a file where the folder would be")
    async with MockProvider([STORY]) as provider, asyncio.timeout(90):
        model = resolve_model("openai-chat:mock", base_url=provider.base_url, api_key="sk-mock")
        session_id = await submit(journal, "clerk", "Tell a story")
        async with working(journal, {"clerk": lambda: Agent(model)}):
            await collect(journal, session_id, seen, asyncio.Event())
    assert said(seen) == ""
    assert [event.message.text for event in seen if isinstance(event, ModelFinished)] == [STORY]


TELLER = """
import asyncio, sys
from treadle import Agent, open_session, resolve_model

async def main(journal, base_url):
    model = resolve_model("openai-chat:mock", base_url=base_url, api_key="sk-mock")
    async with open_session(journal, id="story") as session:
        await Agent(model).run("Tell a story", session=session)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_an_answer_of_agent_run_is_followed_from_another_process_while_it_comes(address: str) -> None:
    seen, spoke = list[AnyEvent](), asyncio.Event()
    async with open_session(address, id="story"):
        pass
    async with MockProvider([Turn(text=STORY, gate="later", hold_after_pieces=3)]) as provider, asyncio.timeout(90):
        run = await asyncio.create_subprocess_exec(sys.executable, "-c", TELLER, address, provider.base_url)
        async with open_journal(address) as journal:
            while not await journal.read("story"):
                await asyncio.sleep(0.01)  # sleep: the process tells nobody that its run has begun
        following = asyncio.create_task(collect(address, "story", seen, spoke))
        await spoke.wait()
        assert said(seen) != STORY
        provider.gate("later").open()
        await following
        assert await run.wait() == 0
    assert said(seen) == STORY


FOLLOWER = """
import asyncio, sys
from treadle import open_journal

async def main(address):
    async with open_journal(address) as journal, journal.hear_live("story"):
        print("follows", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


@asynccontextmanager
async def following_elsewhere(address: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FOLLOWER, str(address), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"follows\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_follower_that_died_leaves_nothing_and_others_go_on_reading(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    folder = Path(f"{path}-live")
    async with open_journal(path) as journal:
        assert isinstance(journal, HasLive)
        async with following_elsewhere(path) as dies, journal.hear_live("story") as hear:
            assert await journal.tell_live("story", 4, ["Once\n"], 0) == 1
            dies.kill()
            await dies.wait()
            assert await journal.tell_live("story", 4, ["Once\n", "upon\n"], 1) == 2
            assert hear() == [(4, "Once\n"), (4, "upon\n")]
        assert not folder.exists()
        async with following_elsewhere(path) as dies:
            assert await journal.tell_live("story", 4, ["Once\n"], 0) == 1
            dies.kill()
            await dies.wait()
            assert await journal.tell_live("story", 4, ["Once\n", "upon\n"], 1) == 0
        assert not folder.exists()


async def test_what_is_told_is_written_once_for_all_followers(tmp_path: Path) -> None:
    async with open_journal(tmp_path / "agent.db") as journal, AsyncExitStack() as stack:
        assert isinstance(journal, HasLive)
        hear = [await stack.enter_async_context(journal.hear_live("story")) for _ in range(3)]
        assert await journal.tell_live("story", 4, ["Once\n"], 0) == 1
        (file,) = Path(f"{tmp_path}/agent.db-live").iterdir()
        assert file.read_text() == "!\n4 Once\n"
        assert [one() for one in hear] == [[(4, "Once\n")]] * 3


async def test_a_file_that_has_grown_large_begins_anew_and_a_follower_that_was_slow_goes_on(tmp_path: Path) -> None:
    async with open_journal(tmp_path / "agent.db") as journal:
        assert isinstance(journal, HasLive)
        async with journal.hear_live("story") as hear:
            long = "x" * 2 * MOST_BYTES + "\n"
            await journal.tell_live("story", 4, [long], 0)
            assert hear() == [(4, long)]
            await journal.tell_live("story", 9, ["Once\n"], 0)
            assert hear() == [(9, "Once\n")]


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let this process write no file beyond a size, as if the disk were full: what does not fit is cut off."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("missing", [1, 2, 3, 40, 75, 76, 77, 78, 110])
async def test_what_a_full_disk_cuts_off_is_told_again_once_there_is_room(tmp_path: Path, missing: int) -> None:
    path = tmp_path / "agent.db"
    session_id = await submit(path, "clerk", "Tell a story")
    texts = ("Once ", "upon ", "a tïme", "€")
    pieces = [f"{encode_event(ModelDelta(session_id=session_id, text=text)).decode()}\n" for text in texts]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        journal = await stack.enter_async_context(open_journal(path))
        assert isinstance(journal, HasLive)
        await stack.enter_async_context(journal.hear_live(session_id))
        events = await stack.enter_async_context(aclosing(follow(journal, session_id, after=1, live=True)))
        with room_for(sum(len(f"4 {piece}".encode()) for piece in pieces) + 2 * len(SPOILED) - missing):
            known = await journal.tell_live(session_id, 4, pieces[:1], 0)
            known = await journal.tell_live(session_id, 4, pieces, known)
        assert known in (2, 3)
        assert await journal.tell_live(session_id, 4, pieces, known) == 4
        assert [(await anext(events)).text for _ in texts] == list(texts)  # type: ignore[union-attr]  # only deltas come


async def test_a_follower_that_comes_later_does_not_see_answers_that_have_ended(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    session_id = await submit(path, "clerk", "Tell a story")
    earlier, now = (
        f"{encode_event(ModelDelta(session_id=session_id, text=text)).decode()}\n" for text in ("No", "Now")
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        journal = await stack.enter_async_context(open_journal(path))
        assert isinstance(journal, HasLive)
        await stack.enter_async_context(journal.hear_live(session_id))
        await journal.tell_live(session_id, 4, [earlier, END], 0)
        await journal.tell_live(session_id, 9, [now], 0)
        later = await stack.enter_async_context(aclosing(follow(journal, session_id, after=1, live=True)))
        assert said([await anext(later)]) == "Now"


async def test_a_strange_file_in_place_of_that_of_followers_is_left_alone(tmp_path: Path) -> None:
    async with open_journal(tmp_path / "agent.db") as journal:
        assert isinstance(journal, HasLive)
        async with journal.hear_live("story"):
            (own,) = Path(f"{tmp_path}/agent.db-live").iterdir()
        own.parent.mkdir()
        target = tmp_path / "elsewhere"
        target.touch()
        own.symlink_to(target)
        with pytest.raises(JournalError):
            await journal.tell_live("story", 4, ["Once\n"], 0)
    assert target.read_bytes() == b""


class Line:
    """What a journal that can tell followers was asked to tell."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[str]]] = []
        self.has_told = asyncio.Event()

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        self.told.append((number, list(pieces)))
        self.has_told.set()
        return len(pieces)

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        raise NotImplementedError


ANSWER = (
    ModelStarted(session_id="story", seq=4),
    ModelDelta(session_id="story", text="Once"),
    ModelFinished(session_id="story", seq=5, message=Message(role="assistant", parts=(Text(text="Once"),))),
)


async def test_an_answer_that_ends_before_any_of_it_was_told_comes_only_as_a_whole() -> None:
    line = Line()
    teller = LiveTeller(line, "story")
    for event in ANSWER * 3:
        teller(event)
    await teller.close()
    assert line.told == []


async def test_an_answer_of_which_some_was_told_is_told_to_its_end() -> None:
    line, (started, delta, finished) = Line(), ANSWER
    teller = LiveTeller(line, "story")
    teller(started)
    teller(delta)
    await line.has_told.wait()
    teller(finished)
    await teller.close()
    number, pieces = line.told[-1]
    assert (number, len(pieces), pieces[-1]) == (started.seq, 2, END)
