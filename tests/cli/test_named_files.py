"""Named files: which files of a folder a line of shell starts, and what of it nobody can know before."""

from pathlib import Path

import pytest

from treadle.cli.input.named_files import files_named

FILES = [
    "check.sh",
    "check",
    "check.py",
    "conf.js",
    "hook.js",
    "lib/index.js",
    "tools/check.sh",
    "tools/check.py",
    "tools/__init__.py",
    "tools/__main__.py",
    "a b.sh",
    "package.json",
    "pyproject.toml",
    "Makefile",
    "own.mk",
    "node_modules/.bin/lint",
    ".venv/bin/lint",
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
        ("$PWD/check.sh", "check.sh"),
        ('"${PWD}"/check.sh', "check.sh"),
        ("$(pwd)/check.sh", "check.sh"),
        ("`pwd`/check.sh", "check.sh"),
        ('"$(git rev-parse --show-toplevel 2>/dev/null)/check.sh"', "check.sh"),
        ('ROOT=$(pwd); "$ROOT"/check.sh', "check.sh"),
        ("D=tools; cd $D && $PWD/check.sh", "tools/check.sh"),
        ("cd tools; ./check.sh", "tools/check.sh"),
        ("${NOPE:-./check.sh}", "check.sh"),
        ("$NOPE./check.sh", "check.sh"),
        ("$HERE/check.sh", "check.sh"),
        ("python3 -Im tools.check", "tools/check.py"),
        ("python3 -mtools.check", "tools/check.py"),
        ("python3 -Imtools", "tools/__main__.py"),
        ("python3 -mtools.check", "tools/__init__.py"),
        ("python3 tools", "tools/__main__.py"),
        ("./check.s?", "check.sh"),
        ("./check.[s]h", "check.sh"),
        ("t*/check.sh", "tools/check.sh"),
        ("./{none,check}.sh", "check.sh"),
        ("./che\\ck.sh", "check.sh"),
        ("./'a b.sh'", "a b.sh"),
        ("sh -c ./check.sh", "check.sh"),
        ("sh -c 'cd tools && ./check.sh --all'", "tools/check.sh"),
        ("bash -c \"sh -c './che''ck.sh -x'\"", "check.sh"),
        ("eval './che\"ck\".sh now'", "check.sh"),
        ("bash ./check", "check"),
        ("bash < check", "check"),
        (". ./check", "check"),
        ("env A=b ./check.sh", "check.sh"),
        ("A=b timeout 5 nice -n 3 ./check.sh", "check.sh"),
        ("node -r ./conf.js -e 1", "conf.js"),
        ("node -r./conf.js -e 1", "conf.js"),
        ("node --require=./conf -e 1", "conf.js"),
        ("node ./hook", "hook.js"),
        ("node lib", "lib/index.js"),
        ("uv run ./check.py", "check.py"),
        ("uv run lint", "pyproject.toml"),
        ("uv run lint", ".venv/bin/lint"),
        ("npx lint", "node_modules/.bin/lint"),
        ("npm run check", "package.json"),
        ("make check", "Makefile"),
        ("make -f own.mk", "own.mk"),
        ("make -fown.mk", "own.mk"),
        ("lint --config=conf.js", "conf.js"),
        ("lint", "tools/check.sh"),
    ],
)
def test_a_file_that_a_line_starts_is_found(folder: Path, command: str, file: str):
    (folder / "tools/lint").symlink_to("check.sh")
    found = files_named(folder, command, {"HERE": str(folder), "PATH": f"/usr/bin:{folder}/tools"})

    assert folder / file in found.files.values()
    assert found.unknown == ()


@pytest.mark.row("D-TRUST")
@pytest.mark.parametrize(
    ("command", "word"),
    [
        ('"$1"', "..."),
        ("$(which guard)/check.sh", ".../check.sh"),
        ('bash "$(find . -name check.sh)"', "..."),
        ('read f; "$f"', "..."),
        ('while read -r f; do python3 "$f"; done', "..."),
        ('for one in a b; do ./"$one".sh; done', "./....sh"),
        ('cd "$(cat place)" && ./check.sh', "..."),
        (". ./env; $GUARD/check.sh", ".../check.sh"),
        ('X=$(cat place); sh -c "$X/check.sh --all"', ".../check.sh"),
        ('eval "$(cat line)"', "..."),
        ('xargs -n 1 "$(cat line)"', "..."),
        ("*/*/*/*/check.sh", "*/*/*/*/check.sh"),
    ],
)
def test_what_is_started_and_cannot_be_known_before_is_reported(folder: Path, command: str, word: str):
    assert files_named(folder, command).unknown == (word,)


@pytest.mark.parametrize(
    "command",
    [
        'jq -r .tool_input.file_path | { read -r f; if echo "$f" | grep -q \'\\.ts$\'; then npx prettier --write "$f"; fi; }',
        'case "$(jq -r .tool_name)" in Bash|*.md) exit 2;; esac',
        'bash -c \'ruff check "$1"\' -- "$(jq -r .x)"',
        'python3 check.py "$(cat)"',
        "awk '{print $1}' | grep '*'",
        'X=$(cat); [ -n "$X" ] && exit 2',
    ],
)
def test_data_of_a_line_that_nobody_knows_is_no_program(folder: Path, command: str):
    found = files_named(folder, command)

    assert found.unknown == ()
    assert "notes.md" not in found.files


@pytest.mark.parametrize("command", ["'", '"$', "$(", "${", "\\", "`", "a\0b", "\ud800", "$(" * 5000, "{" * 5000, "{a,b}" * 50, "* " * 3000])  # fmt: skip
def test_a_line_that_is_broken_or_hostile_is_read_in_bounded_time(folder: Path, command: str):
    files_named(folder, command)
