"""Rules and policies at their edges: what is not valid is refused in clear words, and who cannot say is asked about."""

from typing import Any

import pytest

from pipeline_tools import Recorder, act, checked_call, run_calls, statuses, types
from treadle import Tool, allow, ask, deny, draft, first_of, shell_tool
from treadle.errors import ConfigurationError
from treadle.permissions.lines import judged
from treadle.permissions.policies import RuleIndex, held_to_port
from treadle.permissions.rules import Rule, covering_globs
from treadle.ports import Decision
from treadle.resolve import memory_session
from treadle.shell.judging import analyse
from treadle.testing import call
from treadle.tools import ShellLine

pytest.importorskip("tree_sitter_bash")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: first_of("grep"), "policies must be a Policy, which has decide; got 'grep'."),  # type: ignore[arg-type]
        (lambda: first_of(allow("a"), None), "policies must be a Policy, which has decide; got None."),  # type: ignore[arg-type]
        (allow, "allow() needs at least one tool's name, or '*' for every tool."),
        (deny, "deny() needs at least one tool's name, or '*' for every tool."),
        (lambda: ask("a", 3), "names must be a string; got 3."),  # type: ignore[arg-type]
        (lambda: allow(b"pay"), "names must be a string; got b'pay'."),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_a_policy_or_a_name_is_refused_where_it_is_given(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("rule", "covers"),
    [
        ("*", "every call of every tool"),
        ("pay", "every call of pay"),
        ("pay(to=ann*)", "calls of pay whose to is ann*"),
        ("Read(docs/*)", "calls of read on the path docs/*"),
        (
            "shell(git log:*)",
            "`git log` with any arguments, but no option that writes a file or starts a program, and no redirection to a file",
        ),
        ("shell(my-linter *)", "`my-linter` with any arguments, whatever its options do, but no redirection to a file"),
        ("shell(touch:*)", "`touch` with any arguments, whatever its options do, but no redirection to a file"),
        (
            "shell(python:*)",
            "nothing: `python` runs what its arguments say, so a rule must name the whole command",
        ),
        (
            "shell(sudo ls *)",
            "nothing: `sudo` runs what its arguments say, so a rule must name the whole command",
        ),
    ],
)
def test_a_rule_says_in_one_sentence_what_it_covers(rule: str, covers: str) -> None:
    assert Rule.parse(rule).covers == covers


def test_rule_indexes_of_equal_rules_are_equal() -> None:
    rules = tuple(map(Rule.parse, ("pay", "Read(docs/*)")))
    one, same, other = RuleIndex(rules, loosens=True), RuleIndex(rules, loosens=True), RuleIndex(rules, loosens=False)

    assert (one == same, hash(one) == hash(same), one == other, one == rules) == (True, True, False, False)


@pytest.mark.parametrize("interrupt", [0, 1, "yes", None])
def test_a_decision_whose_interrupt_is_not_a_bool_denies(interrupt: Any) -> None:
    found = held_to_port(Decision(kind="allow", interrupt=interrupt), "policy", scope="agent")

    assert (found.kind, found.reason) == (
        "deny",
        "The policy returned a Decision whose interrupt or consent is invalid.",
    )


def line_tool(line: Any) -> Tool:
    return Tool(name="remote", description="Run.", parameters={"type": "object"}, run=Recorder(), line=line)


def test_a_tool_that_cannot_say_which_line_it_would_run_is_in_doubt() -> None:
    def line(arguments: Any, facts: Any) -> ShellLine:
        raise KeyError("host")

    found = judged(checked_call(line_tool(line)), {})

    assert found is not None
    assert [one.reason for one in found.line.doubts] == ["The tool failed to say which line it would run: KeyError."]
    assert not found.is_decided
    assert not found.redirects


async def test_a_line_that_its_tool_cannot_name_is_asked_about_although_rules_allow_it() -> None:
    def line(arguments: Any, facts: Any) -> ShellLine:
        raise KeyError("host")

    result = await run_calls(call("remote"), tools=[line_tool(line)], policy=allow("shell(ls:*)", "remote(path=a)"))

    assert str(result.status) == "paused"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("touch $X l*/config", "The files that this pattern matches are unknown."),
        (
            "touch $X " + " ".join(f"a{number}" for number in range(600)),
            "The line names too many files to check each one.",
        ),
    ],
)
async def test_a_line_that_names_what_cannot_be_looked_at_is_asked_about(tmp_path: Any, words: str, why: str) -> None:
    for number in range(6000 if "*" in words else 0):
        (tmp_path / f"l{number}").mkdir()

    found = judged(checked_call(shell_tool(tmp_path), command=words), {})

    assert found is not None
    assert why in [one.reason for one in found.unknown]


async def test_a_tool_that_may_only_be_drafted_by_one_that_may_only_be_drafted_is_denied() -> None:
    ran = Recorder()
    tools = [act(ran, "send", draft="prepare"), act(ran, "prepare", draft="send")]

    result = await run_calls(call("send"), tools=tools, policy=draft("send", "prepare"))

    (found,) = await types(result, "call.decided")
    assert (found.decision, found.reason) == ("deny", "prepare may only be drafted itself.")
    assert (statuses(result), ran.runs) == (["denied"], 0)


@pytest.mark.parametrize(
    ("glob", "forms"), [("/", {"/"}), ("docs/", {"docs/", "docs/*"}), ("docs", {"docs", "docs/*"})]
)
def test_a_denial_of_a_folder_covers_what_is_in_it(glob: str, forms: set[str]) -> None:
    assert covering_globs(glob) == forms


def test_an_analysis_has_a_bound_on_what_a_pattern_may_match() -> None:
    assert analyse("touch l*/config").patterns


@pytest.mark.parametrize(("rule", "decided"), [("write(docs/*)", "deny"), ("write(path=docs/*)", None)])
async def test_a_pattern_on_a_tool_that_names_no_path_forbids_every_call_of_it(rule: str, decided: str | None) -> None:
    """Nobody is to rely on such a pattern in vain. A rule on an argument says nothing of a call without it."""
    decision = deny(rule).decide(checked_call(act(Recorder(), "write"), to="docs/a"), await memory_session())

    assert (None if decision is None else decision.kind) == decided
