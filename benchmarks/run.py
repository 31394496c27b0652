"""Measure Treadle against the bare loop and print a table of ratios. Loopback only; ends every process that it starts.

Each measurement is a fresh process; rounds go through all peers in turn, so that what else the machine does meets all of them;
client and server are held on different processors where the system allows it; medians are printed. Absolute numbers are this
machine's, in this minute: compare the ratios, and those of one run only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import import_cost
from harness import EXPERIMENTS, NAP_SECONDS

HERE = Path(__file__).parent
FLOOR = "floor_raw"
PEERS = (FLOOR, "floor_kept", "treadle_peer", "treadle_sqlite_peer")

_SECONDS = 300
"""No measurement takes so long; one that does has hung."""


class Measure(NamedTuple):
    """One line of the table."""

    experiment: str
    metric: str
    title: str
    unit: str
    promised: Mapping[str, float] = {}
    """By peer: how many times the floor's value it may be at most."""
    floor: float | None = None
    """What to compare with; None for what the floor came to."""


MEASURES = (
    Measure("turns", "cpu_ms_a_turn_10", "CPU a turn, 10 turns", "ms", {"treadle_peer": 3, "treadle_sqlite_peer": 4}),
    Measure("turns", "cpu_ms_a_turn_100", "CPU a turn, 100 turns", "ms", {"treadle_peer": 3, "treadle_sqlite_peer": 4}),
    Measure("parallel", "async_wall_ms", "128 async calls of 50 ms, wall", "ms", {"treadle_peer": 1.25}),
    Measure(
        "parallel", "blocking_wall_ms", "128 blocking calls of 50 ms, wall (against 50 ms)", "ms", {"treadle_peer": 1.3},
        NAP_SECONDS * 1000,
    ),
    Measure("stream", "first_token_ms", "Time to the first token", "ms", {"treadle_peer": 2}),
    Measure("stream", "cpu_ms_a_1000_chunks", "CPU of 1,000 streamed chunks", "ms", {"treadle_peer": 4}),
    Measure("crowd", "turns_a_second", "100 runs side by side", "turns/s"),
    Measure("crowd", "crowd_cpu_ms_a_turn", "100 runs side by side, CPU a turn", "ms"),
    Measure("crowd500", "crowd500_turns_a_second", "500 runs side by side", "turns/s"),
    Measure("crowd500", "crowd500_cpu_ms_a_turn", "500 runs side by side, CPU a turn", "ms"),
    Measure("crowd500", "kb_a_session", "500 runs side by side, memory a session", "KB"),
)  # fmt: skip

Figures = Mapping[tuple[str, str], float]
"""Medians by peer and metric."""


def main() -> None:
    wanted = _arguments()
    held = processors()
    figures = _figures(wanted.peers, wanted.experiments, wanted.rounds, held)
    _print_table(wanted.peers, figures, wanted.floor)
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f}. Ratios are to {wanted.floor}.")
    if wanted.imports:
        print()
        import_cost.main(rounds=max(wanted.rounds, 5))
    if len(set(held)) == 1:
        print("\nClient and server shared a processor here: wall times and turns/s say little.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Treadle against the bare loop.")
    parser.add_argument(
        "--peers", type=words_of, default=PEERS, help="files of peers/, by name; the floor is always among them"
    )
    parser.add_argument("--experiments", type=words_of, default=EXPERIMENTS, help=f"some of {','.join(EXPERIMENTS)}")
    parser.add_argument("--floor", default=FLOOR, choices=(FLOOR, "floor_kept"), help=f"what ratios are to ({FLOOR})")
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes for each figure")
    parser.add_argument("--no-imports", dest="imports", action="store_false", help="leave out what importing costs")
    wanted = parser.parse_args()
    wanted.peers = tuple(dict.fromkeys((wanted.floor, *wanted.peers)))
    if unknown := [name for name in wanted.peers if not script_of(name).is_file()]:
        parser.error(f"There is no {script_of(unknown[0])}.")
    if unknown := set(wanted.experiments) - set(EXPERIMENTS):
        parser.error(f"{sorted(unknown)} are no experiments; there are {', '.join(EXPERIMENTS)}.")
    if wanted.rounds < 1:
        parser.error("--rounds must be at least 1.")
    return wanted


def words_of(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


# --- processes


def processors() -> tuple[int | None, int | None]:
    """Return a processor for the client and one for the server; None where a process cannot be held on one."""
    if not hasattr(os, "sched_getaffinity"):  # macOS
        return None, None
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def _figures(
    peers: Sequence[str], experiments: Sequence[str], rounds: int, held: tuple[int | None, int | None]
) -> Figures:
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    client, server = held
    with serving(server) as address, tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        for number in range(rounds):
            for experiment in experiments:
                print(f"round {number + 1} of {rounds}: {experiment}", file=sys.stderr, flush=True)
                for peer in peers:
                    for metric, value in measured(peer, experiment, address, folder, client).items():
                        found[peer, metric].append(value)
    return {key: statistics.median(values) for key, values in found.items()}


@contextmanager
def serving(processor: int | None) -> Iterator[str]:
    command = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        _hold(process.pid, processor)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()  # the server ends with its standard input


def measured(peer: str, experiment: str, address: str, folder: str, processor: int | None) -> dict[str, float]:
    command = [python_of(peer), str(script_of(peer)), "--server", address, "--experiment", experiment]
    environment = {**os.environ, "TMPDIR": folder}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        _hold(process.pid, processor)
        try:
            output, _ = process.communicate(timeout=_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise SystemExit(f"{peer} failed at {experiment}; its output stands above.")
    return json.loads(output)


def _hold(pid: int, processor: int | None) -> None:
    if processor is not None:
        os.sched_setaffinity(pid, {processor})


def script_of(peer: str) -> Path:
    return HERE / "peers" / f"{peer}.py"


def python_of(peer: str) -> str:
    """Return the interpreter of a rival that has an environment of its own, else this one."""
    own = HERE / "venvs" / peer / "bin" / "python"
    return str(own) if own.exists() else sys.executable


# --- the table


def _print_table(peers: Sequence[str], figures: Figures, floor: str) -> None:
    rows = [row for measure in MEASURES if (row := _row(measure, peers, figures, floor))]
    heads = ["", *(peer.removesuffix("_peer") for peer in peers), "promised"]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    for row in [heads, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


def _row(measure: Measure, peers: Sequence[str], figures: Figures, floor: str) -> list[str] | None:
    if (floor, measure.metric) not in figures:
        return None
    least = measure.floor or figures[floor, measure.metric]
    cells = [_cell(measure, peer, figures[peer, measure.metric], least, is_floor=peer == floor) for peer in peers]
    promised = [f"{measure.promised[peer]:g}x" for peer in peers if peer in measure.promised]
    return [measure.title, *cells, " / ".join(promised)]


def _cell(measure: Measure, peer: str, value: float, floor: float, *, is_floor: bool) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    shown = f"{value:,.{digits}f} {measure.unit}"
    if is_floor:
        return shown
    is_over = value / floor > measure.promised.get(peer, float("inf"))
    return f"{shown}  {value / floor:.2f}x" + (" OVER" if is_over else "")


if __name__ == "__main__":
    main()
