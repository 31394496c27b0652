"""Treadle's own configuration, rules and records of trust are protected wherever they lie, also in the folder in which the model works."""

import shutil
from typing import Any

import pytest

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
RULE = '[[rules]]\nallow = ["shell"]\n'


def run(treadle: Any, name: str, arguments: dict[str, Any], *flags: str, home: str, code: int) -> Any:
    turns = [{"calls": [{"name": name, "arguments": arguments}]}, {"text": "Done."}]
    common = ("--journal", str(treadle.folder / "else" / "j.db"), "--tools", "write,edit,shell", "--allow", name)
    (treadle.folder / "work" / home).mkdir(parents=True, exist_ok=True)
    return treadle.json(
        *("run", "-m", treadle.script("s.json", turns), "-C", "work", *common, *flags, "--json", "Go"),
        code=code,
        TREADLE_HOME=str(treadle.folder / "work" / home),
    )


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("mode", ["ask", "accept-edits", "bypass"])
@pytest.mark.parametrize(
    ("home", "path"),
    [("own", "own/rules.toml"), ("own", "own/config.toml"), ("own", "own/Trust.json"), (".", "rules.toml"), (".", "skills/a/SKILL.md")],
)  # fmt: skip
def test_a_person_is_asked_before_the_own_configuration_is_written(treadle: Any, mode: str, home: str, path: str):
    report = run(treadle, "write", {"path": path, "content": RULE}, "--mode", mode, home=home, code=11)

    assert [one["tool"] for one in report["approvals"]] == ["write"]
    assert not (treadle.folder / "work" / path).exists()


@pytest.mark.row("D-PROTECTED")
def test_a_file_beside_the_own_configuration_is_written(treadle: Any):
    run(treadle, "write", {"path": "notes.toml", "content": "a = 1"}, home=".", code=0)
    assert (treadle.folder / "work/notes.toml").read_text() == "a = 1"


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("mode", ["ask", "bypass"])
@pytest.mark.parametrize("path", ["given.toml", "link.toml"])
def test_a_person_is_asked_before_the_file_of_config_is_written(treadle: Any, mode: str, path: str):
    (treadle.folder / "work").mkdir()
    (treadle.folder / "work/given.toml").write_text("")
    (treadle.folder / "work/link.toml").symlink_to("given.toml")
    flags = ("--mode", mode, "--config", f"work/{path}")
    for name, arguments in {
        "write": {"path": "given.toml", "content": RULE},
        "shell": {"command": "echo x > given.toml"},
    }.items():
        report = run(treadle, name, arguments, *flags, "--sandbox", "off", home="own", code=11)
        assert [one["tool"] for one in report["approvals"]] == [name]
    assert (treadle.folder / "work/given.toml").read_text() == ""


@needs_bwrap
@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("home", ["own", "."])
def test_a_command_in_the_sandbox_changes_none_of_it(treadle: Any, home: str):
    work = treadle.folder / "work"
    (work / home).mkdir(parents=True)
    (work / home / "config.toml").write_text("")
    (work / "given.toml").write_text("")
    (work / "do.sh").write_text(
        f"for one in {home}/config.toml {home}/rules.toml given.toml; do echo evil > $one; done\necho fine > plain\n"
    )
    run(treadle, "shell", {"command": "sh do.sh"}, "--config", "work/given.toml", "--sandbox", "on", home=home, code=0)

    assert (work / "plain").read_text() == "fine\n"
    assert [(work / one).read_text() for one in (f"{home}/config.toml", "given.toml")] == ["", ""]
    assert not (work / home / "rules.toml").exists()
