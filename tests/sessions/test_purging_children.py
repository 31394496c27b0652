"""What a purge removes beside the session itself: the sessions that carried out its calls, and no fork."""

from pathlib import Path

import pytest

from treadle import Agent, open_journal, open_session
from treadle.ports import Journal
from treadle.testing import ScriptedModel, call, text


async def family(journal: Journal) -> None:
    """Make `top`, whose call is carried out by a child, whose call is carried out by a grandchild; and a fork of `top`."""
    lowest = Agent(ScriptedModel([text("secret below")]))
    middle = Agent(
        ScriptedModel([call("look", task="x"), text("secret between")]),
        tools=[lowest.as_tool("look", "Looks.", effect="read")],
    )
    top = Agent(
        ScriptedModel([call("ask", task="x"), text("Done.")]), tools=[middle.as_tool("ask", "Asks.", effect="read")]
    )
    async with open_session(journal, id="top") as session:
        await top.run("go", session=session)
        await session.fork(id="fork")


@pytest.mark.parametrize("address", ["memory:", "{folder}/journal.db"])
async def test_the_sessions_that_carried_out_its_calls_are_purged_with_it(address: str, tmp_path: Path):
    async with open_journal(address.format(folder=tmp_path)) as journal:
        await family(journal)
        assert len(await journal.sessions()) == 4

        async with open_session(journal, id="top") as session:
            await session.delete(purge=True)
            await session.delete(purge=True)

        left = {info.id: info.head for info in await journal.sessions()}
        assert left.pop("fork") > 1
        assert list(left.values()) == [1, 1, 1]
        for session_id in left:
            assert "secret" not in str(await journal.read(session_id))


async def test_a_session_that_is_only_deleted_keeps_what_its_children_did():
    async with open_journal("memory:") as journal:
        await family(journal)
        async with open_session(journal, id="top") as session:
            await session.delete()
        assert min(info.head for info in await journal.sessions()) > 1
