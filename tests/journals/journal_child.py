"""What another process does with a journal, one act a run: `python journal_child.py ACT ARGUMENT...`."""

import asyncio
import os
import resource
import signal
import sys
import warnings
from pathlib import Path

from journal_events import note, notes

from treadle.errors import JournalError, SessionConflict, SessionHeld
from treadle.journals.sqlite import open_sqlite
from treadle.ports import Journal, Lease
from treadle.resolve import open_journal

NOBODY = 65534


async def append_for_ever(path: str, holds: str = "") -> None:
    """Say the number of each event once its append has returned. `holds`: hold the session meanwhile."""
    journal = await open_journal(path)
    await journal.create("s")
    if holds:
        await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)
    seq = len(await journal.read("s"))
    while True:
        seq += 1
        await journal.append("s", [note(seq)], state="running", durable=True)
        print(seq)


async def append_durably(path: str) -> None:
    """Tell on standard error when three durable appends begin and have returned."""
    journal = await open_sqlite(path)
    await journal.create("s")
    for seq in range(1, 4):
        os.write(2, b"BEGINS\n")
        await journal.append("s", [note(seq)], state="running", durable=True)
        os.write(2, b"RETURNED\n")
    await journal.close()


async def crash(path: str) -> None:
    journal = await open_sqlite(path)
    await journal.create("s")
    await journal.append("s", notes(1, 3), state="running", durable=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def leave(path: str) -> None:
    """End without closing, with appends still queued."""
    journal = await open_journal(path)
    await journal.create("s")
    for seq in range(1, 201):
        await journal.append("s", [note(seq)], state="running", durable=False)


async def leave_when_told(path: str) -> None:
    """End without closing, while somebody else keeps the file locked."""
    journal = await open_sqlite(path, busy_seconds=0.1)
    await journal.create("s")
    print("open")
    sys.stdin.readline()
    await journal.append("s", notes(1, 1), state="running", durable=False)


async def make(path: str, umask: str) -> None:
    """Say the rights of what is made."""
    os.umask(int(umask, 8))
    journal = await open_sqlite(path)
    await journal.create("s")
    await journal.append("s", notes(1, 1), state="running", durable=True)
    file = Path(path)
    for made in (file.parent.parent, file.parent, file, Path(f"{path}-wal"), Path(f"{path}-shm")):
        print(oct(made.stat().st_mode & 0o777))
    await journal.close()


async def open_as_nobody(path: str, read_only: str) -> None:
    """Say what opening brings to somebody who may not."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        journal = await open_sqlite(path, read_only=read_only == "read_only")
        print("opened", len(await journal.read("s")))
        await journal.close()
    except JournalError as exc:
        print(exc)


async def write_session(path: str, session_id: str, count: str) -> None:
    journal = await _patient(path)
    await journal.create(session_id)
    for seq in range(1, int(count) + 1):
        await journal.append(session_id, [note(seq, session_id)], state="running", durable=seq % 5 == 0)
    await journal.close()


async def fill(path: str, limit: str) -> None:
    """Append until no file may grow any more; say the last number that was stored, and the error."""
    journal = await open_sqlite(path)
    await journal.create("s")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    seq = 0
    try:
        while True:
            await journal.append("s", [note(seq + 1, "x" * 1000)], state="running", durable=True)
            seq += 1
    except JournalError as exc:
        print(seq)
        print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await journal.append("s", [note(seq + 1, "after")], state="completed", durable=True)
    await journal.close()


async def hold(url: str, lease_seconds: str) -> None:
    """Hold the session, as a run does; when told, try to write, and say what came of it and when the lease is lost."""
    from treadle.journals.postgres import open_postgres

    journal = await open_postgres(url, lease_seconds=float(lease_seconds))
    await journal.create("s")
    lost = asyncio.Event()
    await journal.acquire("s", on_lost=lost.set, on_message=lambda: None)
    await journal.append("s", notes(1, 1), state="running", durable=True)
    print("holds")
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await journal.append("s", notes(2, 2), state="running", durable=True)
        print("stored")
    except SessionConflict as exc:
        print(exc)
    await lost.wait()
    print("lost")
    await journal.close()


async def _patient(path: str) -> Journal:
    return await (open_journal(path) if path.startswith("postgresql:") else open_sqlite(path, busy_seconds=60))


def fork(path: str) -> None:
    """Use a journal in a fork and in the process itself, while that holds a session, and say what was stored."""
    warnings.simplefilter("ignore")  # Python 3.12 and later warn of forks beside threads: that is what is tested
    journal = asyncio.run(open_journal(path))

    async def begin() -> Lease:
        await journal.create("s")
        return await journal.acquire("s", on_lost=lambda: print("lost"), on_message=lambda: None)

    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(begin())
    child = os.fork()
    if child == 0:
        asyncio.run(in_fork(journal))
        loop.run_until_complete(lease.release())  # not ours: nothing happens
        os._exit(0)
    _, status = os.waitpid(child, 0)
    loop.run_until_complete(journal.append("s", notes(1, 1), state="running", durable=True))
    print("child", status)
    print("parent", len(loop.run_until_complete(journal.read("s"))), len(loop.run_until_complete(journal.read("mine"))))
    loop.run_until_complete(lease.release())
    loop.run_until_complete(journal.close())


async def in_fork(journal: Journal) -> None:
    try:
        await journal.append("s", notes(1, 1), state="running", durable=True)
    except SessionConflict as exc:
        print(exc)
    try:
        await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)
    except SessionHeld:
        print("held")
    await journal.create("mine")
    lease = await journal.acquire("mine", on_lost=lambda: None, on_message=lambda: None)
    await journal.append("mine", notes(1, 1), state="running", durable=True)
    await lease.release()
    await journal.close()


async def contend(url: str, lease_seconds: str) -> None:
    """Try to take a session, and say what came of it; hold it until told to end."""
    from treadle.journals.postgres import open_postgres

    journal = await open_postgres(url, lease_seconds=float(lease_seconds))
    await journal.create("s")
    try:
        await journal.acquire("s", on_lost=lambda: print("lost"), on_message=lambda: None)
        print("continues")
    except SessionHeld:
        print("held")
    await asyncio.to_thread(sys.stdin.readline)
    await journal.close()


async def acquire_on_full_disk(path: str) -> None:
    """Fail to take a session five times, since no file may grow; then take it. Say what was left open."""
    journal = await open_journal(path)
    await journal.create("s")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the folder of the descriptors is one itself
    refused = 0
    for _ in range(5):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)
        except JournalError:
            refused += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    print("refused", refused)
    print("descriptors", len(os.listdir("/proc/self/fd")) - before)  # noqa: PTH208 - as above
    lease = await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)
    print("taken")
    await lease.release()
    await journal.close()


ACTS = (
    contend,
    acquire_on_full_disk,
    append_durably,
    append_for_ever,
    crash,
    leave,
    leave_when_told,
    make,
    open_as_nobody,
    write_session,
    fill,
    hold,
)

if __name__ == "__main__":
    if sys.argv[1] == "fork":
        fork(sys.argv[2])
    else:
        asyncio.run({act.__name__: act for act in ACTS}[sys.argv[1]](*sys.argv[2:]))
