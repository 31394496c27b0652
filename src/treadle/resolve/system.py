"""The world as it is: the machine's clock and chance, behind their ports. The only module of the core that asks for either."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable

from treadle.ports import Timer

__all__ = ["SystemClock", "SystemRandomness"]


class SystemClock:
    """The machine's time. Spans are measured on the monotonic clock, which no clock change touches."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class SystemRandomness:
    """Chance for jitter, and names that nobody can guess."""

    def random(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret

    def token(self) -> str:
        return secrets.token_hex(8)
