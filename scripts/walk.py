"""Walk a new user's path at a real terminal: record it as docs/walk.cast (asciinema, version 2) and draw its best moment as docs/chat.svg.

An edit that is asked about and allowed, a command that is interrupted, and the session continued by another process. The model is a script.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import pexpect
import pyte

__all__ = ["CAST", "PICTURE", "drawn", "walked"]

PROJECT = Path(__file__).resolve().parent.parent
CAST = PROJECT / "docs" / "walk.cast"
PICTURE = PROJECT / "docs" / "chat.svg"

COLUMNS, ROWS = 92, 36
_SECONDS = 60
_SHOWN = "~/work"
"""Stands in the recording for the folder in which it is made."""
_LINE, _LETTER, _MARGIN, _BAR = 19, 8.0, 20, 36
_FILES = {"fetch.py": "import http.client\n\nRETRIES = 3\nTIMEOUT = 30\n", "README.md": "# Fetcher\n"}
_TURNS = (
    {"text": "Let me find where the retries are set.", "calls": [
        {"name": "grep", "arguments": {"pattern": "RETRIES"}}, {"name": "read", "arguments": {"path": "fetch.py"}}]},
    {"calls": [{"name": "edit", "arguments": {"path": "fetch.py", "old_text": "RETRIES = 3", "new_text": "RETRIES = 5"}}]},
    {"text": "`fetch.py` now tries **5 times**. The timeout is still 30 seconds."},
    {"text": "Let me watch the log.", "calls": [{"name": "shell", "arguments": {"command": "tail -f README.md"}}]},
    {"text": "The command was interrupted; nothing was changed. The edit of `fetch.py` is done."},
)  # fmt: skip
_COLOURS = {
    "default": "#c9d1d9", "red": "#ff9492", "green": "#7ee787", "brown": "#f2cc60", "blue": "#79c0ff", "magenta": "#d2a8ff",
    "cyan": "#76e3ea", "brightblack": "#8b949e", "white": "#ffffff", "black": "#484f58", "brightblue": "#79c0ff",
}  # fmt: skip
_DIM, _BACK = "#8b949e", "#161b22"


_FAINT = re.compile(r"\x1b\[((?:\d+;)*)2((?:;\d+)*)m")


def _as_grey(found: re.Match[str]) -> str:
    """Return a faint look as a grey one: the emulator knows no faint text."""
    return f"\x1b[{found[1]}90{found[2]}m"


class _Terminal:
    """One terminal on which several programs run, one after another. Everything that it shows is recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self.screen)
        self._begun = time.monotonic()
        self.recorded: list[tuple[float, str]] = []
        self._process: Any = None

    def start(self, *arguments: str) -> None:
        shown = " ".join(f'"{word}"' if " " in word else word for word in arguments)
        self._take(f"$ treadle {shown}\r\n")
        self._process = pexpect.spawn(
            sys.executable, ["-m", "treadle", *arguments], cwd=str(self.folder), encoding="utf-8", timeout=_SECONDS,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(self.folder), "TREADLE_HOME": str(self.folder / ".home"),
                 "TERM": "xterm-256color", "LANG": "C.UTF-8", "USER": "you", "LOGNAME": "you"},
            dimensions=(ROWS, COLUMNS),
        )  # fmt: skip
        self._process.delaybeforesend = None

    def type(self, text: str, end: str = "\r") -> None:
        for letter in text:
            self._process.send(letter)
            self._read(0.03)
        self._process.send(end)

    def see(self, words: str) -> None:
        until = time.monotonic() + _SECONDS
        while words not in " ".join(" ".join(self.screen.display).split()):
            if time.monotonic() > until:
                raise RuntimeError(f"never seen: {words!r}\n" + "\n".join(self.screen.display))
            self._read(0.2)
        self._read(0.8)

    def end(self) -> None:
        self._process.send("\x04")
        while self._process.isalive():
            self._read(0.2)
        self._read(0.2)
        self._process.close()

    def _read(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self._take(self._process.read_nonblocking(65536, timeout=left))
            except pexpect.TIMEOUT:
                return
            except pexpect.EOF:
                return

    def _take(self, text: str) -> None:
        folder = str(self.folder)
        text = text.replace(folder, _SHOWN.ljust(len(folder))[: len(folder)])
        self.recorded.append((round(time.monotonic() - self._begun, 3), text))
        self._stream.feed(_FAINT.sub(_as_grey, re.sub(r"\x1b\[>4;[01]m", "", text)))


def walked() -> tuple[str, str]:
    """Walk the path; return the recording, and the picture of its best moment."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in _FILES.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        (Path(folder) / ".home").mkdir()
        (Path(folder) / ".home" / "script.json").write_text(json.dumps(_TURNS), encoding="utf-8")
        folders = Path(folder) / ".home" / "folders.json"
        folders.write_text(json.dumps({os.path.realpath(folder): {"mode": "ask"}}), encoding="utf-8")  # is answered
        folders.chmod(0o600)
        terminal = _Terminal(Path(folder))
        model = ("-m", "script:.home/script.json")
        terminal.start("chat", *model)
        terminal.see("/help lists")
        terminal.type("Try five times instead of three")
        terminal.see("Edit a file: fetch.py")
        terminal.type("y", end="")
        terminal.see("still 30 seconds.")
        picture = drawn(terminal.screen)
        terminal.type("Now watch the log")
        terminal.see("tail -f README.md")
        terminal.type("", end="\x1b")
        terminal.see("Interrupted.")
        terminal.end()
        terminal.start("chat", "-c", *model)
        terminal.see("/help lists")
        terminal.type("Is all as it should be?")
        terminal.see("is done.")
        terminal.end()
    return _cast(terminal.recorded), picture


def _cast(recorded: list[tuple[float, str]]) -> str:
    """Return a recording in asciinema's format."""
    head = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "title": "A new user's path",
        "env": {"TERM": "xterm-256color"},
    }
    lines = [json.dumps(head)]
    lines += [json.dumps([at, "o", text], ensure_ascii=False) for at, text in recorded]
    return "\n".join(lines) + "\n"


