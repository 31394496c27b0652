"""What a survey of mutations showed that no test noticed: a compactor that raises as the run is cancelled leaves a cancelled run."""

import asyncio

import pytest

from treadle import Agent
from treadle.ports import Compactable, Compaction, RequestNeed
from treadle.testing import ScriptedModel, text


class RaisesAtTheEnd:
    """A compactor that waits until it is cancelled, and fails then."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return True

    async def compact(self, context: Compactable) -> Compaction | None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("broken off") from None
        return None


async def test_a_run_that_is_cancelled_while_its_compactor_works_ends_as_cancelled_and_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    compactor, model = RaisesAtTheEnd(), ScriptedModel([text("never")])
    run = Agent(model, compactor=compactor).stream("go")
    ending = asyncio.create_task(run.finish())
    await compactor.begun.wait()
    run.cancel()
    result = await ending

    assert (result.reason, model.requests) == ("cancelled", [])
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []
