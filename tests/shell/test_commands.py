"""What a line of shell would start, write and read: found by parsing, and held against what bash does with the same text."""

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.shell.judging import analyse, known, reads_only
from treadle.shell.programs import INTERPRETERS, PROGRAMS, WRAPPERS
from treadle.shell.reading import MAX_CHARACTERS, MAX_COMMANDS, read
from treadle.shell.rules import CommandPattern


def words(source: str) -> list[tuple[str, ...]]:
    return [one.words for one in read(source).invocations]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("ls", [("ls",)]), ("git log -5 'a b' \"c d\" e\\ f", [("git", "log", "-5", "a b", "c d", "e f")]), ("'r'm \"x\"", [("rm", "x")]),
        ("\\rm x", [("rm", "x")]), ("a; b && c || d | e |& f\ng", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",), ("g",)]), ("a; ! c 2>&1", [("a",), ("c",)]),
        ("echo HEAD~1 x=1 a^ # rm x", [("echo", "HEAD~1", "x=1", "a^")]), ("sort f -o1>x '*' a\\*", [("sort", "f", "-o1", "*", "a*")]),
    ],
)  # fmt: skip
def test_each_simple_command_of_a_line_is_found_with_its_words(source, found):
    assert read(source).is_understood
    assert words(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "echo $(id)", "echo `id`", "ls <(id)", 'echo "$(id)"', "echo $X", "echo ${X:-$(id)}", "echo $((1+1))", "$'rm' -rf x", '$"rm" x',
        "coproc rm x", "time -p rm x", "PATH=x time rm x", "if true; then rm x; fi", "for x in a; do rm x; done", "while true; do rm x; done",
        "f() { rm x; }; f", "function f { rm x; }", "[[ -f x ]]", "[ -f x ]", "case x in x) rm x;; esac", "((x=1))",
        "X=1", "PATH=. ls", "LD_PRELOAD=./x ls", "BASH_ENV=x ls", "GIT_PAGER=x git log", "IFS=a ls", "NODE_OPTIONS=-rx node a.js", "HOME=. ls", "RUSTC_WRAPPER=./x cargo test",
        "X=* ls", "X=$Y ls", "X=~ ls", "X={a,b} ls", "LC_ALL=ja_JP.SJIS; ls", "X+=1 ls", "cat $?", "echo x > $?", "echo $?$X", "rm -- $?", "X=$? echo", "! echo $?", "echo ${?:-x}", "a=(1 2)", "ls &", "nohup sleep 999 &", "echo 'open", 'echo "open', "echo \\'' x", 'echo \\"" x', "echo \\\\\\'' ; rm x", "echo a{b,c}", "{ls,-l}", "ls \\\\*", "ls 'a*'*", "ls *.[ch]",
        "ls ~", "ls --to=~/x",
        "cat -n2<<<f", "cat -n2<<'E'\nx\nE\n", "ls <>x", "ls >&x", "ls > $X", "cat <<E\n$(id)\nE\n",
        "cat <<E\nhi\n E\nrm x\n", "ls;;id", "", "   ", "ls\rid", "ls\u00a0x", "ls\u200bx", "ls\x00", "ls \ud800",
        "r\\\nm x", "ls \u202ex", "cd", "cd -", "cd a b", "ls 'a'b\\\nc",
    ],
)  # fmt: skip
def test_whatever_the_shell_would_change_or_hide_is_a_doubt(source):
    line = read(source)

    assert not line.is_understood
    assert all(doubt.reason.endswith(".") for doubt in line.doubts)


def test_work_is_bounded_and_fails_closed():
    assert not read("a" * (MAX_CHARACTERS + 1)).is_understood
    assert not read(";".join(["true"] * (MAX_COMMANDS + 1))).is_understood
    assert not read("(" * 500 + "ls" + ")" * 500).is_understood
    assert not read("true && " * 60 + "rm x").is_understood
    assert read(";".join(["true"] * MAX_COMMANDS)).is_understood


