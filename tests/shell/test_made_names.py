"""Names of files that a program makes of its arguments: without an ending, with one more, or of several parts. Protected files are found behind them."""

from pathlib import Path

import pytest

from pipeline_tools import checked_call
from treadle import allow, shell_tool
from treadle.permissions.modes import with_protection
from treadle.permissions.policies import decide
from treadle.resolve import memory_session

pytest.importorskip("tree_sitter_bash")

PROTECTED = [
    "curl -fsSLo.envrc x", "wget -qcO.envrc x", "mytool -abcd.npmrc", "ruby -irc -pe 1 .npm", "git config --edit", "git config -e",
    "gunzip .npmrc.gz", "gunzip -k d/.envrc.gz", "gzip -dk .npmrc.gz", "bunzip2 .npmrc.bz2", "xz -d .npmrc.xz", "unlzma .npmrc.lzma",
    "zstd -d .npmrc.zst", "lz4 -d .npmrc.lz4", "uncompress .npmrc.Z", "gzip -d -S x .npmrcx", "gzip -dSx .npmrcx", "gunzip --suffix=x .npmrcx",
    "cp -b -S rc f .npm", "cp -bSrc f .npm", "mv --suffix=rc -b f .npm", "ln --suff rc -b f .npm", "sed -irc s/a/b/ .npm", "sed -i'.np*' s/a/b/ mrc",
    "sed -ni.git/hooks/* p post-merge", "sed --in-place=rc p .npm", "perl -pirc -e 1 .npm", "patch -z rc .npm f", "rsync -b --suffix=rc f .npm",
    "split f .np", "split -a1 f d/.np", "csplit -f .np -b mrc f 1", "csplit -f.np f 1", "csplit f 1 -b .npmrc%.0d", "split f --additional-suffix=rc",
    "gunzip -r .", "gzip -dr .", "git mv .vscode x", "git mv d x", "git rm -r d", "eval 'cd .git'; touch hooks/x", "command cd .git; touch hooks/x",
    "pushd .git && touch hooks/x", "pushd d && pushd ../.git && touch hooks/x",
]  # fmt: skip
PLAIN = [
    "curl -fsSL x", "git config --list", "mytool -abc d", "ruby -pe 1 f",
    "gunzip f.gz", "xz -dk f.xz", "cp -b -S .bak f g", "sed -i.bak s/a/b/ f", "sed -i s/a/b/ f", "split f", "split -l 10 f part_", "csplit f 1",
    "split ./f d/part", "git mv f g", "git rm f", "git commit -m rm", "pushd e && touch x", "pushd e; popd; touch x",
]  # fmt: skip


async def kind(line: str, root: Path) -> str:
    (root / "d" / ".vscode").mkdir(parents=True)
    (root / "e").mkdir()
    (root / "f").write_text("x")
    (root / "d" / ".vscode" / "tasks.json").write_text("{}")
    called, session = checked_call(shell_tool(root), command=line), await memory_session()
    return with_protection(await decide(allow("shell"), called, session), called, {}).kind


@pytest.mark.row("D-PROTECTED")
@pytest.mark.parametrize("line", PROTECTED)
async def test_a_protected_file_is_found_behind_a_name_that_is_made(tmp_path, line):
    assert await kind(line, tmp_path) == "ask"


@pytest.mark.parametrize("line", PLAIN)
async def test_other_names_are_made_without_a_question(tmp_path, line):
    assert await kind(line, tmp_path) == "allow"
