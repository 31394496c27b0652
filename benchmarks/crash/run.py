"""Kill each library inside a payment, let it resume, and count at the bank. It ends every process that it starts, and no other.

    python benchmarks/crash/run.py --setup      # once: an environment for each rival, from the package index
    python benchmarks/crash/run.py --kills 10

A life is one run of two processes: the first is killed with SIGKILL right before or right after its payment, the second resumes.
All stays on loopback. Exit code 1 when Treadle pays twice, fails to resume, or tells the model what is not so.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scene import Ending, Peer, Scene

POINTS = ("before", "after")

PEERS = (
    Peer("Treadle", "treadle_peer"),
    Peer("Treadle, tool with a `check`", "treadle_peer", variant="checked"),
    Peer(
        "LangGraph, SQLite checkpointer", "langgraph_peer",
        ("langgraph", "langchain", "langchain-openai", "langgraph-checkpoint-sqlite"),
    ),
    Peer("pydantic-ai, DBOS", "pydantic_ai_peer", ("pydantic-ai-slim[dbos,openai]",)),
)  # fmt: skip


def main() -> int:
    wanted = _arguments()
    peers = [peer for peer in PEERS if peer.file in wanted.peers]
    if wanted.setup:
        _set_up(peers)
    peers = [peer for peer in peers if _is_there(peer)]
    if not peers:
        return 1
    cells = _endings(peers, wanted.kills)
    _print_table(cells)
    _print_versions(cells)
    faults = [(peer, end) for (peer, _), ends in cells.items() for end in ends if not end.has_resumed]
    for peer, end in faults:
        print(f"{peer.title} did not resume:\n{end.words}", file=sys.stderr)
    ours = [end for (peer, _), ends in cells.items() if peer.file == "treadle_peer" for end in ends]
    return 0 if all(end.is_sound for end in ours) else 1


def _arguments() -> argparse.Namespace:
    files = list(dict.fromkeys(peer.file for peer in PEERS))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", action="store_true", help="first make the rivals' environments, with pip")
    parser.add_argument("--kills", type=int, default=10, help="for each library and each point (10)")
    parser.add_argument("--peers", nargs="+", choices=files, default=files, help="files of peers/, by name")
    wanted = parser.parse_args()
    if wanted.kills < 1:
        parser.error("--kills must be at least 1.")
    return wanted


# --- the rivals' environments


def _set_up(peers: Sequence[Peer]) -> None:
    for peer in peers:
        if peer.packages:
            subprocess.run([sys.executable, "-m", "venv", peer.venv], check=True)
            subprocess.run([peer.python, "-m", "pip", "install", "--quiet", "--upgrade", *peer.packages], check=True)


def _is_there(peer: Peer) -> bool:
    if peer.python.exists():
        return True
    print(f"Left out: {peer.title}. It has no environment yet: `--setup` makes it.", file=sys.stderr)
    return False


# --- lives


Cells = dict[tuple[Peer, str], list[Ending]]


def _endings(peers: Sequence[Peer], kills: int) -> Cells:
    plan = [(peer, point) for _ in range(kills) for point in POINTS for peer in peers]
    cells: Cells = {(peer, point): [] for peer in peers for point in POINTS}
    with (
        tempfile.TemporaryDirectory(prefix="treadle-crash-") as folder,
        Scene.open(Path(folder)) as scene,
        ThreadPoolExecutor(2) as pool,
    ):
        for cell, ending in zip(plan, pool.map(lambda cell: scene.live(*cell), plan), strict=True):
            cells[cell].append(ending)
    return cells


# --- the table


def _print_table(cells: Cells) -> None:
    heads = (
        "", "killed", "kills", "resumed", "not paid", "paid once", "paid twice", "twice, if keys are honoured",
        "the model was told", "which is not all",
    )  # fmt: skip
    print("| " + " | ".join(heads) + " |")
    print("|---|---|" + "---|" * (len(heads) - 2))
    for (peer, point), ends in cells.items():
        print("| " + " | ".join(map(str, (peer.title, f"{point} it paid", *_counts(ends)))) + " |")


def _counts(ends: Sequence[Ending]) -> tuple[object, ...]:
    return (
        len(ends),
        sum(end.has_resumed for end in ends),
        sum(end.payments == 0 for end in ends),
        sum(end.payments == 1 for end in ends),
        sum(end.payments > 1 for end in ends),
        sum(end.keys > 1 for end in ends),
        ", ".join(f"{told} {count}" for told, count in Counter(end.told for end in ends).items()),
        sum(end.is_told_amiss for end in ends),
    )


def _print_versions(cells: Cells) -> None:
    versions = dict.fromkeys(end.versions for ends in cells.values() for end in ends if end.versions)
    print(f"\nPython {sys.version.split()[0]}; {'; '.join(versions)}")


if __name__ == "__main__":
    sys.exit(main())
