"""A person at a terminal: a real process on a pseudo terminal, its screen as an emulator shows it, and keys as a keyboard sends them."""

import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyte

import program
from treadle.testing import MockProvider

SECONDS = 60
"""After so long nothing more comes."""

KEYS = {
    "enter": "\r", "ctrl-j": "\n", "esc": "\x1b", "ctrl-c": "\x03", "ctrl-d": "\x04", "ctrl-o": "\x0f", "ctrl-r": "\x12",
    "shift-tab": "\x1b[Z", "shift-enter": "\x1b[27;2;13~", "tab": "\t", "up": "\x1b[A", "down": "\x1b[B", "backspace": "\x7f",
}  # fmt: skip

BLOCKING = """
import os
import sys
from pathlib import Path
from treadle import Tool

HERE = Path(__file__).parent

def _wait(arguments, ctx):
    (HERE / "started").write_text("yes")
    with open(HERE / "gate") as gate:  # a FIFO: returns when the test writes
        return gate.read()

def _print(arguments, ctx):
    print("\\x1b[2J\\x1b[Hprinted by a tool")
    os.write(2, b"and written \\x1b]0;title\\x07\\n")
    return "done"

def _count(arguments, ctx):
    return "\\n".join(f"line {n}" for n in range(1, arguments["lines"] + 1))

def _pay(arguments, ctx):
    with (HERE / "paid.txt").open("a") as file:
        file.write(f"{arguments['amount']}\\n")
    return "paid"

def tool(name, run, effect="read", properties=None):
    parameters = {"type": "object", "properties": properties or {}}
    return Tool(name=name, description="A tool.", parameters=parameters, run=run, effect=effect, result_limit=10_000_000)

wait = tool("wait", _wait)
noisy = tool("noisy", _print)
count = tool("count", _count, properties={"lines": {"type": "integer"}})
pay = tool("pay", _pay, effect="unsafe", properties={"amount": {"type": "integer"}})
"""


