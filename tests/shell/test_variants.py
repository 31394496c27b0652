"""Variants of attacks, in quoting, nesting, encoding and spelling: none is allowed, whatever its form."""

import random

import pytest

from treadle import CheckedCall, ToolCall, allow, deny, first_of, shell_tool, writing_tools
from treadle.permissions.policies import decide
from treadle.permissions.protection import with_protection
from treadle.resolve import memory_session

pytest.importorskip("tree_sitter_bash")

SEEDS = range(12)
TRIES = 60


def checked(tool, **arguments) -> CheckedCall:
    return CheckedCall(
        call=ToolCall(id="c", name=tool.name, arguments="{}"),
        tool=tool,
        arguments=arguments,
        values=arguments,
        effect=tool.effect_of(arguments),
        position=0,
        digest="",
        key="",
    )


def quoted(word: str, rng: random.Random) -> str:
    """Spell a word in another way that bash reads as the same."""
    at = rng.randrange(len(word) + 1)
    head, tail = word[:at], word[at:]
    forms = (
        word,
        f"'{word}'",
        f'"{word}"',
        f"{head}''{tail}",
        f'{head}""{tail}',
        f"{head}$(:){tail}",
        "".join(f"\\{one}" if one.isalpha() else one for one in word),
        "$'" + "".join(f"\\x{ord(one):02x}" for one in word) + "'",
    )
    return rng.choice(forms)


def nested(line: str, rng: random.Random) -> str:
    """Put a line into another one that carries it out."""
    forms = (
        "{}", "true; {}", "true && {}", "false || {}", "{} | cat", "( {} )", "{{ {}; }}", "! {}", "sudo {}", "env A=1 {}", "timeout 5 {}",
        "nice -n 5 {}", "nohup {}", "if true; then {}; fi", "while {}; do break; done", 'bash -c "{}"', "sh -c '{}'", 'eval "{}"',
        'echo "{}" | sh', "sh <<E\n{}\nE", "$({})", "`{}`", "cat <({})", "{} &", "time {}", "exec {}", "command {}", "f() {{ {}; }}; f",
        "for x in 1; do {}; done", "coproc {}", "find . -maxdepth 0 -exec {} \\;", "echo x | xargs {}", "trap '{}' EXIT", "true\n{}",
        "python3 -c 'import os; os.system(\"{}\")'", "cd . && {}", "{} > /dev/null 2>&1", "\t{}", "true && \\\n{}",
    )  # fmt: skip
    return rng.choice(forms).format(line)


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_variant_of_a_denied_command_is_allowed(tmp_path, seed):
    rng, session = random.Random(seed), await memory_session()
    policy, tool = first_of(deny("shell(rm:*)"), allow("shell")), shell_tool(tmp_path)

    for _ in range(TRIES):
        program = rng.choice(("rm", "/bin/rm", "/usr/bin/../bin/rm", "rm"))
        line = " ".join([quoted(program, rng), *(quoted(one, rng) for one in ("-rf", "x"))])
        for _ in range(rng.randrange(3)):
            line = nested(line, rng)
        decided = await decide(policy, checked(tool, command=line), session)
        assert decided.kind in ("deny", "ask"), line


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_variant_of_a_denied_path_is_allowed(tmp_path, seed):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "k").write_text("secret")
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("s")
    (tmp_path / "d" / "up").symlink_to("../s/k")
    rng, session = random.Random(seed), await memory_session()
    policy, tool = first_of(deny("read(path=s/**)"), allow("shell")), shell_tool(tmp_path)

    paths = (
        "s/k",
        "./s/k",
        "d/../s/k",
        "s//k",
        "s/./k",
        "link/k",
        "d/up",
        "S/K",
        "s/../s/k",
        str(tmp_path / "s" / "k"),
    )
    readers = (
        "cat {}",
        "head -n1 {}",
        "grep -n x {}",
        "dd if={}",
        "tool --file={}",
        "tool -f{}",
        "sort {}",
        "diff x {}",
        "tool @{}",
        "cat < {}",
        "wc -l {}",
        "cp {} o",
        "git diff --no-index x {}",
    )
    for _ in range(TRIES):
        line = rng.choice(readers).format(quoted(rng.choice(paths), rng))
        for _ in range(rng.randrange(2)):
            line = nested(line, rng)
        decided = await decide(policy, checked(tool, command=line), session)
        assert decided.kind in ("deny", "ask"), line


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_variant_of_an_allowed_prefix_lets_another_command_in(tmp_path, seed):
    rng, session = random.Random(seed), await memory_session()
    policy, tool = allow("shell(git log:*)", "shell(echo:*)", "shell(ls:*)", "shell(find:*)"), shell_tool(tmp_path)
    attacks = (
        "git log --output=x", "git log --outpu=x", "git -c core.pager=id log", "git log; id", "echo $(id)", "echo `id`", "echo <(id)", "ls > x",
        "ls | tee x", "find . -exec id \\;", "find . -delete", "find . -fprint x", "git log --ext-diff", "echo x >> y", "ls & id", "ls\nid",
        "git log -O x", "echo x | sh", "LD_PRELOAD=x ls", "ls; touch x", "ls /etc", "echo ~", "git --exec-path=. log", "git log ../../x",
    )  # fmt: skip

    for _ in range(TRIES):
        line = rng.choice(attacks)
        for _ in range(rng.randrange(2)):
            line = nested(line, rng)
        if line.startswith('echo "') and line.endswith("| sh"):
            continue
        decided = await decide(policy, checked(tool, command=line), session)
        assert decided.kind in ("deny", "ask"), line


@pytest.mark.row("D-VARIANTS", "D-PROTECTED")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_variant_of_a_protected_path_is_written(tmp_path, seed):
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to(".git")
    rng, session = random.Random(seed), await memory_session()
    write, shell = writing_tools(tmp_path)[0], shell_tool(tmp_path)

    for _ in range(TRIES):
        name = rng.choice(
            (".git/hooks/pre-commit", ".git/config", ".treadle/config.toml", ".bashrc", ".envrc", "a.pth", "l/config")
        )
        name = "".join(one.upper() if rng.random() < 0.3 and not name.startswith("l/") else one for one in name)
        path = rng.choice(("", "./", "d/../", "d/.././", f"{tmp_path}/", "//./"[2:])) + name
        for call in (
            checked(write, path=path, content="x"),
            checked(shell, command=nested(f"touch {quoted(path, rng)}", rng)),
            checked(shell, command=f"echo x > {path}"),
        ):
            decided = await decide(allow("*"), call, session)
            held = with_protection(decided, call, session.state.facts.values)
            assert held.kind == "ask", call.arguments
