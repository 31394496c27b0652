"""Signals: what a person or the system asks for from outside, passed on to what runs. Decides nothing."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["on_signals", "stopping"]


@contextmanager
def on_signals(act: Callable[[int], object], *numbers: int) -> Iterator[None]:
    """Have the event loop call a function with the number of each signal, until the end."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, act, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextmanager
def stopping(stop: Callable[[], object], say: Callable[[str], object], then: str) -> Iterator[None]:
    """Let a first signal end the work cleanly, and a second one at once.

    Args:
        then: What is said after the name of the signal.
    """
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def at_first(number: int) -> None:
        say(f"treadle: {signal.Signals(number).name} received: {then}")
        for known in numbers:
            loop.remove_signal_handler(known)
        stop()

    with on_signals(at_first, *numbers):
        yield