@pytest.mark.parametrize(
    "line",
    ["ls" + " a" * 600, "tar cCf" + " a" * 400, "cp" + " -Sa b" * 200, "sudo" + " env" * 400, "find ." + " -exec rm {} +" * 400, "jq '" + "env " * 2000 + "'", "cp" + " -Sa b" * 900],
)  # fmt: skip
def test_a_command_with_too_much_in_it_is_asked_about(line):
    found = analyse(line)

    assert len(found.touched) <= 1000
    assert found.doubts or found.hidden or not reads_only(found)


@pytest.mark.parametrize(
    ("source", "touched"),
    [
        ("cut -d/ -f1 a", {"a"}), ("cut -d / -f1 a", {"a"}), ("sort -t/ -k 2 a", {"a"}), ("paste -d / a b", {"a", "b"}),
        ("grep -e /x a", {"a"}), ("grep --include=/x y a", {"a"}), ("grep -- -e /x", {"/x"}), ("cut -- -d /x", {"-d", "/x"}),
        ("git log -p --format='%h/%s' -- a", {"a"}), ("git log -p --author /x -- a", {"a"}), ("rg --files /x", {"/x"}), ("column -s/ a", {"a"}),
    ],
)  # fmt: skip
def test_the_value_of_an_option_is_no_path_where_it_never_is_one(source, touched):
    assert {one.path for one in analyse(source).touched} == touched


@pytest.mark.parametrize(
    "source",
    ["head -6c k", "tail -9c k", "git grep -v -- src k", "od -c k", "od -An -c k", "od -s k", "od -t c k", "od -l k", "od -An -tx1 k", "rev -c k", "tac -s k", "df -x k",
     "stat -f k", "stat -c %s k", "tail -f k", "column -t k", "nl -p k"],
)  # fmt: skip
def test_a_file_behind_an_option_that_takes_no_value_is_found(source):
    assert "k" in {one.path for one in analyse(source).touched}


@pytest.mark.parametrize(
    ("source", "folders"),
    [
        ("cd sub && it", {"sub"}), ("cd sub && cd x && it", {"sub/x"}), ("cd sub && a | it", {"sub"}), ("cd sub &&\n it", {"sub"}),
        ("a || b && cd sub && it", {"sub"}), ("cd sub >/dev/null && it", {"sub"}),
        ("cd sub; it", {".", "sub"}), ("cd sub && a; it", {".", "sub"}), ("cd sub && a || it", {".", "sub"}), ("cd sub || it", {".", "sub"}),
        ("a || cd sub && it", {".", "sub"}), ("cd sub | a && it", {".", "sub"}), ("a | cd sub && it", {".", "sub"}), ("! cd sub && it", {".", "sub"}),
        ("if cd sub && a; then it; fi", {".", "sub"}), ("cd sub && cd x; it", {".", "sub", "sub/x"}),
    ],
)  # fmt: skip
def test_a_command_starts_in_each_folder_to_which_a_cd_before_it_may_have_led(source, folders):
    assert set(next(one for one in analyse(source).invocations if one.program == "it").folders) == folders


def test_a_path_behind_a_cd_is_relative_to_where_that_leads():
    line = analyse("cd sub && cat ../x")

    assert {one.path for one in line.touched} == {"sub", "sub/../x"}  # `sub` may be a link


@pytest.mark.parametrize(
    ("source", "touched"),
    [
        ("cat a /etc/passwd", {("a", "read"), ("/etc/passwd", "read")}),
        ("cat < in > out", {("in", "read"), ("out", "write")}),
        ("echo x >> ../log", {("../log", "write")}),
        ("echo x 2>&1 >/dev/null", set()),
        ("uniq a b", {("a", "write"), ("b", "write")}),
        ("mytool in --to=/etc/x -I/usr/y -o../z", {("in", "write"), ("/etc/x", "write"), ("/usr/y", "write"), ("../z", "write")}),
        ("dd if=/dev/sda of=../x", {("/dev/sda", "write"), ("../x", "write")}),
        ("grep -- -e ../x", {("../x", "read")}),
        ("ls -- -l", {("-l", "read")}),
    ],
)  # fmt: skip
def test_paths_are_taken_out_of_arguments_options_and_redirections(source, touched):
    assert touched <= {(one.path, one.access) for one in analyse(source).touched}


