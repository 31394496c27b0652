"""Options in every place and spelling: behind a `--`, as the value of another option, cut short, and joined to others. None is overlooked."""

import random
import shutil
import subprocess

import pytest

from pipeline_tools import checked_call
from treadle import allow, deny, first_of, shell_tool
from treadle.permissions.policies import decide
from treadle.resolve import memory_session
from treadle.shell.judging import analyse, reads_only
from treadle.shell.knowing import known
from treadle.shell.programs import GIT, INTERPRETERS, PROGRAMS, RUNNING_OPTIONS, WRAPPERS, Program
from treadle.shell.reaching import checked_out, swept

pytest.importorskip("tree_sitter_bash")

BEHIND_DASHES = [
    "find -- notes -exec touch made ';'", "find -- . -maxdepth 0 -fprintf .git/config x", "find . -not -name -- -exec id ';'", "find -- notes -delete",
    "find -H -- . -delete", "find . -name -- -ok rm x ';'", "git grep -e -- -O./evil", "git grep -e - -e -- -Oid", "git grep -n -A -- -Oid",
    "git log --author -- --output=x", "git log --decorate-refs -- --output=x", "git stash list -- --output=x", "git stash list --format -- --output=x",
    "git blame -S -- --output=x f", "git ls-files -x -- -X f", "git reflog --grep -- --output=x", "git diff -S -- --ext-diff",
    "rg -e -- --pre=./evil x", "rg -g -- --hostname-bin=./evil x", "rg -r -- --pre ./evil x", "rg -E -- --pre ./evil x", "sort -k -- -o x",
    "sort -t -- -o x f", "sort -nk -- -o x", "tree -P -- -o x", "tree -PI a -- -o x", "fd -E -- -x touch made", "file -F -- -C -m f",
    "shuf -e -- -o x", "diff -I -- --to-file x y", "jq --arg a -- -f x", "date -d -- -s x", "base64 -w -- -o x", "ptx -G -- -x f", "xxd -n -- a b",
    "strings -t -- @x", "go test -run -- -exec ./evil", "go build -tags -- -toolexec ./evil", "npm -- exec evil", "pytest -k -- -p evil",
    "mypy -c -- --config-file=x", "my-linter -x -- --exec ./evil", "hg log -k -- --config x=y", "git commit -m -- -F f", "git tag -m -- -F f x",
    "git fetch --shallow-exclude -- --upload-pack=./evil origin", "cargo test -- --config x", "mvn -P -- -Dexec.executable=x", "ctest -R -- -S x",
    "bat -l -- --pager=./evil x", "rpm -q --qf -- --pipe ./evil", "openssl req -subj -- -config x", "gh pr list -S -- --web", "pip list -- --log x",
]  # fmt: skip
SPELLED = [
    "my-tool --exe=id", "my-tool --upload-pa id", "my-tool --pag id", "npm exe id", "npm conf set a b", "npm c set a b", "ip -bat x", "ip -ba x",
    "ip net exec x id", "ip vr exec x id", "mvn --sett x test", "mvn --glob x test", "sort --out x", "sort --compress-p=id", "rg --pr=id x",
    "git log --outp=x", "git fetch --upload-p id", "git commit --fil x", "tar --to-com=id -xf x", "svn diff --diff-c=id", "bat --pag=id x",
    "grep --fil=x y", "du --files0=x", "wc --f=x", "gpg --photo-v=id", "tox --over x=y", "pip list --lo x", "cargo --conf x",
]  # fmt: skip
OPERANDS = [
    "grep -- -o f", "grep -rn -- --exec src", "grep -in -- -f src", "rg -n -- --pre src", "git grep -n -- -O", "cat -- -n", "ls -la -- -x", "sort -u -- -o",
    "head -n 3 -- -x", "git log -p -- d", "git diff --stat -- a", "find . -name -o", "cut -s -d / -f 1 f", "sort -rn -t / -k 2 f", "join -a1 -t / a b",
    "date -u -d yesterday +%F", "xxd -p -l 16 f", "xxd -c8 -g 1 f", "uniq -w3 -f 1 f", "uniq -c -f 1 f", "ls -I x -- y",
]  # fmt: skip


@pytest.mark.parametrize("line", [*BEHIND_DASHES, *SPELLED])
async def test_an_option_counts_in_each_place_and_spelling(tmp_path, line):
    found, prefix = analyse(line), " ".join(line.split()[:2] if line.startswith("git ") else line.split()[:1])
    called, session = checked_call(shell_tool(tmp_path), command=line), await memory_session()

    assert found.invocations[0].risks
    assert not reads_only(found)
    for policy in (None, allow(f"shell({prefix}:*)")):
        assert (await decide(policy, called, session)).kind == "ask"


@pytest.mark.parametrize("line", OPERANDS)
def test_what_surely_is_an_operand_or_a_value_is_no_option(line):
    assert reads_only(analyse(line))


@pytest.mark.parametrize(
    "line", ["cargo clippy -- -D warnings", "npm test -- --coverage", "rm -- -x", "git checkout -- f", "git add -- -x"]
)
def test_what_other_programs_are_passed_is_no_risk_where_it_is_none(line):
    assert analyse(line).invocations[0].risks == ()


