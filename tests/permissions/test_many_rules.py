"""Many rules are looked up and not gone through: what the lookup leaves out, no rule means, also where links come and go between two calls."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_tools import checked_call
from treadle import deny, file_tools, shell_tool
from treadle.permissions.lines import judged
from treadle.permissions.policies import NamedPolicy
from treadle.resolve import memory_session
from treadle.toolsets.files.root import Root, Watched

OTHERS = [f"read(path=unrelated{n}/**)" for n in range(40)]
"""Rules beside the one that is tested, so that it has to be found among them."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    for name in ("secret/key", "secret/deep/key", "src/a.py", "src/b.py", "docs/a.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("canary\n")
    return folder


class Asked:
    """One policy, asked again and again about calls in one folder."""

    def __init__(self, root: Path, policy: NamedPolicy) -> None:
        self.tools = {one.name: one for one in (*file_tools(root), shell_tool(root))}
        self.policy = policy

    async def __call__(self, tool: str, **arguments: Any) -> str | None:
        decision = self.policy.decide(checked_call(self.tools[tool], **arguments), await memory_session())
        return None if decision is None else str(decision.kind)


@pytest.mark.row("P16")
async def test_a_link_that_is_made_between_two_calls_counts_at_the_second(root):
    asked = Asked(root, deny(*OTHERS, "read(path=later/**)"))

    for _ in range(2):
        assert await asked("read", path="src/a.py") is None
    (root / "later").symlink_to("src")

    assert await asked("read", path="src/a.py") == "deny"
    assert await asked("shell", command="cat src/a.py") == "deny"
    (root / "later").unlink()
    assert await asked("read", path="src/a.py") is None
    (root / "later").mkdir()
    assert await asked("read", path="src/a.py") is None
    (root / "later").rmdir()
    (root / "later").symlink_to("docs")
    assert await asked("read", path="docs/a.md") == "deny"
    assert await asked("read", path="src/a.py") is None


@pytest.mark.row("P16")
async def test_a_link_deep_on_the_way_of_a_rule_counts_as_soon_as_it_is_there(root):
    asked = Asked(root, deny(*OTHERS, "read(path=a/b/c/key)"))

    assert await asked("read", path="secret/key") is None
    (root / "a").mkdir()
    assert await asked("read", path="secret/key") is None
    (root / "a" / "b").mkdir()
    assert await asked("read", path="secret/key") is None
    (root / "a" / "b" / "c").symlink_to(root / "secret")
    assert await asked("read", path="secret/key") == "deny"


@pytest.mark.row("P16")
async def test_a_link_that_points_elsewhere_now_is_followed_to_where_it_points_now(root):
    (root / "link").symlink_to("hop")
    (root / "hop").symlink_to("docs")
    asked = Asked(root, deny(*OTHERS, "read(path=link/**)"))

    assert await asked("read", path="docs/a.md") == "deny"
    assert await asked("read", path="src/a.py") is None
    (root / "hop").unlink()
    (root / "hop").symlink_to("src")

    assert await asked("read", path="src/a.py") == "deny"
    assert await asked("read", path="docs/a.md") is None


@pytest.mark.row("P16")
@pytest.mark.parametrize("rule", ["secret/key", "secret/**", "secret", "{root}/secret/*", "link/key"])
async def test_another_name_of_a_denied_file_is_denied_as_soon_as_it_exists(root, rule):
    (root / "link").symlink_to("secret")
    asked = Asked(root, deny(*OTHERS, f"read(path={rule.format(root=root)})"))

    assert await asked("read", path="src/a.py") is None
    os.link(root / "secret" / "key", root / "src" / "twin")

    assert await asked("read", path="src/twin") == "deny"
    assert await asked("shell", command="cat src/twin") == "deny"
    assert await asked("read", path="src/a.py") is None
    (root / "src" / "twin").unlink()
    os.link(root / "src" / "a.py", root / "src" / "twin")
    assert await asked("read", path="src/twin") is None


@pytest.mark.row("P16")
async def test_a_file_that_is_moved_to_where_a_rule_is_takes_its_other_names_along(root):
    os.link(root / "src" / "a.py", root / "src" / "twin")
    asked = Asked(root, deny(*OTHERS, "read(path=secret/exact)"))

    assert await asked("read", path="src/a.py") is None
    (root / "src" / "twin").rename(root / "secret" / "exact")

    assert await asked("read", path="src/a.py") == "deny"


@pytest.mark.row("P16")
async def test_a_folder_that_is_renamed_takes_its_rule_along_by_name(root):
    asked = Asked(root, deny(*OTHERS, "read(path=secret/**)"))
    assert await asked("read", path="secret/key") == "deny"

    (root / "secret").rename(root / "open")
    assert await asked("read", path="open/key") is None
    (root / "src").rename(root / "secret")
    assert await asked("read", path="secret/a.py") == "deny"