def covered_by_prefix(source: str) -> bool:
    """Whether a rule on the first words of a command covers it, of those that can match anything."""
    line = analyse(source)
    if not line.is_understood or not line.invocations:
        return False
    one = line.invocations[0]
    rules = [CommandPattern.parse(f"{shlex.join(one.words[:end])}:*") for end in (1, 2)]
    return any(not rule.never_allows and rule.allows(one) for rule in rules)


@pytest.mark.row("AT-SHELL-LINES")
@pytest.mark.parametrize(
    "source",
    [
        "git log --output=x", "git log --outp=x", "git diff --ext-diff", "git -c core.pager=id log", "git --exec-path=x log", "git co x",
        "git grep -O x", "git grep -nO x", "git log --help", "git log --format=%G?", "git for-each-ref --format=%(raw)", "find . -exec id ;", "find . -delete", "find . -fprint x",
        "sort -o x y", "sort -uo x", "sort --compress-program=id x", "rg --pre id x", "tree -o x",
        "env -i ls", "env -S ls", "env PATH=. ls", "env X=1", "timeout ls", "timeout -x 5 ls", "timeout 5 bash -c ls", "./timeout 5 ls", "env X=1 ls", "X=1 ls", "stdbuf ls", "sudo ls", "bash -c ls", "python3.11 -c pass",
        "awk -f x y", "sed e", "vim x", "less x", "man ls", "ssh host ls", "docker run x", "tar xf x", ". x", "source x",
        "eval ls", "exec ls", "command ls", "busybox rm x", "git config a b",
        "diff -l a b", "diff --paginate a b", "md5sum -c l", "jq -n 'import \"./s\" as $d; $d'", "git tag -s v", "git tag -v v", "git commit -S",
        "git merge --gpg-sign x", "git pull -S", "git push --signed", "test -v 'a[$(id)]'", "rename 's/a/b/' x",
        "printf 'abc%n' PATH", "printf '%%%-3ln' PATH", "tree -Lo 1 x", "ps -eo pid,environ", "pip list --outdated",
        "uniq a b", "uniq -c a b", "uniq -w 3 a b", "uniq a -b",
        "git blame --output=x a", "git rev-list --output=x HEAD", "git rev-list HEAD --outp=x", "git blame -Ox a", "git stash list --output=x", "git reflog --output=x", "strings @options",
        "git for-each-ref --format='%(signature)'", "git tag --list --format='%(signature:key)'", "git branch --format '%(signature)'",
        "git push ext::id", "git fetch ext::id x", "git pull --repo ext::id", "git push ./folder x", "git fetch ../folder", "git push file:///x",
        "git pull /x", "zip -rTTid a.zip .", "zip -qT a.zip", "zip --unzip-c=id a.zip",


        "pip --python=x list",
        "\\export PATH=x", "'declare' PATH=x", "builtin readonly PATH=x", "read PATH", "getopts x PATH", "wait -np PATH", "mapfile PATH",
        "git push git@host:x main", "git push host:x", "git fetch --depth 1 git@host:x", "git fetch --dep 1 host:x", "git fetch -vj 4 host:x",
        "git fetch -- host:x", "git pull --jobs=4 host:x", "git push --rep host:x", "git push --push-opt=x origin", "git add -e",
        "jq -n env", "jq -n '$ENV.KEY'", "jq -c '.x, (env|keys)' f", "jq -n '\"x\"|modulemeta'", "jq -n '$ ENV.KEY'", "git log --upload-pack=id", "git log --exec id", "cat --pager=id f", "ps axe", "ps -p 1 e", "ps -x -e",
        "ps e", "date -s 2020-01-01", "date -us x", "date 010203042026", "hostname x", "hostname -F x",






        "set -k", "set -eH", "set -o keyword", "set -o history", "set -euo histexpand", "history -s ls", "jobs -x id",
        "git log --format=%+G?", "git log --format='% GS'", "git for-each-ref --format='%(*signature)'", "git --no-pager -c a.b=c log", "git -P co x",
        "git remote -v add a b", "git branch -a x --edit-description", "git reflog expire --all", "base64 -o x f",
        "zstd x --exec=id", "hyperfine id", "perf stat id",








        "sed -i s/a/b/ f", "sed -n 'w x' f", "sed -n '/a/w x' f", "sed '1,2w x' f", "sed 's/a/b/w x' f", "sed 's/a\\/b/c/w x' f", "sed 's/a/\\/w x' f", "sed '/a\\/w x;/p' f",
        "sed 's|a\\|b|w x|' f", "sed '1e id' f", "sed '/a/e' f", "sed '1r x' f", "sed '1!w x' f", "sed 'y/a/b/;w x' f", "sed 's/[/]/w x/' f", "sed '1,2{p;w x' f", "sed s/a/b/e f", "sed -f x f", "sed -n -i p f", "sed p f --in-place",
        "awk '{print > \"x\"}' f", "awk '{print >> \"x\"}' f", "awk '{print | \"id\"}' f", "awk 'BEGIN {system(\"id\")}'", "awk '{\"id\" | getline}' f", "awk '{getline < \"x\"}' f",
        "awk -f x f", "awk -i inplace 1 f", "awk -v x=1 1 f", "gawk '@load \"x\"; 1' f", "awk '{f = \"id\"; @f()}' f", "awk -lx 1 f", "awk 'BEGIN {ARGV[1]=\"x\"}' f",
        "awk '{print ENVIRON[\"A\"]}' f", "awk '{print SYMTAB[\"A\"]}' f", "awk '{printf(\"x\") > $1}' f", "awk --file=x f", "awk '{print(1)>$1}' f", "awk -F -F 'BEGIN {system(\"id\")}' f", "awk -F : 'BEGIN {system(\"id\")}' f",
        "awk -F", "awk", "awk 1 f -v x=y", "awk -F: 1 -f x", "gawk 1 /inet/tcp/0/localhost/1",
        "sed -e p -e 'w x' f", "sed -ne 'w x' f", "sed p -e '1e id' f", "sed -e p -i f", "sed -e p -f x", "sed -en 'w x' f",
        "python --version x", "./python --version", "command -p id", "command id", "date -f f 1",
    ],
)  # fmt: skip
def test_what_starts_others_or_has_an_option_that_writes_is_a_risk(source):
    assert not covered_by_prefix(source)
    assert not reads_only(analyse(source))


