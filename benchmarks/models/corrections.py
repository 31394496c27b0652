"""Measure how often a correction cures a bad call: the bad call is given, and the small model reads what Treadle says of it.

    python benchmarks/models/corrections.py                              the tuning half, in three modes
    python benchmarks/models/corrections.py --half held-out text_calls   the other half, in one mode
    python benchmarks/models/corrections.py --docs                       write the last results into docs/know/models-benchmark.md

The first answer of each case is written here, in the form of the mode. The next one is the model's own: the bad call is cured if that answer is a
call of the right tool with the right values. In the default mode a schema lets no bad arguments through, so only refusals are left.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

HERE = Path(__file__).parent
sys.path.append(str(HERE / "peers"))

import aiohttp
import server
import table
from aiohttp import web
from measure import MOST_TOKENS, SEED, TEMPERATURE
from tasks import Fact, Shop, fits
from treadle_peer import Treadle

__all__ = ["CASES", "REFUSAL", "RESULTS", "Case", "ran"]

RESULTS = HERE / "corrections.json"
MODES = ("default", "react", "text_calls")
SCHEMALESS = ("react", "text_calls")
REFUSAL = "a refusal of the service"


class Case(NamedTuple):
    """One bad call, and the call that its task needs."""

    fault: str
    is_held_out: bool
    task: str
    tool: str
    arguments: Any
    """JSON, or the text of what is none."""
    wanted: Fact


CASES = (
    Case("a missing argument", False, "Order 3 lamps.", "place_order", {"product": "lamp"}, ("place_order", "lamp", 3)),
    Case("a missing argument", False, "Set a reminder for Monday with priority 2: Pay the rent.", "set_reminder",
         {"day": "mon", "text": "Pay the rent."}, ("set_reminder", "mon", 2, "pay the rent")),
    Case("a missing argument", True, "Send Tom this message: The desk is here.", "send_message", {"text": "The desk is here."},
         ("send_message", "tom", "the desk is here")),
    Case("a missing argument", True, "Cancel order 5512.", "cancel_order", {}, ("cancel_order", 5512)),
    Case("a wrong name of an argument", False, "How many mugs are in stock?", "get_stock", {"item": "mug"}, ("get_stock", "mug")),
    Case("a wrong name of an argument", False, "Send Maria this message: Hello.", "send_message",
         {"recipient": "Maria", "message": "Hello."}, ("send_message", "maria", "hello")),
    Case("a wrong name of an argument", True, "What is the state of order 4107?", "get_order", {"order_id": 4107}, ("get_order", 4107)),
    Case("a wrong name of an argument", True, "Order 2 desks.", "place_order", {"product": "desk", "amount": 2}, ("place_order", "desk", 2)),
    Case("an argument too many", False, "What does a desk cost?", "get_price", {"product": "desk", "currency": "EUR"}, ("get_price", "desk")),
    Case("an argument too many", True, "Cancel order 6003.", "cancel_order", {"order": 6003, "reason": ""}, ("cancel_order", 6003)),
    Case("a wrong kind", False, "Order five chairs.", "place_order", {"product": "chair", "quantity": "five"}, ("place_order", "chair", 5)),
    Case("a wrong kind", False, "Set a reminder with priority 3 for Friday: Call Ben.", "set_reminder",
         {"day": "fri", "priority": "high", "text": "Call Ben."}, ("set_reminder", "fri", 3, "call ben")),
    Case("a wrong kind", True, "Cancel order 5512.", "cancel_order", {"order": "order 5512"}, ("cancel_order", 5512)),
    Case("a wrong kind", True, "Order two lamps.", "place_order", {"product": "lamp", "quantity": "two"}, ("place_order", "lamp", 2)),
    Case("a word that is not in the list", False, "Set a reminder with priority 1 for Tuesday: Buy milk.", "set_reminder",
         {"day": "Tuesday", "priority": 1, "text": "Buy milk."}, ("set_reminder", "tue", 1, "buy milk")),
    Case("a word that is not in the list", True, "Set a reminder with priority 2 for Thursday: Water the plants.", "set_reminder",
         {"day": "thursday", "priority": 2, "text": "Water the plants."}, ("set_reminder", "thu", 2, "water the plants")),
    Case("no such tool", False, "How many lamps are in stock?", "check_stock", {"product": "lamp"}, ("get_stock", "lamp")),
    Case("no such tool", True, "Cancel order 4107.", "delete_order", {"order": 4107}, ("cancel_order", 4107)),
    Case(REFUSAL, False, "Order 7 mugs. If you cannot order 7, order 12.", "place_order", {"product": "mug", "quantity": 7}, ("place_order", "mug", 12)),
    Case(REFUSAL, False, "How many garden umbrellas are in stock?", "get_stock", {"product": "garden umbrella"}, ("get_stock", "umbrella")),
    Case(REFUSAL, False, "Set a reminder with top priority for Friday: Call Ben.", "set_reminder",
         {"day": "fri", "priority": 5, "text": "Call Ben."}, ("set_reminder", "fri", 3, "call ben")),
    Case(REFUSAL, True, "How many office chairs are in stock?", "get_stock", {"product": "office chair"}, ("get_stock", "chair")),
    Case(REFUSAL, True, "What does a standing desk cost?", "get_price", {"product": "standing desk"}, ("get_price", "desk")),
    Case(REFUSAL, True, "Order 20 mugs. If you cannot order 20, order 24.", "place_order", {"product": "mug", "quantity": 20}, ("place_order", "mug", 24)),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"some of {', '.join(MODES)}; without one, all")
    parser.add_argument("--half", default="tuning", choices=("tuning", "held-out"))
    parser.add_argument(
        "--server", help="base URL of a server that has the model; without one, it is fetched and served"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="the file of results; runs of other modes and cases stay in it"
    )
    parser.add_argument("--docs", action="store_true", help="measure nothing; write the last results into docs/")
    wanted = parser.parse_args()
    if wanted.docs:
        table.write_corrections(json.loads(wanted.out.read_text(encoding="utf-8")))
        return 0
    with ExitStack() as stack:
        address = wanted.server or stack.enter_context(server.serving())
        asyncio.run(_measure(wanted, address))
    print(table.of_corrections(json.loads(wanted.out.read_text(encoding="utf-8"))))
    return 0


async def _measure(wanted: argparse.Namespace, address: str) -> None:
    runs = json.loads(wanted.out.read_text(encoding="utf-8"))["runs"] if wanted.out.is_file() else []
    for mode in wanted.modes or MODES:
        for case in CASES:
            if case.is_held_out is (wanted.half == "tuning") or (mode not in SCHEMALESS and case.fault != REFUSAL):
                continue
            run = {
                "mode": mode,
                "held_out": case.is_held_out,
                "fault": case.fault,
                "task": case.task,
                **await ran(mode, case, address),
            }
            print(
                f"{mode:11} {case.fault:32} {'cured' if run['cured'] else '-':6} {run['seconds']:6.1f} s  {run['answer'][:90]}",
                file=sys.stderr,
            )
            runs = [
                one for one in runs if (one["mode"], one["task"], one["fault"]) != (mode, case.task, case.fault)
            ] + [run]
            results = {
                "when": time.strftime("%Y-%m-%d"),
                "model": server.MODEL_FILE,
                "versions": server.versions(),
                "runs": runs,
            }
            wanted.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


async def ran(mode: str, case: Case, address: str, *, answer: str | None = None) -> dict[str, Any]:
    """Run one case, and return what came of it.

    Args:
        answer: What the model answered when it was recorded: it is not asked again.
    """
    shop, begun = Shop(), time.monotonic()
    async with _Given(address, _written(mode, case), second=answer) as given:
        await Treadle(mode).run(given.address, shop.tools(), case.task)
    return {
        "cured": any(fits(entry, case.wanted) for entry in shop.ledger),
        "told": given.told,
        "answer": given.answer,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _written(mode: str, case: Case) -> str:
    """Return the bad call as a model writes it in this mode."""
    names = ("name", "arguments") if mode == "text_calls" else ("tool", "args")
    return json.dumps(dict(zip(names, (case.tool, case.arguments), strict=True)))


class _Given:
    """A server on loopback that gives the first answer itself, and hands on one request. The next ones it refuses.

    Args:
        server: The base URL of the model's server.
        first: The text of the first answer.
        second: That of the second; None asks the model.
    """

    def __init__(self, server: str, first: str, *, second: str | None = None) -> None:
        self._server = server
        self._first = first
        self._second = second
        self._asked = 0
        self.told: Sequence[Mapping[str, Any]] = ()
        """The messages that the model read behind the bad call."""
        self.answer = ""
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
        self._asked += 1
        match self._asked:
            case 1:
                return web.json_response(_completion(self._first))
            case 2:
                return web.json_response(await self._passed_on(await request.json()))
            case _:
                return web.json_response({"error": {"message": "This case is over."}}, status=400)

    async def _passed_on(self, body: dict[str, Any]) -> Any:
        self.told = body["messages"][2:]
        if self._second is not None:
            return _completion(self._second)
        sent = {**body, "temperature": TEMPERATURE, "seed": SEED, "max_tokens": MOST_TOKENS, "cache_prompt": True}
        sent.pop("max_completion_tokens", None)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as client,
            client.post(f"{self._server}/chat/completions", json=sent) as answer,
        ):
            found = await answer.json()
        self.answer = found["choices"][0]["message"].get("content") or ""
        return found


def _completion(text: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {
        "id": "given",
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }


if __name__ == "__main__":
    sys.exit(main())