# --- the picture


def drawn(screen: Any) -> str:
    """Return what an emulated terminal shows as an SVG, with its colours."""
    rows = [screen.buffer[number] for number in range(ROWS)]
    while rows and not "".join(rows[-1][x].data for x in range(COLUMNS)).strip():
        rows.pop()
    width, height = int(COLUMNS * _LETTER + 2 * _MARGIN), _BAR + len(rows) * _LINE + _MARGIN
    texts = [text for number, row in enumerate(rows) for text in _texts(row, _BAR + (number + 1) * _LINE - 4)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            "<title>A conversation with Treadle in the terminal: a file is searched, read and edited</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{_BACK}"/>',
            "<style>text { white-space: pre }</style>",
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">',
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _texts(row: Any, y: int) -> Iterator[str]:
    """Yield the pieces of one line, each of one look."""
    cells = [(x, row[x]) for x in range(COLUMNS)]
    for look, group in groupby(cells, key=lambda cell: (cell[1].fg, cell[1].bold, cell[1].reverse)):
        piece = list(group)
        text = "".join(cell.data for _, cell in piece)
        x, span = _MARGIN + piece[0][0] * _LETTER, len(piece) * _LETTER
        colour, is_bold, is_reversed = _COLOURS.get(look[0], "#" + look[0]), look[1], look[2]
        if is_reversed:
            yield f'<rect x="{x}" y="{y - 14}" width="{span}" height="{_LINE}" fill="{_DIM if look[0] == "default" else colour}"/>'
            colour = _BACK
        if text.strip():
            weight = ' font-weight="bold"' if is_bold else ""
            text = text.rstrip()
            yield f'<text x="{x}" y="{y}" textLength="{len(text) * _LETTER}" fill="{colour}"{weight}>{escape(text)}</text>'


if __name__ == "__main__":
    recording, picture = walked()
    CAST.write_text(recording, encoding="utf-8")
    PICTURE.write_text(picture, encoding="utf-8")
    sys.stdout.write(f"recorded: {CAST.relative_to(PROJECT)}; drawn: {PICTURE.relative_to(PROJECT)}\n")
