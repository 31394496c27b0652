"""A private PostgreSQL server for tests: made in a folder of its own, on a socket only, and gone with the process that made it."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

ROLE = "treadle"
PASSWORD = "s3cret/p@ss word"

# The log's writer sleeps long, so that what COMMIT did not sync is still in memory when the server is killed. A killed server
# loses nothing that it has handed to the system, so no test waits for a disk.
SETTINGS = """
fsync = off
full_page_writes = off
listen_addresses = ''
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
max_connections = 200
shared_buffers = 64MB
autovacuum = off
lc_messages = 'C'
"""

# It reads from a pipe of the tests' process: when that ends, however it ends, so does the server.
LEASH = """
"$1/pg_ctl" -D "$2/data" -l "$2/log" -w -s start && echo ready
read -r _
"$1/pg_ctl" -D "$2/data" -m immediate -s stop 2>/dev/null
exit 0
"""


def find_binaries() -> Path | None:
    """Return the folder of the newest server that is installed; Debian keeps it off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("pg_ctl")
    if found:
        return found[-1].parent
    return None if on_path is None else Path(on_path).resolve().parent


@contextmanager
def running_server() -> "Iterator[PostgresServer]":
    """A server of the caller's own. Skips the test where none is installed."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("a journal in PostgreSQL needs its server: apt-get install postgresql")
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.end()


class PostgresServer:
    """One server, from its making to its end."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="treadle-postgres-"))
        self._words = _owner_words(self.folder)
        self._leash: subprocess.Popen[str] | None = None
        self._schemas = 0

    def start(self) -> None:
        self._initialise()
        self._leash = subprocess.Popen(
            ["sh", "-c", LEASH, "sh", str(self._binaries), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder, **self._words,
        )  # fmt: skip
        assert self._leash.stdout is not None
        assert self._leash.stdout.readline() == "ready\n", self.log()

    def end(self) -> None:
        """Stop the server and remove all that was made."""
        if self._leash is not None:
            self._leash.communicate(timeout=60)
        shutil.rmtree(self.folder)

    def hold_back(self) -> None:
        """Stop the server's processes that save its memory by themselves, until it crashes.

        The log's writer wakes every ten seconds, and at once after a long rest: it would save what no commit has synced.
        """
        with self.connect("public") as connection:
            words = "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer', 'checkpointer')"
            for (pid,) in connection.execute(words).fetchall():
                os.kill(pid, signal.SIGSTOP)

    def crash(self) -> None:
        """Stop at once: nothing in the server's memory is saved."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "-s", "stop")

    def stop(self) -> None:
        """Stop in order: what is under way is rolled back, and its clients are cut off."""
        self._run("pg_ctl", "-D", "data", "-m", "fast", "-s", "stop")

    def restart(self) -> None:
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-s", "start")

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def url(self, schema: str, *, password: str = PASSWORD) -> str:
        """Return the address of a schema, made or not."""
        words = f"host={quote(str(self.folder), safe='')}&options=-csearch_path%3D{schema}"
        return f"postgresql://{ROLE}:{quote(password, safe='')}@/postgres?{words}"

    def new_url(self) -> str:
        """Make a schema that nothing else uses, and return its address."""
        self._schemas += 1
        schema = f"journal_{self._schemas}"
        with self.connect("public") as connection:
            connection.execute(f"CREATE SCHEMA {schema}")  # type: ignore[arg-type]  # a name of ours
        return self.url(schema)

    def connect(self, schema: str) -> psycopg.Connection:
        return connect(self.url(schema))

    def _initialise(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        self._run(
            "initdb", "-D", "data", "-U", ROLE, "-E", "UTF8", "--no-locale", "--no-sync", "-A", "scram-sha-256",
            "--pwfile", "secret",
        )  # fmt: skip
        with (self.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(f"{SETTINGS}unix_socket_directories = '{self.folder}'\n")

    def _run(self, name: str, *arguments: str) -> None:
        said = subprocess.run(
            [str(self._binaries / name), *arguments], cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=100, **self._words,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr


def connect(url: str) -> psycopg.Connection:
    """Reach into a journal as another program would."""
    return psycopg.connect(url, autocommit=True)


def _owner_words(folder: Path) -> dict[str, int | Sequence[int]]:
    """Return how a server is started: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        owner = pwd.getpwnam("postgres")
    except KeyError:
        owner = pwd.getpwnam("nobody")
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
