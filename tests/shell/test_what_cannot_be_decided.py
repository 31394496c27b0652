"""A rule that forbids holds for lines that nobody can read: they are asked about, in every mode and whatever allows them."""

import pytest

from treadle import Agent, allow, deny, file_tools, first_of, open_session, shell_tool
from treadle.journals.memory import MemoryJournal
from treadle.shell.judging import analyse
from treadle.testing import ScriptedModel, call, text

HIDDEN = [
    "$(echo rm) x", "X=rm; $X x", "bash -c '$(echo r)m x'", "echo 'rm x' | sh", "sh <<E\nrm x\nE", "sh <<'E'\nrm x\nE", "`echo rm` x", "r\\\nm x",
    "eval $(echo rm x)", "eval 'r''m' x$Y", "echo rm x | xargs -I{} {}", "printf 'rm\\nx' | xargs", "parallel 'r{} x' ::: m", "bash s.sh",
    "source s.sh", ". ./s.sh", "sudo bash s.sh", "env bash -s", "env -S 'rm x'", "env '-Srm x'", "python -c 'import os; os.remove(\"x\")'",
    "python <<'E'\nimport os\nE", "perl -e 'unlink x'", "perl -we 'unlink x'", "node -e 1", "ruby -ne 'x'", "awk 'BEGIN { system(\"rm x\") }'",
    "awk 'BEGIN { \"rm x\" | getline }'", "sed 's/a/rm x/e' f", "sed -n '1e rm x' f", "git -c alias.x='!rm x' x", "git grep -O'rm' x",
    "tar --checkpoint-action=exec=rm -cf a b", "sort --compress-program=r* x", "trap 'rm x' EXIT", "zsh -c '=rm x'", "fish -c 'r\\x6d x'",
    "bash -lc 'ls'", "$'\\x72m' x", "r''m x$Z", "/???/rm x", "{rm,x}", "for f in x; do rm $f; done", "f() { rm x; }; f", "if true; then rm x; fi",
    "[[ -f x ]] && rm x", "coproc rm x", "ls <(rm x)", "vim -c '!rm x'", "find . -exec sh -c 'r$0 x' m ';'", "busybox sh s.sh",
    "ssh localhost 'rm x'", "echo 'rm x' | at now", "\u0072\u200dm x", "sed 's/a/b/w x/g' f", "sed 's/a/id/e;s/x/y/' f", "sed -n '/[/p;s/]/e;a/' f",
    "sed 's/[/]/g;s/e;s/a/b/' f", "sed 's/[^]/]/g;/e;/p;/p;#/p' <<< 'x touch y'", "sed -n 's/[^]/]/p;/w src/p' f", "sed -n '/[^]/]/p;/e;/p' f",
    'awk -F : \'BEGIN { system("r" "m x") }\'', "awk 'BEGIN { print 1 >= 2 > (\"x\") }'", 'awk \'BEGIN { ARGV[1] = "s" "/k"; ARGC = 2 } 1\'',
    "awk '@load \"x\"' f", "let 'a[$(rm x)]=1'", "read y <<'E'\na[$(rm x)]\nE\nlet y", "test -v 'a[$(rm x)]'", "[ -v 'a[`rm x`]' ]",
    "unset 'a[$(rm x)]'", "printf -v 'a[$(rm x)]' y", "wait -n -p 'a[$(rm x)]'", "make 'X:=$(shell rm x)'", "php -R 'unlink(\"x\");'",
    "tar -F 'r''m x' -cM x", "rename 'unlink(\"x\")' f", "git rebase -x '$(echo rm) x'", "git filter-branch --tree-filter 'r\"\"m x'",
    "git submodule foreach 'r\"\"m x'", "git unknown-alias x", "fc -s rm=x", "hyperfine '$(echo rm) x'",
]  # fmt: skip

STARTED = [
    "faketime x rm x", "perf stat rm x", "hyperfine 'rm x'", "./run rm x", "cargo run rm x", "npm x rm x", "setfoo -- /bin/rm x",
    "hyperfine 'cd y && rm x'", "a-wrapper --with b-wrapper rm x", "eatmydata rm x", "mytool 'sudo rm x'",
]  # fmt: skip
"""Programs that are not known, and may start what they are given."""

