"""An operator's walk by the library, with real processes: a payment in doubt is found, looked into, ended, and the model continues."""

from pathlib import Path

import msgspec
import pytest
from crash_child import Job
from crashing import children, stored, world

from treadle import Done, list_doubts, open_journal, open_session
from treadle.journals.sqlite import open_sqlite


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("is_told", [False, True])
async def test_a_payment_whose_process_was_killed_is_ended_with_the_receipt_and_the_model_goes_on(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, is_told: bool
) -> None:
    place = str(tmp_path / "a.db") if store == "sqlite" else str(request.getfixturevalue("postgres_url"))
    async with world(tmp_path / "acts") as outside, children() as mother:
        job = Job(journal=place, port=outside.port, out=str(tmp_path / "out"), point="CP11", lease_seconds=2.0)
        assert (await mother.run(job)).was_killed
        going_on = msgspec.structs.replace(job, point="", act="resume", lease_seconds=40.0)
        if is_told:
            assert (await mother.run(going_on)).report["reason"] == "completed"

        journal = await (open_sqlite(place) if store == "sqlite" else open_journal(place))
        try:
            while not (found := await list_doubts(journal)):  # on a server the lease of the dead holds for a while
                pass
            for doubt in found:
                assert (doubt.tool, doubt.is_told) == ("act", is_told)
                assert doubt.key in [act["do"] for act in outside.acts()]  # the service knows the call by it
                async with open_session(journal, id=doubt.session_id, must_exist=True) as session:
                    await session.resolve(doubt.call_id, Done({"receipt": 4711}), by="ada", reason="On the list")
            assert await list_doubts(journal) == ()
        finally:
            await journal.close()

        if not is_told:
            assert (await mother.run(going_on)).report["reason"] == "completed"
        assert outside.duplicates() == []
    events, state = await stored(place)
    assert [event.by for event in events if event.type == "tool.resolved"] == ["ada"] * len(found)
    if not is_told:
        assert "4711" in " ".join(part.content for message in state.messages for part in message.results)
