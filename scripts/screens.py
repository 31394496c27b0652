"""Draw ten screens of a conversation, dark and light, into docs/screens: the program itself at a real terminal, with a model on loopback that has a script."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pexpect
import pyte
from wcwidth import wcwidth

from treadle.testing import MockProvider, Turn, call, text

__all__ = ["FOLDER", "PROJECT", "SCENES", "THEMES", "Scene", "Terminal", "Theme", "drawn", "shot"]

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / "docs" / "screens"
COLUMNS, ROWS = 92, 30
_SECONDS = 60
_NOBODY = {f"{name}_BASE_URL": "http://127.0.0.1:9/v1" for name in ("LLAMACPP", "LMSTUDIO", "OLLAMA", "VLLM")}
"""No server of this machine answers there."""


class Theme(NamedTuple):
    """The colours of a terminal, and what tells the program which they are."""

    name: str
    back: str
    fore: str
    named: Mapping[str, str]
    variables: Mapping[str, str]


_DARK = Theme(
    "dark", "#161b22", "#d0d7de",
    {"red": "#ff7b72", "green": "#3fb950", "brown": "#d29922", "blue": "#58a6ff", "magenta": "#bc8cff", "cyan": "#39c5cf",
     "black": "#484f58", "white": "#b1bac4", "brightblack": "#6e7681", "brightred": "#ffa198", "brightgreen": "#56d364",
     "brightbrown": "#e3b341", "brightblue": "#79c0ff", "brightmagenta": "#d2a8ff", "brightcyan": "#56d4dd", "brightwhite": "#ffffff"},
    {"COLORFGBG": "15;0"},
)  # fmt: skip
_LIGHT = Theme(
    "light", "#ffffff", "#1f2328",
    {"red": "#cf222e", "green": "#116329", "brown": "#4d2d00", "blue": "#0969da", "magenta": "#8250df", "cyan": "#1b7c83",
     "black": "#24292f", "white": "#6e7781", "brightblack": "#57606a", "brightred": "#a40e26", "brightgreen": "#1a7f37",
     "brightbrown": "#633c01", "brightblue": "#218bff", "brightmagenta": "#a475f9", "brightcyan": "#3192aa", "brightwhite": "#8c959f"},
    {"COLORFGBG": "0;15"},
)  # fmt: skip
_COLOURLESS = _DARK._replace(name="none", variables={"NO_COLOR": "1"})
THEMES = {one.name: one for one in (_DARK, _LIGHT, _COLOURLESS)}


# --- the terminal


class _Emulator(pyte.Screen):
    """An emulator that knows faint text, which pyte does not: it is kept as blinking text, which nobody writes."""

    def select_graphic_rendition(self, *attributes: int, **unused: Any) -> None:
        known, at = [], 0
        while at < len(attributes):
            taken = (
                5
                if attributes[at] in (38, 48) and attributes[at + 1 : at + 2] == (2,)
                else 3
                if attributes[at] in (38, 48)
                else 1
            )
            known += [5] if attributes[at] == 2 else [22, 25] if attributes[at] == 22 else attributes[at : at + taken]
            at += taken
        super().select_graphic_rendition(*known)


class Terminal:
    """A terminal on which programs run one after another, in a folder of its own. All that it shows is recorded."""

    def __init__(self, folder: Path, columns: int = COLUMNS, rows: int = ROWS, **variables: str) -> None:
        self.folder, self.columns, self.rows = folder, columns, rows
        self.screen = _Emulator(columns, rows)
        self.recorded: list[tuple[float, str]] = []
        self._stream = pyte.Stream(self.screen)
        self._begun = time.monotonic()
        self._process: Any = None
        home = folder.parent
        self._variables = {
            "PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(home),
            "TREADLE_HOME": str(home / ".treadle"), "TERM": "xterm-256color", "LANG": "C.UTF-8", "SHELL": "/bin/sh",
            "USER": "you", "LOGNAME": "you", **_NOBODY, **variables,
        }  # fmt: skip

    def start(self, *arguments: str) -> None:
        """Start the program."""
        self._process = pexpect.spawn(
            sys.executable, ["-m", "treadle", *arguments], cwd=str(self.folder), env=self._variables, encoding="utf-8",
            codec_errors="replace", dimensions=(self.rows, self.columns),
        )  # fmt: skip
        self._process.delaybeforesend = None

    def press(self, keys: str) -> None:
        """Send keys as a keyboard does."""
        self._process.send(keys)

    def say(self, words: str) -> None:
        """Enter a message at once."""
        self.press(words)
        self.see(words.rsplit(maxsplit=1)[-1])
        self.press("\r")

    def type(self, words: str) -> None:
        """Enter a message letter by letter, for those who watch."""
        for letter in words:
            self.press(letter)
            self.read(0.03)
        self.press("\r")

    def show(self, text: str) -> None:
        """Show what no program writes."""
        self._take(text)

    def see(self, *words: str, seconds: float = 0.3) -> None:
        """Wait until the screen shows each of the texts, then take what comes for a while."""
        until = time.monotonic() + _SECONDS
        while not all(word in " ".join(" ".join(self.screen.display).split()) for word in words):
            if time.monotonic() > until:
                raise RuntimeError(f"never seen: {words!r}\n" + "\n".join(self.screen.display))
            self.read(0.1)
        self.read(seconds)

    def read(self, seconds: float) -> None:
        """Take what comes in a time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self._take(self._process.read_nonblocking(65536, timeout=left))
            except (pexpect.TIMEOUT, pexpect.EOF):
                return

    def end(self) -> None:
        """Leave the program, however it stands."""
        for keys in ("\x04", "\x1b", "\x03\x03"):
            with suppress(OSError):
                self.press(keys)
            self.read(0.5)
            if not self._process.isalive():
                break
        self._process.close(force=True)

    def _take(self, shown: str) -> None:
        place = str(self.folder)
        self.recorded.append((round(time.monotonic() - self._begun, 3), shown.replace(place, "~/work")))
        self._stream.feed(re.sub(r"\x1b\[>4;[01]m", "", shown.replace(place, "~/work")))


