"""What a permission function may answer, and what each answer decides."""

from typing import Any

import pytest

from pipeline_tools import act, checked_call
from treadle import ConfigurationError, Decision, can_use_tool


async def pay(arguments: Any, ctx: Any) -> Any:
    return "paid"


async def decided(said: Any) -> Decision | None:
    def mine(name: str, arguments: Any, session: Any) -> Any:
        arguments["amount"] = 9  # its own copy
        return said

    one = checked_call(act(pay), amount=1)
    found: Any = await can_use_tool(mine).decide(one, None)  # type: ignore[arg-type]
    assert one.arguments == {"amount": 1}
    return found


def decision(kind: Any, **more: Any) -> Decision:
    return Decision(kind=kind, rule="mine", **more)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"behavior": "allow", "updated_input": {"amount": 2}}, decision("allow", arguments={"amount": 2})),
        ({"behavior": "allow", "updatedInput": {"amount": 2}}, decision("allow", arguments={"amount": 2})),
        (
            {"behavior": "allow", "updatedInput": {"amount": 2}, "updated_input": {"amount": 3}},
            decision("allow", arguments={"amount": 2}),
        ),
        ({"behavior": "allow", "updated_input": {"amount": 1}}, decision("allow")),
        ({"behavior": "allow", "updated_input": None}, decision("allow")),
        ({"behavior": "allow", "updated_input": {}}, decision("allow", arguments={})),
        ({"behavior": "deny", "updated_input": {"amount": 2}}, decision("deny")),
        ({"behavior": "ask", "updatedInput": {"amount": 2}}, decision("ask")),
        ({"behavior": "deny", "message": "No.", "interrupt": True}, decision("deny", message="No.", interrupt=True)),
        ({"behavior": "deny", "interrupt": 1}, decision("deny")),
        ({"behavior": "allow", "interrupt": True, "message": None}, decision("allow")),
        ({"behavior": "ask", "message": 7}, decision("ask", message="7")),
        (True, decision("allow")),
        (False, decision("deny")),
        (None, None),
    ],
)
async def test_an_answer_decides_with_what_it_says(said: Any, expected: Decision | None) -> None:
    assert await decided(said) == expected


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "mine: behavior must be allow, deny or ask; got None."),
        ({"behavior": "maybe"}, "mine: behavior must be allow, deny or ask; got 'maybe'."),
        ("allow", "mine answered with 'allow'. Return a Decision"),
        (1.5, "mine answered with 1.5. Return a Decision"),
    ],
)
async def test_another_answer_is_an_error_that_names_the_function(said: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        await decided(said)
    assert str(raised.value).startswith(words)


async def test_a_function_is_named_by_its_kind_where_it_has_no_name() -> None:
    class Mine:
        async def __call__(self, name: str, arguments: Any, session: Any) -> bool:
            return name == "act"

    found: Any = await can_use_tool(Mine()).decide(checked_call(act(pay)), None)  # type: ignore[arg-type]
    assert found == Decision(kind="allow", rule="Mine")


def test_what_is_no_function_is_refused() -> None:
    wrong: Any = 7
    with pytest.raises(ConfigurationError, match=r"takes a function of \(name, arguments, session\); got 7"):
        can_use_tool(wrong)
