"""Named files: which files of a folder a line of shell names literally."""

from pathlib import Path

import pytest

from treadle.cli.input.trust import files_named

FILES = [
    "check.sh",
    "check",
    "check.py",
    "conf.js",
    "tools/check.sh",
    "tools/check.py",
    "a b.sh",
    "Makefile",
    "notes.md",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x")
    return tmp_path.resolve()


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("./check.sh", "check.sh"),
        ("./check.sh;true", "check.sh"),
        ("true&&./check.sh|cat", "check.sh"),
        ("$PWD/check.sh", "check.sh"),
        ('"${PWD}"/check.sh', "check.sh"),
        ("$(pwd)/check.sh", "check.sh"),
        ('"$CLAUDE_PROJECT_DIR"/tools/check.sh', "tools/check.sh"),
        ("cd tools; ./check.sh", "tools/check.sh"),
        ("python3 -m tools.check", "tools/check.py"),
        ("python3 -mtools.check", "tools/check.py"),
        ("./'a b.sh'", "a b.sh"),
        ("./a\\ b.sh", "a b.sh"),
        ("sh -c 'cd tools && ./check.sh --all'", "tools/check.sh"),
        ("bash < check", "check"),
        (". ./check", "check"),
        ("A=b timeout 5 nice -n 3 ./check.sh", "check.sh"),
        ("node --require=./conf.js -e 1", "conf.js"),
        ("X=check.py; python3 $X", "check.py"),
        ("./check.sh 'not closed", "check.sh"),
    ],
)
def test_a_file_that_a_line_names_is_found(folder: Path, command: str, file: str):
    assert folder / file in files_named(folder, command).values()


@pytest.mark.parametrize("command", ["make", "cat ../x /etc/passwd", "echo chec*", "true"])
def test_what_a_line_does_not_name_is_not_found(folder: Path, command: str):
    (folder.parent / "x").touch()

    assert files_named(folder, command) == {}


@pytest.mark.parametrize("command", ["'", '"$', "$(", "${", "\\", "`", "a\0b", "\ud800", "$(" * 5000, "{" * 5000, "* " * 3000, "x" * 5000])  # fmt: skip
def test_a_line_that_is_broken_or_hostile_names_nothing(folder: Path, command: str):
    assert files_named(folder, command) == {}
