"""What a survey of mutations showed that no test noticed: how policies are joined, named and found."""

from typing import Any

import pytest

from pipeline_tools import Recorder, act, checked_call, run_calls, statuses, types
from treadle import Decision, RuleSet, allow, can_use_tool, deny, first_of, open_session, scoped, shell_tool
from treadle.permissions.policies import _MAX_KEPT, UNDECIDED, NameIndex
from treadle.testing import call

CALL = checked_call(act(Recorder()))


class Says:
    """A policy that says one thing, and counts how often it was asked."""

    def __init__(self, said: Any) -> None:
        self.said, self.asked = said, 0

    def decide(self, call: Any, session: Any) -> Any:
        self.asked += 1
        return self.said


def decision(kind: Any, rule: str) -> Decision:
    return Decision(kind=kind, rule=rule)


ALLOWS, ASKS, DENIES = decision("allow", "a"), decision("ask", "q"), decision("deny", "d")
UNSURE = decision("ask", f"{UNDECIDED} deny x")
UNSURE_TOO = decision("ask", f"{UNDECIDED} deny y")


@pytest.mark.row("P03")
@pytest.mark.parametrize(
    ("said", "rule", "asked"),
    [
        ([None, None], None, 2),
        ([None, ALLOWS, DENIES], "a", 2),
        ([DENIES, ALLOWS], "d", 1),
        ([UNSURE], UNSURE.rule, 1),
        ([UNSURE, None], UNSURE.rule, 2),
        ([UNSURE, DENIES, ALLOWS], "d", 2),
        ([UNSURE, ALLOWS, DENIES], UNSURE.rule, 2),
        ([UNSURE, None, DENIES], "d", 3),
        ([UNSURE, UNSURE_TOO, DENIES], "d", 3),
        ([UNSURE, UNSURE_TOO], UNSURE.rule, 2),
    ],
)
async def test_the_first_opinion_counts_and_a_rule_that_cannot_say_is_only_made_stricter(
    said: list[Any], rule: str | None, asked: int
) -> None:
    policies = [Says(one) for one in said]

    found: Any = await first_of(*policies).decide(CALL, None)  # type: ignore[arg-type, misc]

    assert (None if found is None else found.rule) == rule
    assert sum(one.asked for one in policies) == asked


async def test_what_is_no_decision_is_handed_on_to_whoever_names_its_policy() -> None:
    policies = [Says(UNSURE), Says("yes"), Says(DENIES)]

    assert await first_of(*policies).decide(CALL, None) == "yes"  # type: ignore[arg-type, misc, comparison-overlap]
    assert policies[2].asked == 0


@pytest.mark.parametrize(
    ("said", "kind"),
    [(True, "allow"), (False, "deny"), ({"behavior": "allow"}, "allow"), ({"behavior": "deny"}, "deny"), ({"behavior": "ask"}, "ask")],
)  # fmt: skip
async def test_a_decision_of_a_permission_function_has_the_functions_name(said: Any, kind: str) -> None:
    def my_permissions(name: str, arguments: Any, session: Any) -> Any:
        return said

    result = await run_calls(call("act"), tools=[act(Recorder())], policy=can_use_tool(my_permissions))

    (found,) = await types(result, "call.decided")
    assert (found.decision, found.rule) == (kind, "my_permissions")


@pytest.mark.row("H20")
@pytest.mark.parametrize("rule", ["Read(secret/key)", "read(path=secret/key)", "Read(secret/*)", "Read(./secret/key)"])
@pytest.mark.parametrize("line", ["cat secret/key", "head -n 1 ./secret/key", "cat < secret/key"])
async def test_a_rule_on_files_holds_for_lines_of_shell_too(tmp_path: Any, rule: str, line: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")

    result = await run_calls(
        call("shell", command=line), tools=[shell_tool(tmp_path)], policy=first_of(deny(rule), allow("*"))
    )

    assert statuses(result) == ["denied"]


async def test_a_rule_on_commands_is_found_by_its_program_and_no_other(tmp_path: Any) -> None:
    policy = first_of(deny("shell(touch *)"), allow("*"))
    calls = [call("shell", id="a", command="touch x"), call("shell", id="b", command="echo touch")]

    result = await run_calls(*calls, tools=[shell_tool(tmp_path)], policy=policy)

    assert statuses(result) == ["denied", "ok"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("yes", "The policy returned a str, which is not a valid Decision."),
        (Decision(kind="maybe"), "The policy returned a Decision, which is not a valid Decision."),
        (Decision(kind="allow", arguments=[1]), "The policy changed the arguments to something other than a JSON object."),
        (Decision(kind="allow", arguments={"n": {1}}), "The policy changed the arguments to something other than a JSON object."),
        (Decision(kind="allow", interrupt=1), "The policy returned a Decision whose interrupt or consent is invalid."),
        (Decision(kind="ask", consent="deny"), "The policy returned a Decision whose interrupt or consent is invalid."),
    ],
)  # fmt: skip
async def test_a_policy_that_breaks_its_contract_denies_the_call_in_the_name_of_the_runtime(
    said: Any, why: str
) -> None:
    ran = Recorder()

    result = await run_calls(call("act"), tools=[act(ran)], policy=Says(said))

    (found,) = await types(result, "call.decided")
    assert (found.decision, found.rule, found.reason) == ("deny", "policy broke its contract", why)
    assert (found.scope, found.by) == ("runtime", "runtime")
    assert statuses(result) == ["denied"]
    assert ran.runs == 0


def test_what_is_kept_of_searched_folders_does_not_grow_for_ever() -> None:
    index = NameIndex({0: "src/*"})

    for number in range(_MAX_KEPT + 10):
        assert index._reached(frozenset({f"folder{number}"}), is_deep=True) == ()

    assert len(index._below) <= _MAX_KEPT
    assert index._reached(frozenset({"src"}), is_deep=True) == (0,)


@pytest.mark.row("P03")
async def test_a_scope_that_denies_a_line_counts_though_another_cannot_say_whether_it_does() -> None:
    unsure, sure = RuleSet(scope="managed", deny=("shell(rm:*)",)), RuleSet(scope="user", deny=("shell",))
    result = await run_calls(call("shell", command='$X "a b"'), tools=[shell_tool(".")], policy=scoped(unsure, sure))
    (decided,) = await types(result, "call.decided")
    assert (decided.decision, decided.rule) == ("deny", "deny shell")


@pytest.mark.row("P03")
async def test_of_two_scopes_that_cannot_say_whether_they_deny_the_first_is_named() -> None:
    first = RuleSet(scope="managed", deny=("shell(rm:*)",))
    second = RuleSet(scope="user", deny=("shell(dd:*)",))
    line = checked_call(shell_tool("."), command='$X "a b"')
    async with open_session("memory:") as session:
        found = scoped(second, RuleSet(scope="session", ask=("shell",)), first).decide(line, session)
    assert found is not None
    assert (found.kind, found.scope, found.rule) == ("ask", "runtime", f"{UNDECIDED} deny shell(rm:*)")
