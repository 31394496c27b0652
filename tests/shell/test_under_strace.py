"""What allowed commands really do, seen by strace, compared with what their analysis named. Each line runs in a folder of its own."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.shell.judging import analyse, program_name, reads_only
from treadle.shell.rules import CommandPattern

ALLOWED = [
    CommandPattern.parse(f"{one}:*")
    for one in [
        "cat", "ls", "grep", "find", "head", "tail", "sort", "uniq", "wc", "cut", "tr", "diff", "stat", "file", "du", "nl", "tac", "comm", "paste",
        "od", "touch", "mkdir", "cp", "mv", "rm", "ln", "echo", "printf",
    ]
] + [CommandPattern.parse(f"git {one}:*") for one in ["log", "status", "diff", "show", "ls-files", "grep", "blame"]]  # fmt: skip
LINES = (
    "ls -la", "ls -R d", "cat f g", "cat < f", "grep -rn x .", "grep -c x f | head -1", "find . -name '*.txt'", "find d -type f -size +0",
    "head -n1 f; tail -n1 g", "sort f | uniq -c", "sort -u f g", "wc -l f", "cut -c1 f", "tr a b", "diff f g", "stat f", "du -sh .",
    "nl f", "tac f", "comm f g", "paste f g", "od -c f", "touch new", "touch d/new f", "mkdir d/e", "cp f d/copy", "cp -r d copied",
    "mv f moved", "rm g", "rm -rf d", "ln -s f link", "ln f hard", "echo hello", "printf '%s' x", "git status --short", "git log --oneline",
    "git diff", "git show --stat", "git ls-files", "git grep x", "git blame f", "cd d && touch x", "cd d && cat k", "! grep q f",
)  # fmt: skip
_EXEC = re.compile(r'execve\("([^"]+)".*= 0$')
_OPENED = re.compile(r'open(?:at)?\((?:(?:AT_FDCWD|\d+)<([^>]+)>, )?"([^"]+)", ([A-Z_|]+)')
_CHANGED = re.compile(r"(?:mkdir|rename|unlink|link|symlink|rmdir|chmod|chown|truncate|mknod|utimens)\w*\(.*= 0$")
_PATHS = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]+)>, )?"([^"]+)"')
_WRITES = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def is_usable() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def traced(line: str, folder: Path, log: Path) -> tuple[set[str], set[str]]:
    """Run a line. Return the programs that it started, and what it wrote below the folder."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(log.parent),
        "GIT_OPTIONAL_LOCKS": "0",
        "PAGER": "cat",
        "LC_ALL": "C",
    }
    subprocess.run(
        ["strace", "-f", "-y", "-s", "4096", "-o", log, "-e", "trace=%file,%process", "bash", "--norc", "-c", line],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    programs, written = set(), set()
    for entry in log.read_text(errors="replace").splitlines()[1:]:
        if (found := _EXEC.search(entry)) is not None:
            programs.add(program_name(found[1]))
        elif (
            (found := _OPENED.search(entry)) is not None and set(found[3].split("|")) & _WRITES and "= -1" not in entry
        ):
            written.add(_joined(found[1], found[2]))
        elif _CHANGED.search(entry):
            written.update(_joined(folder, name) for folder, name in _PATHS.findall(entry))
    own = {one for one in written if not one.startswith("/") or one.startswith(str(folder))}
    return programs - {"bash"}, {one for one in own if not one.startswith("/dev/")}


def _joined(folder: str | None, name: str) -> str:
    return name if not folder else str(Path(folder, name))


def prepared(folder: Path) -> Path:
    (folder / "d").mkdir(parents=True)
    for name, content in (("f", "x\ny\nx\n"), ("g", "y\nz\n"), ("d/k", "x\n")):
        (folder / name).write_text(content)
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.row("D-STRACE")
@pytest.mark.skipif(not is_usable(), reason="strace is not installed, or may not trace here")
@pytest.mark.parametrize("seed", range(4))
def test_allowed_commands_start_and_write_nothing_that_their_analysis_did_not_name(tmp_path, seed):
    rng = random.Random(seed)
    lines = [rng.choice(("{}", "true; {}", "{} && ls", "{} | cat")).format(line) for line in rng.sample(LINES, 14)]
    for number, line in enumerate(lines):
        found = analyse(line)
        outer = [one for one in found.invocations if not one.via]
        known = {"true"}
        assert found.is_decided, line
        assert all(any(rule.allows(one) for rule in ALLOWED) or one.program in (*known, "cd") for one in outer), line
        folder = prepared(tmp_path / f"{number}")

        programs, written = traced(line, folder, tmp_path / "log")

        named = {program_name(one.program) for one in found.invocations}
        assert programs <= named, line
        places = {str(folder / one.path) for one in found.touched if one.access == "write"}
        real = {str(folder / at / one) for one in written for at in ("", *(one.folders[-1] for one in outer))}
        stray = [
            one for one in written if not any(_is_within(str(folder / at / one), places) for at in _folders(outer))
        ]
        assert stray == [], (line, sorted(real), sorted(places))


READERS = [
    "cat", "ls", "grep x", "find .", "head", "tail", "sort", "uniq", "wc", "cut", "tr a b", "diff f", "stat", "file", "du", "nl", "tac", "comm f",
    "paste", "od", "xxd", "fold", "rev", "cmp f", "column", "expand", "join f", "fmt", "tsort", "numfmt", "strings", "tree", "jq .", "md5sum",
    "base64", "base32", "basenc --hex", "shuf", "look x", "ptx", "df", "date", "uname", "nproc", "factor", "free", "uptime", "cal", "sed -n p", "sed s/x/y/",
    *(f"git {one}" for one in ("reflog", "stash list", "stash show", "branch", "tag", "remote", "check-ignore", "show-ref", "cherry main", "worktree list")),
    "git --no-pager log", "git -P diff", "git for-each-ref", "git rev-parse HEAD", "git ls-tree HEAD", "git name-rev HEAD", "git cat-file -p HEAD",
    *(f"git {one}" for one in ("log", "status", "diff", "show", "ls-files", "grep x", "blame", "rev-list HEAD", "shortlog HEAD", "describe --all")),
]  # fmt: skip
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z0-9][\w-]*")
_OF_DIFFS = ["--output", "--output-directory", "--ext-diff", "--textconv", "-O", "--no-index", "--patch", "--stat"]


