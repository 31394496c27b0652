"""The bank of the crash demo: a process of its own that pays whenever it is told to, and writes each payment down.

    python bank.py FILE

It prints its port first, serves loopback only, and ends with its standard input. It ignores keys, as most services do; they are
written down, so that `run.py` can say what a bank that honours them would have paid.
"""

import json
import socketserver
import sys
import threading
from pathlib import Path


class Bank(socketserver.ThreadingTCPServer):
    """Answers one JSON object a connection: `pay` an invoice, or say what was `asked` about."""

    daemon_threads = True

    def __init__(self, book: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Counter)
        self._book = book
        self._paid: dict[tuple[str, str], int] = {}
        self._gate = threading.Lock()

    def answer(self, question: dict) -> dict:
        with self._gate:
            if invoice := question.get("asked"):
                return {"paid": self._paid.get((invoice, question["key"]))}
            with self._book.open("a") as book:
                book.write(json.dumps(question) + "\n")
            self._paid[question["pay"], question["key"]] = question["amount"]
            return {"paid": question["amount"]}


class _Counter(socketserver.StreamRequestHandler):
    server: Bank

    def handle(self) -> None:
        if line := self.rfile.readline():
            self.wfile.write(json.dumps(self.server.answer(json.loads(line))).encode() + b"\n")


def main() -> None:
    with Bank(Path(sys.argv[1])) as bank:
        threading.Thread(target=bank.serve_forever, daemon=True).start()
        print(bank.server_address[1], flush=True)
        # Whoever started us holds the other end: when they end, however they end, so do we.
        sys.stdin.read()


if __name__ == "__main__":
    main()