LISTED = [
    "7z a o", "find . -execdir cat ../s/k \\;", "find . -type d -okdir cat k \\;", "sudo -i cat x", "doas -ni cat x",
    "make" + "".join(f" -C {one}" for one in range(20)) + " -C s -f k", "tar cCf" + "".join(f" {one}" for one in range(40)) + " d ../s/k",
    "wc --files0-from=l", "tar -cf o -T l", "tar -cf o --files-from l", "md5sum -c l", "sha256sum --check l", "cpio -o", "zip o.zip -@",
    "rsync --files-from=l . o", "jq -n 'import \"./s/k\" as $d; $d'", "file -f l", "git archive HEAD", "git bundle create o HEAD",
    "git format-patch -1 --stdout", "git diff-index -p HEAD", "git worktree add w", "find -files0-from l -name x", "find -files0-from l -delete",
]  # fmt: skip
"""What reads files that no word names."""

PLAIN = [
    "ls", "git log --oneline", "make test", "python -m pytest", "python s.py", "find . -name '*.py'", "awk '{print $1}' f", "sed -n 1,5p f", "sed 's/a/b/g' f", "grep -e sh f", "sed -n '/[a-z]/p' f",
    "sed -E 's/[0-9]+/n/g;s,a,b,' f", "awk -F '|' '$1 >= 5 && $2 > 3 {print $1}' f", "jq .imports f", "git clone x y",
    "mytool 'some words' --into=x", "test -f x",
]  # fmt: skip


async def ends_as(command: str, folder, *, policy, mode: str | None = None) -> tuple[str, str]:
    agent = Agent(
        ScriptedModel([call("shell", command=command), text("Done.")]), tools=[shell_tool(folder)], policy=policy
    )
    async with open_session(MemoryJournal(), id="s") as session:
        if mode is not None:
            await session.set_mode(mode)
        result = await agent.run("Go", session=session)
    if result.approvals:
        return "asked", result.approvals[0].rule
    return result.tool_calls[0].status, ""


@pytest.mark.row("P15")
@pytest.mark.parametrize("command", HIDDEN)
async def test_a_line_that_cannot_be_decided_is_asked_about(tmp_path, command):
    (tmp_path / "x").write_text("kept")
    rules = first_of(deny("shell(rm:*)"), allow("shell"))

    assert (await ends_as(command, tmp_path, policy=rules))[0] in ("asked", "denied")
    assert (await ends_as(command, tmp_path, policy=deny("shell(rm:*)"), mode="bypass"))[0] in ("asked", "denied")
    assert (tmp_path / "x").read_text() == "kept"


@pytest.mark.parametrize("command", HIDDEN)
async def test_so_it_is_where_a_path_is_denied(tmp_path, command):
    rules = first_of(deny("read(path=s/**)"), allow("shell"))

    assert (await ends_as(command, tmp_path, policy=rules))[0] in ("asked", "denied")


@pytest.mark.row("P15")
@pytest.mark.parametrize("command", STARTED)
async def test_a_program_that_is_not_known_is_asked_about_beside_a_rule_that_denies_what_it_may_start(
    tmp_path, command
):
    assert (await ends_as(command, tmp_path, policy=deny("shell(rm:*)")))[0] in ("asked", "denied")


@pytest.mark.parametrize(
    "command", ["mytool rmdir x", "touch rm", "echo rm x", "git commit -m 'rm x'", "mytool --rm x", "grep -r rm ."]
)
async def test_a_word_that_nothing_would_start_is_not_asked_about(tmp_path, command):
    rules = first_of(deny("shell(rm:*)"), allow("shell"))

    assert (await ends_as(command, tmp_path, policy=rules))[0] == "ok"


@pytest.mark.parametrize("command", LISTED)
async def test_what_reads_files_that_no_word_names_is_not_allowed_beside_a_denied_path(tmp_path, command):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "k").write_text("secret")
    rules = first_of(deny("read(path=s/**)"), allow("shell"))

    assert (await ends_as(command, tmp_path, policy=rules))[0] in ("asked", "denied")
    assert (await ends_as(command, tmp_path, policy=deny("read(path=s/**)"), mode="bypass"))[0] in ("asked", "denied")


