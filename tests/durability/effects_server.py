"""The outside world of the crash tests: a process of its own that is asked to act, and writes down each time it was.

    python effects_server.py FILE

It prints its port first, serves loopback only, and ends when its standard input does. One JSON object a connection:
`{"do": KEY, "effect": ..., "n": ...}` acts, `{"ask": KEY}` asks whether KEY was done.
"""

import json
import os
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any


class World:
    """What was done, in memory and in a file that outlives everybody."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._done: set[str] = set()
        self._gate = threading.Lock()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        with self._gate:
            if (key := asked.get("ask")) is not None:
                return {"done": key in self._done}
            key = asked["do"]
            # What honours keys, or changes nothing the second time, acts once; anything else acts each time.
            has_acted = asked["effect"] == "unsafe" or key not in self._done
            self._done.add(key)
            os.write(self._file, json.dumps({**asked, "has_acted": has_acted}).encode() + b"\n")
            return {"done": True}


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        if line := self.rfile.readline(65536):
            answer = self.server.world.answer(json.loads(line))  # type: ignore[attr-defined]  # set below
            try:
                self.wfile.write(json.dumps(answer).encode() + b"\n")
            except OSError:  # the one who asked is dead, as the tests like it
                return


def main() -> None:
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.world = World(Path(sys.argv[1]))  # type: ignore[attr-defined]
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()