def tables() -> list[tuple[str, Program]]:
    named = [*PROGRAMS.items(), *((f"git {name}", one) for name, one in GIT.items())]
    return [(name, one) for name, one in named if one.risky and name.split()[0] not in WRAPPERS | INTERPRETERS]


def spelled(option: str, program: Program, rng: random.Random) -> str:
    """Write an option in another way: a long one cut short, with a value, or a short one among others."""
    if option.startswith("--") and program.style == "gnu":
        cut = option[: rng.randrange(len("--x"), len(option) + 1)]
        return rng.choice((cut, f"{cut}=x"))
    if program.style == "gnu" and len(option) == len("-x") and option[0] == "-":
        return rng.choice((option, f"{option}x", f"-q{option[1]}", f"-q{option[1]}x"))
    return {"@": "@x", "+": "+x"}.get(option, option)


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", range(4))
def test_no_place_and_no_spelling_hides_a_risky_option(seed):
    rng = random.Random(seed)
    for name, program in tables():
        for option in rng.sample(sorted(program.risky), min(len(program.risky), 6)):
            before = rng.choice(
                ([], ["--"], ["x", "--"], ["-Y"], ["-Y", "--"], ["--yy", "x", "--"], ["-Y", "-Z", "--"])
            )
            may_end = program.flags and program.reads_only and before in (["--"], ["x", "--"])
            if may_end and option.startswith("-"):
                continue
            line = " ".join([name, *before, spelled(option, program, rng)])

            assert analyse(line).invocations[0].risks, line


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", range(4))
def test_an_option_as_the_value_of_another_hides_no_path(seed):
    rng = random.Random(seed)
    for name, program in [*PROGRAMS.items(), *((f"git {name}", one) for name, one in GIT.items())]:
        taking = sorted(one for one in program.plain | program.texts if not one.endswith("="))
        if not taking or program.operands == "text":
            continue
        for _ in range(6):
            words = [rng.choice(taking), rng.choice([*taking, "-Y", "--yy"]), "s/key"]
            words = [*rng.choice(([], ["-Y"], ["--yy"], ["x", "y"])), *words, *rng.choice(([], ["z"]))]
            line = " ".join([name, *words])
            touched = {one.path for one in analyse(line).touched}
            sure = known(analyse(line).invocations[0])[1]
            surely_text = sure.operands == "first_text" and "x" not in words

            assert "s/key" in touched or surely_text, line


READ_BY_VALUE = [
    "grep -v -e -m s/key", "column -s -o s/key", "cut -f1 --output-delimiter -d s/key", "join -v1 -e -t s/key f", "paste --delimiters -d s/key",
    "sort -t x --key -t s/key", "rg -e -g s/key", "git log --author -S s/key", "grep --file=p s/key", "rg --file=p s/key f", "ug --regexp=x s/key f",
    "rg -g -e k", "git log -p --since 10:00", "git log -p --author a:b", "git log -p --decorate-refs -- HEAD", "git stash list -p -- HEAD",
    "tar --dir=s -cO key", "make --dir=s -f key", "git am --show-c",
]  # fmt: skip
LISTED = [
    "sort --files0=l", "sort --fil=l", "wc --file=l", "wc --f=l", "du --f=l", "tar cOT l", "tar cfT o l", "tar --files-f=l -cO", "zip -0 --names-stdin -",
    "zip --names-s x", "git add --pathspec-from-f=l", "git show --stdin -- d", "git cat-file --batch", "git cat-file --batch-c", "file --files-f=l",
    "wget --input-f=l x", "md5sum --che l", "xz --files0=l -dc", "zstd --filel l -c", "strings @l", "gcc @l", "jar cf o @l", "my-tool --files-fr l",
    "ctags -L l", "curl -sK l", "ack -x y", "gpg --multif x",
]  # fmt: skip


@pytest.mark.row("P16")
@pytest.mark.parametrize("line", [*READ_BY_VALUE, *LISTED])
async def test_no_denied_file_is_reached_by_an_option_in_an_odd_place(tmp_path, line):
    for name in ("s", "d"):
        (tmp_path / name).mkdir()
    (tmp_path / "s" / "key").write_text("secret")
    rules = first_of(deny("read(path=s/**)"), allow("shell"))

    decided = await decide(rules, checked_call(shell_tool(tmp_path), command=line), await memory_session())

    assert decided.kind in ("deny", "ask")


@pytest.mark.parametrize(
    "line", ["tar cv --file=o.tar d", "grep --include=*.py -r x d", "rg --files-with-matches x d", "git status --short"]
)
async def test_an_option_that_only_begins_alike_lists_no_files(tmp_path, line):
    (tmp_path / "d").mkdir()
    rules = first_of(deny("read(path=s/**)"), allow("shell"))

    decided = await decide(
        rules, checked_call(shell_tool(tmp_path), command=line.replace("*", "")), await memory_session()
    )

    assert decided.kind == "allow"


