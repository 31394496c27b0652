"""The program as a person calls it, with a home and variables of its own. No doubles but the provider on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import program
from treadle.testing import MockProvider

PAYING = """
from pathlib import Path
from treadle import Tool

PAID = Path(__file__).with_name("paid.txt")

def _pay(arguments, ctx):
    with PAID.open("a") as file:
        file.write(f"{arguments['amount']}\\n")
    return "paid"

pay = Tool(
    name="pay",
    description="Pay an invoice.",
    parameters={"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
    effect="unsafe",
    run=_pay,
)
"""


class Treadle:
    """Runs the program in one folder, with no variable of the person who runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if name in ("PATH", "PYTHONPATH", "LANG") or name.startswith("COVERAGE_")
            },
            "HOME": str(folder),
            "TREADLE_HOME": str(self.home),
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "treadle", *arguments]

    def __call__(
        self,
        *arguments: str,
        stdin: str | bytes | None = None,
        code: int | None = None,
        is_apart: bool = False,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; `code` is the exit code that it must have, `is_apart` gives it a process of its own."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        environment = {**self.environment, **variables}
        ran = program.run(arguments, folder=self.folder, environment=environment, given=given, is_apart=is_apart)
        done = subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *arguments: str, code: int | None = None, **words: Any) -> Any:
        """Run the program and return the one JSON value that it prints."""
        return json.loads(self(*arguments, code=code, **words).stdout)

    def start(self, *arguments: str, is_new: bool = False, **words: Any) -> Any:
        """Start the program, with streams as `subprocess.Popen` has them; `is_new` as a person does: not as a fork."""
        words = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **words}
        if is_new:
            return subprocess.Popen(self.command(*arguments), cwd=self.folder, env=self.environment, **words)
        return program.start(arguments, folder=self.folder, **{"environment": self.environment, **words})

    def served(self, provider: MockProvider) -> list[str]:
        return ["-m", "openai-chat:mock", "--base-url", provider.base_url]

    def script(self, name: str, turns: list[dict[str, Any]]) -> str:
        (self.folder / name).write_text(json.dumps(turns), encoding="utf-8")
        return f"script:{name}"


@pytest.fixture
def treadle(tmp_path: Path) -> Treadle:
    for name, text in {"a.txt": "one error\n", "b.txt": "fine\n", "c.txt": "an error, and an error\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return Treadle(tmp_path)


@pytest.fixture
def paying(treadle: Treadle) -> Treadle:
    """With a tool that pays, and a script that uses it once."""
    (treadle.folder / "paying.py").write_text(PAYING, encoding="utf-8")
    treadle.script("pay.json", [{"calls": [{"name": "pay", "arguments": {"amount": 40}}]}, {"text": "It is done."}])
    return treadle


@pytest.fixture
def greps() -> Iterator[MockProvider]:
    """A model that searches for ever; where it may not call, it sums up."""
    count = iter(range(1, 1000))

    def turn(body: dict[str, Any]) -> Any:
        from treadle.testing import call, text

        if body.get("tool_choice") == "none":
            return text("Partly found.")
        return call("grep", pattern="error", path=f"{'abc'[next(count) % 3]}.txt", max_matches=next(count))

    with MockProvider(turn).in_thread() as provider:
        yield provider
