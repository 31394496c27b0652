"""The scene of the crash demo: a bank, a model, and lives between them. Knows no library, sets nothing up and prints nothing."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from treadle.testing import MockProvider, call, text

__all__ = ["Ending", "Peer", "Scene"]

HERE = Path(__file__).resolve().parent

_LAST_WORDS = "That is what I know."

_SECONDS = 120
"""No process takes so long; one that does has hung."""


class Peer(NamedTuple):
    """One library, in one form."""

    title: str
    file: str
    """Of `peers/`; also the name of its environment."""
    packages: tuple[str, ...] = ()
    """What its environment needs; empty for this one."""
    variant: str = ""

    @property
    def venv(self) -> Path:
        return HERE.parent / "venvs" / self.file

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python" if self.packages else Path(sys.executable)


class Ending(NamedTuple):
    """What came of one life."""

    has_resumed: bool
    payments: int
    """At a bank that ignores keys, which ours is."""
    keys: int
    """How many different ones it was given: the payments of a bank that honours them."""
    told: str
    """What the model read of its call, in the end: `paid`, `unknown`, or `nothing`."""
    versions: str = ""
    words: str = ""
    """What the process that was to resume wrote to its standard error, where it failed."""

    @property
    def is_sound(self) -> bool:
        return self.has_resumed and self.payments <= 1 and not self.is_told_amiss

    @property
    def is_told_amiss(self) -> bool:
        return self.told == "nothing" or (self.told == "paid" and self.payments != 1)


class Scene:
    """The bank and the model, and lives between them."""

    def __init__(self, folder: Path, bank: int) -> None:
        self._folder = folder
        self._bank = bank
        self._model = MockProvider(self._respond)
        self._told: dict[str, str] = {}
        self._numbers = itertools.count(1)

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> "Iterator[Scene]":
        command = [sys.executable, str(HERE / "bank.py"), str(folder / "book")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bank:
            assert bank.stdin is not None
            assert bank.stdout is not None
            try:
                scene = cls(folder, int(bank.stdout.readline()))
                with scene._model.in_thread():
                    yield scene
            finally:
                bank.stdin.close()  # the bank ends with its standard input

    def live(self, peer: Peer, point: str) -> Ending:
        invoice = f"invoice-{next(self._numbers)}"
        first = self._process(peer, invoice, act="start", die=point)
        if first.returncode != -signal.SIGKILL:
            raise SystemExit(f"{peer.title} was to be killed, and ended with {first.returncode}:\n{first.stderr}")
        second = self._process(peer, invoice, act="resume", die="never")
        payments = self._payments(invoice)
        said: dict[str, Any] = {"text": "", "versions": {}}
        if second.returncode == 0:
            said = json.loads(second.stdout.splitlines()[-1])
        return Ending(
            has_resumed=said["text"] == _LAST_WORDS,
            payments=len(payments),
            keys=len({payment["key"] for payment in payments}),
            told=self._told.get(invoice, "nothing"),
            versions=", ".join(f"{name} {version}" for name, version in said["versions"].items()),
            words=second.stderr,
        )

    def _process(self, peer: Peer, invoice: str, *, act: str, die: str) -> subprocess.CompletedProcess[str]:
        life = {
            "act": act,
            "invoice": invoice,
            "store": str(self._folder / f"{invoice}.db"),
            "base_url": self._model.base_url,
            "bank": self._bank,
            "die": die,
            "variant": peer.variant,
        }
        command = [str(peer.python), str(HERE / "peers" / f"{peer.file}.py"), json.dumps(life)]
        environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
        try:
            return subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as hung:
            return subprocess.CompletedProcess(command, 1, stdout="", stderr=str(hung))

    def _payments(self, invoice: str) -> list[dict[str, Any]]:
        book = self._folder / "book"
        lines = book.read_text().splitlines() if book.exists() else []
        return [payment for line in lines if (payment := json.loads(line))["pay"] == invoice]

    def _respond(self, body: dict[str, Any]) -> Any:  # Any: a turn of the mock provider's
        """Propose the payment; once the history holds its result, note what the model was told and end."""
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if not results:
            return call("pay", amount=7)
        found = re.search(r"invoice-\d+", json.dumps(body["messages"]))
        assert found is not None
        self._told[found.group()] = _told(json.dumps(results[-1]))
        return text(_LAST_WORDS)


def _told(result: str) -> str:
    if "outcome_unknown" in result:
        return "unknown"
    return "paid" if "paid 7" in result else "nothing"