@pytest.mark.parametrize("command", PLAIN)
def test_a_line_that_says_what_it_starts_hides_nothing(command):
    assert analyse(command).is_decided, analyse(command)


async def test_a_later_rule_that_surely_denies_beats_one_that_cannot_say(tmp_path):
    (tmp_path / "x").write_text("kept")
    rules = first_of(deny("shell(mkfs:*)"), deny("shell(rm:*)"), allow("shell"))

    assert (await ends_as("rm x; $Y", tmp_path, policy=rules))[0] == "denied"
    assert (await ends_as("ls", tmp_path, policy=rules))[0] == "ok"


@pytest.mark.row("P16")
@pytest.mark.parametrize(
    "command",
    [
        "dd if=s/k", "dd of=o if=s/k", "cat --show-all=s/k", "grep -r k", "grep -rn k", "grep -R -e k", "grep --recursive k .", "grep -d recurse k .",
        "grep -rek", "grep -r -m 5 k", "egrep -r k", "rg k", "rg -t py k", "rg --files", "rg -tpy -ek", "find", "find -name k", "find . -type f",
        "fd k", "fd -e py", "tree", "tree -L 3", "du", "du -d 2", "ls -R", "ls -lR .", "diff -r . ../t", "tool s/k,x", "tool x:s/k:1",
        "pytest s/k::x", "docker run -v .:/x img cat /x/s/k", "docker run -v s:/x img cat /x/k", "tool --mount=a,s/k,b",
        "mkdir d && env -iC d cat ../s/k", "env -iC s cat k", "unshare -w d cat ../s/k", "unshare -nw s cat k",
        "systemd-run --working-directory=s cat k", "docker run -w d img cat ../s/k", "tar cCf d x ../s/k", "tar cfC x d ../s/k", "ag k", "ack k",
        "ugrep -r k", "rga k", "semgrep scan", "gitleaks", "ctags -R", "zcat -rf .", "git grep k", "git grep -n k -- .", "git grep -v -- d", "git blame s/k", "git blame HEAD -- s/k", "git show HEAD:s/k",
        "grep -epat s/k", "grep --regexp=a s/k", "tool @s/k", "tool -is/k", "tool x,s/k", "tool --in=s/k", "cd s && cat k", "cd s && tool -ik",
        "cat ./s/../s/k", "cat s//k", "cat S/K", "cat < s/k", "cp -r . o", "head -n1 s/k", "cat -- s/k", "sudo cat s/k", "tool a:b:s/k",
    ],
)  # fmt: skip
async def test_a_denied_path_is_reached_by_no_command(tmp_path, command):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "k").write_text("secret")
    rules = first_of(deny("read(path=s/**)"), allow("shell"))

    assert (await ends_as(command, tmp_path, policy=rules))[0] in ("denied", "asked")
    assert (await ends_as(command, tmp_path, policy=deny("read(path=s/**)"), mode="bypass"))[0] in ("denied", "asked")


@pytest.mark.parametrize(
    "command",
    ["ls", "ls -la", "ls -R d", "cut -d/ -f1 f", "sed -n p f", "grep k f", "cat f", "find f", "grep -r k f", "rg k f", "git status", "git blame f", "du -sh f"],
)  # fmt: skip
async def test_commands_beside_a_denied_path_run(tmp_path, command):
    (tmp_path / "s").mkdir()
    (tmp_path / "f").write_text("k")
    rules = first_of(deny("read(path=s/**)"), allow("shell"))

    assert (await ends_as(command, tmp_path, policy=rules))[0] == "ok"


async def test_what_read_is_denied_grep_does_not_find(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "k").write_text("secret")
    script = [call("grep", pattern="secret", path="s"), call("grep", pattern="secret"), text("Done.")]
    agent = Agent(ScriptedModel(script), tools=file_tools(tmp_path), policy=deny("read(path=s/**)"))

    result = await agent.run("Go")

    assert [one.status for one in result.tool_calls] == ["denied", "denied"]
