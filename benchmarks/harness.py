"""The experiments that every peer is put through, in a process of its own. Knows no peer; prints one JSON object.

A peer is one file in `peers/` that hands a `Peer` to `main`.
"""

import argparse
import asyncio
import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

RESULT = "~R~".ljust(512, "r")
"""What every tool returns: 512 characters, with the mark that the server counts."""
INSTRUCTIONS = "You are a careful agent. Use the tool until you are done."
TASK = "Look every key up, then say done."
NAP_SECONDS = 0.05
PARALLEL_CALLS = 128

EXPERIMENTS = ("turns", "parallel", "stream", "crowd", "crowd500")

SPANS: list[tuple[float, float]] = []
"""Begin and end of each tool call."""


class Peer(Protocol):
    """One way to carry out the tool loop."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Any:
        """Return an agent with one tool, for the server at that address. It may be run many times, also side by side."""
        ...

    async def run(self, agent: Any) -> str:
        """Carry out one task without streaming; return the final text."""
        ...

    async def stream(self, agent: Any, on_text: Callable[[str], None]) -> str:
        """The same, streaming: tell each piece of text as it comes."""
        ...

    async def close(self) -> None:
        """Let go of what is kept between runs."""
        ...


# --- the tools


async def fast(key: str, n: int) -> str:
    """Look up a key.

    Args:
        key: The key to look up.
        n: Its number.
    """
    now = time.monotonic()
    SPANS.append((now, now))
    return RESULT


async def nap(key: str, n: int) -> str:
    """Look up a key slowly.

    Args:
        key: The key to look up.
        n: Its number.
    """
    begun = time.monotonic()
    await asyncio.sleep(NAP_SECONDS)
    SPANS.append((begun, time.monotonic()))
    return RESULT


def blocking_fast(key: str, n: int) -> str:
    """Look up a key.

    Args:
        key: The key to look up.
        n: Its number.
    """
    now = time.monotonic()
    SPANS.append((now, now))
    return RESULT


def blocking_nap(key: str, n: int) -> str:
    """Look up a key slowly, and block.

    Args:
        key: The key to look up.
        n: Its number.
    """
    begun = time.monotonic()
    time.sleep(NAP_SECONDS)
    SPANS.append((begun, time.monotonic()))
    return RESULT


def blocking(tool: Callable[..., Any]) -> Callable[..., str]:
    """Return the blocking twin of a tool, under the same name, for a library whose tools are synchronous."""
    if not asyncio.iscoroutinefunction(tool):
        return tool
    twin = {fast: blocking_fast, nap: blocking_nap}[tool]
    twin.__name__ = tool.__name__
    return twin


# --- the experiments


class Experiments:
    """Measures one peer against one server.

    Args:
        server: The server's address, such as `http://127.0.0.1:8080`.
        is_quick: Whether each experiment is repeated a third as often.
    """

    def __init__(self, peer: Peer, server: str, *, is_quick: bool) -> None:
        self._peer = peer
        self._server = server
        self._is_quick = is_quick

    async def turns(self) -> dict[str, float]:
        """CPU of one turn, in a short and in a long run: the second shows what grows with the transcript."""
        await self._run(turns=3)
        return {f"cpu_ms_a_turn_{turns}": await self._cpu_of(turns, times) for turns, times in ((10, 7), (100, 3))}

    async def _cpu_of(self, turns: int, times: int) -> float:
        seconds = [(await self._run(turns=turns))[0] for _ in range(self._times(times))]
        return statistics.median(seconds) * 1000 / (turns + 1)

    async def parallel(self) -> dict[str, float]:
        """Wall time of one run whose one response proposes 128 calls of 50 ms."""
        found = {}
        for name, tool in (("async", nap), ("blocking", blocking_nap)):
            await self._run(tool, calls=PARALLEL_CALLS)
            walls = [(await self._run(tool, calls=PARALLEL_CALLS))[1] * 1000 for _ in range(self._times(5))]
            found[f"{name}_wall_ms"] = statistics.median(walls)
            found[f"{name}_span_ms"] = _span_ms()
        return found

    async def stream(self) -> dict[str, float]:
        """Time to the first piece of text, and the CPU of a thousand pieces that come at once."""
        agent = self._open(fast, turns=0, chunks=2000)
        gc.collect()
        many = [(await self._stream(agent, chunks=2000))[0] * 1000 for _ in range(1 + self._times(3))][1:]
        agent = self._open(fast, turns=0, chunks=3)  # made once, as those who serve people make theirs
        first = [(await self._stream(agent, chunks=3))[1] * 1000 for _ in range(1 + self._times(30))][1:]
        return {"first_token_ms": statistics.median(first), "cpu_ms_a_1000_chunks": statistics.median(many) / 2}

    async def crowd(self) -> dict[str, float]:
        """A hundred runs side by side, of five turns and a model that takes 20 ms."""
        rate, cpu_ms, _ = await self._crowd(100)
        return {"turns_a_second": rate, "crowd_cpu_ms_a_turn": cpu_ms}

    async def crowd500(self) -> dict[str, float]:
        """The same with 500 runs, and how much the process grew for each; in a process that did nothing else before."""
        rate, cpu_ms, kilobytes = await self._crowd(500)
        return {"crowd500_turns_a_second": rate, "crowd500_cpu_ms_a_turn": cpu_ms, "kb_a_session": kilobytes}

    async def _crowd(self, runs: int, *, turns: int = 5) -> tuple[float, float, float]:
        """Return turns a second, CPU milliseconds a turn, and kilobytes of memory a run."""
        agent = self._open(fast, turns=turns, latency_ms=20)
        await self._peer.run(agent)
        gc.collect()
        before = _peak_kilobytes()
        cpu, wall, texts = await _measured(asyncio.gather(*(self._peer.run(agent) for _ in range(runs))))
        for text in texts:
            _check(text)
        answered = runs * (turns + 1)
        return answered / wall, cpu * 1000 / answered, (_peak_kilobytes() - before) / runs

    def _times(self, times: int) -> int:
        return max(1, times // 3) if self._is_quick else times

    # --- one measurement

    async def _run(self, tool: Callable[..., Any] = fast, **scenario: int) -> tuple[float, float]:
        """Return CPU and wall seconds of one run."""
        agent = self._open(tool, **scenario)
        SPANS.clear()
        gc.collect()
        cpu, wall, text = await _measured(self._peer.run(agent))
        _check(text)
        expected = scenario.get("turns", 1) * scenario.get("calls", 1)
        if len(SPANS) != expected:
            raise SystemExit(f"The tool ran {len(SPANS)} times instead of {expected}.")
        return cpu, wall

    async def _stream(self, agent: Any, *, chunks: int) -> tuple[float, float]:
        """Return CPU seconds of one streamed answer, and seconds to its first text."""
        came: list[float] = []
        begun = time.monotonic()
        cpu, _, text = await _measured(self._peer.stream(agent, lambda _: came.append(time.monotonic())))
        _check(text)
        if len(came) < chunks:
            raise SystemExit(f"{len(came)} pieces of text came instead of {chunks}.")
        return cpu, came[0] - begun

    def _open(self, tool: Callable[..., Any], **scenario: int) -> Any:
        words = ",".join(f"{name}={value}" for name, value in {"tool": tool.__name__, **scenario}.items())
        return self._peer.open(f"{self._server}/s/{words}/v1", tool)


async def _measured(act: Awaitable[Any]) -> tuple[float, float, Any]:
    """Return CPU seconds, wall seconds and the outcome."""
    cpu, wall = time.process_time(), time.monotonic()
    outcome = await act
    return time.process_time() - cpu, time.monotonic() - wall, outcome


def _peak_kilobytes() -> float:
    """Return the most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak


def _span_ms() -> float:
    return (max(end for _, end in SPANS) - min(begin for begin, _ in SPANS)) * 1000


def _check(text: str) -> None:
    if "done" not in text:
        raise SystemExit(f"The run ended with {text!r:.200} instead of the final text.")


def main(peer: Peer) -> None:
    """Put a peer through one experiment, as the command line says, and print what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--experiment", required=True, choices=EXPERIMENTS)
    parser.add_argument("--quick", action="store_true")
    wanted = parser.parse_args()
    experiments = Experiments(peer, wanted.server, is_quick=wanted.quick)
    figures = asyncio.run(_measure(peer, experiments, wanted.experiment))
    print("\n" + json.dumps(figures), flush=True)  # on a line of its own: a library may print, too


async def _measure(peer: Peer, experiments: Experiments, experiment: str) -> dict[str, float]:
    try:
        match experiment:
            case "turns":
                return await experiments.turns()
            case "parallel":
                return await experiments.parallel()
            case "stream":
                return await experiments.stream()
            case "crowd500":
                return await experiments.crowd500()
            case _:
                return await experiments.crowd()
    finally:
        await peer.close()
