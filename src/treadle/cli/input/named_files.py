"""Named files: which files of a folder a command names literally. Starts nothing, and knows no program.

What a program reads by custom (`make` its Makefile), or what a file starts in its turn, is not bound by its name here.
"""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["exec_line", "files_named"]

_ROOT = re.compile(r"\$\{?(?:CLAUDE_PROJECT_DIR|TREADLE_PROJECT_DIR|PWD)\b\}?|\$\(pwd\)")
_WORD = re.compile(r"[^\s;|&<>()`'\"]+")
_MOST_FOLDERS = 50


def files_named(root: Path, command: str) -> dict[str, Path]:
    """Return the files of a folder that the words of a line of shell name, by their names in the folder.

    A word names a file below the folder, or below a folder that another word names: `cd tools && ./check.py`.

    Args:
        root: From `/`, links resolved.
    """
    words = dict.fromkeys(_names(_ROOT.sub(lambda _: str(root), command)))
    folders = [root, *(place for word in words if (place := _inside(root, root / word)) and place.is_dir())]
    found = dict[str, Path]()
    for named in sorted({folder / word for folder in folders[:_MOST_FOLDERS] for word in words}):
        path = _inside(root, named)
        if path is not None and path.is_file():
            found[os.path.relpath(os.path.normpath(named), root)] = path
    return found


def _names(line: str) -> Iterator[str]:
    """Yield what may be a name in a line: its words, quoted or not, what stands behind `=`, and Python's modules as files."""
    try:
        words = shlex.split(line, comments=False)
    except ValueError:  # a quote is not closed
        words = []
    words += [part for word in words if re.search(r"\s", word) for part in _WORD.findall(word)]
    words += _WORD.findall(line)
    for word in words:
        module = word.removeprefix("-m")
        for name in (word, word.rpartition("=")[2], word.rstrip(";"), f"{module.replace('.', '/')}.py"):
            if name and "\0" not in name:
                yield name


def _inside(root: Path, named: Path) -> Path | None:
    """Return the place of the folder to which a name leads; None where it leads elsewhere, or to nothing."""
    try:
        path = Path(os.path.realpath(named))
        return path if path.exists() and path.is_relative_to(root) else None
    except (OSError, ValueError):  # too long, or not a name
        return None


def exec_line(words: Sequence[str], folder: str | None = None) -> str:
    """Return the line of shell that means a program and its arguments, started in a folder."""
    return f"{f'cd {shlex.quote(folder)}; ' if folder else ''}{shlex.join(words)}"
