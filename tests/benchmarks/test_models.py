"""The benchmark of small models, replayed: a change of what models read is seen before it costs tasks."""

import json
import sys
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "benchmarks" / "models"
sys.path += [str(MODELS), str(MODELS / "peers")]  # scripts, and not a package

from corrections import CASES, REFUSAL, RESULTS, ran  # noqa: E402 - found by the line above
from replay import RECORDED, Replay, difference, recordings  # noqa: E402 - found by the line above
from runs import judged  # noqa: E402 - found by the line above
from tasks import TASKS, Shop  # noqa: E402 - found by the line above
from treadle_peer import Treadle  # noqa: E402 - found by the line above


@pytest.mark.parametrize(("mode", "name"), recordings())
async def test_a_recorded_run_asks_what_it_asked_and_gets_done_what_it_got_done(mode, name):
    task = next(task for task in TASKS if task.name == name)
    async with Replay(RECORDED / f"treadle_{mode}.{name}.json") as replay:
        outcome = await judged(Treadle(mode), task, replay.address)

    assert replay.fault == ""
    assert outcome["done"], outcome


CORRECTED = json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]


@pytest.mark.parametrize("run", CORRECTED, ids=lambda run: f"{run['mode']}-{run['fault']}-{run['held_out']}")
async def test_a_recorded_correction_says_what_it_said_and_cures_what_it_cured(run):
    case = next(case for case in CASES if (case.fault, case.task) == (run["fault"], run["task"]))

    again = await ran(run["mode"], case, "", answer=run["answer"])

    assert list(again["told"]) == run["told"], "run benchmarks/models/corrections.py: the new words may cure less"
    assert again["cured"] == run["cured"]


@pytest.mark.parametrize("mode", ["react", "text_calls"])
def test_a_correction_cures_at_least_half_of_the_calls_with_bad_arguments(mode):
    cured = [run["cured"] for run in CORRECTED if run["mode"] == mode and run["fault"] != REFUSAL]

    assert 2 * sum(cured) >= len(cured) > 0


async def test_a_request_that_differs_says_where_and_what_to_do():
    mode, name = recordings()[0]
    task = next(task for task in TASKS if task.name == name)
    async with Replay(RECORDED / f"treadle_{mode}.{name}.json") as replay:
        await judged(Treadle(mode), task._replace(text="Something else."), replay.address)

    assert "Request 1 differs from the recorded one: body.messages[1].content was " in replay.fault
    assert "make bench-models" in replay.fault
    assert difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "body.a[1].b was 2, and is 3."


def test_a_task_is_judged_by_what_its_tools_did_and_by_the_answer():
    def after(name: str, answer: str, *calls: tuple[object, ...]) -> bool:
        shop = Shop()
        tools = {tool.__name__: tool for tool in shop.tools()}
        for tool, *values in calls:
            tools[str(tool)](*values)
        return next(task for task in TASKS if task.name == name).is_done(shop, answer)

    assert after("stock", "There are 14.", ("get_stock", "umbrellas"))
    assert not after("stock", "There are 14.")
    assert not after("stock", "There are 140.", ("get_stock", "umbrella"))
    assert after("price_of_ordered", "A chair costs 85.0 euros.", ("get_order", 4107), ("get_price", "chair"))
    assert after("cancel", "Done.", ("cancel_order", 5512))
    assert not after("cancel", "Done.", ("cancel_order", 5512), ("cancel_order", 4107))
    assert not after("capital", "Paris.", ("get_stock", "lamp"))
    assert sum(task.is_held_out for task in TASKS) == len(TASKS) / 2 == 12