# --- the ten screens


_FILES = {
    "fetch.py": 'import http.client\nimport time\n\nRETRIES = 3\nTIMEOUT = 30\n\n\ndef fetch(host: str, path: str) -> bytes:\n'
    '    """Return what a server sends, tried three times."""\n    for attempt in range(RETRIES):\n        try:\n'
    "            return get(host, path)\n        except OSError:\n            time.sleep(1)\n    raise ConnectionError(host)\n",
    "README.md": "# Fetcher\n\nTries three times.\n",
    "Makefile": "test:\n\t@echo 'tests/test_fetch.py ..........   [ 83 %]'\n\t@sleep 60\n",
    "tests/test_fetch.py": "from fetch import RETRIES\n\n\ndef test_retries():\n    assert RETRIES == 3\n",
}  # fmt: skip
_WORDS = """\
`fetch` retries **three times** and waits a second between attempts:

| Setting | Value | Where |
|---|---:|---|
| retries | 3 | `fetch.py:4` |
| timeout | 30 s | `fetch.py:5` |

A wait that grows is kinder to a server that is busy:

```python
for attempt in range(RETRIES):
    try:
        return get(host, path)
    except OSError:
        time.sleep(2**attempt)  # 1, 2, 4 seconds
```

1. Change the wait, see [the guide](https://example.com/backoff).
2. Test it without waiting:
   - give `fetch` a clock,
   - count its calls.

> Do not retry a request that changed something.
"""
_PLAN = "1. Give `fetch` a parameter `retries`, 5 by default.\n2. Let the wait grow: 1, 2, 4 seconds.\n3. Test both with a clock of the test.\n"


class Stage(NamedTuple):
    """Where a scene plays."""

    terminal: Terminal
    provider: MockProvider

    def talk(self, *flags: str) -> None:
        """Begin a conversation with the model on loopback."""
        self.terminal.start("chat", "-m", "openai:gpt-5", *flags)
        self.terminal.see("›")


class Scene(NamedTuple):
    """One screen: what is on it, the answers of its model, and how one comes to it."""

    name: str
    shows: str
    turns: Sequence[Turn]
    play: Callable[[Stage], None]
    knows_folder: bool = True
    has_key: bool = True


def _search() -> Turn:
    return Turn(
        text="Let me find where the retries are set.",
        calls=(call("grep", pattern="RETRIES"), call("read", path="fetch.py")),
    )