@pytest.mark.row("P16")
async def test_a_rule_by_an_absolute_link_from_outside_holds_for_what_lies_in_the_root(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    asked = Asked(root, deny(*OTHERS, f"read(path={tmp_path}/alias/secret/**)"))

    assert await asked("read", path="secret/key") == "deny"
    assert await asked("read", path="src/a.py") is None


@pytest.mark.row("P16")
@pytest.mark.parametrize("path", ["later", "a/later", "a/b/later"])
def test_what_is_known_of_names_is_looked_up_once_until_a_folder_on_the_way_changes(root, tmp_path, path):
    (root / "a" / "b").mkdir(parents=True)
    looks: list[int] = []

    def long_after() -> int:
        looks.append(1)
        return time.time_ns() + 3_600_000_000_000

    watched = Watched(Root(root), [path, "secret/key"], (), now=long_after)
    for _ in range(3):
        assert list(watched.linked()) == []
    assert len(looks) == 1

    _until_the_clock_of_files_moves(tmp_path, (root / path).parent)
    (root / path).symlink_to(root / "src")
    assert list(watched.linked()) == [path]
    assert list(watched.linked()) == [path]
    assert len(looks) == 2


def test_two_sets_of_rules_look_at_a_folder_once_in_one_decision(root, tmp_path):
    (root / "a").mkdir()
    first, second = (Watched(Root(root), ["a/x"], (), now=lambda: time.time_ns() + 3_600_000_000_000) for _ in range(2))
    assert [*first.linked(), *second.linked()] == []

    moment: dict[str, object] = {}
    assert list(first.linked(moment)) == []
    _until_the_clock_of_files_moves(tmp_path, root / "a")
    (root / "a" / "x").symlink_to(root / "src")

    assert list(second.linked(moment)) == []  # what was looked at for this decision stands for all of it
    assert list(second.linked({})) == ["a/x"]
    assert list(first.linked()) == ["a/x"]


def _until_the_clock_of_files_moves(folder: Path, place: Path) -> None:
    probe, before = folder / "probe", place.stat().st_ctime_ns
    while not probe.exists() or probe.stat().st_ctime_ns <= before:
        probe.write_text("x")


NAMES = st.sampled_from(["a", "b", "Sec", "sec", "a.py", "link", "é"])

PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)

GLOBS = st.lists(
    st.sampled_from(["a", "b", "Sec", "sec", "*", "**", "?", "a*", "*.py", "[ab]", "link", ".", "é", "e\u0301"]), min_size=1, max_size=3
).flatmap(lambda parts: st.sampled_from(["/".join(parts), f"./{'/'.join(parts)}", f"{'/'.join(parts)}/"]))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.data())
async def test_the_lookup_finds_exactly_the_rules_that_mean_a_call(data, tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    for path in data.draw(st.lists(PATHS, max_size=5)):
        place = root / path
        kind = data.draw(st.sampled_from(["file", "folder", "link", "twin"]))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                place.write_text("x")
            elif kind == "folder":
                place.mkdir(exist_ok=True)
            elif kind == "link":
                place.symlink_to(root / data.draw(PATHS))
            else:
                os.link(root / data.draw(PATHS), place)
        except OSError:
            continue
    rules = [f"{data.draw(st.sampled_from(['read', '*', 'list', 'grep']))}(path={data.draw(GLOBS)})" for _ in range(4)]
    tools = {one.name: one for one in (*file_tools(root), shell_tool(root))}
    path = data.draw(PATHS)
    call = data.draw(
        st.sampled_from(
            [
                checked_call(tools["read"], path=path),
                checked_call(tools["list"], path=path),
                checked_call(tools["grep"], pattern="x", path=path),
                checked_call(tools["shell"], command=f"cat {path}"),
                checked_call(tools["shell"], command="grep -r x ."),
            ]
        )
    )
    session = await memory_session()
    together = deny(*rules)
    line = judged(call, {})

    alone = [rule for rule in together.rules if deny(rule.text).decide(call, session) is not None]
    plain = [rule for rule in together.rules if rule.matches(call) or (line is not None and rule.finds(line, call))]

    decision = together.decide(call, session)
    assert (decision is None) == (not alone)
    assert set(plain) <= set(alone)
    if decision is not None:
        assert decision.rule.removeprefix("cannot decide: ") == f"deny {alone[0].text}"  # a loop of links is in doubt


@pytest.mark.row("P16")
@pytest.mark.parametrize("rule", ["src/deep/key", "src/deep/*.pem", "src/z/**", "{root}/src/a/b/c"])
@pytest.mark.parametrize("others", [[], ["read(path=src/a.py)", "grep(path=sr)", "grep(path=srd/x)"]])
async def test_a_rule_far_below_the_folder_of_a_search_is_found_among_others(root, rule, others):
    asked = Asked(root, deny(*OTHERS, *others, f"grep(path={rule.format(root=root)})"))

    assert await asked("grep", pattern="x", path="src") == "deny"
    assert await asked("grep", pattern="x", path="docs") is None


PROGRAMS = ["python", "python3.11", "/usr/bin/python3.11", "./python", "Python3", "rm", "/bin/rm", "RM", "env", "g++-12"]  # fmt: skip


@pytest.mark.row("P07")
@pytest.mark.parametrize("program", PROGRAMS)
async def test_the_lookup_by_program_finds_exactly_the_rules_that_mean_a_command(root, program):
    call = checked_call(shell_tool(root), command=f"{program} x")
    line, session = judged(call, {}), await memory_session()
    assert line is not None
    together = deny(*(f"shell({name}:*)" for name in PROGRAMS))

    def found_by(rule: str) -> str:
        decision = deny(rule).decide(call, session)
        return "" if decision is None else decision.kind

    found = [rule.text for rule in together.rules if rule.finds(line, call)]
    alone = [rule.text for rule in together.rules if found_by(rule.text) == "deny"]

    assert found == alone != []
