"""Keeping: an asynchronous context manager, held open by a task of its own. Knows no tool and sets no time limit.

Task groups and cancel scopes must be left by the task that entered them, and a task group whose task fails cancels the task that
entered it. So what may hold one is entered by a task that does nothing else: its failure stays there.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

__all__ = ["Kept"]

_T = TypeVar("_T")


class Kept(Generic[_T]):
    """A context manager that is being held open. Needs a running event loop, and belongs to it.

    Args:
        make: Returns the context manager; called in the task that enters it.
    """

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[_T]], *, name: str) -> None:
        self.value: _T | None = None
        """What entering returned; None until then, and after the end."""
        self.has_opened = False
        self.failure: BaseException | None = None
        """Why it could not be entered, or ended before it was told to."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is entered, or has failed to."""
        self._make = make
        self._is_closing = asyncio.Event()
        self.task = asyncio.create_task(self._hold(), name=name)
        """Done when it is left. Raises nothing."""

    def end(self) -> None:
        """Tell it to close; `task` is done when it has."""
        self._is_closing.set()

    def cut(self) -> None:
        """Cancel it, whatever it does."""
        self._is_closing.set()
        self.task.cancel()

    async def _hold(self) -> None:
        try:
            async with self._make() as self.value:
                self.has_opened = True
                self._tell()
                await self._is_closing.wait()
            if not self._is_closing.is_set():  # it swallowed what had ended it
                self.failure = RuntimeError("it closed itself")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a stranger's code: its SystemExit, too, ends this task and nothing else
            self.failure = error
        finally:
            self.value = None
            self._tell()

    def _tell(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)
