"""Serving: what the commands have in common that serve a protocol until their client leaves. Knows no protocol."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from treadle.cli.exits import UsageError

__all__ = ["ending_on_signals", "needs"]


def needs(package: str, extra: str) -> None:
    """Refuse to serve without the protocol's package.

    Raises:
        UsageError: It is not installed.
    """
    if find_spec(package) is None:
        raise UsageError(
            f"This needs the package {package}. Install it: pip install '.[{extra}]' in the project's folder"
        )


@contextmanager
def ending_on_signals(end: Callable[[], None]) -> Iterator[None]:
    """Let a signal end the service as a client that leaves does: what is under way is recorded first."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
