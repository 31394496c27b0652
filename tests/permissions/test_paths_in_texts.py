"""A program that is not known may carry out a text that it is given: paths within it count as named."""

from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import allow, deny, first_of, shell_tool
from treadle.permissions.modes import with_protection
from treadle.permissions.policies import decide
from treadle.resolve import memory_session

pytest.importorskip("tree_sitter_bash")

TEXTS = [
    "'load(\"{}\")'", "'load({})'", "'a|{}'", "'x <{}'", "'x;{}'", "'{{\"path\":\"{}\"}}'", "'[{}]'", "--x='{{\"a\":\"{}\"}}'", "'a#{}'", "'a+{}'", "a^{}",
    "'a!{}'", "-e'read {} now'", "'$x := \"{}\"'", "'(b) `{}`'",
]  # fmt: skip

VALUES = ["my-tool --out=src/x", "pytest --ignore=tests/slow --cov=src/pkg", "npm run lint --dir=src/a/b", "cargo test --package=a/b"]  # fmt: skip

PLAIN = ["'see a/b (c), d|e and f;g'", "--title='Fix (this) in src/main.py'", '\'{"path": "d/k"}\'', "'1 < 2'"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "secret").mkdir(parents=True)
    (tmp_path / "root" / "secret" / "key").write_text("x")
    return tmp_path / "root"


async def kind(line: str, root: Path, *rules: str, denied: str | None = None) -> str:
    policy = allow(*rules) if denied is None else first_of(deny(denied), allow(*rules))
    one = checked_call(shell_tool(root), command=line)
    return with_protection(await decide(policy, one, await memory_session()), one, {}).kind


@pytest.mark.row("P16", "AT-PATHS-DENIED")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("line", ["my-tool {}", "nice my-tool {}", "my-tool run -v {}"])
async def test_a_denied_path_is_found_within_a_text(root, line, text):
    line = line.format(text.format("secret/key"))

    assert await kind(line, root, "shell", denied="read(path=secret/**)") in ("deny", "ask"), line


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("text", TEXTS)
async def test_a_protected_path_is_found_within_a_text(root, text):
    assert await kind(f"my-tool {text.format('.envrc')}", root, "shell") == "ask"


@pytest.mark.row("P16")
@pytest.mark.parametrize("text", TEXTS)
async def test_a_path_outside_the_root_folder_is_found_within_a_text(root, text):
    assert await kind(f"my-tool {text.format('/etc/passwd')}", root, "shell(my-tool:*)") == "ask"


@pytest.mark.parametrize("text", PLAIN)
async def test_a_text_that_names_nothing_of_this_kind_is_covered_by_a_rule(root, text):
    assert await kind(f"my-tool {text}", root, "shell(my-tool:*)", denied="read(path=secret/**)") == "allow"


@pytest.mark.row("P16")
@pytest.mark.parametrize(
    "line", ["yq 'load(\"secret/\" + \"key\")' f", "yq -n 'load_str(\"secret/key\")'", "yq 'strload(.x)' f", "yq '.a * load(.b)' f"]
)  # fmt: skip
async def test_a_program_of_yq_that_reads_files_is_asked_about(root, line):
    assert await kind(line, root, "shell", denied="read(path=secret/**)") in ("deny", "ask")
    assert await kind(line, root, "shell(yq:*)") == "ask"
    assert await kind("yq '.load | .include' f", root, "shell(yq:*)", denied="read(path=secret/**)") == "allow"


@pytest.mark.parametrize("line", VALUES)
async def test_a_path_below_the_root_folder_behind_a_sign_is_covered_by_a_rule(root, line):
    rules = ("shell(my-tool:*)", "shell(pytest:*)", "shell(npm run:*)", "shell(cargo test:*)")

    assert await kind(line, root, *rules) == "allow"
    assert await kind(line.replace("=", "=/", 1), root, *rules) == "ask"
    assert await kind(line.replace("=", "=a/../../", 1), root, *rules) == "ask"
