"""Replay a recorded run of the model benchmark: the same requests must come, and get the same answers. Needs no model.

A request that differs says that what models read has changed, which may cost tasks: run the benchmark again, and record the run anew.

    make bench-models MODELS="treadle_default treadle_text_calls --tasks stock,sixes --record benchmarks/models/recorded"
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from aiohttp import web

__all__ = ["RECORDED", "Replay", "difference", "recordings"]

RECORDED = Path(__file__).parent / "recorded"
_ADVICE = (
    "What a model reads has changed, which may cost tasks. Run `make bench-models` before and after the change, keep the one that gets more done, "
    "and record the run again (benchmarks/models/replay.py says how)."
)


def recordings() -> list[tuple[str, str]]:
    """Return the mode of Treadle and the task of each recorded run."""
    names = [
        path.name.removeprefix("treadle_").removesuffix(".json").split(".") for path in RECORDED.glob("treadle_*.json")
    ]
    return sorted((mode, task) for mode, task in names)


class Replay:
    """A server on loopback that answers as the recorded one did.

    Args:
        path: The exchanges of one task.
    """

    def __init__(self, path: Path) -> None:
        self._exchanges: Sequence[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        self._asked = 0
        self.fault = ""
        """What was different about the first request that differed."""
        self.address = ""

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        number, self._asked = self._asked, self._asked + 1
        if number >= len(self._exchanges):
            self._note(f"Request {number + 1} was not recorded: {len(self._exchanges)} were.")
            return web.json_response({"error": {"message": self.fault}}, status=400)
        exchange = self._exchanges[number]
        if where := difference(exchange["request"], await request.json()):
            self._note(f"Request {number + 1} differs from the recorded one: {where}")
        return web.json_response(exchange["answer"])

    def _note(self, fault: str) -> None:
        self.fault = self.fault or f"{fault} {_ADVICE}"


def difference(recorded: Any, sent: Any, place: str = "body") -> str:  # Any: JSON
    """Return where two bodies differ first, with both values; empty where they are equal."""
    if isinstance(recorded, dict) and isinstance(sent, dict):
        pairs = ((f"{place}.{key}", recorded.get(key), sent.get(key)) for key in {**recorded, **sent})
    elif isinstance(recorded, list) and isinstance(sent, list) and len(recorded) == len(sent):
        pairs = ((f"{place}[{at}]", one, other) for at, (one, other) in enumerate(zip(recorded, sent, strict=True)))
    else:
        return "" if recorded == sent else f"{place} was {json.dumps(recorded)[:300]}, and is {json.dumps(sent)[:300]}."
    return next((found for where, one, other in pairs if (found := difference(one, other, where))), "")
