"""Draw what the manual explains, light and dark, into docs/pictures: a step, what survives a kill, effects by decision. Measures nothing."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

__all__ = ["DRAWINGS", "FOLDER", "THEMES", "Theme", "drawn"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"


class Theme(NamedTuple):
    """The colours of a drawing."""

    back: str
    ink: str
    quiet: str
    line: str
    box: str
    good: str
    warn: str
    stop: str


THEMES: Mapping[str, Theme] = {
    "light": Theme("#ffffff", "#1f2328", "#57606a", "#8c959f", "#f6f8fa", "#d2f0dc", "#fdf0c8", "#fbdcd9"),
    "dark": Theme("#0d1117", "#e6edf3", "#9198a1", "#656c76", "#161b22", "#12381f", "#3d2f08", "#4a1a19"),
}


class Paper:
    """What is drawn so far, in one theme."""

    def __init__(self, theme: Theme, width: int, height: int, title: str) -> None:
        self.theme = theme
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
            'font-family="system-ui, sans-serif" font-size="14" role="img">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
            f'<path d="M0 0 8 4 0 8z" fill="{theme.line}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="{theme.back}"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, *lines: str, fill: str = "") -> None:
        """Draw a box with centred lines; the first is bold."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill or self.theme.box}" stroke="{self.theme.line}"/>'
        )
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width // 2, round(top + 18 * number), line, anchor="middle", bold=number == 0)

    def text(
        self, x: int, y: int, line: str, *, anchor: str = "start", bold: bool = False, quiet: bool = False
    ) -> None:
        """Write one line."""
        weight, ink = ("600" if bold else "400"), (self.theme.quiet if quiet else self.theme.ink)
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" fill="{ink}">{escape(line)}</text>'
        )

    def arrow(self, *points: tuple[int, int]) -> None:
        """Draw a line with a tip at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{self.theme.line}" stroke-width="1.6" marker-end="url(#tip)"/>'
        )

    def svg(self) -> str:
        """Return the whole file."""
        return "\n".join([*self._parts, "</svg>", ""])


def _step(theme: Theme) -> Paper:
    paper = Paper(theme, 820, 306, "One step: ask, check, decide, record, run, record the results")
    stages = [
        ("Ask", "the model"),
        ("Check", "the arguments"),
        ("Decide", "allow, ask, deny"),
        ("Record", "synced to disk"),
        ("Run", "each call"),
    ]
    for number, lines in enumerate(stages):
        x = 24 + 158 * number
        paper.box(x, 70, 136, 62, *lines, fill=theme.good if lines[0] == "Record" else "")
        if number:
            paper.arrow((x - 22, 101), (x - 2, 101))
    paper.box(340, 206, 136, 62, "Record", "one result a call", fill=theme.good)
    paper.arrow((724, 132), (724, 237), (478, 237))
    paper.arrow((338, 237), (92, 237), (92, 134))
    paper.text(104, 192, "the next step, until a response has no calls", quiet=True)
    paper.text(24, 36, "One step", bold=True)
    paper.text(
        24,
        56,
        "A mistake of the model becomes a result with a status. A used-up budget ends the run with a report.",
        quiet=True,
    )
    paper.text(
        24,
        288,
        "A call that needs a person is recorded as a question. The run pauses, and no process waits.",
        quiet=True,
    )
    return paper


def _kill(theme: Theme) -> Paper:
    paper = Paper(theme, 820, 330, "What the next process does after a kill, by the point of the kill")
    paper.text(24, 36, "A process is killed", bold=True)
    paper.text(24, 56, "The journal says how far each call was. The next process reads it and continues.", quiet=True)
    paper.arrow((24, 104), (796, 104))
    for x, line in ((72, "proposed"), (270, "start recorded"), (560, "result recorded")):
        paper.text(x, 92, line, anchor="middle")
        paper.arrow((x, 98), (x, 112))
    paper.text(415, 124, "the call is under way", anchor="middle", quiet=True)
    paper.box(
        24,
        150,
        222,
        150,
        "Before the start",
        "It certainly did not run.",
        "It is decided on,",
        "and runs now.",
        fill=theme.good,
    )
    paper.box(
        262,
        150,
        282,
        150,
        "In between",
        "read: runs again",
        "idempotent, keyed: again, same key",
        "unsafe: its check is asked,",
        "else a person,",
        "else it counts as unknown",
        fill=theme.warn,
    )
    paper.box(
        560, 150, 236, 150, "After the result", "It is used as it is.", "The call never runs again.", fill=theme.good
    )
    return paper


def _effects(theme: Theme) -> Paper:
    paper = Paper(theme, 820, 292, "What follows from the effect of a tool")
    paper.text(24, 36, "One word for each tool decides four things", bold=True)
    columns = (
        ("Effect", 24, 116),
        ("Without a rule", 148, 150),
        ("In parallel", 306, 160),
        ("After an error", 474, 160),
        ("After a crash", 642, 154),
    )
    rows = (
        ("read", ("allowed", 2), ("with other reads", 2), ("tried again", 2), ("runs again", 2)),
        ("idempotent", ("asks a person", 1), ("by resource", 1), ("again, if transient", 2), ("again, same key", 2)),
        ("keyed", ("asks a person", 1), ("by resource", 1), ("again, same key", 2), ("again, same key", 2)),
        ("unsafe", ("asks a person", 1), ("by resource", 1), ("never", 0), ("check, or a person", 0)),
    )
    fills = (theme.stop, theme.warn, theme.good)
    for name, x, width in columns:
        paper.text(x + width // 2, 72, name, anchor="middle", quiet=True)
    for number, (effect, *cells) in enumerate(rows):
        y = 86 + 46 * number
        paper.box(columns[0][1], y, columns[0][2], 38, effect)
        for (_, x, width), (cell, kind) in zip(columns[1:], cells, strict=True):
            paper.box(x, y, width, 38, cell, fill=fills[kind])
    paper.text(24, 282, "A policy changes the first column only: allow, ask, deny, or sandbox.", quiet=True)
    return paper


DRAWINGS: Mapping[str, Callable[[Theme], Paper]] = {"step": _step, "kill": _kill, "effects": _effects}


def drawn() -> dict[str, str]:
    """Return the text of each file, by its name."""
    return {
        f"{name}-{theme}.svg": draw(colours).svg()
        for name, draw in DRAWINGS.items()
        for theme, colours in THEMES.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, svg in drawn().items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
