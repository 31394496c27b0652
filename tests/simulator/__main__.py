"""Live many lives, or replay one: `python -m simulator --lives 10000`, `python -m simulator --seed 7 -v`."""

import argparse
import gc
import json
import logging
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from simulator.coverage import FAULTS, FEATURES
from simulator.life import live

CHUNK = 250
"""Lives that a worker is given at once."""


class Found(NamedTuple):
    """What came of some lives in a row."""

    lives: int
    violations: list[tuple[int, str]]
    pairs: Counter[tuple[str, str]]
    seconds: float
    digests: dict[int, int]
    """Of everything that was stored in each life."""


def main() -> int:
    options = _parse()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order in a set of texts must be the same in every replay
        os.execve(
            sys.executable, [sys.executable, "-m", "simulator", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    if options.disk:
        return _compare(options)
    return _replay(options) if options.seed is not None else _many(options)


def _compare(options: argparse.Namespace) -> int:
    """Live lives in memory and on real SQLite files, and tell which of them do not end alike."""
    from simulator.disk import compare

    _quiet()
    compared, differences = 0, []
    for seed in range(options.first, options.first + options.lives * options.step, options.step):
        difference = compare(seed)
        compared += difference is not None
        if difference:
            differences.append(f"seed {seed}: {difference}")
    if options.json:
        print(json.dumps({"lives": compared, "differences": differences}))
    else:
        print(*differences, f"{compared} lives on SQLite files, {len(differences)} not as in memory", sep="\n")
    return 1 if differences else 0


def _replay(options: argparse.Namespace) -> int:
    _quiet()
    outcome = live(options.seed, is_verbose=options.verbose)
    for line in outcome.lines:
        print(line)
    for sentence in outcome.violations:
        print(f"VIOLATION seed {options.seed}: {sentence}")
    print(f"seed {options.seed}: {outcome.steps} steps, {len(outcome.violations)} violations")
    return 1 if outcome.violations else 0


def _many(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    whole = Found(0, [], Counter(), 0.0, {})
    for found in _chunks(options):
        whole = Found(
            whole.lives + found.lives,
            whole.violations + found.violations,
            whole.pairs + found.pairs,
            whole.seconds + found.seconds,
            {**whole.digests, **found.digests} if options.json else {},
        )
        if options.stop and found.violations:
            print("VIOLATION seed {}: {}".format(*min(found.violations)))
            return 1
        if options.seconds and time.monotonic() - begun > options.seconds:
            break
    if options.json:
        print(json.dumps({**whole._asdict(), "pairs": {f"{a} x {b}": count for (a, b), count in whole.pairs.items()}}))
    else:
        _tell(whole, options, time.monotonic() - begun)
    return 1 if whole.violations else 0


def _chunks(options: argparse.Namespace) -> Iterator[Found]:
    seeds = options.seeds or range(options.first, options.first + options.lives * options.step, options.step)
    chunks = [seeds[begin : begin + CHUNK] for begin in range(0, len(seeds), CHUNK)]
    live_some = partial(_live_some, stops=options.stop)
    if options.workers == 1:
        yield from map(live_some, chunks)
        return
    with ProcessPoolExecutor(options.workers) as pool:
        for begin in range(0, len(chunks), 4 * options.workers):  # not all at once: a soak is stopped by its time
            yield from pool.map(live_some, chunks[begin : begin + 4 * options.workers])


def _live_some(seeds: Sequence[int], *, stops: bool) -> Found:
    _quiet()
    begun = time.process_time()
    gc.disable()
    violations: list[tuple[int, str]] = []
    digests: dict[int, int] = {}
    pairs: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        outcome = live(seed)
        pairs.update(outcome.pairs)
        digests[seed] = outcome.digest
        violations += [(seed, sentence) for sentence in outcome.violations]
        if stops and violations:
            break
    gc.collect()
    gc.freeze()
    return Found(len(digests), violations, pairs, time.process_time() - begun, digests)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of dead processes are never awaited
    sys.unraisablehook = lambda _: None  # nor do they end well


def _tell(whole: Found, options: argparse.Namespace, seconds: float) -> None:
    kinds: Counter[str] = Counter()
    first: dict[str, int] = {}
    for seed, sentence in whole.violations:
        kind = _kind(sentence)
        kinds[kind] += 1
        first.setdefault(kind, seed)
    for kind, count in kinds.most_common():
        print(f"VIOLATION, {count} times, first in seed {first[kind]}: {kind}")
    if options.pairs:
        print(" " * 18 + " ".join(f"{fault[:8]:>8}" for fault in FAULTS))
        for feature in FEATURES:
            print(f"{feature:18}" + " ".join(f"{whole.pairs[(feature, fault)]:8}" for fault in FAULTS))
    never = sum(not whole.pairs[(feature, fault)] for feature in FEATURES for fault in FAULTS)
    print(
        f"{whole.lives} lives, {sum(kinds.values())} violations, {never} pairs of feature and fault never met; "
        f"{seconds:.1f} s, {1000 * whole.seconds / max(whole.lives, 1):.2f} ms of CPU a life"
    )


def _kind(sentence: str) -> str:
    """Return a violation without its numbers and names, so that equal ones can be counted."""
    return re.sub(r"[0-9]+", "0", re.sub(r"\{[^}]*\}|\([^)]*\)|\[[^\]]*\]", "..", sentence))[:200]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one life")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what happens in it")
    parser.add_argument("--lives", type=int, default=10_000, help="how many lives (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next (1)")
    parser.add_argument("--seeds", type=_numbers, help="these seeds and no others, such as 7,12")
    parser.add_argument("--workers", type=int, default=1, help="processes that live them (1)")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--pairs", action="store_true", help="print which faults met which features")
    parser.add_argument("--stop", action="store_true", help="stop at the first violation")
    parser.add_argument("--disk", action="store_true", help="live them on SQLite files too, and compare")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
