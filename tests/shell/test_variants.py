"""Variants of attacks, in quoting, nesting, encoding and spelling: none is allowed, whatever its form."""

import base64
import os
import random

import pytest

from pipeline_tools import checked_call
from treadle import allow, deny, first_of, shell_tool
from treadle.cli.running import Confined
from treadle.permissions.consent import offered_rules
from treadle.permissions.modes import in_mode, with_protection
from treadle.permissions.policies import decide
from treadle.resolve import memory_session
from treadle.toolsets import writing_tools

SEEDS = range(8)
TRIES = 40


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


def nested(line: str, rng: random.Random, *, may_hide: bool = True) -> str:
    """Put a line into another one that carries it out."""
    forms = (
        "{}", "true; {}", "true && {}", "false || {}", "{} | cat", "( {} )", "{{ {}; }}", "! {}", "sudo {}", "env A=1 {}", "timeout 5 {}",
        "nice -n 5 {}", "nohup {}", "if true; then {}; fi", "while {}; do break; done", 'bash -c "{}"', "sh -c '{}'", 'eval "{}"',
        'echo "{}" | sh', "sh <<E\n{}\nE", "$({})", "`{}`", "cat <({})", "{} &", "time {}", "exec {}", "command {}", "f() {{ {}; }}; f",
        "for x in 1; do {}; done", "coproc {}", "find . -maxdepth 0 -exec {} \\;", "echo x | xargs {}", "trap '{}' EXIT", "true\n{}",
        *(("python3 -c 'import os; os.system(\"{}\")'",) if may_hide else ()), "cd . && {}", "{} > /dev/null 2>&1", "\t{}", "true && \\\n{}",
    )  # fmt: skip
    return encoded(line, rng) if may_hide and rng.random() < 0.2 else rng.choice(forms).format(line)


def encoded(line: str, rng: random.Random) -> str:
    """Write a line in signs that a program, or the shell, has to make a line of."""
    signs, plain = line.encode(), base64.b64encode(line.encode()).decode()
    escaped, numbers = "".join(f"\\x{one:02x}" for one in signs), "".join(f"\\{one:03o}" for one in signs)
    forms = (
        f"echo {plain} | base64 -d | sh", f'eval "$(echo {plain} | base64 -d)"', f'bash -c "$(base64 -d <<< {plain})"', f"base64 -d <<< {plain} | bash",
        f"printf '{numbers}' | sh", f"$(printf '{numbers}')", f"sh -c $'{escaped}'", f"eval $'{escaped}'", f"bash <<< $'{escaped}'",
        f"echo -e '{escaped}' | sh", f"xxd -r -p <<< {signs.hex()} | sh", f". <(base64 -d <<< {plain})", f"source /dev/stdin <<< $'{numbers}'",
        f"python3 -c \"import os, base64; os.system(base64.b64decode('{plain}'))\"", f"perl -e 'system(pack(\"H*\", \"{signs.hex()}\"))'",
        f"base64 -d <<< {plain} | xargs -0 sh -c", f"X={plain}; base64 -d <<< $X | sh", f"rev <<< '{line[::-1]}' | sh",
    )  # fmt: skip
    return rng.choice(forms)


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
        decided = await decide(policy, checked_call(tool, command=line), session)
        assert decided.kind in ("deny", "ask"), line


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_variant_of_a_denied_path_is_allowed(tmp_path, seed):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "k").write_text("secret")
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("s")
    (tmp_path / "d" / "up").symlink_to("../s/k")
    (tmp_path / "s" / "sub").mkdir()
    (tmp_path / "d" / "sub").symlink_to("../s/sub")
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
        "d/sub/../k",
        "d/sub/./..//k",
        str(tmp_path / "s" / "k"),
        f"//{tmp_path}//s/k",
        f"../{tmp_path.name}/s/k",
        "link/sub/../k",
        "s/sub/../../link/./k",
    )
    expanded = (
        "$PWD/s/k",
        "s/?",
        "s/[k]",
        "{s,x}/k",
        "s/k*",
        "?/k",
        "*/k",
        "l?nk/k",
        "${X:-s}/k",
        "s$(:)/k",
        "s/k$X",
        "/proc/self/cwd/s/k",
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
        path = rng.choice(expanded) if rng.random() < 0.3 else quoted(rng.choice(paths), rng)
        line = rng.choice(readers).format(path)
        for _ in range(rng.randrange(2)):
            line = nested(line, rng)
        decided = await decide(policy, checked_call(tool, command=line), session)
        assert decided.kind in ("deny", "ask"), line


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize(
    "line",
    [
        "cat out/../k", "ls out/..", "cat < out/../k", "grep -r x out/..", "cd out && cat ../k", "cd out; cd ../; cat k", "wc -l ./out/.././k",
        "cd d/../out && cat ../k", "head -n1 d/../out/../k", "(cd out; cat ../k)",
    ],
)  # fmt: skip
async def test_a_way_up_behind_a_link_leads_where_the_link_leads(tmp_path, line):
    for name in ("outer/inner", "root/d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outer" / "k").write_text("not yours")
    (tmp_path / "root" / "k").write_text("yours")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "outer" / "inner")

    for policy in (None, allow("shell(cat:*)", "shell(ls:*)", "shell(grep:*)", "shell(wc:*)", "shell(head:*)")):
        decided = await decide(
            policy, checked_call(shell_tool(tmp_path / "root"), command=line), await memory_session()
        )
        assert decided.kind == "ask", line


