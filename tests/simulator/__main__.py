"""Live many lives, or replay one: `python -m simulator --lives 10000`, `python -m simulator --seed 7 -v`."""

import argparse
import gc
import logging
import sys
import time
import warnings
from collections import Counter

from simulator.coverage import FAULTS, FEATURES
from simulator.life import live


def main() -> int:
    options = _parse()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of dead processes are never awaited
    sys.unraisablehook = lambda _: None  # what is left of dead processes
    if options.seed is not None:
        outcome = live(options.seed, is_verbose=options.verbose)
        for line in outcome.lines:
            print(line)
        for sentence in outcome.violations:
            print(f"VIOLATION seed {options.seed}: {sentence}")
        print(f"seed {options.seed}: {outcome.steps} steps, digest {outcome.digest:x}")
        return 1 if outcome.violations else 0
    return _many(options)


def _many(options: argparse.Namespace) -> int:
    pairs: Counter[tuple[str, str]] = Counter()
    broken: Counter[str] = Counter()
    first: dict[str, int] = {}
    begun = time.process_time()
    gc.collect()
    gc.freeze()
    gc.disable()
    lives = 0
    for seed in range(options.first, options.first + options.lives):
        outcome = live(seed)
        lives += 1
        pairs.update(outcome.pairs)
        for sentence in outcome.violations:
            kind = _kind(sentence)
            broken[kind] += 1
            first.setdefault(kind, seed)
            if options.stop:
                print(f"VIOLATION seed {seed}: {sentence}")
        if outcome.violations and options.stop:
            break
        if lives % 200 == 0:
            gc.collect()
            if options.seconds and time.process_time() - begun > options.seconds:
                break
    seconds = time.process_time() - begun
    for kind, count in broken.most_common():
        print(f"VIOLATION in {count} lives, first seed {first[kind]}: {kind}")
    if options.pairs:
        _show(pairs)
    empty = [(feature, fault) for feature in FEATURES for fault in FAULTS if not pairs[(feature, fault)]]
    print(f"{lives} lives, {sum(broken.values())} violations, {len(empty)} pairs never met, {seconds:.1f} s of CPU,", end=" ")
    print(f"{1000 * seconds / lives:.2f} ms a life")
    return 1 if broken else 0


def _kind(sentence: str) -> str:
    import re

    return re.sub(r"[0-9]+", "N", re.sub(r"\{[^}]*\}|\([^)]*\)|\[[^\]]*\]", "..", sentence))[:160]


def _show(pairs: Counter[tuple[str, str]]) -> None:
    print(" " * 18 + " ".join(f"{fault[:8]:>8}" for fault in FAULTS))
    for feature in FEATURES:
        print(f"{feature:18}" + " ".join(f"{pairs[(feature, fault)]:8}" for fault in FAULTS))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one life")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what happens in it")
    parser.add_argument("--lives", type=int, default=10_000, help="how many lives (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds of CPU")
    parser.add_argument("--pairs", action="store_true", help="print which faults met which features")
    parser.add_argument("--stop", action="store_true", help="stop at the first violation")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
