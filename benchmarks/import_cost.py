"""What importing Treadle costs over a bare interpreter. Fresh processes, in turn; the fastest of each counts."""

import argparse
import subprocess
import sys
import time

PROMISED_MS = 100

STATEMENTS = {
    "bare interpreter": "pass",
    "import treadle": "import treadle",
    "from treadle import Agent": "from treadle import Agent",
    "from treadle import Agent, tool, resolve_model": "from treadle import Agent, tool, resolve_model",
}


def main(*, rounds: int) -> None:
    """Print a table. The fastest process is the one that was disturbed least: its work is the same each time."""
    for statement in STATEMENTS.values():
        _milliseconds(statement)  # writes the bytecode, and warms the file cache
    took = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            took[name].append(_milliseconds(statement))
    bare = min(took["bare interpreter"])
    print(f"| Importing (promised for `import treadle`: {PROMISED_MS} ms over bare) | process | over bare |")
    print("|---|---|---|")
    for name, values in took.items():
        over = min(values) - bare
        is_over = name == "import treadle" and over > PROMISED_MS
        print(f"| {name} | {min(values):.0f} ms | {over:.0f} ms{' OVER' if is_over else ''} |")


def _milliseconds(statement: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", statement], check=True)
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what importing Treadle costs.")
    parser.add_argument("--rounds", type=int, default=10)
    main(rounds=parser.parse_args().rounds)
