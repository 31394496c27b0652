"""Shared: answers that are made once for all who are shown the same. Knows no page."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from starlette.responses import Response

__all__ = ["Shared"]

_MOST = 200
"""Answers that are kept: the pages of a version differ by what people look for."""


class Shared:
    """The answers that have been made of the latest version of the snapshot."""

    def __init__(self) -> None:
        self._version = -1
        self._made: dict[Hashable, tuple[int, asyncio.Task[Response]]] = {}

    async def get(
        self, key: Hashable, made_of: tuple[int, int], make: Callable[[], Coroutine[Any, Any, Response]]
    ) -> Response:
        """Return an answer that was made, or is being made, of the same; else have it made.

        Args:
            key: What is shown, and with which rights.
            made_of: The version of the snapshot, and the number of the latest event that must be in it.

        Raises:
            Exception: What `make` raises, to all who wait for it. It is tried again then.
        """
        version, head = made_of
        if version != self._version or len(self._made) >= _MOST:
            self._version, self._made = version, {}
        found = self._made.get(key)
        if found is None or found[0] < head or _has_failed(found[1]):
            found = self._made[key] = head, asyncio.create_task(make())
        return await asyncio.shield(found[1])


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
