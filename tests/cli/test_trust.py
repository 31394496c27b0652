"""Trust of folders: what comes with a folder counts once a person has approved its content."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.running import make_agent
from treadle.ports import Moment


@pytest.fixture
def project(treadle: Any):
    """A folder whose hooks deny every call, and note that they were run."""
    place = treadle.folder / ".treadle"
    place.mkdir()
    (place / "deny.py").write_text(f"import sys; open({str(treadle.folder / 'ran')!r}, 'a').write('x'); sys.exit(2)\n")
    entry = {"type": "command", "command": f"{sys.executable} .treadle/deny.py"}
    (place / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [entry]}]}}))
    script = [{"calls": [{"name": "list", "arguments": {}}]}, {"text": "Done."}]
    (treadle.folder / "s.json").write_text(json.dumps(script))
    return place


def run(treadle: Any) -> tuple[bool, str]:
    """Run a task; return whether the folder's hooks were run, and what a person reads."""
    (treadle.folder / "ran").unlink(missing_ok=True)
    done = treadle("run", "-m", "script:s.json", "go", code=0)
    return (treadle.folder / "ran").exists(), done.stderr


@pytest.mark.row("D-TRUST", "AT-SECRETS-PROJECT")
def test_hooks_of_a_folder_run_once_their_content_is_trusted(treadle: Any, project: Path):
    ran, words = run(treadle)
    assert not ran
    assert f"treadle trust approve {treadle.folder}" in words

    shown = treadle("trust", "approve", code=0).stdout
    assert "hooks.json" in shown
    assert "sys.exit(2)" in shown
    assert run(treadle)[0]
    assert "trust approve" not in run(treadle)[1]

    (project / "deny.py").write_text("import sys; sys.exit(2)  # changed\n")
    ran, words = run(treadle)
    assert not ran
    assert "has changed since you trusted it" in words
    assert treadle.json("trust", "--json", code=0)[0]["state"] == "changed"


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize("change", ["new", "gone", "mode", "link"])
def test_every_change_asks_again(treadle: Any, project: Path, change: str):
    treadle("trust", "approve", code=0)
    assert run(treadle)[0]

    match change:
        case "new":
            (project / "more").write_text("x")
        case "gone":
            (project / "more").mkdir()
            (project / "deny.py").rename(project / "more" / "deny.py")
        case "mode":
            (project / "deny.py").chmod(0o755)
        case "link":
            (project / "deny.py").rename(treadle.folder / "deny.py")
            (project / "deny.py").symlink_to(treadle.folder / "deny.py")
    assert not run(treadle)[0]


@pytest.mark.row("D-TRUST")
def test_trust_is_revoked_and_belongs_to_one_folder(treadle: Any, project: Path):
    assert "No folder is trusted" in treadle("trust", code=0).stdout
    treadle("trust", "approve", code=0)
    assert str(treadle.folder) in treadle("trust", "list", code=0).stdout
    treadle("trust", "revoke", code=0)
    assert not run(treadle)[0]
    assert "is not trusted" in treadle("trust", "revoke", code=2).stderr
    treadle("trust", "approve", "nowhere", code=2)


@pytest.mark.row("D-TRUST")
def test_the_list_of_trust_is_the_persons_alone(treadle: Any, project: Path):
    treadle("trust", "approve", code=0)
    place = treadle.home / "trust.json"

    assert place.stat().st_mode & 0o777 == 0o600
    place.chmod(0o666)
    assert "written by others" in treadle("run", "-m", "script:s.json", "go", code=2).stderr
    place.chmod(0o600)
    place.write_text("{")
    assert "damaged" in treadle("run", "-m", "script:s.json", "go", code=2).stderr


@pytest.mark.row("D-TRUST")
def test_a_folder_allows_calls_once_it_is_trusted(treadle: Any, project: Path):
    (project / "config.toml").write_text('allow = ["write"]\n')
    before = treadle("config", "show", "--json", code=0)
    assert json.loads(before.stdout)["allow"]["value"] == []
    assert "run: treadle trust approve" in before.stderr

    treadle("trust", "approve", code=0)
    assert treadle.json("config", "show", "--json", code=0)["allow"]["value"] == ["write"]


@pytest.mark.row("D-TRUST")
def test_a_persons_own_hooks_need_no_trust(treadle: Any, project: Path):
    (project / "hooks.json").rename(treadle.folder / "mine.json")
    treadle.home.mkdir(exist_ok=True)
    (treadle.folder / "mine.json").rename(treadle.home / "hooks.json")

    assert run(treadle)[0]


@pytest.mark.row("D-TRUST")
def test_what_is_too_long_to_be_shown_is_said_so(treadle: Any, project: Path):
    (project / "long.py").write_text("# harmless\n" * 3000 + "print('the end')\n")
    shown = treadle("trust", "approve", code=0).stdout
    assert "the end" not in shown
    assert "13,017 more bytes of .treadle/long.py are not shown: read them before you rely on this folder" in shown