def options(command: str) -> list[str]:
    """Return what a program's own help calls options, and those that several subcommands of git share."""
    name = command.replace(" --no-pager", "").replace(" -P", "").split()[: 2 if command.startswith("git ") else 1]
    asked = "-h" if name[0] == "git" else "--help"
    helped = subprocess.run([*name, asked], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    return sorted({*_OPTION.findall(helped.stdout + helped.stderr), *(_OF_DIFFS if name[0] == "git" else [])})


def with_options(command: str, rng: random.Random) -> str:
    """Give a program one to three options: whole or cut short, with and without a value, before or behind its operands and a `--`.

    One may be the value of another, and so may a `--`.
    """
    found = []
    known = options(command)
    for option in rng.sample(known, min(len(known), rng.randrange(1, 4))):
        cut = option[: rng.randrange(4, len(option) + 1)] if len(option) > len("--x") else option
        found += rng.choice(([cut], [f"{cut}=out"], [cut, "out"], [f"{cut}out"], [cut, "--"], ["--", cut]))
    words = [["f"], found]
    rng.shuffle(words)
    return " ".join([command, *words[0], *words[1]])


@pytest.mark.row("D-STRACE")
@pytest.mark.skipif(not is_usable(), reason="strace is not installed, or may not trace here")
@pytest.mark.parametrize(
    "seed", [*range(3), *map(int, filter(None, os.environ.get("TREADLE_VARIANTS", "").split(",")))]
)
def test_a_reader_writes_nothing_with_any_option_with_which_it_counts_as_one(tmp_path, seed):
    rng = random.Random(seed)
    installed = [one for one in READERS if shutil.which(one.split()[0])]
    lines = [
        line for line in (with_options(rng.choice(installed), rng) for _ in range(60)) if reads_only(analyse(line))
    ]
    folder = prepared(tmp_path / "place")
    for line in lines:
        programs, written = traced(f"timeout 5 {line}", folder, tmp_path / "log")

        assert programs <= {"timeout", program_name(line.split()[0])}, line
        assert [one for one in written if "/.git/index" not in one] == [], line
    assert lines


def _folders(invocations) -> set[str]:
    return {folder for one in invocations for folder in one.folders}


def _is_within(path: str, places: set[str]) -> bool:
    plain = str(Path(path))
    return any(
        plain == str(Path(one)) or Path(one) in Path(plain).parents or Path(plain) in Path(one).parents
        for one in places
    )
