"""Rules as people have written them for Claude Code: understood, or refused with the equal rule of ours. Never passed over."""

from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, Tool, allow, ask, deny, file_tools, first_of, shell_tool
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import writing_tools


def named(name: str) -> Tool:
    async def run(arguments: Any, ctx: Any) -> str:
        return "ran"

    return Tool(name=name, description="Do.", parameters={"type": "object"}, run=run, effect="read")


async def status(rule: str, made: Any, root: Path, *, kind: str = "deny") -> str:
    tools = [
        *file_tools(root),
        *writing_tools(root),
        shell_tool(root),
        named("mcp__git__log"),
        named("mcp__github__log"),
        *map(named, ("spawn_agent", "skill", "kill_process")),
    ]
    policy = first_of(deny(rule), allow("*")) if kind == "deny" else allow(rule)
    result = await Agent(ScriptedModel([made, text("Done.")]), tools=tools, policy=policy).run("Go")
    return "asked" if str(result.status) == "paused" else str(result.tool_calls[0].status)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x")
    return tmp_path


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("Read(src/**)", call("read", path="src/a.py")), ("Read(./src/**)", call("read", path="src/a.py")),
        ("Read(ROOT/src/**)", call("read", path="src/a.py")), ("Edit(src/**)", call("edit", path="src/a.py", old_text="x", new_text="y")),
        ("Write(src/**)", call("write", path="src/b.py", content="y")), ("Bash(npm run test:*)", call("shell", command="npm run test -- x")),
        ("Bash(npm run test *)", call("shell", command="npm run test x")), ("Bash(git * main)", call("shell", command="git push origin main")),
        ("Bash(git push * main)", call("shell", command="git push -f origin x main")), ("Bash(rm*)", call("shell", command="rm -rf x")),
        ("Bash(git *push*)", call("shell", command="true && git push origin")), ("mcp__git__log", call("mcp__git__log")), ("mcp__git", call("mcp__git__log")),
        ("mcp__git__*", call("mcp__git__log")), ("mcp__git(repo=a*)", call("mcp__git__log", repo="abc")), ("Task", call("spawn_agent", agent="Explore")),
        ("Task(Explore)", call("spawn_agent", agent="Explore")), ("Agent(Explore)", call("spawn_agent", agent="Explore")),
        ("Skill(deploy)", call("skill", name="deploy")), ("KillShell", call("kill_process")),
    ],
)  # fmt: skip
async def test_a_rule_that_denies_holds_here(root, rule, made):
    assert await status(rule.replace("ROOT", f"/{root}"), made, root) == "denied"


WRITING = {
    "edit": call("edit", path="src/a.py", old_text="x", new_text="y"),
    "write": call("write", path="src/b.py", content="y"),
    "shell": call("shell", command="touch src/b.py"),
}


@pytest.mark.row("P11")
@pytest.mark.parametrize("tool", WRITING)
@pytest.mark.parametrize("name", ["Edit", "MultiEdit", "Write", "edit", "write"])
@pytest.mark.parametrize("kind", ["deny", "ask"])
async def test_a_path_that_is_denied_to_a_tool_that_writes_is_denied_to_all_of_them(root, kind, name, tool):
    rules = (f"{name}(src/**)", f"{name}(path=src/**)", f"{name}(*)")
    policies = [first_of(deny(rule) if kind == "deny" else ask(rule), allow("*")) for rule in rules]
    tools = [*file_tools(root), *writing_tools(root), shell_tool(root)]
    read = call("read", path="src/a.py")
    for policy in policies:
        result = await Agent(ScriptedModel([read, WRITING[tool], text("Done.")]), tools=tools, policy=policy).run("Go")
        assert str(result.status) == ("paused" if kind == "ask" else "completed")
        assert [str(one.status) for one in result.tool_calls] == ["ok", "denied"][: len(result.tool_calls)]
    assert (root / "src" / "a.py").read_text() == "x"
    assert not (root / "src" / "b.py").exists()


@pytest.mark.row("P11")
@pytest.mark.parametrize("rule", ["read(*)", "Read(*)", "read(**)"])
async def test_a_rule_on_every_path_that_is_read_denies_a_search_too(root, rule):
    assert await status(rule, call("grep", pattern="x", path="src"), root) == "denied"


@pytest.mark.row("P11")
async def test_many_rules_on_one_tool_that_writes_hold_for_the_other(root):
    policy = first_of(deny(*(f"edit(d{at}/**)" for at in range(100)), "edit(src/**)"), allow("*"))
    result = await Agent(
        ScriptedModel([WRITING["write"], text("Done.")]), tools=writing_tools(root), policy=policy
    ).run("Go")
    assert [str(one.status) for one in result.tool_calls] == ["denied"]


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("name", "tool"), [("Edit(src/**)", "write"), ("edit(src/**)", "write"), ("Write(src/**)", "edit"), ("Edit(*)", "write"), ("write(*)", "edit")]
)  # fmt: skip
async def test_a_path_that_is_allowed_to_one_tool_that_writes_is_allowed_to_no_other(root, name, tool):
    assert await status(name, WRITING[tool], root, kind="allow") == "asked"


