"""Mounts: a folder that is mounted at a second place is denied there, too."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from treadle.toolsets.files.root import other_names, parsed

TABLE = parsed(
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "23 22 8:1 /srv/secrets /w/pub/mnt rw - ext4 /dev/sda1 rw\n"
    "24 22 8:1 /srv/a\\040b /w/a\\040b rw shared:1 - ext4 /dev/sda1 rw\n"
    "25 22 0:40 / /proc rw - proc proc rw\n"
    "26 22 8:2 / /w/disk rw - ext4 /dev/sdb1 rw\n"
    "27 22 8:2 /in/key /w/file rw - ext4 /dev/sdb1 rw\n"
    "bad line\n"
)


@pytest.mark.parametrize(
    ("path", "extent", "found"),
    [
        ("/srv/secrets/key", "itself", ["/w/pub/mnt/key"]),
        ("/w/pub/mnt/key", "itself", ["/srv/secrets/key"]),
        ("/w/pub/mnt", "tree", ["/srv/secrets"]),
        ("/w/pub", "itself", []),
        ("/w/pub", "tree", ["/srv/secrets", "/w/pub/mnt"]),
        ("/srv/secrets2/key", "itself", []),
        ("/w/a b/c", "itself", ["/srv/a b/c"]),
        ("/w/file", "itself", ["/w/disk/in/key"]),
        ("/w/disk/in/key", "itself", ["/w/file"]),
        ("/proc/1", "itself", []),
        ("/", "itself", []),
    ],
)
def test_a_place_has_the_names_of_all_its_mounts(path: str, extent: str, found: list[str]) -> None:
    assert other_names(path, extent, TABLE) == found


def test_without_a_table_nothing_has_another_name() -> None:
    assert other_names("/w/a", "tree", ()) == []


MOUNTED = textwrap.dedent(
    """
    import asyncio, os, subprocess, sys
    from treadle import Agent, allow, deny, file_tools, first_of, shell_tool
    from treadle.testing import ScriptedModel, call, text

    root = sys.argv[1]
    for one, other in (("secrets", "pub/mnt"), ("secrets/key", "pub/file")):
        subprocess.run(["mount", "--bind", f"{root}/{one}", f"{root}/{other}"], check=True)
    calls = [
        call("read", path="pub/mnt/key"), call("read", path="pub/file"), call("grep", pattern=".", path="pub"), call("read", path="pub/own"),
        call("shell", command="cat pub/mnt/key"),
    ]
    rules = first_of(deny("read(path=secrets/**)"), allow("shell(cat:*)"))
    agent = Agent(ScriptedModel([calls, text("Done.")]), tools=[*file_tools(root), shell_tool(root)], policy=rules)
    print(*[one.status for one in asyncio.run(agent.run("Go")).tool_calls])
    """
)


@pytest.mark.row("AT-PATHS-DENIED")
@pytest.mark.skipif(sys.platform != "linux", reason="bind mounts are Linux's")
def test_a_denial_holds_where_what_it_names_is_mounted_a_second_time(tmp_path: Path) -> None:
    for name in ("secrets/key", "pub/file", "pub/own"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    (tmp_path / "pub/mnt").mkdir()
    inside = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", MOUNTED, str(tmp_path)]

    done = subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.split() == ["denied", "denied", "denied", "ok", "denied"], done.stderr