def _edit() -> Turn:
    return Turn(
        text="They are set in one place.",
        calls=(call("edit", path="fetch.py", edits=[
            {"old_text": "RETRIES = 3", "new_text": "RETRIES = 5"},
            {"old_text": '    """Return what a server sends, tried three times."""', "new_text": '    """Return what a server sends, tried five times."""'}]),),
    )  # fmt: skip


def _todo(*states: str) -> Turn:
    items = zip(
        ("Find where the retries are set", "Try five times", "Let the wait grow", "Run the tests"), states, strict=True
    )
    return Turn(calls=(call("todo", items=[{"text": one, "state": state} for one, state in items]),))


def _first_start(stage: Stage) -> None:
    stage.terminal.start()
    stage.terminal.see("Which model", "demo")


def _greeting(stage: Stage) -> None:
    stage.talk()
    stage.terminal.see("context left")


def _calls(stage: Stage) -> None:
    stage.talk("--allow", "shell(make:*)", "--allow", "edit")
    stage.terminal.say("Try five times instead of three, then run the tests")
    stage.terminal.see("$ make test", "3 s")


def _diff(stage: Stage) -> None:
    stage.talk()
    stage.terminal.say("Try five times instead of three")
    stage.terminal.see("Shift+Tab")


def _command(stage: Stage) -> None:
    stage.talk()
    stage.terminal.say("Publish the package")
    stage.terminal.see("yes, once")


def _plan(stage: Stage) -> None:
    stage.talk("--mode", "plan")
    stage.terminal.say("Make fetch patient with busy servers")
    stage.terminal.see("yes, carry it out")


def _checklist(stage: Stage) -> None:
    stage.talk("--allow", "shell(make:*)", "--allow", "edit")
    stage.terminal.say("Make fetch patient with busy servers")
    stage.terminal.see("Run the tests", "$ make test", "2 s")


def _markdown(stage: Stage) -> None:
    stage.talk()
    stage.terminal.say("How does it retry?")
    stage.terminal.see("something.", "1 step")


def _rewind(stage: Stage) -> None:
    stage.talk("--allow", "edit")
    stage.terminal.say("Try five times instead of three")
    stage.terminal.see("five times now.", "3 steps")
    stage.terminal.say("How does it retry?")
    stage.terminal.see("something.", "1 step")
    stage.terminal.say("/rewind")
    stage.terminal.see("before")


def _offline(stage: Stage) -> None:
    stage.talk()
    stage.terminal.say("How does it retry?")
    stage.terminal.see("›", "overloaded", "retrying")


def _models(stage: Stage) -> None:
    stage.talk()
    stage.terminal.say("What is the timeout?")
    stage.terminal.see("30 seconds", "2 steps")
    stage.terminal.say("/model")
    stage.terminal.see("Which model")


SCENES = (
    Scene("first-start", "The first start, with no key: what was found, and where a key is from", (), _first_start, has_key=False),
    Scene("greeting", "The greeting", (), _greeting),
    Scene("calls", "Calls that are done and one that runs",
          (_search(), _edit(), Turn(calls=(call("shell", command="make test"),)), text("Done.")), _calls),
    Scene("diff", "A question about an edit", (_search(), _edit()), _diff),
    Scene("command", "A question about a command",
          (Turn(text="The version is right; I publish it.", calls=(call("shell", command="git push origin main && twine upload dist/*"),)),), _command),
    Scene("plan", "A plan that waits for its answer", (Turn(text="I have read `fetch.py`.", calls=(call("exit_plan", plan=_PLAN),)),), _plan),
    Scene("checklist", "The to-do list above the input",
          (_todo("in_progress", "pending", "pending", "pending"), _search(), _edit(), _todo("done", "done", "in_progress", "pending"),
           Turn(calls=(call("shell", command="make test"),)), text("Done.")), _checklist),
    Scene("markdown", "An answer in Markdown", (text(_WORDS),), _markdown),
    Scene("rewind", "Back to the point before a message", (_search(), _edit(), text("It tries five times now."), text(_WORDS)), _rewind),
    Scene("offline", "A server that fails", (Turn(status=529, error="The model is overloaded."),) * 9, _offline),
    Scene("models", "The models to choose from, below what a run took",
          (Turn(calls=(call("read", path="fetch.py"),)), text("The timeout is 30 seconds, in `fetch.py` line 5.")), _models),
)  # fmt: skip


