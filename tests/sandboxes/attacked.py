"""The host of the attacks: `python attacked.py KIND FOLDER USER NETWORK`. It puts all that is attacked outside, and runs `attacks.py` confined.

It runs as a program of its own, because it has a terminal, keys in its environment, and another user's rights. What it prints is JSON:
what each attack reached, by its own word or by what has changed outside.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401 - our Python may be closed to the user that we become
import ctypes
import fcntl
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import termios
from pathlib import Path

import tree_sitter  # noqa: F401 - as above
import tree_sitter_bash  # noqa: F401 - as above

from treadle import Agent, shell_tool
from treadle.sandboxes import Bubblewrap, Confinement, Landlock
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Decision

LIBC = ctypes.CDLL(None, use_errno=True)
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
KEY = "treadle-canary"
CANARIES = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HF_TOKEN", "PGPASSWORD", "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "LD_PRELOAD_CANARY", "GPG_AGENT_INFO",
    "HTTPS_PROXY", "PYTHONSTARTUP", "TMUX", "LC_CANARY_SECRET",
)  # fmt: skip


class Boxed:
    """Sends every call into the sandbox."""

    def decide(self, call, session):
        return Decision(kind="sandbox", rule="always boxed")


def system(x86: int, arm: int, *arguments: object) -> int:
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return LIBC.syscall(ctypes.c_long(x86 if os.uname().machine == "x86_64" else arm), *given)


def become(user: int) -> None:
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def terminal() -> str:
    """Make a terminal that is ours, as a person's is."""
    _, name = pty.openpty()
    os.setsid()
    fcntl.ioctl(name, termios.TIOCSCTTY, 0)
    return os.ttyname(name)


def listening(family: int, kind: int, address: object) -> socket.socket:
    one = socket.socket(family, kind)
    one.bind(address)
    if kind == socket.SOCK_STREAM:
        one.listen()
    one.setblocking(False)
    return one


def heard(one: socket.socket) -> bool:
    try:
        if one.type == socket.SOCK_STREAM:
            one.accept()
        else:
            one.recv(100)
    except OSError:
        return False
    return True


def main() -> None:
    kind, folder, user, network = (
        {"bubblewrap": Bubblewrap, "landlock": Landlock}[sys.argv[1]],
        Path(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4] == "network",
    )
    become(user)
    writable, outside, readable = folder / "w", folder / "outside", folder / "readable"
    for one in (writable, outside, readable):
        one.mkdir()
    (outside / "canary").write_text("canary")
    (outside / "canary").chmod(0o640)
    (readable / "file").write_text("readable")
    (readable / "file").chmod(0o640)
    os.environ.update(dict.fromkeys(CANARIES, "/nowhere/canary"))
    sockets = {
        "tcp": listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "tcp6": listening(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
        "udp": listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "abstract": listening(socket.AF_UNIX, socket.SOCK_STREAM, f"\0treadle-{os.getpid()}"),
        "abstract_datagrams": listening(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0treadle-datagrams-{os.getpid()}"),
        "socket": listening(socket.AF_UNIX, socket.SOCK_STREAM, str(outside / "socket")),
        "datagrams": listening(socket.AF_UNIX, socket.SOCK_DGRAM, str(outside / "datagrams")),
    }
    name = terminal()
    victim = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(600)", "canary"], cwd=outside)
    system(250, 219, 1, None)  # a keyring of our own for the session: nothing is left in another
    keys = [(ring, system(248, 217, b"user", KEY.encode(), b"canary", 6, ring)) for ring in (-3, -4)]
    shm, msg, sem = LIBC.shmget(0, 4096, 0o1600), LIBC.msgget(0, 0o1600), LIBC.semget(0, 1, 0o1600)
    LIBC.shmat.restype = ctypes.c_void_p
    ctypes.memmove(LIBC.shmat(shm, None, 0), b"canary", 6)
    LIBC.msgsnd(msg, ctypes.create_string_buffer(b"\1\0\0\0\0\0\0\0canary"), 6, 0)
    shared = Path(f"/dev/shm/treadle-{os.getpid()}")
    shared.write_text("canary")
    queue = f"treadle-{os.getpid()}"
    system(240, 180, queue.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    inherited = os.open(outside / "canary", os.O_RDWR)
    os.set_inheritable(inherited, True)
    host = {
        "tcp": sockets["tcp"].getsockname()[1], "tcp6": sockets["tcp6"].getsockname()[1], "udp": sockets["udp"].getsockname()[1],
        "abstract": f"treadle-{os.getpid()}", "abstract_datagrams": f"treadle-datagrams-{os.getpid()}", "socket": str(outside / "socket"),
        "datagrams": str(outside / "datagrams"),
        "victim": victim.pid, "key": KEY, "terminal": name, "shm": shm, "msg": msg, "sem": sem, "queue": queue, "shared": shared.name,
        "outside": str(outside), "writable": str(writable), "readable": str(readable / "file"),
    }  # fmt: skip
    (writable / "host.json").write_text(json.dumps(host))
    shutil.copy(Path(__file__).with_name("attacks.py"), writable)
    before = {str(one): os.lstat(one)[:] for top in (outside, readable) for one in top.iterdir()}
    nice = os.getpriority(os.PRIO_PROCESS, victim.pid)
    confinement = Confinement(writable=(str(writable),), readable=(str(readable),), network=network, memory_bytes=None)
    model = ScriptedModel(
        [call("shell", command=f"{PYTHON} attacks.py host.json > found.json 2> errors.txt"), text("Done.")]
    )
    agent = Agent(model, tools=[shell_tool(writable)], policy=Boxed(), sandbox=kind(confinement))
    try:
        result = asyncio.run(agent.run("Go")).tool_calls[0]
    finally:
        shared.unlink()
        alive = victim.poll() is None
        niced = os.getpriority(os.PRIO_PROCESS, victim.pid) if alive else None
        victim.kill()
        for remove in (lambda: LIBC.shmctl(shm, 0, None), lambda: LIBC.msgctl(msg, 0, None), lambda: LIBC.semctl(sem, 0, 0),
                       lambda: system(241, 181, queue.encode()), lambda: [system(250, 219, 9, key, ring) for ring, key in keys]):  # fmt: skip
            remove()
    after = {str(one): os.lstat(one)[:] for top in (outside, readable) for one in top.iterdir()}
    print(json.dumps({
        "status": result.status,
        "found": json.loads((writable / "found.json").read_text() or "{}"),
        "heard": [name for name, one in sockets.items() if heard(one)],
        "changed": sorted({path for path, _ in before.items() ^ after.items()}),
        "canary": (outside / "canary").read_text(),
        "is_alive": alive, "is_as_nice": niced == nice,
    }))  # fmt: skip


main()
