"""Entered: what a person entered before, in this conversation and, by a file, in earlier ones. It stays small, whatever was pasted."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from treadle.cli.terminal.pastes import Pastes

__all__ = ["entered_before"]

_KEPT_CHARS = 20_000
"""A longer message is not kept for later conversations."""
_MAX_BYTES = 1_000_000
_KEPT_BYTES = 500_000
"""What stays of a file that has become larger than the most: its end."""


def entered_before(path: Path | None, pastes: Pastes) -> History:
    """Return what is recalled in a conversation. A long paste is recalled as its note, and sent whole.

    Args:
        path: The file that keeps it for later conversations; None to keep nothing.
    """
    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        _shorten(path)
    except OSError:  # it is a comfort, and no reason to refuse
        return InMemoryHistory()
    return _Entered(path, pastes)


class _Entered(FileHistory):
    def __init__(self, path: Path, pastes: Pastes) -> None:
        super().__init__(str(path))
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        try:
            return [self._pastes.note(one) for one in super().load_history_strings()]
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        whole = self._pastes.whole(string)
        if len(whole) <= _KEPT_CHARS:
            with suppress(OSError):  # the disk is full, or the folder gone: the message is sent anyway
                super().store_string(whole)


def _shorten(path: Path) -> None:
    """Keep the end of a file that has become large, from the beginning of an entry on."""
    if path.stat().st_size <= _MAX_BYTES:
        return
    end = path.read_bytes()[-_KEPT_BYTES:]
    shorter = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        shorter.touch(0o600)
        shorter.write_bytes(end[max(end.find(b"\n# "), 0) :])
        shorter.replace(path)
    finally:
        shorter.unlink(missing_ok=True)
