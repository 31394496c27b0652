"""A process that is killed inside `write` or `edit` leaves the old file or the new one, never half of one, with its mode."""

import subprocess
import sys
import textwrap
from pathlib import Path

KILLS = 200

PROGRAM = textwrap.dedent(
    """
    import os, random, signal, sys
    from pathlib import Path
    from treadle.toolsets.files import file_tools, writing_tools

    SIZE = 1_000_000
    root, kills = Path(sys.argv[1]), int(sys.argv[2])
    place, rng = root / "a.txt", random.Random(7)
    tools = {one.name: one for one in (*file_tools(root), *writing_tools(root))}

    class Context:
        facts = {}
        cancelled = False

    def act(name, **arguments):
        done = tools[name].run(arguments, Context())
        for key, value in (done.facts or {}).items():
            Context.facts = {**Context.facts, key: {**Context.facts.get(key, {}), **value}}

    def work(tell):
        act("read", path="a.txt")
        while True:
            old = place.read_text()[0]
            new = chr(ord("a") + (ord(old) - ord("a") + 1) % 26)
            os.write(tell, b".")
            if ord(new) % 2:
                act("write", path="a.txt", content=new * SIZE)
            else:
                act("edit", path="a.txt", old_text=old, new_text=new, all=True)

    place.write_text("a" * SIZE)
    place.chmod(0o751)
    for _ in range(kills):
        heard, tell = os.pipe()
        child = os.fork()
        if not child:
            work(tell)
        os.close(tell)
        os.read(heard, 1)
        for _ in range(rng.randrange(150_000)):  # the time of the kill: some part of a write
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(heard)
        found = place.read_text()
        if len(found) != SIZE or len(set(found)) != 1 or place.stat().st_mode & 0o777 != 0o751:
            sys.exit(f"half a file: {len(found)} characters, {sorted(set(found))}, mode {place.stat().st_mode:o}")
    print("whole", sorted(set(place.read_text())))
    """
)


def test_a_kill_inside_write_or_edit_leaves_the_old_file_or_the_new_one(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (done.returncode, done.stdout[:5], done.stderr) == (0, "whole", "")