@pytest.mark.parametrize(
    "line",
    ["git fetch --shallow-exclude -j host:x", "git fetch --submodule-prefix -j host:x", "git fetch -vj 4 host:x", "git pull --refmap -j host:x"],
)  # fmt: skip
def test_another_repository_is_found_behind_an_option_that_is_a_value(line):
    assert any("repository address" in risk for risk in analyse(line).invocations[0].risks)


@pytest.mark.parametrize("line", ["xxd -c -l a b", "xxd -n -l a .git/config", "xxd -cols -l a b", "xxd -po a b", "uniq -s -f a b", "ptx -G -- -x f"])  # fmt: skip
def test_a_file_is_written_behind_an_option_that_is_a_value(line):
    assert not reads_only(analyse(line))


@pytest.mark.parametrize(
    "line", ['git stash push -m -m "$X"', 'git stash push --pathspec-from-file -m "$X"', 'git checkout -b -m "$X"']
)
def test_a_word_that_is_expanded_behind_an_option_that_is_a_value_may_be_a_file(line):
    assert analyse(line).unknown


@pytest.mark.parametrize(
    "line", ['git commit -m "$X"', 'git commit -a -m "$X"', 'gh pr create --fill --title "$X" --body "$Y"']
)
def test_a_message_that_is_expanded_is_no_file(line):
    assert not analyse(line).unknown


SETTING = [
    "printf 'x%n' PATH", "printf '%5.3hhn' PATH", "printf -- '%-*lln' 3 PATH", "printf '%%%n' PATH", "printf '%.-3n' PATH", "printf '%d%Ln' 1 PATH",
    "printf -vPATH x", "test -v 'BASH_VERSINFO[PATH=1]'", "test ! -v 'a[b[PATH=1]]'", "test x -a -v 'a[PATH=1]'", "test -v 'a[x[$(id)]]'",
    "command test -v 'BASH_VERSINFO[PATH=1]'", "command printf '%n' PATH", "\\unset PATH", "'unset' -v PATH", "shopt -s cdable_vars", "read PATH",
]  # fmt: skip


@pytest.mark.parametrize("line", SETTING)
async def test_a_builtin_that_sets_a_variable_is_asked_about(tmp_path, line):
    rules = first_of(deny("shell(rm:*)"), allow("shell"))
    called, session = checked_call(shell_tool(tmp_path), command=f"{line} && ls"), await memory_session()

    assert analyse(line).invocations[0].risks or analyse(line).doubts
    for policy in (None, rules, allow("shell(printf:*)", "shell(test:*)", "shell(ls:*)")):
        assert (await decide(policy, called, session)).kind in ("ask", "deny")


@pytest.mark.parametrize(
    "line",
    ["printf '%s\\n' x", "printf '100%%n'", "printf '[%s] %d' a 1", "printf 'a[b c] $x'", "test -v 'a[1]'", "test -v 'a[i]'", "test -v 'a[@]'", "test -f 'app/[id]/x.tsx'"],
)  # fmt: skip
def test_plain_uses_of_such_builtins_only_read(line):
    assert reads_only(analyse(line))


def test_a_shell_option_that_only_changes_patterns_is_no_risk():
    assert analyse("shopt -s nullglob globstar").invocations[0].risks == ()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("line", SETTING[:6] + SETTING[7:10])
def test_bash_really_sets_what_these_name(line):
    ran = subprocess.run(
        ["bash", "-c", f"PATH=/x; {line} > /dev/null 2>&1; [ $PATH != /x ] && echo set"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout == "set\n"


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("tar -ft -x", (".",)), ("tar -tf x", ()), ("tar tf x", ()), ("unzip -Pl x.zip", (".",)), ("unzip -l x.zip", ()), ("cp --archive a b", ("a", "b")),
        ("cp --arch a b", ("a", "b")), ("fd -HX rm", (".",)), ("find -- d -delete", ("d",)), ("git rm -fr d", ("d",)), ("git clone -qu x y", (".",)),
    ],
)  # fmt: skip
def test_what_is_swept_is_found_in_each_spelling(line, folders):
    named = swept(analyse(line).invocations[0])

    assert set(folders) <= set(named)
    assert bool(named) is bool(folders)


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("git checkout main -- d", ("d",)), ("git checkout -- d", ("d",)), ("git restore --staged -- d", ("d",)), ("git merge -m -- d", (".",)),
        ("git pull -- origin", (".",)), ("git checkout --pathspec-from-file -- d", (".",)), ("git stash push -m -- d", (".",)),
    ],
)  # fmt: skip
def test_git_writes_only_what_stands_behind_dashes_where_these_surely_name_paths(line, folders):
    assert checked_out(analyse(line).invocations[0]) == folders


def test_a_running_option_cut_short_counts_for_a_program_that_is_not_known():
    for option in sorted(one for one in RUNNING_OPTIONS if one.startswith("--")):
        line = f"my-tool {option[:-1]}"

        assert analyse(line).invocations[0].risks or option in ("--config", "--filter", "--pre", "--rsh"), line