@pytest.mark.row("P11")
async def test_a_rule_on_a_whole_tool_that_writes_is_about_that_tool_only(root):
    assert await status("Edit", WRITING["write"], root) == "ok"


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("mcp__git", call("mcp__github__log")),
        ("Bash(git * main)", call("shell", command="echo git push main")),
        ("Read(src/**)", call("read", path="src2")),
        ("mcp__git(repo=a*)", call("mcp__github__log", repo="abc")),
        ("Task(Explore)", call("spawn_agent", agent="Plan")),
    ],
)
async def test_it_holds_for_no_more(root, rule, made):
    assert await status(rule, made, root) != "denied"


@pytest.mark.row("P11")
async def test_a_star_in_the_middle_of_a_rule_that_allows_is_one_word(root):
    assert await status("Bash(ls * a)", call("shell", command="ls src a"), root, kind="allow") == "ok"
    assert await status("Bash(touch * a)", call("shell", command="touch b c a"), root, kind="allow") == "asked"


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ("Read(/src/**)", "read(src/**)"), ("Edit(/src/**)", "edit(/src/**)"), ("Read(~/.ssh/**)", "from `/`"), ("read(~/.ssh/**)", "from `/`"),
        ("write(path=~/x)", "from `/`"), ("NotebookEdit(a.ipynb)", "Write `edit(a.ipynb)`"), ("NotebookEdit()", "NotebookEdit(path="),
        ("Bash(git log; id)", "one rule for each"), ("shell(FOO=1)", "names no program"), ("bash(ls)", "write `shell(ls)`"),
        ("READ(src/*)", "write `read(src/*)`"), ("task(Explore)", "write `spawn_agent(Explore)`"),
        ("webfetch(domain:example.com)", "write `fetch(domain:example.com)`"), ("WebFetch(domain:)", "its host is empty"),
        ("fetch(host=)", "its host is empty"), ("WebFetch(domain:https://ann@example.com/a)", "Write `fetch(example.com)`"),
        ("fetch(https://*.example.com/docs/*)", "Write `fetch(*.example.com)`"), ("fetch(example.com:8080)", "Write `fetch(example.com)`"),
        ("read(path=)", "Write `read` for every path"), ("Read()", "for 'read', write `read`"),
    ],
)  # fmt: skip
def test_what_would_mean_something_else_is_refused_with_what_to_write(rule, instead):
    with pytest.raises(ConfigurationError) as error:
        deny(rule)
    assert instead in str(error.value)


@pytest.mark.row("P11")
@pytest.mark.parametrize("host", ["example.com", "*.example.com", "::1", "[::1]", "fe80:*", "127.0.0.1", "*"])
def test_what_is_a_host_is_not_refused(host):
    assert deny(f"fetch(host={host})").rules[0].key == "host"


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ("write(src/*, docs/*)", "one rule for each"), ("write(src/*,docs/*)", "one rule for each"), ("write(path=src/a, docs/b)", "one rule for each"),
        ("read(a)(b)", "one rule with one"), ("Bash(ls)(rm:*)", "one rule with one"), ("pay(to=ann)(amount=5)", "one rule with one"),
        ("read(path:secrets)", "write `read(secrets)`"), ("Edit(path: src/**)", "write `edit(src/**)`"), ("shell(command:rm *)", "write `shell(rm *)`"),
        ("fetch(host:example.com)", "write `fetch(example.com)`"), ("Task(agent:Explore)", "write `spawn_agent(Explore)`"), ("shell(rm: *)", "Write `rm:*`"),
        ("shell('rm -rf')", "without quotes: `rm -rf`"), ('shell("git push":*)', "without quotes: `git push`"),
    ],
)  # fmt: skip
def test_a_rule_that_no_call_matches_is_refused_with_what_to_write(rule, instead):
    with pytest.raises(ConfigurationError) as error:
        deny(rule)
    assert instead in str(error.value)


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    "rule",
    ["read(a,b)", "read(a[,] b)", "read(notes/a,b.txt)", "read(a[)](b)", "shell('./my tool' x)", "shell(: *)", "fetch(domain:x.org)", "read(x:y)"],
)  # fmt: skip
def test_a_name_with_such_signs_is_no_mistake(rule):
    assert deny(rule).rules[0].text == rule


def test_spaces_around_the_sign_of_a_rule_are_no_part_of_its_pattern():
    assert allow("pay(to = ann*)").rules[0].glob == "ann*"
