"""One life of a peer: what it is told on its command line, and the payment that may kill it. Knows no library of agents.

Every peer imports it into an environment of its own, so it needs the standard library alone.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

__all__ = ["Life", "live"]

_SECONDS = 30
"""The bank answers at once; one that does not has hung."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """What one process is to do, as `run.py` wrote it."""

    act: str
    """`start` a run, or `resume` it."""
    invoice: str
    """Names the run in the library's own store, at the bank and to the model."""
    store: str
    """The file in which the library keeps what it wants to keep."""
    base_url: str
    """Of the model."""
    bank: int
    """The bank's port."""
    die: str
    """`before` or `after` the payment; `never` to live."""
    variant: str
    """Which form of the peer, where it has more than one."""

    @property
    def task(self) -> str:
        return f"Pay {self.invoice}."

    def pay(self, key: str, amount: int) -> str:
        """Pay, unless this life is to end before, and return unless it is to end after."""
        self._pass_by("before")
        self._ask({"pay": self.invoice, "key": key, "amount": amount})
        self._pass_by("after")
        return self._receipt(amount)

    def receipt_of(self, key: str) -> str | None:
        """Ask the bank what it paid under the key: its receipt, or None for nothing."""
        amount = self._ask({"asked": self.invoice, "key": key})["paid"]
        return None if amount is None else self._receipt(amount)

    def _receipt(self, amount: int) -> str:
        return f"paid {amount}"

    def _ask(self, question: dict) -> dict:
        with socket.create_connection(("127.0.0.1", self.bank), timeout=_SECONDS) as connection:
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as answers:
                return json.loads(answers.readline())

    def _pass_by(self, point: str) -> None:
        if self.die == point:
            os.kill(os.getpid(), signal.SIGKILL)


def live(run: Callable[[Life], str], *packages: str) -> None:
    """Live the life of the command line, and print the model's last words and the versions of what made it."""
    text = run(Life(**json.loads(sys.argv[1])))
    print(json.dumps({"text": text, "versions": {name: version(name) for name in packages}}))
