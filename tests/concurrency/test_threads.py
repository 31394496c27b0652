"""Threads: what a blocking function leaves behind when nobody waits for it any more."""

import asyncio
import gc
from typing import Any

from treadle.concurrency import Threads


def fails() -> None:
    raise ValueError("no")


async def test_an_error_that_nobody_waits_for_is_no_complaint_of_the_event_loop() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))

    gc.freeze()  # only what this test makes is looked at
    future = Threads().submit(fails)
    await asyncio.wait({future})
    del future
    gc.collect()
    gc.unfreeze()

    assert complaints == []