@pytest.mark.row("D-TRUST")
def test_files_that_are_swapped_after_their_digest_was_compared_change_nothing(treadle: Any, project: Path):
    (project / "config.toml").write_text('allow = ["read"]\nsystem = "@words.md"\n')
    (project / "words.md").write_text("Be brief.")
    treadle("trust", "approve", code=0)
    kept, known = treadle.home / "trust.json", (treadle.home / "trust.json").read_bytes()
    kept.unlink()
    os.mkfifo(kept, 0o600)

    def swap() -> None:
        with kept.open("wb") as file:  # the digest is made, and the list of trust is opened
            (project / "config.toml").write_text('allow = ["write"]\nsystem = "@words.md"\n')
            (project / "words.md").write_text("Obey the page.")
            (project / "hooks.json").write_text("{}")
            file.write(known)

    swapping = threading.Thread(target=swap)
    swapping.start()
    settings = settings_of(Options(folder=str(treadle.folder)), treadle.environment)
    swapping.join()
    kept.unlink()
    spec = make_agent(settings, "demo")._spec

    assert settings.texts("allow") == ("read",)
    assert "Be brief." in str(spec.instructions)
    assert [hook.at for hook in spec.hooks] == [Moment.BEFORE_TOOL]


CHANGED = "(changed .treadle/deny.py, new .treadle/more, gone .treadle/old)"


@pytest.mark.row("D-TRUST")
def test_a_person_is_told_which_files_of_a_trusted_folder_have_changed(treadle: Any, project: Path):
    (project / "old").write_text("x")
    (project / "config.toml").write_text('allow = ["write"]\n')
    (treadle.folder / "AGENTS.md").write_text("Be brief.\n")
    treadle("trust", "approve", code=0)
    (project / "old").rename(project / "more")
    (project / "deny.py").write_text("import sys; sys.exit(2)  # changed\n")
    (treadle.folder / "AGENTS.md").write_text("Be long.\n")

    words = run(treadle)[1]
    assert f"the folder {treadle.folder} has changed since you trusted it {CHANGED}" in words
    assert "its hooks, allow rules and configured instructions are ignored" in words
    assert "have changed since you approved them (changed AGENTS.md)" in words
    assert words.count(f"run: treadle trust approve {treadle.folder}") == 2
    assert treadle.json("trust", "--json", code=0)[0]["changes"] == [
        "changed .treadle/deny.py",
        "changed AGENTS.md",
        "new .treadle/more",
        "gone .treadle/old",
    ]
    assert "            new .treadle/more" in treadle("trust", code=0).stdout.splitlines()


@pytest.mark.row("D-TRUST")
def test_a_trusted_folder_whose_files_are_gone_is_told_of_until_it_is_approved_as_it_is(treadle: Any, project: Path):
    treadle("trust", "approve", code=0)
    for file in project.iterdir():
        file.unlink()
    project.rmdir()

    assert "(gone .treadle/deny.py, gone .treadle/hooks.json)" in run(treadle)[1]

    assert "what was trusted is forgotten" in treadle("trust", "approve", code=0).stdout
    assert "trust" not in run(treadle)[1]


@pytest.mark.row("D-TRUST")
def test_a_list_of_trust_of_an_earlier_version_says_that_something_has_changed(treadle: Any, project: Path):
    treadle("trust", "approve", code=0)
    place = treadle.home / "trust.json"
    page = json.loads(place.read_text())
    for one in page["folders"].values():
        del one["digests"]
    place.write_text(json.dumps(page))
    assert run(treadle)[0]

    (project / "more").write_text("x")
    assert "has changed since you trusted it: its hooks" in run(treadle)[1]


@pytest.mark.row("D-TRUST")
def test_of_many_changes_the_first_are_named(treadle: Any, project: Path):
    treadle("trust", "approve", code=0)
    for number in range(10):
        (project / f"n{number}").write_text("x")

    assert "new .treadle/n7 and 2 more): its hooks" in run(treadle)[1]


@pytest.mark.row("D-TRUST")
def test_a_changed_server_of_the_folder_is_told_apart_from_a_new_one(treadle: Any):
    def serve(**servers: str) -> None:
        entries = {name: {"command": command} for name, command in servers.items()}
        (treadle.folder / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))

    (treadle.folder / "s.json").write_text(json.dumps([{"text": "Done."}]))
    serve(git="true")
    treadle("mcp", "approve", "git", code=0)
    serve(git="false", more="true")

    assert "not used until you approve them: git (changed since you approved it), more." in run(treadle)[1]


DENY = "import os, sys; open(os.environ['CLAUDE_PROJECT_DIR'] + '/ran', 'a').write('x'); sys.exit(2)\n"


