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
    "guard.rb",
    "guard.pl",
    "lib/Guard.pm",
    "eslint.config.js",
    "build.gradle",
    "compose.yaml",
    "pom.xml",
    "mise.toml",
    "lefthook.yml",
    "vite.config.ts",
    "composer.json",
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
        ("python3 -c 'import check'", "check.py"),
        ("python3 -Wignore -Ic 'import sys; from tools import check'", "tools/check.py"),
        ("python3 -W ignore -c'import tools.check'", "tools/__init__.py"),
        ("uv run python -c 'import check'", "check.py"),
        ("PYTHONPATH=tools python3 -c 'import check'", "tools/check.py"),
        ("python3 -c 'import sys; sys.path.insert(0, \"tools\"); import check'", "tools/check.py"),
        ("node -e 'require(\"./lib\")'", "lib/index.js"),
        ("node -p 'require(\"./hook\")'", "hook.js"),
        ("node --input-type=module -e \"import('./hook.js')\"", "hook.js"),
        ("ruby -e 'require_relative \"guard\"'", "guard.rb"),
        ("ruby -r./guard -e 1", "guard.rb"),
        ("perl -e 'require \"./guard.pl\"'", "guard.pl"),
        ("perl -Ilib -MGuard -e 1", "lib/Guard.pm"),
        ("perl -Ilib -e 'use Guard;'", "lib/Guard.pm"),
        ('find tools -name "*.sh" -exec bash {} \\;', "tools/check.sh"),
        ("find ./tools -type f -exec {} +", "tools/check.sh"),
        ("ls tools | xargs -I{} bash tools/{}", "tools/check.sh"),
        ("ls tools | xargs -I% ./tools/%", "tools/check.sh"),
        ("find tools -type f | xargs -n1 bash", "tools/check.sh"),
        ("find tools -type f | xargs -n 1 env A=b python3 -u", "tools/check.py"),
        ("run-parts --regex=. tools", "tools/check.sh"),
        ("bash ~+/tools/check.sh", "tools/check.sh"),
        ("npx eslint .", "eslint.config.js"),
        ("./gradlew check", "build.gradle"),
        ("docker compose run x", "compose.yaml"),
        ("mvn -q test", "pom.xml"),
        ("mise run x", "mise.toml"),
        ("lefthook run pre-commit", "lefthook.yml"),
        ("npx vitest", "vite.config.ts"),
        ("composer check", "composer.json"),
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
        ("python3 -c '__import__(name)'", "__import__(name)"),
        ("python3 -c 'import importlib; importlib.import_module(x)'", "import importlib; importlib.import_module(x)"),
        ("python3 -c 'exec(open(x).read())'", "exec(open(x).read())"),
        ("python3 -c 'import'", "import"),
        ("node -e 'require(process.argv[1])'", "require(process.argv[1])"),
        ("find . -name '*.sh' -exec bash {} ';'", "{}"),
        ("ls | xargs -n1 bash", "{}"),
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
        "git diff --name-only | xargs eslint",
        "git ls-files | xargs python3 check.py",
        "find . -name '*.py' -exec grep -l x {} +",
        "find . -exec sh -c 'ruff \"$1\"' _ {} ';'",
        "python3 -c 'import json, sys; sys.exit(2 if json.load(sys.stdin) else 0)'",
        "node -e 'JSON.parse(require(\"fs\").readFileSync(0))'",
    ],
)
def test_data_of_a_line_that_nobody_knows_is_no_program(folder: Path, command: str):
    found = files_named(folder, command)

    assert found.unknown == ()
    assert "notes.md" not in found.files


@pytest.mark.row("D-TRUST")
def test_a_folder_whose_files_are_run_and_that_holds_too_many_is_reported(folder: Path):
    for number in range(600):
        (folder / "tools" / f"{number}.sh").touch()

    assert files_named(folder, "run-parts tools").unknown == ("tools",)


@pytest.mark.parametrize("command", ["'", '"$', "$(", "${", "\\", "`", "a\0b", "\ud800", "$(" * 5000, "{" * 5000, "{a,b}" * 50, "* " * 3000])  # fmt: skip
def test_a_line_that_is_broken_or_hostile_is_read_in_bounded_time(folder: Path, command: str):
    files_named(folder, command)
