"""Completing: what completes while a person types: `/` commands and `@` paths. Reads folders, and no file."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

__all__ = ["Completing"]

_MAX_NAMES = 1000


class Completing(Completer):
    """Completes `/` commands and `@` paths.

    Args:
        commands: What each command does, by its name without `/`.
    """

    def __init__(self, commands: Mapping[str, str], root: Path) -> None:
        self._commands = commands
        self._root = root

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what the word before the cursor may become."""
        before = document.text_before_cursor
        if before.startswith("/") and not any(blank in before for blank in (" ", "\n")):
            for name, says in self._commands.items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display_meta=says)
            return
        word = re.split(r"\s", before)[-1]
        if word.startswith("@"):
            for path in self._paths(word[1:]):
                yield Completion(path, 1 - len(word))

    def _paths(self, typed: str) -> Iterator[str]:
        folder, slash, start = typed.rpartition("/")
        try:
            with os.scandir(self._root / folder) as found:
                entries = sorted(islice(found, _MAX_NAMES), key=lambda one: (one.name.startswith("."), one.name))
        except (OSError, ValueError):
            return
        for one in entries:
            if one.name.startswith(start) and (start.startswith(".") or not one.name.startswith(".")):
                yield f"{folder}{slash}{one.name}" + ("/" if one.is_dir() else "")
