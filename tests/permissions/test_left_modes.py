"""A change of the mode lies in the inbox until the next run takes it in: what a session says of its mode includes it."""

from treadle import Agent, open_session
from treadle.testing import ScriptedModel, text


async def test_a_mode_that_no_run_has_taken_in_yet_stays_known_over_a_rewind(tmp_path):
    agent = Agent(ScriptedModel([text("Hello.")]))
    async with open_session(tmp_path / "j.db", id="s") as session:
        await agent.run("Go", session=session)
        await session.mark("here")
        await session.set_mode("plan")
        await session.rewind("here")
        assert session.mode == "plan"

        await agent.run("Go on", session=session)
        async with open_session(tmp_path / "j.db", id="s") as other:
            await other.set_mode("ask")
        await agent.run("Go on", session=session)
        assert session.mode == "ask"
