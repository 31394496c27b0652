"""Measure what a small model gets done in Treadle and in other libraries: the same tasks, the same model on the same server.

    python benchmarks/models/measure.py                          all libraries, the tuning half, one repetition
    python benchmarks/models/measure.py --tasks all -n 5         all tasks, five repetitions
    python benchmarks/models/measure.py treadle_default bare     only these
    python benchmarks/models/measure.py --docs                   write the table of the last results into docs/know/models-benchmark.md

The model is `server.py`'s, from packages of the registry, unless `--server` names another. Every request goes through a proxy on loopback, which
sets what must be equal for all (temperature, seed, output limit) and keeps each request and its answer.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

import rivals
import server
import table
from proxy import Proxy
from tasks import TASKS

RESULTS = HERE / "results.json"
SEED = 11
TEMPERATURE = 0.3
MOST_TOKENS = 100

TREADLE = ("default", "text_calls", "react", "native")
RIVALS = ("smolagents", "pydantic_ai", "openai_agents")
PEERS = (*(f"treadle_{mode}" for mode in TREADLE), *RIVALS, "bare")


def main() -> int:
    wanted = _arguments()
    if wanted.docs:
        table.write_docs(json.loads(wanted.out.read_text(encoding="utf-8")))
        return 0
    for name in set(wanted.peers) & set(RIVALS):
        if fault := rivals.set_up(name):
            print(f"Left out: {name}. {fault}", file=sys.stderr)
            wanted.peers.remove(name)
    with ExitStack() as stack:
        address = wanted.server or stack.enter_context(server.serving())
        results = asyncio.run(_results(wanted, address))
    print(table.of(results))
    print(f"\nThe results are in {wanted.out}.", file=sys.stderr)
    return 0


def _add(results: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Begin with the runs of earlier results; the commands of both are named."""
    results["runs"] = list(before["runs"])
    results["command"] = f"{before['command']}; {results['command']}"
    results["when"] = before["when"]
    results["sampling"]["seeds"] = sorted({*before["sampling"]["seeds"], *results["sampling"]["seeds"]})
    for key in ("versions", "tasks"):
        results[key] = {**before[key], **results[key]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"some of {', '.join(PEERS)}; without one, all")
    parser.add_argument("--tasks", default="tuning", help="tuning, held-out, all, or names with commas (tuning)")
    parser.add_argument("-n", "--repetitions", type=int, default=1, help="each with a seed of its own (1)")
    parser.add_argument(
        "--server", help="base URL of a server that has the model; without one, it is fetched and served"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--record", type=Path, help="a folder for every request and answer")
    parser.add_argument("--add", action="store_true", help="begin with what the file of results has")
    parser.add_argument("--docs", action="store_true", help="measure nothing; write the last results into docs/")
    wanted = parser.parse_args()
    if unknown := sorted(set(wanted.peers) - set(PEERS)):
        parser.error(f"{unknown[0]!r} is not a peer. Choose from {', '.join(PEERS)}.")
    halves = {"tuning": [False], "held-out": [True], "all": [False, True]}
    chosen = halves.get(wanted.tasks)
    named = wanted.tasks.split(",")
    wanted.names = [one.name for one in TASKS if (one.is_held_out in chosen if chosen else one.name in named)]
    wanted.peers = wanted.peers or list(PEERS)
    return wanted


async def _results(wanted: argparse.Namespace, address: str) -> dict[str, Any]:
    """Run everything, and write the results after each task: a run takes hours, and may be interrupted."""
    options = {"temperature": TEMPERATURE, "max_tokens": MOST_TOKENS, "cache_prompt": True}
    async with Proxy(address, options, folder=wanted.record) as proxy:
        results = _about(wanted, model=await proxy.model() if wanted.server else server.MODEL_FILE)
        if wanted.add and wanted.out.is_file():
            _add(results, json.loads(wanted.out.read_text(encoding="utf-8")))
        for number in range(wanted.repetitions):
            proxy.options["seed"] = SEED + number
            for peer in wanted.peers:  # all tasks of one after the other: the server keeps the prompt that they share
                async for run in _ran(peer, wanted.names, proxy):
                    of = (peer, run["task"], number + 1)
                    others = [one for one in results["runs"] if (one["peer"], one["task"], one["repetition"]) != of]
                    results["runs"] = [*others, {"peer": peer, "repetition": number + 1, **run}]
                    results["machine"]["load_after"] = round(os.getloadavg()[0], 1)
                    wanted.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def _about(wanted: argparse.Namespace, *, model: str) -> dict[str, Any]:
    """Return what is known before the first run."""
    seeds = [SEED + number for number in range(wanted.repetitions)]
    return {
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "command": " ".join(["python benchmarks/models/measure.py", *sys.argv[1:]]),
        "model": model,
        "sampling": {"temperature": TEMPERATURE, "max_tokens": MOST_TOKENS, "seeds": seeds},
        "machine": {
            "system": platform.system(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": round(os.getloadavg()[0], 1),
        },
        "versions": {**server.versions(), **{peer: _versions(peer) for peer in wanted.peers}},
        "tasks": {
            task.name: {"kind": task.kind, "held_out": task.is_held_out} for task in TASKS if task.name in wanted.names
        },
        "runs": [],
    }


async def _ran(peer: str, names: Sequence[str], proxy: Proxy) -> Any:
    """Run tasks in one process of a library, and yield what came of each."""
    command = [*_command(peer), "--server", f"{proxy.address}/{peer}/{{task}}/v1", "--tasks", ",".join(names)]
    environment = {**_quiet(), "OPENAI_API_KEY": "x"}
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            one = json.loads(line)
            asked = proxy.asked(peer, one["task"])
            print(
                f"{peer:22} {one['task']:18} {'done' if one['done'] else '-':5} {one['seconds']:6.1f} s  {one['note'][:60]}",
                file=sys.stderr,
            )
            yield {**one, **asked}
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _command(peer: str) -> list[str]:
    if peer.startswith("treadle_"):
        return [sys.executable, str(HERE / "peers" / "treadle_peer.py"), peer.removeprefix("treadle_")]
    python = rivals.python_of(f"{peer}_peer") if peer in RIVALS else sys.executable
    return [str(python), str(HERE / "peers" / f"{peer}_peer.py")]


def _quiet() -> dict[str, str]:
    """Return an environment without the person's keys and addresses."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}


def _versions(peer: str) -> Mapping[str, str]:
    if peer == "bare":
        return {}
    return rivals.versions(peer if peer in RIVALS else "treadle_peer")


if __name__ == "__main__":
    sys.exit(main())
