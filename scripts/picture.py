"""Draw a run in the terminal as docs/demo.svg, from the demo itself. Knows no run: it shows what the program prints."""

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

__all__ = ["PICTURE", "drawn", "printed"]

PROJECT = Path(__file__).resolve().parent.parent
PICTURE = PROJECT / "docs" / "demo.svg"

_COMMAND = (
    "run",
    "-m",
    "demo",
    "Keep searching for errors in every file",
    "-C",
    "docs_src/sample",
    "--max-tool-calls",
    "8",
)
_COLUMNS, _LINE, _LETTER, _MARGIN, _BAR = 104, 19, 8.0, 20, 36
_COLOURS = (
    (r"\$ ", "#ffffff"),
    (r"\[done\]", "#7ee787"),
    (r"\[failed\]", "#ff9492"),
    (r"\[runs\]", "#79c0ff"),
    (r"treadle:|  then:", "#f2cc60"),
    (r"session:", "#8b949e"),
)


def printed() -> list[str]:
    """Return the lines that the demo prints, answer and progress, with the parts that differ from run to run evened out."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "TREADLE_HOME": home, "PYTHONUNBUFFERED": "1"}
        arguments = [sys.executable, "-m", "treadle", *_COMMAND]
        ran = subprocess.run(  # noqa: S603 - our own program, with arguments that stand above
            arguments,
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    text = re.sub(r"s_[0-9a-f]{16}", "s_42933e5f1a0a0862", ran.stdout).replace(f"{PROJECT}/", "")
    shown = " ".join(f'"{word}"' if " " in word else word for word in _COMMAND)
    return [f"$ treadle {shown}", *text.rstrip().split("\n")]


def drawn(lines: list[str]) -> str:
    """Return lines of a terminal as an SVG: dark, with the fonts of whoever looks at it."""
    cut = [line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…" for line in lines]
    width, height = int(_COLUMNS * _LETTER + 2 * _MARGIN), _BAR + len(cut) * _LINE + _MARGIN
    texts = [
        f'<text x="{_MARGIN}" y="{_BAR + (number + 1) * _LINE - 4}" fill="{_colour(line)}">{escape(line)}</text>'
        for number, line in enumerate(cut)
        if line
    ]
    lights = [
        f'<circle cx="{_MARGIN + 18 * number}" cy="18" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            "<title>A run of Treadle in the terminal: it searches a folder and stops at its limit</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
            *lights,
            "<style>text { white-space: pre }</style>",
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">',
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _colour(line: str) -> str:
    return next((colour for pattern, colour in _COLOURS if re.match(pattern, line)), "#c9d1d9")


if __name__ == "__main__":
    PICTURE.write_text(drawn(printed()), encoding="utf-8")
    sys.stdout.write(f"drawn: {PICTURE.relative_to(PROJECT)}\n")
