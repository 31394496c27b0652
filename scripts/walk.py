"""Walk a new user's path at a real terminal: record it as docs/walk.cast (asciinema, version 2) and draw its best moment as docs/chat.svg.

An edit that is asked about and allowed, a command that is interrupted, and the session continued by another process. The model is a script.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from screens import PROJECT, THEMES, Terminal, drawn

__all__ = ["CAST", "PICTURE", "walked"]

CAST = PROJECT / "docs" / "walk.cast"
PICTURE = PROJECT / "docs" / "chat.svg"
_SHOWS = "A conversation with Treadle in the terminal: a file is searched, read and edited"
_COLUMNS, _ROWS = 92, 40
_FILES = {"fetch.py": "import http.client\n\nRETRIES = 3\nTIMEOUT = 30\n", "README.md": "# Fetcher\n"}
_TURNS = (
    {"text": "Let me find where the retries are set.", "calls": [
        {"name": "grep", "arguments": {"pattern": "RETRIES"}}, {"name": "read", "arguments": {"path": "fetch.py"}}]},
    {"calls": [{"name": "edit", "arguments": {"path": "fetch.py", "old_text": "RETRIES = 3", "new_text": "RETRIES = 5"}}]},
    {"text": "`fetch.py` now tries **5 times**. The timeout is still 30 seconds."},
    {"text": "Let me watch the log.", "calls": [{"name": "shell", "arguments": {"command": "tail -f README.md"}}]},
    {"text": "The command was interrupted; nothing was changed. The edit of `fetch.py` is done."},
)  # fmt: skip


def walked() -> tuple[str, str]:
    """Walk the path; return the recording, and the picture of its best moment."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "work")
        folder.mkdir()
        for name, content in _FILES.items():
            (folder / name).write_text(content, encoding="utf-8")
        state = Path(home, ".treadle")
        state.mkdir(mode=0o700)
        (state / "script.json").write_text(json.dumps(_TURNS), encoding="utf-8")
        folders = state / "folders.json"
        folders.write_text(json.dumps({os.path.realpath(folder): {"mode": "ask"}}), encoding="utf-8")  # is answered
        folders.chmod(0o600)
        terminal = Terminal(folder, _COLUMNS, _ROWS)
        model = ("-m", "script:../.treadle/script.json")
        _begin(terminal, "chat", *model)
        terminal.type("Try five times instead of three")
        terminal.see("Edit a file: fetch.py", seconds=0.8)
        terminal.press("y")
        terminal.see("still 30 seconds.", seconds=0.8)
        picture = drawn(terminal.screen, THEMES["dark"], _SHOWS)
        terminal.type("Now watch the log")
        terminal.see("tail -f README.md", seconds=0.8)
        terminal.press("\x1b")
        terminal.see("Interrupted.", seconds=0.8)
        terminal.end()
        _begin(terminal, "chat", "-c", *model)
        terminal.type("Is all as it should be?")
        terminal.see("is done.", seconds=0.8)
        terminal.end()
    return _cast(terminal.recorded), picture


def _begin(terminal: Terminal, *arguments: str) -> None:
    terminal.show(f"$ treadle {' '.join(arguments)}\r\n")
    terminal.start(*arguments)
    terminal.see("/help lists", seconds=0.8)


def _cast(recorded: list[tuple[float, str]]) -> str:
    """Return a recording in asciinema's format."""
    head = {
        "version": 2,
        "width": _COLUMNS,
        "height": _ROWS,
        "title": "A new user's path",
        "env": {"TERM": "xterm-256color"},
    }
    lines = [json.dumps(head)]
    lines += [json.dumps([at, "o", text], ensure_ascii=False) for at, text in recorded]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    recording, best = walked()
    CAST.write_text(recording, encoding="utf-8")
    PICTURE.write_text(best, encoding="utf-8")
    sys.stdout.write(f"recorded: {CAST.relative_to(PROJECT)}; drawn: {PICTURE.relative_to(PROJECT)}\n")