@pytest.mark.row("D-VARIANTS")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_variant_of_an_allowed_prefix_lets_another_command_in(tmp_path, seed):
    rng, session = random.Random(seed), await memory_session()
    policy, tool = allow("shell(git log:*)", "shell(echo:*)", "shell(ls:*)", "shell(find:*)"), shell_tool(tmp_path)
    attacks = (
        "git log --output=x", "git log --outpu=x", "git -c core.pager=id log", "git log; kill", "echo $(id)", "echo `id`", "echo <(id)", "ls > x",
        "ls | tee x", "find . -exec id \\;", "find . -delete", "find . -fprint x", "git log --ext-diff", "echo x >> y", "ls & kill", "ls\nkill",
        "git log -O x", "echo x | sh", "LD_PRELOAD=x ls", "ls; touch x", "ls /etc", "echo ~", "git --exec-path=. log", "git log ../../x",
    )  # fmt: skip

    for _ in range(TRIES):
        line = rng.choice(attacks)
        for _ in range(rng.randrange(2)):
            line = nested(line, rng)
        if line.startswith('echo "') and line.endswith("| sh"):
            continue
        decided = await decide(policy, checked_call(tool, command=line), session)
        assert decided.kind in ("deny", "ask"), line


@pytest.mark.row("D-VARIANTS", "D-PROTECTED")
@pytest.mark.parametrize("seed", [*SEEDS, *map(int, filter(None, os.environ.get("TREADLE_VARIANTS", "").split(",")))])
async def test_no_variant_of_a_protected_path_is_written(tmp_path, seed):
    (tmp_path / "d").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "l").symlink_to(".git")
    (tmp_path / "d" / "up").symlink_to("../.git")
    session = await memory_session()
    write, shell = writing_tools(tmp_path)[0], shell_tool(tmp_path)

    for number in range(TRIES):
        # Each try draws from its own numbers, and never for the folder's name: what is tried is the same wherever the test runs.
        rng = random.Random(1_000_000 * seed + number)
        name = rng.choice(
            (".git/hooks/pre-commit", ".git/config", ".treadle/config.toml", ".bashrc", ".envrc", "a.pth", *LINKS)
        )
        name = "".join(one.upper() if rng.random() < 0.3 and name not in LINKS else one for one in name)
        before = rng.choice(("", "./", "d/../", "d/.././", f"{tmp_path}/", ".//"))
        spelled = expanding(name, rng) if rng.random() < 0.4 else quoted(name, rng)
        for call in (
            checked_call(write, path=before + name, content="x"),
            checked_call(shell, command=nested(f"touch {before}{spelled}", rng, may_hide=False).replace('$"""', '$""')),
            checked_call(shell, command=f"echo x > {before}{name}"),
            checked_call(shell, command=f"echo x > {before}{expanding(name, rng)}"),
        ):
            decided = await decide(allow("*"), call, session)
            held = with_protection(decided, call, session.state.facts.values)
            assert held.kind == "ask", call.arguments


LINKS = ("l/config", "d/up/config", "d/up/hooks/x")


def expanding(name: str, rng: random.Random) -> str:
    """Spell a name so that the shell has to expand it."""
    at = rng.randrange(len(name) + 1)
    head, tail = name[:at], name[at:]
    first, slash, rest = name.partition("/")
    forms = (
        *(f"{head}{nothing}{tail}" for nothing in NOTHING),
        f"$PWD/{name}",
        f"{{x,{name}}}",
        f"{{{head},x}}{tail}",
        f"{first[:-1]}?{slash}{rest}" if slash else f"$(printf %s {name})",
        f"{first}*{slash}{rest}" if slash else f"`printf %s {name}`",
        f"{first[:-1]}[{first[-1]}]{slash}{rest}" if slash else f"${{X:-{name}}}",
        f"$(echo {base64.b64encode(name.encode()).decode()} | base64 -d)",
        f"$(printf '{octal(name)}')",
        f"${{X:-{head}}}{tail}",
    )
    return rng.choice(forms)


def octal(text: str) -> str:
    return "".join(f"\\{ord(one):03o}" for one in text)


NOTHING = ("$(:)", "`:`", "$@", "$*", "${x:-}", "${x}", "$x", '"$x"', "''", '""', "$''", '$""', "${x#y}", "$(true)", "${@}", "\\\n", '"\\\n"')  # fmt: skip
"""What a shell takes away."""


