"""`treadle demo`: a whole run at work, on a person's folder or on a sample: no key, no network, no language model."""

import asyncio
import os
from pathlib import Path

from treadle.cli.commands.run import start
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import DemoOptions, RunOptions
from treadle.cli.input.options import as_other
from treadle.cli.input.places import default_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.running import make_agent

__all__ = ["demo"]

_TASK = "Keep searching for errors in every file"
_CALLS = 8
_LIMIT_CODE = 10

_SAMPLE = {
    "README.md": "A small service, for the demonstration.\nErrors are logged to logs/.\n",
    "todo.txt": "fix the error on empty input\nwrite more tests\n",
    "logs/monday.log": "08:00 INFO started\n08:01 ERROR disk almost full\n08:07 ERROR disk full\n",
    "logs/tuesday.log": "08:00 INFO started\n",
    "logs/wednesday.log": "08:00 INFO started\n09:30 ERROR connection lost\n",
    "src/main.py": "def main():\n    raise ValueError('an error on purpose')\n",
    "src/reading.py": "def read(path):\n    return open(path).read()\n",
    "src/writing.py": "def write(path, text):\n    # error handling is missing here\n    open(path, 'w').write(text)\n",
    "config/settings.toml": "level = 'error'\n",
    "config/users.toml": "names = ['ada', 'grace']\n",
    "docs/start.md": "Start it with make. It prints an error when the port is taken.\n",
    "docs/stop.md": "Stop it with Ctrl-C.\n",
}


def demo(options: DemoOptions, terminal: Terminal) -> int:
    """Show a run with searches side by side, a call that breaks its schema and is corrected, and a limit."""
    terminal.hides_logs = True
    limits = {"max_tool_calls": _CALLS, **options.limits}
    folder = _sample(default_journal(os.environ).parent / "demo") if options.folder is None else Path(options.folder)
    given = as_other(options, RunOptions, folder=str(folder), limits=limits)
    settings = settings_of(given)
    _introduce(settings.root, settings.budget.max_tool_calls, terminal)
    agent = make_agent(settings, "demo")
    code = asyncio.run(start(agent, _TASK, settings=settings, options=given, terminal=terminal, model="demo"))
    return _outro(code, terminal)


def _sample(folder: Path) -> Path:
    """Write the folder of small files. It stays, so that what the demonstration suggests finds it."""
    try:
        for name, content in _SAMPLE.items():
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as exc:
        raise UsageError(
            f"The sample folder {str(folder)!r:.200} cannot be written: {exc.strerror}. Name one with -C."
        ) from exc
    return folder


def _introduce(root: Path, calls: int | None, terminal: Terminal) -> None:
    for line in (
        "A rule-based demo model works on a sample folder. Everything else is real: the loop, the tools, the journal, HTTP on loopback.",
        f'$ treadle run -m demo "{_TASK}" -C {root} --max-tool-calls {"none" if calls is None else calls}',
        "Watch for: parallel searches; an invalid call that is refused and corrected; a summary at the limit.",
        "",
    ):
        terminal.progress(line)


def _outro(code: int, terminal: Terminal) -> int:
    """A demonstration that ends at its limit has done what it is for."""
    if code == _LIMIT_CODE:
        terminal.progress(
            "As expected, the run stopped at its limit with a summary. `treadle run` would exit with code 10."
        )
        return 0
    return code
