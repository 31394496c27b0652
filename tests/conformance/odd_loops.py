"""Adapters that the suite must be ready for."""

import os
import threading
from typing import Any

from bare_loop import OFFERS, Loop, Texting, adapter_of
from broken_loops import AssemblesByArrival, DropsTheTextOfCalls


def hangs(job: Any) -> None:
    threading.Event().wait()


hangs.offers = ("chat",)

MOTHER = os.getpid()


def unforked(job: Any) -> dict[str, Any]:
    assert os.getpid() == MOTHER
    return Loop(job).run()


unforked.offers = OFFERS
unforked.forks = False


class Silent(Texting):
    """It tells the model calls, and no results."""

    def told(self) -> list[dict[str, Any]]:
        return [one for one in super().told() if not str(one["content"]).startswith("Result: ")]


silent = adapter_of(Silent)
silent.offers = (*OFFERS, "texts")
by_arrival = adapter_of(AssemblesByArrival)
without_texts = adapter_of(DropsTheTextOfCalls)
