"""A rule that denies reading a file holds for git, too: by a pattern, by a number, in another folder, and where no word names the file."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from test_under_strace import options

from pipeline_tools import checked_call
from treadle import Agent, allow, deny, first_of, shell_tool
from treadle.permissions.policies import decide
from treadle.resolve import memory_session
from treadle.testing import ScriptedModel, call, text

pytest.importorskip("tree_sitter_bash")

CANARY = "not for you"
RULES = first_of(deny("read(path=secret/**)"), allow("shell"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A repository in which `secret/key` stands in the history, in the stash, in the index and in the folder, each time in another form."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "d").mkdir()
    (folder / "secret").mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name, value in (("user.name", "a"), ("user.email", "a@b.c")):
        git(folder, "config", name, value)
    for name in ("f", "d/k"):
        (folder / name).write_text("x\n")
    for number, words in enumerate((["commit", "-qm", "one"], ["commit", "-qm", "two"], ["stash"], [])):
        (folder / "secret" / "key").write_text(f"{CANARY} {number} \nx\n")
        git(folder, "add", ".")
        if words:
            git(folder, *words)
    (folder / "secret" / "key").write_text(f"{CANARY} at last\n")
    return folder


def git(folder: Path, *words: str) -> str:
    found = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return found.stdout.strip()


async def kind(line: str, folder: Path, policy=RULES) -> str:
    return (await decide(policy, checked_call(shell_tool(folder), command=line), await memory_session())).kind


SHOWING = [
    "git grep -nex -- 's*' d", "git grep -f p -- 's*' d", "git grep -nex ':/' d", "git grep x -- d 's*'",
    "git -P -P -P -P clone .git x", "git -P -P -P -P grep x -- 's*'", "git -C log show HEAD:../secret/key", "git -C log grep x -- ..",
    "git --git-dir .git show HEAD", "git -P -P -P -P -c a.b=c log -p", "git --literal-pathspecs show", "git --git-dir=.git -P clone .git x",
    "git status -v", "git status -vs", "git status --verb", "git status -v -- d", "git reflog -p", "git reflog show --patch", "git stash list --cc",
    "git stash list -p", "git stash show -U3", "git stash show -p", "git commit -v --dry-run", "git commit -p", "git add -p", "git add -i",
    "git checkout -p", "git reset -p", "git reset -p HEAD", "git restore -p", "git stash -p", "git am --show-current-patch", "git clone .git x",
    "git clone .git x:y", "git clone -q -- ./.git x", "git clone file:///r x", "git read-tree -u --prefix=x/ 1234abcd", "git diff -- ':(top)secret'",
    "git diff -- ':/secret'", "git diff -- ':!d'", "git diff ':^d'", "git diff HEAD -- ':(exclude)d' f", "git log -p -- ':(icase)SECRET'",
    "git log -p -- 's*'", "git diff -- '*key'", "git diff -- 'secre[t]/key'", "git diff -- s\\*", "git show HEAD -- 's*'", "git grep x -- 'sec*'",
    "git grep x -- ':!d'", "git grep -e x '*y'", "git add -p -- 's*'", "git -P grep x", "git --no-pager grep x", "git -P log -p",
    "git --no-pager diff", "git -C . grep x", "git --git-dir=.git diff", "cd d; git diff -- :/secret", "cd d; git grep x -- ':(top)*'",
    "git stash show", "git stash show -M", "git stash show -i", "git stash show --submodule", "git stash show --pretty=raw", "git log -S not", "git log -Gnot",
    "git log --pickaxe-regex -S 'n.t' --oneline", "git shortlog -S not HEAD", "git reflog -G not", "git stash list -Gnot", "git whatchanged -Snot",
    "git show HEAD:secret/key", "git ls-tree HEAD secret/", "git ls-files -s secret", "git show HEAD~1:./secret/key", "git show :0:secret/key", "cd d && git show HEAD:secret/key",
]  # fmt: skip
BY_NUMBER = [
    "git show {blob}", "git show {blob} -- d", "git grep x {blob} -- d", "git grep x {tree} -- key", "git show {tree}:key", "git show {tree}:key -- d",
    "git notes add -C {blob} HEAD && git notes show", "git update-index --add --cacheinfo 100644,{blob},pub && git checkout pub",
    "git checkout {tree} -- key", "git restore --source={tree} key", "git reset {tree} -- key", "git diff {tree} {tree} -- key",
]  # fmt: skip
ELSEWHERE = ["git log --stat", "git diff -- d", "git diff HEAD -- d f", "git show HEAD:f", "git show HEAD:d/k", "git grep x -- d",
    "git commit -m 'a [b] c? d*'", "git add f", "git status", "git stash list", "git checkout -b new", "git log -p -- d", "git log -S not -- d",
    "git shortlog -sn HEAD", "git reset 1234abcd",
    "git checkout 1234abcd", "git cherry-pick 1234abcd", "git clone https://example.com/x.git", "git clone --depth 1 https://example.com/x y"]  # fmt: skip


@pytest.mark.row("P16", "AT-SHELL-DENIED")
@pytest.mark.parametrize("line", SHOWING)
async def test_git_shows_no_denied_file_that_no_word_names(repository, line):
    assert await kind(line, repository) in ("deny", "ask")


@pytest.mark.row("P16")
@pytest.mark.parametrize(
    "line",
    ["git checkout HEAD~1 -- 's*'", "git restore ':!d'", "git restore -s HEAD~1 :/", "git rm 's*'", "git rm -r ':(glob)s*/**'", "git clean -fd 's*'",
     "git checkout -- .", "cd d && git restore :/secret"],
)  # fmt: skip
async def test_git_writes_no_denied_file_that_a_pattern_finds(repository, line):
    rules = first_of(deny("write(path=secret/**)"), allow("shell"))

    assert await kind(line, repository, rules) in ("deny", "ask")


@pytest.mark.row("P16")
@pytest.mark.parametrize("line", BY_NUMBER)
@pytest.mark.parametrize("letters", [8, 40])
async def test_git_shows_no_denied_file_by_its_number(repository, line, letters):
    blob, tree = (git(repository, "rev-parse", name)[:letters] for name in ("HEAD:secret/key", "HEAD:secret"))

    assert await kind(line.format(blob=blob, tree=tree), repository) in ("deny", "ask")


@pytest.mark.parametrize("line", ELSEWHERE)
async def test_what_git_shows_beside_a_denied_file_is_allowed(repository, line):
    assert await kind(line, repository) == "allow"


@pytest.mark.row("P16")
@pytest.mark.parametrize(
    "line", ["git diff", "git show", "git log -p", "git show HEAD:secret/key", "git diff -- :/", "git stash show -p"]
)
async def test_git_finds_the_top_of_its_repository_from_every_folder(repository, line):
    script = [call("shell", command="cd d"), call("shell", command=line), text("Done.")]

    result = await Agent(ScriptedModel(script), tools=[shell_tool(repository)], policy=RULES).run("Go")

    assert [one.status for one in result.tool_calls] == ["ok", "denied"]


@pytest.mark.row("P16")
async def test_a_path_from_the_top_is_found_where_the_root_folder_lies_below_it(repository):
    rules = first_of(deny("read(path=key)"), allow("shell"))

    assert await kind("git show HEAD:secret/key", repository / "secret", rules) == "deny"


COMMANDS = [
    *(f"git {one}" for one in ("log", "status", "diff -- d", "show HEAD -- d", "ls-files", "grep x -- d", "blame f", "shortlog HEAD", "describe --all")),
    *(f"git {one}" for one in ("reflog", "stash list", "branch", "tag", "add f", "commit", "checkout", "reset", "restore f", "stash show", "notes show")),
    *(f"git {one}" for one in ("rev-list HEAD", "rev-parse HEAD", "for-each-ref", "ls-tree HEAD", "cherry main", "name-rev HEAD", "merge-base HEAD HEAD")),
    "cat f", "ls", "grep x d", "find d", "head f", "tail f", "sort f", "uniq f", "diff f d", "du d", "stat f", "wc f", "file f", "sed -n p f", "cp -r d e",
    "tar cf e d", "od f", "comm f d/k", "paste f", "join f d/k", "shuf f", "base64 f", "zcat -f f", "look x f", "ptx f", "date", "test -f f", "df f",
]  # fmt: skip


@pytest.mark.row("D-STRACE", "P16")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed: the lines would run bare")
@pytest.mark.parametrize(
    "seed", [*range(2), *map(int, filter(None, os.environ.get("TREADLE_VARIANTS", "").split(",")))]
)
async def test_what_is_allowed_beside_a_denied_file_shows_and_copies_nothing_of_it(repository, tmp_path, seed):
    rng, words = random.Random(seed), ["f", "d", "HEAD", "main", "--", "out", "x", "'s*'", "1", "stash@{0}"]
    ran = 0
    for number in range(60):
        command = rng.choice(COMMANDS)
        known = options(command)
        found = [*rng.sample(known, min(len(known), rng.randrange(1, 3))), *rng.sample(words, rng.randrange(3))]
        rng.shuffle(found)
        line = " ".join([command, *found])
        if await kind(line, repository) != "allow":
            continue
        place = tmp_path / f"{number}"
        shutil.copytree(repository, place, symlinks=True)
        shown = confined(line, place)
        ran += 1

        assert CANARY.encode() not in shown, line
        assert [one for one in copies(place) if CANARY.encode() in one.read_bytes()] == [], line
    assert ran > 0


def confined(line: str, folder: Path) -> bytes:
    box = [
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--bind",
        str(folder),
        str(folder),
        "--unshare-all",
        "--die-with-parent",
    ]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "PAGER": "cat",
        "LC_ALL": "C.UTF-8",
        "GIT_EDITOR": "true",
    }
    found = subprocess.run(
        ["timeout", "5", "bwrap", *box, "--chdir", str(folder), "bash", "--norc", "-c", line],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    return found.stdout + found.stderr


def copies(folder: Path) -> list[Path]:
    own = {"secret", ".git"}
    return [one for one in folder.rglob("*") if one.relative_to(folder).parts[0] not in own and one.is_file()]
