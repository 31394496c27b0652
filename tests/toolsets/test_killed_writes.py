"""A process that is killed inside `write` or `edit` leaves the old file or the new one, never half of one, with its mode.

strace kills it, at each system call that the tool makes, one after the other.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

SIZE = 100_000
MODE = 0o751
KILLS_A_CASE = 29
"""At least, of each case: 200 and more in all of `make soak`."""

SERVER = textwrap.dedent(
    f"""
    import ctypes, json, os, signal, sys
    from pathlib import Path
    from treadle.toolsets.files import file_tools, writing_tools

    CASES = {{
        "write": ("write", "a.txt", {{"content": "n" * {SIZE}}}),
        "edit": ("edit", "a.txt", {{"old_text": "o" * 1000, "new_text": "n" * 1000, "all": True}}),
        "edit-behind-a-link": ("edit", "link.txt", {{"old_text": "o" * 1000, "new_text": "n" * 1000, "all": True}}),
        "edit-below": ("edit", "below/a.txt", {{"old_text": "o" * 1000, "new_text": "n" * 1000, "all": True}}),
        "write-below": ("write", "below/a.txt", {{"content": "n" * {SIZE}}}),
        "write-behind-a-link": ("write", "link.txt", {{"content": "n" * {SIZE}}}),
        "write-new": ("write", "new/deep/b.txt", {{"content": "n" * {SIZE}}}),
    }}

    class Context:
        facts, subjects = {{}}, {{}}
        cancelled = False

    def act(root, tool, path, arguments):
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER: a tracer that did not start us may trace us
        tools = {{one.name: one for one in (*file_tools(root), *writing_tools(root))}}
        if (root / path).exists():
            Context.facts = dict(tools["read"].run({{"path": path}}, Context()).facts)
        os.kill(os.getpid(), signal.SIGSTOP)  # until the tracer has come
        tools[tool].run({{"path": path, **arguments}}, Context())
        os._exit(0)

    for line in sys.stdin:
        case, folder = line.split()
        pid = os.fork()
        if not pid:
            act(Path(folder), *CASES[case])
        os.waitpid(pid, os.WUNTRACED)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    """
)
PATHS = {
    "write": "a.txt", "edit": "a.txt", "edit-below": "below/a.txt", "write-below": "below/a.txt",
    "edit-behind-a-link": "link.txt", "write-behind-a-link": "link.txt", "write-new": "new/deep/b.txt",
}  # fmt: skip
"""The cases of the server, and the file of each."""
_FEW = ("edit", "edit-behind-a-link", "write-new")
"""What `make test` tries: the others make the same system calls at another place."""


def is_usable() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def prepared(folder: Path) -> Path:
    folder.mkdir()
    (folder / "below").mkdir()
    for name in ("a.txt", "below/a.txt"):
        (folder / name).write_text("o" * SIZE)
        (folder / name).chmod(MODE)
    (folder / "link.txt").symlink_to("a.txt")
    return folder


def traced(server: "subprocess.Popen[str]", case: str, folder: Path, log: Path, *options: str) -> int:
    """Let a tool act once under strace. Return how its process ended."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{case} {folder}\n")
    server.stdin.flush()
    pid = int(server.stdout.readline())
    with subprocess.Popen(["strace", "-f", "-o", str(log), *options, "-p", str(pid)], stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        assert b"attached" in tracer.stderr.readline()
        os.kill(pid, signal.SIGCONT)
        tracer.communicate(timeout=60)
    return int(server.stdout.readline())


def found(folder: Path, case: str) -> str:
    """Say which file stands there: the old one, the new one, none, or a broken one."""
    place = folder / PATHS[case]
    if not place.exists():
        return "none"
    text = place.read_text()
    if case != "write-new" and place.stat().st_mode & 0o777 != MODE:
        return f"mode {place.stat().st_mode:o}"
    whole = {"o" * SIZE: "old", "n" * SIZE: "new"}
    return whole.get(text, f"{len(text)} characters of {sorted(set(text))}")


@pytest.mark.row("K05", "D-KILL")
@pytest.mark.skipif(not is_usable(), reason="strace is not installed, or may not trace here")
@pytest.mark.parametrize(
    "case", [case if case in _FEW else pytest.param(case, marks=pytest.mark.soak) for case in PATHS]
)
def test_a_kill_at_each_system_call_leaves_the_old_file_or_the_new_one(tmp_path: Path, case: str):
    before = "none" if case == "write-new" else "old"
    kills, states, log = 0, Counter[str](), tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert traced(server, case, prepared(tmp_path / case), log) == 0
        assert found(tmp_path / case, case) == "new"
        calls = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
        assert calls["fsync"] >= 1
        for name, nth in [(one, nth) for one in sorted(calls) for nth in range(1, calls[one] + 1)]:
            folder = prepared(tmp_path / f"{name}-{nth}")
            ended = traced(server, case, folder, log, "-e", f"inject={name}:signal=SIGKILL:when={nth}")
            state = found(folder, case)
            assert state in (before, "new"), (name, nth)
            kills += ended == -signal.SIGKILL
            states[state] += 1
            shutil.rmtree(folder)
    assert set(states) == {before, "new"}
    assert kills >= KILLS_A_CASE, kills