@pytest.mark.parametrize(
    "source",
    ["ls -la src", "git log --oneline -5", "git status --short", "cat a | head -3 | wc -l", "grep -rn 'a b' .", "find . -name '*.py' -type f",
     "cd src && ls", "git diff HEAD~1 -- a.py", "rg -n x src", "sort -u a | uniq -c", "echo done 2>&1",
     "sed -n -e 3p -e 5p f", "sed -ne 3p f", "sed -e s/a/b/ -E f", "sed f -ne 3p", "grep -n x f /dev/null", "diff -u /dev/null f",
     "sed -n '1,80p' f", "sed 's/a/b/g;5q' f | head", "sed -nE '/a/p' f",
     "sed -n '/^def a/,/^def b/p' f", "sed -n '5,+3p;9q' f", "sed 's/a\\.b/\\1/' f", "sed '/x/!d' f", "sed -n '$=' f", "sed '2,5s|/a|b|g' f", "sed -n '/a\\(b/Ip' f", "git branch", "git branch -avv", "git branch --show-current", "git tag -l", "git remote -v",
     "git remote get-url origin", "git stash list", "git stash show", "git reflog -5", "git worktree list", "git check-ignore -v f", "git --no-pager log -3",
     "git -P diff", "git --version", "python3 --version", "python -V", "node -v", "make --version", "command -v node", "type ls", "date +%F", "uname -a",
     "git tag --list 'v*'", "git tag -l 'v1.*' -n", "git branch --list 'x*'", "git branch --contains HEAD", "git branch -a --sort=-committerdate",
     "git branch --format='%(refname)'", "git tag --points-at HEAD --sort=x", "git branch -r --list a b", "git branch --list --no-merged=main",
     "awk '{print $1}' f", "awk -F: '$3 > 5 {print $1, $2}' f", "ls -l | awk 'NR>1 && $5>0 {s += $5} END {print s}'", "gawk -F ';' '{print $2}' f",
     "awk 'length > 80' f g", "awk '/a/,/b/' f", "whoami", "groups", "who", "tty",
     "test -f f && cat f", "base64 -d f", "df -h .", "diff3 a b c", "nproc",
     "ls; echo $?", 'git status; echo "exit $?"', "ls | head; echo ${PIPESTATUS[0]}", "time ls", "timeout 60 git log", "timeout -k 5 1.5m cat f", "nice -n 5 ls", "env ls", "env LC_ALL=C sort f", "LC_ALL=C sort f",
     "TZ=UTC date", "stdbuf -oL grep x f", "timeout 5 nice wc -l f", "env git log", "id", "id -un", "gh --version", "curl --version", "aws --version", "git submodule status"],
)  # fmt: skip
def test_lines_that_only_read_are_known_as_such(source):
    assert reads_only(analyse(source))