@pytest.mark.row("D-VARIANTS", "D-PROTECTED")
@pytest.mark.parametrize(
    "line",
    [
        "X=$(echo LmdpdC9jb25maWc= | base64 -d); touch $X", 'eval "touch $X"', "sh -c 'touch l$(:)/config'", "sh <<'E'\ntouch l$(:)/config\nE", "echo 'touch l$(:)/config' | sh",
        "cd d; A=1 touch up/config", "cd d && touch u*/config", "A=1 env -C d touch up/config",
        "A=1; cd d; cd e; touch up2/config", 'f() { touch "$1"; }; f x', "for f in l/*; do echo x > $f; done", "touch ~+/l/config",
        'read X < d/name; touch "$X"', "cp x {o,d/up}/config", "shopt -s dotglob; touch */config", "touch */config", "touch d/*/config",
        "printf x > $(printf l)/config", "bash -s < d/name", "base64 -d < d/name | sh", "tee l$IFS/config", "trap 'touch $X' EXIT",
        "find d -maxdepth 0 -exec sh -c 'touch $0/up/config' {} \\;", "while read x; do touch $x; done < d/name", "touch \\\nl/config",
        "touch l\\\n/config", 'touch "l\\\n/config"', 'cd "$(printf .g)it" && touch config', "pushd d; A=1 touch up/config",
        "sudo -D d touch up/config", "sudo --chdir=d touch up/config", "sudo --chd d touch up/config", "tar -C d -xf a.tar up/config", "tar -xf a.tar -Cd up/config",
        "tar xfC a.tar d up/config", "make -C d up/config", "make -C d -C e up2/config", "make --directory=d X=up/config", "npm --prefix d exec touch up/config",
        "unshare -w d touch up/config", "cargo -C d run up/config", "uv run --directory d touch up/config", "nsenter -w d touch up/config",
        "find d -execdir touch up/config \\;", "docker run -w d x touch up/config", "systemd-run --working-directory d touch up/config",
        "command cd d && touch up/config", "command -p cd d && touch up/config", "builtin cd d && touch up/config", "eval 'cd d'; touch up/config",
        "command source s.sh && touch up/config", "cp -r d z && touch z/up/config", "cp -a d z; echo x > z/up/config", "mv d z && touch z/up/config",
        "ln -s d z && touch z/up/config", "git mv d z && tee z/up/config", "ln -s d/e z && tee z/up2/config", "curl --output-dir d -o up/config example.com",
        "unzip a.zip up/config -d d", "parallel --wd d touch ::: up/config", "cp -t d/e x/up2", "install --target-directory=d/up config", "patch -d d -p0 up/config p",
        "env -S '-C d touch up/config'", "bash -O dotglob -c 'touch */config'", "bash --rcfile s.sh -ic 'touch up/config'", "find d -exec touch {}/up/config \\;",
        "cmake --build d --target up/config", "just -d d up/config", "tar xf a.tar --one-top-level=d up/config",
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["*", "shell"])
async def test_what_a_line_writes_is_never_left_to_what_the_shell_makes_of_a_word(tmp_path, line, policy):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "l").symlink_to(".git")
    (tmp_path / "d" / "up").symlink_to("../.git")
    (tmp_path / "d" / "e" / "up2").symlink_to("../../.git")
    (tmp_path / ".git").mkdir()
    session = await memory_session()

    call = checked_call(shell_tool(tmp_path), command=line)
    held = with_protection(await decide(allow(policy), call, session), call, session.state.facts.values)

    assert held.kind == "ask"


@pytest.mark.row("P15")
@pytest.mark.parametrize(
    "line",
    ["for f in *.py; do wc -l $f; done", "echo $HOME", "PATH=. touch y", "(cd d && touch y)", "cat <<'E' > y\n$X\nE", "echo x | sh", "bash -c 'echo $X'",
     "mv d x; cat x/l"],
)  # fmt: skip
async def test_a_line_that_is_not_understood_is_asked_about_beside_a_rule_that_allows_all_but_not_in_bypass_or_where_a_rule_names_it(
    tmp_path, line
):
    session, call = await memory_session(), checked_call(shell_tool(tmp_path), command=line)

    async def held(policy):
        return with_protection(await decide(policy, call, session), call, {})

    asked = await held(allow("shell"))
    assert (asked.kind, asked.scope) == ("ask", "default")
    assert in_mode("bypass", asked, call).kind == "allow"
    assert offered_rules(call, asked, session) == (f"shell(= {line})",)
    assert (await held(allow("shell", f"shell(= {line})"))).kind == "allow"
    assert in_mode("auto", await held(Confined(allow("shell"))), call).kind == "sandbox"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf build/*", "cat d/* | sort > out", "ls *.py && touch y", "awk '{print $1}' d/name > out", "sed -i 's/^x$/y/' d/name", "cp d/*.py build/",
        "touch '$X'", "python -c 'f(1)'", "timeout 5 pytest", "bash x.sh", "bash -c 'touch y'",
    ],
)  # fmt: skip
async def test_a_line_whose_written_files_are_clear_is_not_asked_about(tmp_path, line):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "name").write_text("x")
    (tmp_path / "d" / "a.py").write_text("x")
    (tmp_path / ".git").mkdir()
    session = await memory_session()

    call = checked_call(shell_tool(tmp_path), command=line)
    held = with_protection(await decide(allow("*"), call, session), call, session.state.facts.values)

    assert held.kind == "allow", held.reason
