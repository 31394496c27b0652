"""Files that are put back: by `treadle sessions rewind --files`, after runs of the real program with a scripted model."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Treadle

from treadle.cli.snapshots import Change, Entry, Snapshots, put_back

RUN = ("run", "--tools", "read,edit,write,shell", "--mode", "bypass")


def tree_of(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Return the mode and the content of everything in a folder, past what is Treadle's and git's own."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".git", "home")]
        for name in [*folders, *files]:
            path = Path(parent, name)
            status = path.lstat()
            content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[str(path.relative_to(folder))] = (stat.S_IMODE(status.st_mode), content)
    return found


@pytest.fixture
def project(treadle: Treadle) -> Treadle:
    """A folder with files, links, modes, an empty folder and a repository."""
    folder = treadle.folder
    treadle.home.mkdir()
    (folder / "sub").mkdir()
    (folder / "sub" / "tool.sh").write_text("echo\n")
    (folder / "sub" / "tool.sh").chmod(0o755)
    (folder / "closed").mkdir()
    (folder / "closed" / "kept").write_bytes(b"\0\xff")
    (folder / "closed").chmod(0o555)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("a.txt")
    os.link(folder / "b.txt", folder / "second name")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return treadle


def shell(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "shell", "arguments": {"command": command}}]}


def write(path: str, content: str) -> dict[str, Any]:
    return {"calls": [{"name": "write", "arguments": {"path": path, "content": content}}]}


def told(treadle: Treadle, *turns: dict[str, Any], session: str = "one") -> None:
    script = treadle.script("home/turns.json", [*turns, {"text": "Done."}])
    treadle(*RUN, "-m", script, "--session", session, "Do it.", code=0)


def rewound(treadle: Treadle, point: str = "0", session: str = "one", **words: Any) -> str:
    return treadle("sessions", "rewind", session, point, "--files", code=0, **words).stderr


def test_edits_writes_and_commands_are_put_back_with_modes_links_and_folders(project: Treadle) -> None:
    before = tree_of(project.folder)

    told(
        project,
        write("new/deep/file.txt", "new"),
        shell(
            "rm -r sub empty; ln -sfn c.txt link; printf z > a.txt; chmod 600 a.txt; chmod 755 closed; rm closed/kept"
        ),
        shell("mkdir a; rm c.txt; mkdir c.txt; touch c.txt/inside; mkfifo pipe"),
    )
    assert tree_of(project.folder) != before

    said = rewound(project)

    assert tree_of(project.folder) == before
    assert "Not looked into: .git" in said


def test_what_a_person_changed_since_stays(project: Treadle) -> None:
    told(project, write("new.txt", "by the model"))
    (project.folder / "a.txt").write_text("by the person")

    said = rewound(project)

    assert "Left as you have changed them: a.txt" in said
    assert (project.folder / "a.txt").read_text() == "by the person"
    assert not (project.folder / "new.txt").exists()


def test_what_a_person_changed_between_two_runs_stays(project: Treadle) -> None:
    told(project, write("one.txt", "1"))
    (project.folder / "b.txt").write_text("by the person")
    told(project, write("two.txt", "2"))

    rewound(project)

    assert (project.folder / "b.txt").read_text() == "by the person"
    assert not (project.folder / "one.txt").exists()
    assert not (project.folder / "two.txt").exists()


def test_a_rewind_goes_back_to_before_the_run_that_follows_its_point(project: Treadle) -> None:
    told(project, write("one.txt", "1"))
    project("sessions", "mark", "one", "here", code=0)
    told(project, write("two.txt", "2"))

    rewound(project, "here")

    assert (project.folder / "one.txt").exists()
    assert not (project.folder / "two.txt").exists()


def test_a_run_that_was_killed_in_mid_call_is_put_back(project: Treadle) -> None:
    os.mkfifo(project.folder / "gate")
    script = project.script("turns.json", [shell("rm a.txt; echo > gate; sleep 100"), {"text": "Done."}])
    process = project.start(*RUN, "-m", script, "--session", "one", "Do it.")
    (project.folder / "gate").read_bytes()
    with process:
        process.kill()

    project("sessions", "rewind", "one", "0", "--files")

    assert (project.folder / "a.txt").read_text() == "one error\n"


def test_files_that_are_too_large_are_named_and_left(project: Treadle) -> None:
    with (project.folder / "large").open("wb") as file:
        file.truncate(30_000_000)
    told(project, shell("echo more >> large"))

    assert "Too large to be kept, and left as they are: large" in rewound(project)
    assert (project.folder / "large").stat().st_size == 30_000_005


def test_a_rewind_of_files_can_itself_be_undone(project: Treadle) -> None:
    told(project, write("one.txt", "1"))
    rewound(project)
    points = Snapshots(project.folder, project.home / "snapshots").points("one")

    assert [one.after is not None for one in points] == [True, True]
    assert points[1].before == points[0].after


def test_diff_shows_what_a_session_changed(project: Treadle) -> None:
    told(project, write("new.txt", "hello\n"), shell("rm a.txt; printf '\\0' > c.txt"))

    said = project("sessions", "diff", "one", code=0).stdout

    assert "+++ b/new.txt" in said
    assert "+hello" in said
    assert "-one error" in said
    assert "changed: c.txt" in said
    assert project.json("sessions", "diff", "one", "--json")[0] == {
        "path": "a.txt",
        "kind": "deleted",
        "by_person": False,
    }


def test_a_session_that_changed_nothing_has_nothing_to_show_and_nothing_to_put_back(project: Treadle) -> None:
    told(project, shell("cat a.txt"))

    assert "changed no file" in project("sessions", "diff", "one", code=0).stderr
    assert "No file in the folder has changed" in rewound(project)


def test_the_model_is_not_told_of_calls_that_are_undone_and_is_told_of_the_others(project: Treadle) -> None:
    (project.folder / "paying.py").write_text(
        "from treadle import tool\n\n@tool(effect='unsafe')\ndef pay() -> str:\n    '''Pay.'''\n    return 'paid'\n"
    )
    script = project.script(
        "t.json", [write("new.txt", "1"), {"calls": [{"name": "pay", "arguments": {}}]}, {"text": "Done."}]
    )
    project(*RUN, "--tools", "paying.py", "-m", script, "--session", "one", "Do it.", code=0)

    said = rewound(project)

    assert "Effects are not undone: pay" in said
    assert "write" not in said.rsplit("Effects are not undone", 1)[1]


def test_the_journal_and_the_state_in_the_folder_are_never_put_back(project: Treadle) -> None:
    script = project.script("turns.json", [write("new.txt", "1"), {"text": "Done."}])
    journal = ("--journal", "journal.db")
    project(*RUN, *journal, "-m", script, "--session", "one", "Do it.", code=0)
    project("sessions", "rewind", "one", "0", "--files", *journal, code=0)

    assert not (project.folder / "new.txt").exists()
    assert len(project("sessions", "export", "one", *journal, code=0).stdout.splitlines()) > 5


def test_snapshots_go_with_their_session(project: Treadle) -> None:
    told(project, write("new.txt", "1"))
    store = project.home / "snapshots"
    assert list(store.glob("*/??/*"))

    project("sessions", "rm", "one", code=0)

    assert [path.name for path in store.glob("*/**/*") if path.is_file()] == ["last"]


def test_a_content_that_changes_twice_in_one_tick_of_the_clock_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "file"
    file.write_text("one")
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    snapshots = Snapshots(folder, tmp_path / "store")
    snapshots.begin("session", "run")
    file.write_text("two")
    os.utime(file, ns=times)
    snapshots.end("session", "run")

    assert [one.shown for one in snapshots.of_session("session").changes] == ["file"]


def test_a_folder_that_is_swapped_for_a_link_while_files_are_put_back_leads_to_nothing_outside(tmp_path: Path) -> None:
    folder, out = tmp_path / "w", tmp_path / "out"
    for place in (folder / "d", folder / "closed/d", out / "d"):
        place.mkdir(parents=True)
    out.chmod(0o555)

    def content(digest: bytes) -> bytes:
        if not (folder / "d").is_symlink():  # another program does it now: the folder has been looked at already
            for name in ("d", "closed"):
                (folder / name).rename(folder / f"{name}2")
                (folder / name).symlink_to(out)
        return digest

    file, gone = (Entry(mode=0o100644, stamp=(0, 0, 0, 0), content=one) for one in (b"old", b"new"))
    paths = (b"d/a", b"d/b", b"closed/a", b"closed/d/a")
    changes = [Change(path=path, old=file, new=gone if path == b"d/a" else None) for path in paths]
    faults = put_back(os.fsencode(folder), changes, content)

    assert sorted(str(one.relative_to(out)) for one in out.rglob("*")) == ["d"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o555
    assert len(faults) >= 2
