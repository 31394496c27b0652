"""What the tests of the page share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web_site import Site, look_up, pay, site_of

from treadle import Agent, Agents, open_journal, open_session, tool
from treadle.testing import ScriptedModel
from treadle.toolsets import ask_user_tool


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A page of an empty journal, with the agent `clerk`, which continues what is answered."""
    clerk = Agent(ScriptedModel([{"text": "Paid."}] * 20), tools=[look_up, pay, ask_user_tool()], name="clerk")
    async with open_journal(tmp_path / "agent.db") as journal, site_of(journal, agents=Agents([clerk])) as made:
        yield made


@pytest.fixture
async def in_doubt(site: Site) -> str:
    """A session with a payment that started, and of which nobody knows how it ended."""

    @tool(effect="unsafe", permission="allow")
    async def pay(account: str) -> str:
        """Pay, and hear nothing."""
        raise ConnectionResetError("The connection broke.")

    turns = [{"calls": [{"name": "pay", "arguments": {"account": "DE02"}}]}, {"text": "I do not know."}]
    agent = Agent(ScriptedModel(turns), tools=[pay], name="clerk")
    async with open_session(site.journal) as session:
        await agent.run("Pay", session=session)
    return session.id