class Person:
    """Starts the program at a terminal of a size, types, and looks."""

    def __init__(self, folder: Path, columns: int = 100, rows: int = 40) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.process: Any = None
        self.raw = ""
        self.prompt = ""
        """What comes before the line where one types."""
        self.knows_folder = True
        """Whether the person has answered what is asked at the first conversation in a folder."""
        self._resize(columns, rows)

    def _resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows

    def start(self, *arguments: str, **variables: str) -> "Person":
        if self.knows_folder and (not arguments or arguments[0] == "chat" or arguments[0].startswith("-")):
            self._answer_about_folder(arguments)
        environment = {
            **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
            **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
            "HOME": str(self.folder),
            "TREADLE_HOME": str(self.home),
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
            "PAGER": "cat",
            **variables,
        }
        self.prompt = "> " if environment["TERM"] == "dumb" else "› "
        self.screen = pyte.HistoryScreen(self.columns, self.rows, history=20_000, ratio=0.5)
        self.stream = pyte.Stream(self.screen)
        self.process = program.AtTerminal(
            arguments, folder=self.folder, environment=environment, rows=self.rows, columns=self.columns
        )
        return self

    def _answer_about_folder(self, arguments: Sequence[str]) -> None:
        other = arguments[arguments.index("-C") + 1] if "-C" in arguments else "."
        folder = os.path.realpath(self.folder / other)
        self.home.mkdir(mode=0o700, exist_ok=True)
        folders = self.home / "folders.json"
        folders.write_text(json.dumps({folder: {"mode": "ask"}}))
        folders.chmod(0o600)

    def talk(self, *turns: dict[str, Any], flags: Sequence[str] = (), say: str = "", **variables: str) -> None:
        """Begin a conversation with a model that has a script, and say something."""
        self.start("chat", *self.script(*turns), *flags, **variables)
        self.see(self.prompt)
        if say:
            self.say(say)

    def talk_to(self, provider: MockProvider, *flags: str, say: str = "", **variables: str) -> None:
        """Begin a conversation with a model on loopback, and say something."""
        self.start("chat", "-m", "openai-chat:mock", "--base-url", provider.base_url, *flags, **variables)
        self.see(self.prompt)
        if say:
            self.say(say)

    def leave(self) -> None:
        self.press("ctrl-d")
        self.ends(0)

    def elsewhere(self, *arguments: str, code: int = 0) -> str:
        """Run a command in another process, with the journal of the conversation; return what it says."""
        environment = {**os.environ, "HOME": str(self.folder), "TREADLE_HOME": str(self.home)}
        ran = program.run(arguments, folder=self.folder, environment=environment)
        assert ran.returncode == code, ran.stderr
        return (ran.stdout + ran.stderr).decode()

    # --- what it does

    def press(self, *keys: str) -> None:
        for key in keys:
            self.process.send(KEYS.get(key, key))

    def say(self, text: str) -> None:
        self.press(text, "enter")

    def resize(self, columns: int, rows: int) -> None:
        self._resize(columns, rows)
        self.screen.resize(rows, columns)
        self.process.resize(rows, columns)

    # --- what it sees

    def look(self) -> str:
        """Return the screen and all that has scrolled off it."""
        history = ["".join(line[x].data for x in range(self.columns)).rstrip() for line in self.screen.history.top]
        return "\n".join([*history, *self.shown()])

    def shown(self) -> list[str]:
        """Return the lines of the screen."""
        return [line.rstrip() for line in self.screen.display]

    def see(self, *words: str, without: str | None = None) -> str:
        """Wait until the terminal shows all these words, and no more another one on its screen; return what is seen."""
        until = time.monotonic() + SECONDS
        while not self._sees(words, without):
            assert time.monotonic() < until, f"never seen: {words!r} without {without!r}\n{self.look()}"
            try:
                self._take(self.process.read(1))
            except TimeoutError:
                continue
            except EOFError:
                assert self._sees(words, without), f"ended before: {words!r}\n{self.look()}"
        return self.look()

    def wait_for_file(self, name: str) -> None:
        """Wait until a file is in the folder: it tells nobody that it has come."""
        until = time.monotonic() + SECONDS
        while not (self.folder / name).exists():
            assert time.monotonic() < until, f"never made: {name}\n{self.look()}"
            with contextlib.suppress(TimeoutError):
                self._take(self.process.read(0.05))

    def rest(self) -> None:
        """Take what comes until nothing has come for half a second."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._take(self.process.read(0.5))

    def _sees(self, words: tuple[str, ...], without: str | None) -> bool:
        seen = self.look()
        flat = re.sub(r"\s+", " ", seen)
        return all(word in seen or word in flat for word in words) and (
            without is None or without not in "\n".join(self.shown())
        )

    def _take(self, text: str) -> None:
        self.raw += text
        # The emulator takes this question about keys for a colour.
        self.stream.feed(re.sub(r"\x1b\[>4;[01]m", "", text))

    def ends(self, code: int = 0) -> str:
        """Wait for the end of the program; return all that was seen."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            try:
                self._take(self.process.read(1))
            except TimeoutError:
                continue
            except EOFError:
                break
        self.process.close()
        assert self.process.status == code, (self.process.status, self.look())
        assert "Traceback" not in self.raw, self.look()
        return self.look()

    # --- what stands around it

    def script(self, *turns: dict[str, Any]) -> list[str]:
        (self.folder / "script.json").write_text(json.dumps(turns))
        return ["-m", "script:script.json"]

    def tools(self) -> list[str]:
        (self.folder / "mytools.py").write_text(BLOCKING)
        if not (self.folder / "gate").exists():
            os.mkfifo(self.folder / "gate")
        return ["--tools", "mytools.py"]

    def release(self, text: str = "released") -> None:
        """Let the tool `wait` end."""
        with (self.folder / "gate").open("w") as gate:
            gate.write(text)


def turn(text: str = "", **calls: dict[str, Any]) -> dict[str, Any]:
    """A turn of a script that calls tools by name."""
    made = [{"name": name.rstrip("_"), "arguments": arguments} for name, arguments in calls.items()]
    return {**({"text": text} if text else {}), **({"calls": made} if made else {})}