def shot(scene: Scene, theme: Theme, columns: int = COLUMNS, rows: int = ROWS) -> str:
    """Play a scene and return its last screen as an SVG."""
    with (
        tempfile.TemporaryDirectory() as home,
        MockProvider([*scene.turns, text("That is all.")]).in_thread() as provider,
    ):
        folder = Path(home, "work")
        for name, content in _FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        for line in ("init -q -b main", "add .", "-c user.name=you -c user.email=you@example.com commit -q -m Begin"):
            subprocess.run(["git", *line.split()], cwd=folder, check=True)  # noqa: S603, S607 - git, with words that stand above
        state = Path(home, ".treadle")
        state.mkdir(mode=0o700)
        if scene.has_key:
            (state / "config.toml").write_text("[price]\ninput = 1.25\noutput = 10\n")
        if scene.knows_folder:
            (state / "folders.json").write_text(f'{{"{os.path.realpath(folder)}": {{"mode": "ask"}}}}')
            (state / "folders.json").chmod(0o600)
        key = {"OPENAI_API_KEY": "sk-0123456789abcdef"} if scene.has_key else {}
        terminal = Terminal(folder, columns, rows, OPENAI_BASE_URL=provider.base_url, **key, **theme.variables)
        try:
            scene.play(Stage(terminal, provider))
            picture = drawn(terminal.screen, theme, scene.shows)
        finally:
            terminal.end()
    return picture


# --- the pictures

_LINE, _LETTER, _MARGIN = 19, 8.0, 20
_FAINT = 0.62


def drawn(screen: Any, theme: Theme, title: str) -> str:
    """Return what an emulated terminal shows as an SVG, without the empty lines at its end."""
    rows = [screen.buffer[number] for number in range(screen.lines)]
    while rows and not "".join(rows[-1][x].data for x in range(screen.columns)).strip():
        rows.pop()
    width, height = int(screen.columns * _LETTER + 2 * _MARGIN), len(rows) * _LINE + 2 * _MARGIN
    pieces = [
        one for number, row in enumerate(rows) for one in _pieces(row, screen.columns, _MARGIN + number * _LINE, theme)
    ]
    if not screen.cursor.hidden:
        x, y = _MARGIN + screen.cursor.x * _LETTER, _MARGIN + screen.cursor.y * _LINE
        pieces.append(f'<rect x="{x}" y="{y}" width="{_LETTER}" height="{_LINE}" fill="{theme.fore}" opacity="0.7"/>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{theme.back}"/>',
            "<style>text { white-space: pre }</style>",
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">',
            *pieces,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _pieces(row: Any, columns: int, y: int, theme: Theme) -> Iterator[str]:
    """Yield the pieces of one line, each of one look."""
    cells = [(x, row[x]) for x in range(columns)]
    for _, group in groupby(cells, key=lambda cell: cell[1]._replace(data="")):
        piece = list(group)
        cell = piece[0][1]
        fore, back = _colour(cell.fg, theme, theme.fore), _colour(cell.bg, theme, theme.back)
        if cell.reverse:
            fore, back = back, fore
        x, span = _MARGIN + piece[0][0] * _LETTER, len(piece) * _LETTER
        if back != theme.back:
            yield f'<rect x="{x}" y="{y}" width="{span}" height="{_LINE}" fill="{back}"/>'
        shown = "".join(one.data for _, one in piece).rstrip()
        if shown:
            look = (
                ' font-weight="bold"' * cell.bold
                + ' font-style="italic"' * cell.italics
                + ' text-decoration="underline"' * cell.underscore
            )
            faint = f' opacity="{_FAINT}"' * cell.blink
            length = sum(max(wcwidth(one), 0) for one in shown) * _LETTER
            yield f'<text x="{x}" y="{y + 14}" textLength="{length}" fill="{fore}"{look}{faint}>{escape(shown)}</text>'


def _colour(name: str, theme: Theme, default: str) -> str:
    return default if name == "default" else theme.named.get(name, f"#{name}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in SCENES:
        for look in (_DARK, _LIGHT):
            (FOLDER / f"{one.name}-{look.name}.svg").write_text(shot(one, look), encoding="utf-8")
            sys.stdout.write(f"drawn: {one.name}, {look.name}\n")