@pytest.mark.parametrize(
    "source",
    ["git tag --list -d x", "git branch --list -D x", "git branch --contains x -m y", "git branch -l x", "git branch -r x", "git tag --sort=x v1",
     "git tag -n3 x", "git branch --list --edit-description", "git branch --format=x y", "cat < /dev/tcp/localhost/1", "cat </dev/udp/a/1 f",
     "tar xf x", "tar txf x", "tar tf host:x", "tar tf x -I ./z", "tar -tf x --to-command=id", "tar --use-compress-program=id -tf x", "tar tf -x", "tar tf", "tar t", "unzip x", "unzip -p x", "unzip -l", "unzip -l x -d y",
     "unzip -lo x", "zipinfo x -y", "bc -e x", "rm x", "ls > x", "mytool", "./ls", "/bin/ls x", "git add x", "git branch x", "git tag x", "git stash", "git remote update", "tee x", "uniq a b", "uniq a b && rm c", "cat a | uniq - b", "ls; X=1",
     "printf 'abc%n' PATH; ls", "yarn --version", "cargo --version", "mvn --version", "tox --version",
     "flake8 --version", "pnpm --version", "composer --version", "gradle --version", "rspec --version",
     "./npm --version", "bin/docker -V", "./git --version"],
)  # fmt: skip
def test_nothing_else_counts_as_reading(source):
    assert not reads_only(analyse(source))


@pytest.mark.parametrize(
    "source",
    ["uniq -f 1 a", "uniq -w3 a", "od -An -tx1 a", "printf '%s 100%%n' x", "strings a", "go test ./...", "pytest -q tests", "mypy src", "npm run test",
     "git push origin main", "git fetch --all", "git pull origin main", "git branch --format='%(refname)'",
     "git push -u origin main:main", "git fetch -j 4 origin a:b", "git pull --depth=1 origin x:y", "jq .env f",
     "jq '.environment | .env' f", "ps aux", "ps -ef", "ps -eo pid,args", "ps -p 1 -o comm=", "ps aux --sort -etime", "date", "date +%F", "date -u",
     "date -d yesterday +%F", "hostname", "ip addr show", "systemctl status x", "nm x", "coverage report -m", "tox -e py311",
     "gh pr view 5", "bat x", "rpm -qa", "apt list", "my-tool --config=x", "my-tool --filter x", "cargo test -q", "cargo build", "go test -run x -count 1 ./...", "npm test", "npm ci", "jest --coverage", "tsc --noEmit", "vitest run",
     "pytest --cov=src --cov-report=term-missing", "ruff check .", "split -l 10 f part_", "git --no-pager log -3", "git log --format='%h %s'", "eslint src", "pylint src", "prettier --check .", "jest src", "mocha", "pip list", "go env GOPATH"],
)  # fmt: skip
def test_plain_uses_of_programs_with_such_options_are_no_risk(source):
    assert covered_by_prefix(source)


ATOMS = [
    "aa", "bb", "rm", ";", "&&", "||", "|", "\n", "'", '"', "\\", "$", "(", ")", "{", "}", "<<", "E", "#", "`", "=", "!", "*", "~", "<", ">",
    "&", "$(", "time", "coproc", "if", "then", "fi", "do", "done", "while", "\t", "é", "-", "1", "2>", "<<<", "'E'", "\nE\n", "<<'E'", "<<-E",
    "|&", ">&", "&>", "[[", "]]", "[", "case", "esac", "in", "function", "f()", "for", "X=1", "X+=1", "a[0]=1", "((", "))", ",", "..", "?",
    "$'", "\\\n", "%", "^", "@", "+", ":", "<(", "<>", ">|", "until", "-p", "x'y'", "'a b'", '"a b"', '"\\"', '"$x"', "#x", " #", ";&",
    "-o1>", "{fd}>", "&>>", ">>", "x2>", "0<", "-", "é", "2", "''", "\\ ", "\\;", "@(x)", "+(", "$((1))", "<<<x", ">(", "--", "-1",
]  # fmt: skip
"""Pieces of shell. Any row of them is a line that somebody, or some model, may write."""

