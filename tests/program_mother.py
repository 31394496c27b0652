"""The mother of the program's processes: it has loaded Treadle's command line, and forks a process for each command or code that it is told.

    python program_mother.py SOCKET MODULE...

Each process has its own number, arguments, environment, folder and streams, and ends as the program ends. What loading takes is paid
once. Tests of how the program starts (what Python is told, what lies in the folder, which streams are closed) start it themselves.
"""

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import termios
import threading
from importlib import import_module
from pathlib import Path


def main(place: str, *modules: str) -> None:
    sys.path.pop(0)  # the folder of this file; the program begins with its own
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    print("ready", flush=True)
    _load(*modules)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those in between
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:  # whoever started this has ended
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):  # also where nohup had them ignored
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            listener.close()
            _bear(connection)
            return
        connection.close()


def _load(*modules: str) -> None:
    import treadle.cli.commands
    import treadle.cli.main
    import treadle.cli.terminal.plain
    import treadle.cli.terminal.screen

    for module in pkgutil.iter_modules(treadle.cli.commands.__path__, "treadle.cli.commands."):
        import_module(module.name)
    for module in modules:
        import_module(module)
    gc.freeze()


def _bear(connection: socket.socket) -> None:
    """Fork the process of one command, and report its number and its end."""
    size, streams, _, _ = socket.recv_fds(connection, 4, 3)
    job = json.loads(_read(connection, int.from_bytes(size, "big")))
    child = os.fork()
    if child == 0:
        connection.close()
        _become(job, streams)
        return
    for stream in (*streams, 0, 1, 2):
        os.close(stream)
    connection.sendall(child.to_bytes(4, "big"))
    _, status = os.waitpid(child, 0)
    connection.sendall(status.to_bytes(4, "big"))
    os._exit(0)


def _read(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        read += connection.recv(size - len(read))
    return read


def _become(job: dict[str, object], streams: list[int]) -> None:
    """Be the program: its end is the end of this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # as at a terminal
    os.chdir(str(job["folder"]))
    os.environ.clear()
    os.environ.update(job["environment"])  # type: ignore[call-overload]  # of texts, by the only caller
    sys.path.append(str(Path.cwd()))

    code = _run(job["arguments"])  # type: ignore[arg-type]  # of texts, by the only caller
    # Python would now clear up every module that it has loaded, which takes longer than most commands.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["<code>"]:
        sys.argv = arguments[1:]
        exec(arguments[1], {"__name__": "__main__"})
        return 0
    from treadle.cli.main import main as program

    sys.argv = [str(Path(sys.modules["treadle"].__path__[0], "__main__.py")), *arguments]
    return program()


if __name__ == "__main__":
    main(*sys.argv[1:])
