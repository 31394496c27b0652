"""Hold conversations with the smallest model at a high temperature: each call must have one result, and each run end within its budget.

    python benchmarks/models/conversations.py                        200 conversations with SmolLM2-135M, which pip fetches
    python benchmarks/models/conversations.py --count 20 --server http://127.0.0.1:8092/v1

What such a model writes is mostly nonsense, which is the point. Counts are printed; the exit code is 1 where a promise was broken.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "peers"))

import server
from runs import INSTRUCTIONS
from tasks import TASKS, Shop
from treadle_peer import as_tool

from treadle import Agent, Budget, RunResult, allow, resolve_model
from treadle.drivers import NativeDriver, ReActDriver

BUDGET = Budget(max_model_turns=3, max_tool_calls=6, max_output_tokens=300)
TOOLS = ("get_stock", "place_order", "set_reminder")
MODES = ("default", "native", "react")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument(
        "--server", help="base URL of a server that has the model; without one, it is fetched and served"
    )
    wanted = parser.parse_args()
    begun = time.monotonic()
    with ExitStack() as stack:
        address = wanted.server or stack.enter_context(server.serving(is_smallest=True))
        found, faults = asyncio.run(_held(wanted.count, wanted.temperature, address))
    for name, counter in found.items():
        print(f"{name}: {', '.join(f'{word} {number}' for word, number in counter.most_common())}")
    print(f"{wanted.count} conversations in {time.monotonic() - begun:.0f} s, {len(faults)} broken promises")
    print("\n".join(faults))
    return 1 if faults else 0


async def _held(count: int, temperature: float, address: str) -> tuple[dict[str, Counter[str]], list[str]]:
    found: dict[str, Counter[str]] = {"reasons": Counter(), "results": Counter(), "modes": Counter()}
    faults: list[str] = []
    for number in range(count):
        mode = MODES[
            number * len(MODES) // count
        ]  # one mode after the other: the server keeps the prompt that they share
        task = random.Random(number).choice(TASKS)
        options = {"temperature": temperature, "seed": number, "max_tokens": 40}
        model = resolve_model("llamacpp:smollm2-135m", base_url=address, options=options)
        driver = {"default": None, "native": NativeDriver(), "react": ReActDriver(output="text")}[mode]
        tools = [as_tool(function) for function in Shop().tools() if function.__name__ in TOOLS]
        agent = Agent(model, tools=tools, instructions=INSTRUCTIONS, policy=allow("*"), budget=BUDGET, driver=driver)
        result = await agent.run(task.text)
        found["reasons"][str(result.reason)] += 1
        found["modes"][mode] += 1
        found["results"].update(call.status for call in result.tool_calls)
        faults += [f"conversation {number} ({mode}): {fault}" for fault in _faults(result)]
        if sys.stderr.isatty() or number % 20 == 19:
            so_far = ", ".join(f"{word} {times}" for word, times in found["reasons"].most_common())
            print(f"{number + 1} of {count}: {so_far}; {len(faults)} broken promises", file=sys.stderr, flush=True)
    return found, faults


def _faults(result: RunResult) -> Sequence[str]:
    """Return the promises that a run has broken."""
    proposed = [call.id for message in result.messages for call in message.calls]
    answered = [one.call_id for message in result.messages for one in message.results]
    spent = result.spent
    return [
        *([] if sorted(proposed) == sorted(answered) else [f"calls {proposed} have the results {answered}"]),
        *([] if len(set(proposed)) == len(proposed) else ["an id of a call came twice"]),
        *([] if spent.model_turns <= (BUDGET.max_model_turns or 0) + 1 else [f"{spent.model_turns} responses"]),
        *([] if spent.tool_calls <= (BUDGET.max_tool_calls or 0) else [f"{spent.tool_calls} calls"]),
        *([] if result.reason else ["no reason"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
