"""A stricter floor: one client for all agents of the process, so that a run costs no connection."""

import sys
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parent))
from floor_raw import Floor, harness


class KeptFloor(Floor):
    """The bare loop of a service that keeps its client."""

    def _client(self) -> aiohttp.ClientSession:
        return self._sessions[0] if self._sessions else super()._client()


if __name__ == "__main__":
    harness.main(KeptFloor())
