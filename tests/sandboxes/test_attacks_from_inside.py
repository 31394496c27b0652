"""Attacks on the sandboxes: each reaches nothing outside, in bubblewrap and under Landlock, as root and as another user.

`attacks.py` holds them, one function each; `attacked.py` puts outside what they are after. All run in one confined command.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from treadle.sandboxes import Landlock, launcher
from treadle.sandboxes.runners import call_filter, closed_for_age

HERE = Path(__file__).parent
pytest.importorskip("tree_sitter_bash")

ATTACKS = re.findall(r"^@attack\ndef (\w+)", (HERE / "attacks.py").read_text(), re.MULTILINE)
KINDS = {
    "bubblewrap": pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed"),
    "landlock": pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock"),
}
USERS = {
    "same": None,
    "another": pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
}
WITH_NETWORK = {"tcp_of_the_host", "tcp6_of_the_host", "udp_of_the_host"}
"""What `network=True` opens, and nothing beside."""
OF_THE_LANDLOCK = {
    "mode_of_a_file", "mode_of_a_file_that_may_be_read", "owner_of_a_file", "times_of_a_file", "watching_a_folder",
}  # fmt: skip
"""What Landlock does not look at, and no filter can see, because a path decides it: docs/know/sandbox-attacks.md says so."""
ITS_OWN = {"udp_of_the_host"}
"""Attacks whose own word says nothing: the host is asked what arrived."""


def attacked(kind: str, user: str, network: str) -> dict[str, Any]:
    """Return what all attacks came to. Not in pytest's own folder: another pytest that starts closes that to other users."""
    number = 300_000 + os.getpid() if user == "another" else 0
    with tempfile.TemporaryDirectory() as folder:
        if number:
            os.chown(folder, number, number)
        line = [sys.executable, str(HERE / "attacked.py"), kind, folder, str(number), network]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("network", ["closed", "network"])
@pytest.mark.parametrize("user", [pytest.param(one, marks=marks or ()) for one, marks in USERS.items()])
@pytest.mark.parametrize("kind", [pytest.param(one, marks=marks) for one, marks in KINDS.items()])
def test_no_attack_reaches_anything_outside(kind: str, user: str, network: str):
    done = attacked(kind, user, network)

    told = (WITH_NETWORK if network == "network" else set()) | (OF_THE_LANDLOCK if kind == "landlock" else set())
    assert sorted(done["found"]) == sorted(ATTACKS)
    reached = {name: what for name, what in done["found"].items() if what and name not in ITS_OWN}
    assert {name: what for name, what in reached.items() if name not in told} == {}
    assert set(reached) == told - ITS_OWN
    assert done["heard"] == (["tcp", "tcp6", "udp"] if network == "network" else [])
    assert (done["canary"], done["is_alive"], done["is_as_nice"]) == ("canary", True, True)
    assert bool(done["changed"]) == (kind == "landlock")


OLDER = """
import ctypes, fcntl, os, struct, sys
code = bytes.fromhex(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(code, len(code))
assert not libc.prctl(38, 1, 0, 0, 0)
assert not libc.prctl(22, 2, struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)), 0, 0)
def tried(name, act):
    try:
        act()
    except PermissionError:
        print(name)
def descriptor_signal():
    if libc.syscall(ctypes.c_long(424), os.pidfd_open(os.getppid()), 0, None, 0) < 0:
        raise OSError(ctypes.get_errno(), "pidfd_send_signal")
tried("truncate", lambda: os.truncate("file", 1))
tried("empty", lambda: os.close(os.open("file", os.O_RDONLY | os.O_TRUNC)))
tried("kill", lambda: os.kill(os.getppid(), 0))
tried("pidfd", descriptor_signal)
tried("owner", lambda: fcntl.fcntl(os.pipe()[0], 8, os.getppid()))
tried("own", lambda: (open("file", "w").write("new"), os.kill(0, 0)))
"""
SIGNALS, SHORTENING = ["kill", "pidfd", "owner"], ["truncate", "empty"]


@pytest.mark.skipif(not launcher.landlock_abi(), reason="the kernel has no Landlock")
@pytest.mark.parametrize(
    ("abi", "closed"),
    [(1, SHORTENING + SIGNALS), (2, SHORTENING + SIGNALS), (3, SIGNALS), (5, SIGNALS), (6, []), (7, [])],
)
def test_what_an_older_landlock_lets_through_is_closed_by_the_filter(tmp_path: Path, abi: int, closed: list[str]):
    (tmp_path / "file").write_text("old")
    code = call_filter("files", has_network=False, landlock_abi=abi).hex()
    line = [sys.executable, "-c", OLDER, code]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == closed
    assert (tmp_path / "file").read_text() == "new"
    assert [bool(set(closed) & set(names)) for names in (SHORTENING, SIGNALS)] == [
        any(word in " ".join(closed_for_age(abi)) for word in words) for words in (["shorten"], ["signals"])
    ]
    assert set(Landlock.closed_for_age()) <= set(closed_for_age(1))
