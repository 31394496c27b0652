"""Loads what each run would load, before the host forks: one run at an address where nobody answers."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def prepare(adapter: Callable[[Any], Any]) -> None:
    """Run an adapter once. It fails, after it has loaded its library."""
    job = SimpleNamespace(
        action="start",
        prompt="Go.",
        system="Be brief.",
        dialect="chat",
        base_url="http://127.0.0.1:9/v1",
        api_key="none",
        model="mock",
        stream=True,
        state=Path(),
        session="warm",
        keeps_state=False,
        max_steps=1,
        max_attempts=1,
        tool_timeout=None,
        model_timeout=None,
        tools=[],
        decisions=[],
    )
    with contextlib.suppress(Exception):
        asyncio.run(adapter(job))
