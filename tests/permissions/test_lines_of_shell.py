"""Rules before the real shell tool: what runs, what is asked about, what is denied. The attacks of `faults.md` and others of their kind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, checked_call, run_calls
from treadle import Agent, Tool, allow, ask, deny, first_of, shell_tool
from treadle.errors import ConfigurationError
from treadle.permissions.lines import judged
from treadle.testing import ScriptedModel, call, text
from treadle.tools import ShellLine
from treadle.toolsets.files import file_tools, writing_tools

ALLOWED = ("shell(git log:*)", "shell(echo:*)", "shell(ls:*)", "shell(find:*)", "shell(cat:*)")


async def outcome(
    command: str, root: Path, *, rules: Sequence[str] = ALLOWED, denied: Sequence[str] = (), asked: Sequence[str] = ()
) -> str:
    """Return what becomes of one call: ran, asked or denied."""
    policies = [
        *([deny(*denied)] if denied else []),
        *([ask(*asked)] if asked else []),
        *([allow(*rules)] if rules else []),
    ]
    tools = [*file_tools(root), *writing_tools(root), shell_tool(root)]
    agent = Agent(
        ScriptedModel([call("shell", command=command), text("ok")]),
        tools=tools,
        policy=first_of(*policies) if policies else None,
    )
    result = await agent.run("go")
    if str(result.status) == "paused":
        return "asked"
    return "denied" if result.tool_calls[0].status == "denied" else "ran"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "W"
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets/key").write_text("canary")
    (folder / "a.txt").write_text("a\n")
    (folder / "out").symlink_to(tmp_path)
    (folder / "alias").symlink_to("secrets")
    return folder


@pytest.mark.row("P07")
@pytest.mark.parametrize(
    ("command", "becomes"),
    [
        *((line, "denied") for line in ("git diff", "git diff main", "git diff a.txt", "git log -p", "git log --patch -3", "git show")),
        *((line, "denied") for line in ("git show main", "git show main:secrets/key", "git cat-file -p main:secrets/key")),
        *((line, "denied") for line in ("git cat-file -p abc", "git grep x main", "git whatchanged -p", "git stash show -p")),
        *((line, "denied") for line in ("git log --check", "git log --format= --check -1", "git reflog --check", "git log --word-diff-regex=x")),
        *((line, "denied") for line in ("cd secrets && git show HEAD:./key", "cd secrets && git cat-file -p @:./key", "cd secrets && git show HEAD:../secrets/key")),
        *((line, "ran") for line in ("git log", "git log --oneline -3", "git log --stat", "git diff -- a.txt", "git log -p -- a.txt")),
        *((line, "ran") for line in ("git show main:a.txt", "git cat-file -p main:a.txt", "git grep x -- a.txt", "git status")),
    ],
)  # fmt: skip
async def test_what_git_shows_of_the_whole_folder_is_denied_with_a_part_of_it(root, command, becomes):
    assert await outcome(command, root, rules=["shell(git:*)"], denied=["read(path=secrets/**)"]) == becomes
    assert await outcome(command, root, rules=["shell(git:*)"]) == "ran"


@pytest.mark.parametrize(
    "command",
    ["echo hi", "ls -la", "cat a.txt | head -1", "find . -name '*.txt'", "echo a && ls; echo b", "cd secrets && ls", "echo x >/dev/null 2>&1",
     "git config --local --list", "cd secrets && cat ../a.txt", "cd secrets && ls .. && cat ../a.txt"],
)  # fmt: skip
async def test_what_the_rules_cover_runs(root, command):
    assert await outcome(command, root) == "ran"


@pytest.mark.row("AT-SHELL-LINES")
@pytest.mark.parametrize(
    "command",
    [
        "git log --output=FILE", "git log --outp FILE", "echo x; kill 1", "echo x && kill 1", "echo x || kill 1", "echo x | tee y", "ls & id", "ls\nkill 1", "echo $(id)",
        "echo `id`", "ls <(id)", "echo hi > f", "echo hi >> .git/config", "find . -exec id \\;", "find . -delete", "find . -fprint x",
        "git -c core.pager=id log", "git log --help", "xargs ls", "env -i ls", "timeout 5 id > x", "X=1 ls", "timeout 5 bash -c ls", "sudo ls", "bash -c ls", "python3 -c 'print(1)'",
        "awk -f p a.txt", "sed e a.txt", "echo 'open", "nohup sleep 999 &", "LS_COLORS=x ls", "coproc rm x", "$'rm' -rf x", "cat ../W_evil/x", "cat /etc/passwd",
        "ls ..", "ls out", "cat out/x", "cat out/../../etc/passwd", "cat ~/.ssh/id_rsa", 'cat "$HOME/x"', "find / -name x", "find out/ -name x",
        "git config --list", "git config --get http.extraheader", "cd secrets; cat ../a.txt", "cd secrets && cat ../../x", "cd secrets || cat ../a.txt", "cd / && ls", "cd out && ls", "cd .. ; ls W", "./ls", "/bin/ls", "cat /proc/self/environ", "cat /dev/fd/3",
        "cat <<E\n$(id)\nE\n", "l\\\ns", "ls\u00a0x", "ls\r", "{ls,-l}", "true && " * 60 + "ls", "ls " + "a" * 11_000,
    ],
)  # fmt: skip
async def test_what_they_do_not_cover_is_asked_about(root, command):
    assert await outcome(command, root) == "asked"


async def test_a_wildcard_of_a_rule_matches_no_name_that_leads_through_a_link(root):
    (root / "build").mkdir()
    (root / "build/plain").write_text("x")
    (root / "build/lnk").symlink_to("../secrets")

    for command in ("rm build/lnk/key", "cd build && rm lnk/key", "rm build/*/key"):
        assert (
            await outcome(command, root, rules=["shell(rm build/*)", "shell(rm */key)", "shell(rm lnk/*)"]) == "asked"
        ), command
    assert (root / "secrets/key").exists()
    assert await outcome("rm build/plain", root, rules=["shell(rm build/*)"]) == "ran"


@pytest.mark.row("AT-SHELL-DENIED")
@pytest.mark.parametrize(
    "command",
    [
        "rm x", "echo x; rm x", "/bin/rm x", "'r'm x", "sudo rm x", "env rm x", "bash -c 'rm x'", "find . -exec rm {} ';'", "xargs rm",
        "true && " * 30 + "rm x",
    ],
)  # fmt: skip
async def test_what_a_rule_denies_is_denied_behind_each_wrapper(root, command):
    assert await outcome(command, root, rules=[*ALLOWED, "shell"], denied=["shell(rm:*)"]) == "denied"


@pytest.mark.row("D-VARIANTS", "AT-SHELL-LINES")
@pytest.mark.parametrize(
    "command", ["echo 'x; rm x", 'echo "x; rm x', "echo `rm x", "echo $(rm x", "rm x; echo 'y", "cat <<E; rm x\n"]
)
async def test_a_line_without_its_closing_quote_is_never_run_unasked(root, command):
    assert await outcome(command, root, rules=[*ALLOWED, "shell"], denied=["shell(rm:*)"]) in ("denied", "asked")


@pytest.mark.row("AT-PATHS-DENIED")
@pytest.mark.parametrize(
    "command",
    [
        "cat secrets/key", "cat ./secrets/../secrets/key", "cat alias/key", "ls secrets", "grep -r canary .", "cd secrets && cat key",
        "cat < secrets/key", "find . -name key", "cat secrets/*", "grep canary alias/*", "sed -e p secrets/key", "sed -ne p secrets/key",
        "sed secrets/key -e p", "sed -n p secrets/key", "awk 1 secrets/key", "awk -F : 1 secrets/key", "secrets/key", "./alias/key x",
        "cd out && W/secrets/key", "ls; ../W/secrets/key", "timeout 5 secrets/key", "grep -r canary ..", "grep -r canary out",
        "cd out && find . -type f", "ls -R ../..", "find / -name key",
    ],
)  # fmt: skip
async def test_a_rule_that_denies_a_path_holds_for_commands_too(root, command):
    assert await outcome(command, root, rules=[*ALLOWED, "shell(grep:*)"], denied=["read(path=secrets/**)"]) == "denied"


async def test_a_program_outside_of_the_root_folder_is_covered_by_a_rule_that_names_it(root):
    for program in ("/bin/true", "../bin/tool", "./out/tool"):
        found = await outcome(f"{program} a", root, rules=[f"shell({program}:*)"], denied=["read(path=secrets/**)"])
        assert found == "ran", program


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize(
    "command",
    ["cat s*/key", "cat s[a-e]crets/k?y", "cat {secrets,x}/key", "cat */*", "grep -r canary a*", "f=secrets; cat $f/key", "cat s?crets/key",
     "grep -r canary ?lias/", "cat $(echo secrets)/key", "cat <(cat s*/key)"],
)  # fmt: skip
async def test_a_denied_path_that_a_pattern_or_a_variable_may_name_is_never_read_unasked(root, command):
    found = await outcome(
        command, root, rules=[*ALLOWED, "shell(grep:*)", "shell(cat:*)"], denied=["read(path=secrets/**)"]
    )
    assert found in ("denied", "asked")


@pytest.mark.row("AT-PATHS-DENIED", "D-VARIANTS")
@pytest.mark.parametrize(
    "path",
    ["/proc/self/cwd/secrets/key", "/proc/thread-self/cwd/secrets/key", "/proc/self/task/1/cwd/secrets/key", "/proc/1/cwd/secrets/key", "/dev/fd/9/key",
     "/proc/self/root/proc/self/cwd/secrets/key", "here/secrets/key", "//proc//self/./cwd/secrets/key", "/proc/self/cwd/../W/secrets/key"],
)  # fmt: skip
async def test_a_denied_path_behind_a_link_that_leads_each_process_elsewhere_is_never_read_unasked(root, path):
    (root / "here").symlink_to("/proc/self/cwd")
    for command in (f"cat {path}", f"cat < {path}"):
        found = await outcome(command, root, rules=[*ALLOWED, "shell"], denied=["read(path=secrets/**)"])
        assert found in ("denied", "asked"), command
        assert await outcome(command, root) != "ran", command


async def test_a_path_is_never_allowed_by_its_text(root):
    assert await outcome("rm a.txt", root, rules=["shell(command=rm a*)"]) == "asked"
    assert await outcome("ls; rm a.txt", root, rules=["shell(command=ls*)"]) == "asked"


async def test_asking_overrides_allowing(root):
    assert await outcome("git push", root, rules=["shell"], asked=["shell(git push:*)"]) == "asked"
    assert await outcome("git -C . push", root, rules=["shell"], asked=["shell(git push:*)"]) == "asked"


async def test_without_a_rule_what_reads_in_the_folder_runs_and_all_else_is_asked_about(root):
    for line in (
        "cat a.txt | wc -l",
        "grep -n a a.txt /dev/null",
        "diff -u /dev/null a.txt",
        "sed -n -e '/a/p' -e 2p a.txt",
    ):
        assert await outcome(line, root, rules=()) == "ran", line
    assert await outcome("cp a.txt /dev/null", root, rules=("shell(cp:*)",)) == "asked"
    assert await outcome("sed -e p /etc/passwd", root, rules=()) == "asked"
    assert await outcome("cat /etc/passwd", root, rules=()) == "asked"
    assert await outcome("cat out/x", root, rules=()) == "asked"
    assert await outcome("touch x", root, rules=()) == "asked"


async def test_rules_of_claude_code_are_understood(root):
    assert await outcome("ls -la", root, rules=["Bash(ls:*)"]) == "ran"
    assert await outcome("rm x", root, rules=["shell"], denied=["Bash(rm:*)"]) == "denied"
    assert await outcome("cat secrets/key", root, rules=["Bash"], denied=["Read(secrets/**)"]) in ("denied", "asked")


async def test_the_folder_of_the_last_command_counts(root):
    tools = [shell_tool(root)]
    script = [
        call("shell", command="cd secrets"),
        call("shell", command="cat ../a.txt"),
        call("shell", command="cat ../../x"),
        text("ok"),
    ]
    result = await Agent(ScriptedModel(script), tools=tools, policy=allow("shell(cd:*)", "shell(cat:*)")).run("go")

    assert [one.status for one in result.tool_calls[:2]] == ["ok", "ok"]
    assert str(result.status) == "paused"


@pytest.mark.parametrize("rule", ["shell()", "shell(  )", "shell(git log; id)", "pay(x)", "read()", "shell('open)"])
def test_a_rule_that_says_nothing_clear_is_refused(rule):
    with pytest.raises(ConfigurationError):
        allow(rule)


@pytest.mark.row("P07")
@pytest.mark.parametrize(
    ("command", "becomes"),
    [
        ("sort a.txt", "ran"), ("sort secrets/key", "ran"), ("sort -o secrets/key a.txt", "denied"), ("sort -rosecrets/key a.txt", "denied"),
        ("sort --outp=alias/key a.txt", "denied"), ("tree -o secrets/key", "denied"), ("git diff --output secrets/key", "denied"),
        ("find a.txt -fprintf secrets/key x", "denied"), ("uniq a.txt secrets/key", "denied"),
    ],
)  # fmt: skip
async def test_a_reader_with_an_option_that_writes_may_write_every_path_that_it_names(command, becomes, root):
    assert await outcome(command, root, rules=["shell"], denied=["write(path=secrets/*)"]) == becomes
    assert (root / "secrets/key").read_text() == "canary"


@pytest.mark.row("P16")
@pytest.mark.parametrize("command", ["uniq a.txt out.txt", "cat a.txt | uniq - out.txt", "xxd a.txt out.txt"])
async def test_a_reader_that_is_given_a_file_to_write_is_asked_about_without_a_rule(root, command):
    assert await outcome(command, root, rules=()) == "asked"
    assert not (root / "out.txt").exists()


@pytest.mark.row("P15")
@pytest.mark.parametrize(
    "command",
    [
        "git push secrets x", "git -P push secrets x", "git --no-pager fetch secrets", "git -q push secrets", "git fetch secrets",
        "git pull ./secrets", "cd out; git push W",
    ],
)  # fmt: skip
async def test_git_is_not_given_a_folder_as_the_other_repository_by_a_rule(root, command):
    rules = ["shell(git push:*)", "shell(git fetch:*)", "shell(git pull:*)", "shell(cd:*)"]
    assert await outcome(command, root, rules=rules) == "asked"
    assert await outcome("git fetch origin", root, rules=rules) == "ran"


@pytest.mark.row("P14")
@pytest.mark.parametrize(
    ("command", "offered"),
    [("mytool 'a|b'", "mytool:*"), ("rm '*'", "rm:*"), ("npm run 'te?t*'", "= npm run 'te?t*'"), ("echo $X", "= echo $X")],
)  # fmt: skip
async def test_a_question_about_quoted_signs_pauses_the_run_and_offers_no_wider_rule(root, command, offered):
    agent = Agent(ScriptedModel([call("shell", command=command), text("ok")]), tools=[shell_tool(root)])
    result = await agent.run("go")

    assert [one.rules for one in result.approvals] == [(f"shell({offered})",)]


@pytest.mark.row("P07")
@pytest.mark.parametrize(
    ("command", "rule", "becomes"),
    [
        ("true && touch b.txt", "shell(touch:*)", "ran"), ("touch b.txt 2>&1 | tail -20", "shell(touch:*)", "ran"),
        ("ls && touch b.txt", "shell(touch:*)", "ran"), ("cd secrets && touch b.txt", "shell(touch:*)", "ran"),
        ("touch b.txt; cat a.txt | head -2", "shell(touch:*)", "ran"), ("touch b.txt | tee c.txt", "shell(touch:*)", "asked"),
        ("touch b.txt && rm a.txt", "shell(touch:*)", "asked"), ("touch b.txt; cat ../W/../x", "shell(touch:*)", "asked"),
        ("touch b.txt; sort -o a.txt a.txt", "shell(touch:*)", "asked"), ("ls > c.txt; touch b.txt", "shell(touch:*)", "asked"),
        ("echo x | sh", "shell(touch:*)", "asked"),
    ],
)  # fmt: skip
async def test_a_command_that_only_reads_needs_no_rule_beside_one_that_a_rule_allows(command, rule, becomes, root):
    assert await outcome(command, root, rules=[rule]) == becomes


@pytest.mark.row("P07")
async def test_where_every_call_is_asked_about_a_rule_allows_its_own_command_alone(root):
    asking = shell_tool(root)
    asking = msgspec.structs.replace(asking, permission="ask")
    for command, reason in (("touch b.txt", "completed"), ("touch b.txt | tail -2", "approval_required")):
        agent = Agent(
            ScriptedModel([call("shell", command=command), text("ok")]), tools=[asking], policy=allow("shell(touch:*)")
        )
        assert (await agent.run("go")).reason == reason


def line_tool(line: Any) -> Tool:
    return Tool(name="remote", description="Run.", parameters={"type": "object"}, run=Recorder(), line=line)


def test_a_tool_that_cannot_say_which_line_it_would_run_is_in_doubt():
    def line(arguments: Any, facts: Any) -> ShellLine:
        raise KeyError("host")

    found = judged(checked_call(line_tool(line)), {})

    assert found is not None
    assert [one.reason for one in found.line.doubts] == ["The tool failed to say which line it would run: KeyError."]
    assert not found.is_decided
    assert not found.redirects


async def test_a_line_that_its_tool_cannot_name_is_asked_about_although_rules_allow_it():
    def line(arguments: Any, facts: Any) -> ShellLine:
        raise KeyError("host")

    result = await run_calls(call("remote"), tools=[line_tool(line)], policy=allow("shell(ls:*)", "remote(path=a)"))

    assert str(result.status) == "paused"
