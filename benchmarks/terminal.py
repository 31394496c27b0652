"""What the terminal costs: help, the first streamed words on the screen, and a result of 100,000 lines. A real pseudo terminal."""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pexpect

from treadle.testing import MockProvider, Turn, call

PROMISED_MS = {"help": 100, "prompt": 600, "words": 30}
_TOOL = """
from treadle import Tool

def _count(arguments, ctx):
    return "\\n".join(f"line {n}" for n in range(arguments["lines"]))

count = Tool(name="count", description="Count.", run=_count, effect="read", result_limit=10_000_000,
             parameters={"type": "object", "properties": {"lines": {"type": "integer"}}})
"""


def main(*, rounds: int) -> None:
    """Print a table. Of a process its least processor time counts, since a busy machine adds to all others."""
    bare, helped = _processes(rounds)
    prompt = min(_start() for _ in range(rounds))
    words = _words(rounds)
    small, large = _keys(10, rounds), _keys(100_000, rounds)
    rows = [
        ("`treadle --help` over a bare interpreter", helped - bare, PROMISED_MS["help"]),
        ("from `treadle` to its prompt, processor time", prompt, PROMISED_MS["prompt"]),
        ("first words on the screen after the server let them go: fastest", min(words), PROMISED_MS["words"]),
        ("first words on the screen: median", statistics.median(words), PROMISED_MS["words"]),
        ("a key on the screen after a result of 10 lines: median", small, None),
        ("a key on the screen after a result of 100,000 lines: median", large, None),
    ]
    print("| At the terminal | measured | promised |")
    print("|---|---|---|")
    for name, took, promised in rows:
        is_over = promised is not None and took > promised
        print(
            f"| {name} | {took:.0f} ms{' OVER' if is_over else ''} | {'' if promised is None else f'{promised} ms'} |"
        )


def _processes(rounds: int) -> tuple[float, float]:
    """Return the processor time of a bare interpreter, and that of help: in turn, the least of each."""
    commands = [[sys.executable, "-c", "pass"], [sys.executable, "-m", "treadle", "--help"]]
    took: list[list[float]] = [[], []]
    for _ in range(rounds + 1):  # the first warms the file cache, and is never the fastest
        for values, command in zip(took, commands, strict=True):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            if status:
                raise RuntimeError(f"{command} ended with {status}")
            values.append((used.ru_utime + used.ru_stime) * 1000)
    return min(took[0]), min(took[1])


def _start() -> float:
    """Return the processor time of a conversation from its start until a person can write."""
    with MockProvider(["Hello."]).in_thread() as provider, tempfile.TemporaryDirectory() as folder:
        person = _chat(folder, "-m", "openai-chat:mock", "--base-url", provider.base_url)
        fields = Path(f"/proc/{person.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        person.close(force=True)
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def _words(rounds: int) -> list[float]:
    """Return how long the first words of each response take from the server's gate to the terminal."""
    turns = [
        Turn(text=f"Zebra{number} runs.", pieces=2, gate=f"g{number}", hold_after_pieces=0) for number in range(rounds)
    ]
    took = []
    with MockProvider(turns).in_thread() as provider, tempfile.TemporaryDirectory() as folder:
        person = _chat(folder, "-m", "openai-chat:mock", "--base-url", provider.base_url)
        for number in range(rounds):
            _say(person, "Go on")
            asyncio.run(provider.gate(f"g{number}").wait_reached())
            begun = time.perf_counter()
            provider.gate(f"g{number}").open()
            person.expect_exact("Zebra")
            took.append((time.perf_counter() - begun) * 1000)
            person.expect_exact("runs.")
        person.close(force=True)
    return took


def _keys(lines: int, rounds: int) -> float:
    """Return how long a key takes to the screen once a long result has been shown."""
    turns = [call("count", lines=lines), "Counted."]
    took = []
    with MockProvider(turns).in_thread() as provider, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tools.py").write_text(_TOOL, encoding="utf-8")
        person = _chat(folder, "-m", "openai-chat:mock", "--base-url", provider.base_url, "--tools", "tools.py")
        _say(person, "Count")
        person.expect_exact("Counted.")
        person.expect_exact("step 2")
        for letter in "abcdefghijklmnopqrstuvwxyz"[:rounds]:
            begun = time.perf_counter()
            person.send(letter)
            person.expect_exact(letter)
            took.append((time.perf_counter() - begun) * 1000)
        person.close(force=True)
    return statistics.median(took)


def _chat(folder: str, *arguments: str) -> "pexpect.spawn[str]":
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment |= {"HOME": folder, "TREADLE_HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    folders = Path(folder) / "folders.json"  # the question of the first start in a folder is answered
    folders.write_text(json.dumps({os.path.realpath(folder): {"mode": "ask"}}), encoding="utf-8")
    folders.chmod(0o600)
    person = pexpect.spawn(
        sys.executable,
        ["-m", "treadle", "chat", *arguments],
        cwd=folder,
        env=environment,
        encoding="utf-8",
        timeout=120,
        dimensions=(40, 100),
    )
    person.delaybeforesend = None
    person.expect_exact("›")
    return person


def _say(person: "pexpect.spawn[str]", text: str) -> None:
    person.send(f"{text}\r")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what the terminal costs.")
    parser.add_argument("--rounds", type=int, default=10)
    main(rounds=parser.parse_args().rounds)