LOG = 'command_not_found_handle() { printf "%s\\0" "$@" $\'\\1\' >> "$LOG"; return 0; }\n'
"""Lets bash write down each program that it would start, with its arguments. There is no program on the path."""


def test_bash_starts_nothing_and_writes_nothing_that_the_analysis_does_not_name(tmp_path):
    chance = random.Random(int(os.environ.get("TREADLE_SEED", "20261122")))
    (tmp_path / "env").write_text(LOG)
    started = 0
    for _ in range(int(os.environ.get("TREADLE_LINES", "1500"))):
        source = "".join(chance.choice(ATOMS) + " " * (chance.random() < 0.6) for _ in range(chance.randint(1, 9)))
        line = read(source)
        if line.is_understood:
            ran, files = in_bash(source, tmp_path)
            started += len(ran)

            assert set(ran) <= {one.words for one in line.invocations}, source
            assert files <= {one.target for one in line.redirections if one.writes}, source
    assert started > 0


def in_bash(source: str, folder: Path) -> tuple[list[tuple[str, ...]], set[str]]:
    """Return what bash would start, and the files it made."""
    place, log = folder / "place", folder / "log"
    place.mkdir(exist_ok=True)
    log.write_bytes(b"")
    subprocess.run(
        ["/bin/bash", "--norc", "--noprofile", "-c", source],
        cwd=place,
        env={"PATH": "/nonexistent", "BASH_ENV": str(folder / "env"), "LOG": str(log), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    files = {one.name for one in place.iterdir()}
    for one in files:
        (place / one).unlink()
    calls = log.read_bytes().decode(errors="replace").split("\x00\x01\x00")[:-1]
    return [tuple(one.split("\x00")) for one in calls], files


PROGRAM_NAMES = sorted(
    {
        *PROGRAMS,
        *WRAPPERS,
        *INTERPRETERS,
        "tar",
        "unzip",
        "patch",
        "wget",
        "gunzip",
        "git",
        "x",
        "git clean",
        "git worktree",
    }
)
WORDS = [
    "", "-", "--", "-x", "--x", "-S", "--suffix", "--suffix=", "-i", "a", ".", "..", ":", "a:b", "@", "+", "=", "-C", "'*'", "'$x'", "-c", "1", "''",
    "-r",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_no_command_makes_the_analysis_raise(seed):
    chance = random.Random(seed)
    for name in PROGRAM_NAMES:
        for count in range(4):
            line = analyse(" ".join([name, *chance.choices(WORDS, k=count)]))

            for one in line.invocations:
                known(one)


READERS = sorted(name for name, one in PROGRAMS.items() if one.does == "reads" and " " not in name and one.values)


@pytest.mark.parametrize("name", list(filter(shutil.which, READERS)))
def test_no_option_whose_value_is_known_leaves_a_file_unnamed_that_the_program_reads(name, tmp_path):
    """Each is tried with the program itself: the next word may be a file after all (`od -c k`)."""
    (tmp_path / "k").write_text("CANARY 1\nCANARY 2\n")
    for option in sorted(one.removesuffix("=") for one in PROGRAMS[name].values):
        for rest in (["k"], ["1", "k"]):
            if any(one.path in ("k", ".") for one in analyse(shlex.join([name, option, *rest])).touched):
                continue
            done = subprocess.run(
                [name, option, *rest],
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=30,
                check=False,
            )
            assert b"CANARY" not in done.stdout, (option, rest)


def test_a_file_that_the_shell_sources_is_read_and_not_written():
    assert {(one.path, one.access) for one in analyse("source .env; . x/y").touched} == {
        (".env", "read"),
        ("x/y", "read"),
    }
