"""An operator's walk by the library, with real processes: a payment in doubt is found, looked into, ended, and the model continues."""

import pytest
from crashing import Scene, World, stored

from treadle import Done, list_doubts, open_journal, open_session


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("is_told", [False, True])
async def test_a_payment_whose_process_was_killed_is_ended_with_the_receipt_and_the_model_goes_on(
    scene: Scene, outside: World, place: str, is_told: bool
) -> None:
    await scene.kill("CP11", lease_seconds=2.0)
    if is_told:
        assert (await scene.run(act="resume", lease_seconds=40.0)).is_completed

    async with open_journal(place) as journal:
        while not (found := await list_doubts(journal)):  # on a server the lease of the dead holds for a while
            pass
        for doubt in found:
            assert (doubt.tool, doubt.is_told) == ("act", is_told)
            assert doubt.key in [act["do"] for act in outside.acts()]  # the service knows the call by it
            async with open_session(journal, id=doubt.session_id, must_exist=True) as session:
                await session.resolve(doubt.call_id, Done({"receipt": 4711}), by="ada", reason="On the list")
        assert await list_doubts(journal) == ()

    if not is_told:
        assert (await scene.run(act="resume", lease_seconds=40.0)).is_completed
    assert outside.duplicates() == []
    events, state = await stored(place)
    assert [event.by for event in events if event.type == "tool.resolved"] == ["ada"] * len(found)
    if not is_told:
        assert "4711" in " ".join(part.content for message in state.messages for part in message.results)