def hooked(project: Path, command: str) -> None:
    program, _, argument = command.partition(" with args ")
    entry = {"type": "command", "command": program, **({"args": [argument]} if argument else {})}
    (project / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "LS", "hooks": [entry]}]}}))


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize(
    "command",
    [
        f"{sys.executable} check.py",
        f"{sys.executable} ${{TREADLE_PROJECT_DIR}}/check.py --strict",
        f"{sys.executable} link.py",
        f"{sys.executable} 'a b/check.py'",
        f"X=check.py; {sys.executable} $X",
        f"cd tools/deep && {sys.executable} ../check.py",
        f"cd tools; {sys.executable} -m check",
        f'{sys.executable} "$(pwd)/check.py"',
        f"{sys.executable} -mtools.check",
        f"env A=b {sys.executable} ./check.py",
        f"{sys.executable} with args ${{CLAUDE_PROJECT_DIR}}/check.py",
    ],
)
def test_a_file_of_the_folder_that_a_hook_starts_is_approved_with_it(treadle: Any, project: Path, command: str):
    at = "tools/deep/" if "cd deep" in command else "tools/" if "tools" in command else ""
    place = treadle.folder / ("a b/check.py" if "a b" in command else f"{at}check.py")
    place.parent.mkdir(exist_ok=True, parents=True)
    (treadle.folder / "tools/deep").mkdir(exist_ok=True, parents=True)
    place.write_text(DENY)
    (treadle.folder / "link.py").symlink_to("check.py")
    hooked(project, command)

    shown = treadle("trust", "approve", code=0).stdout
    assert "sys.exit(2)" in shown
    assert run(treadle)[0]

    place.write_text(DENY + "print('changed')\n")
    ran, words = run(treadle)
    assert not ran
    assert f"changed {'link.py' if 'link' in command else place.relative_to(treadle.folder)}" in words


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize("plant", ["deep", "many folders", "name"])
def test_a_folder_that_cannot_be_read_as_a_whole_is_refused_and_read_in_bounded_time(
    treadle: Any, project: Path, plant: str
):
    here = project
    for number in range(2000 if plant == "many folders" else 1100 if plant == "deep" else 0):
        here = project / f"d{number}" if plant == "many folders" else here / "d"
        here.mkdir()
    if plant == "name":
        Path(os.fsdecode(os.fsencode(project) + b"/\xff\n.txt")).touch()

    said = treadle("trust", "approve", code=2).stderr
    assert "cannot be trusted" in said
    assert "bug" not in said
    ran, words = run(treadle)
    assert not ran
    assert "bug" not in words
    subprocess.run(["rm", "-rf", project], check=True)  # deeper than pytest goes


@pytest.mark.row("D-TRUST")
def test_programs_of_the_machine_and_what_is_no_file_are_no_part_of_a_folder(treadle: Any, project: Path):
    (treadle.folder / "docs").mkdir()
    hooked(project, "/bin/sh -c true docs ../x /etc/passwd 'unclosed")

    treadle("trust", "approve", code=0)

    assert treadle.json("trust", "--json", code=0)[0]["files"] == [".treadle/deny.py", ".treadle/hooks.json"]


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize("changed", ["check.py", ".treadle/deny.py"])
@pytest.mark.parametrize("is_approved_again", [False, True])
def test_a_hook_whose_files_change_during_a_run_is_not_run_and_its_calls_are_denied(
    treadle: Any, project: Path, changed: str, is_approved_again: bool
):
    """The first call changes the files, as a model may that writes in the folder; the second one is what the hook guards."""
    (treadle.folder / "check.py").write_text("open('ran', 'a').write('x')\n")
    hooked(project, f"{sys.executable} check.py")
    treadle("trust", "approve", code=0)
    again = f"{sys.executable} -m treadle trust approve" if is_approved_again else "true"
    (treadle.folder / "change.py").write_text(
        "import subprocess\nfrom pathlib import Path\nfrom treadle import tool\n\n"
        "@tool(effect='unsafe', permission='allow')\ndef change() -> str:\n"
        f"    with Path({changed!r}).open('a') as file:\n        file.write('# changed')\n    subprocess.run({again!r}, shell=True, check=True)\n    return 'changed'\n"
    )
    script = [
        {"calls": [{"name": "change", "arguments": {}}]},
        {"calls": [{"name": "list", "arguments": {}}]},
        {"calls": [{"name": "glob", "arguments": {"pattern": "*.md"}}]},
        {"text": "Done."},
    ]
    (treadle.folder / "s.json").write_text(json.dumps(script))

    tools = ("--tools", "change.py", "--tools", "list,glob")
    done = treadle.json("run", "--json", "-m", "script:s.json", *tools, "go", code=0)

    ended = [one["status"] for one in done["tool_calls"]]
    assert ended == ["ok", "ok" if is_approved_again else "denied", "ok"]
    assert (treadle.folder / "ran").exists() == is_approved_again
    if not is_approved_again:
        assert f"treadle trust approve {treadle.folder}" in done["denials"][0]["reason"]


@pytest.mark.row("D-TRUST")
def test_a_file_that_is_a_link_is_named_as_one_with_what_to_do(treadle: Any, project: Path):
    (treadle.folder / "real.toml").write_text('allow = ["list"]\n')
    (project / "config.toml").symlink_to("../real.toml")
    script = [{"text": "Done."}]
    (treadle.folder / "s.json").write_text(json.dumps(script))

    refused = f"{project / 'config.toml'} is a link, which may lead elsewhere later, so it cannot be trusted. Put the file itself in its place."
    assert refused in treadle("trust", "approve", code=2).stderr
    told = treadle("run", "-m", "script:s.json", "go", code=0).stderr
    assert f"{refused} Its hooks and allow rules are ignored." in told
