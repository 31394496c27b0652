"""Out of plan mode: the model proposes a plan, and only a person's consent to this very plan lets anything be changed."""

from typing import Any

import pytest

from treadle import Agent, allow, exit_plan_tool, open_session, tool
from treadle.testing import ScriptedModel, call, text


@pytest.fixture
def acted() -> list[str]:
    return []


@pytest.fixture
def change(acted: list[str]) -> Any:
    @tool(effect="unsafe")
    async def change(what: str) -> str:
        """Change something."""
        acted.append(what)
        return "changed"

    return change


def agent(change: Any, *turns: Any, **options: Any) -> Agent:
    return Agent(ScriptedModel([*turns, text("Done.")]), tools=[change, exit_plan_tool()], **options)


@pytest.mark.row("P20")
async def test_a_plan_that_a_person_allows_ends_plan_mode_and_is_carried_out(change, acted):
    planning = agent(
        change, call("change", what="early"), call("exit_plan", plan="1. Change it."), call("change", what="it"),
        policy=allow("change"),
    )  # fmt: skip
    async with open_session("memory:") as session:
        await session.set_mode("plan", by="ada")
        paused = await planning.run("Change it", session=session)
        (asked,) = paused.approvals
        assert (asked.approval_type, asked.preview.text, asked.rules) == ("plan", "1. Change it.", ())
        assert (acted, session.mode) == ([], "plan")

        await session.answer(asked.id, "allow", by="ada")
        result = await planning.resume(session)

        assert result.completed
        assert (acted, session.mode) == (["it"], "ask")


@pytest.mark.row("P20")
async def test_a_plan_that_is_denied_changes_nothing(change, acted):
    planning = agent(change, call("exit_plan", plan="Raze it."), call("change", what="it"), policy=allow("change"))
    async with open_session("memory:") as session:
        await session.set_mode("plan")
        paused = await planning.run("Change it", session=session)
        await session.answer(paused.approvals[0].id, "deny", reason="Smaller.")
        result = await planning.resume(session)

        assert (acted, session.mode) == ([], "plan")
        assert [one.status for one in result.tool_calls] == ["denied", "denied"]


@pytest.mark.row("P20")
async def test_another_version_of_a_plan_is_asked_about_anew(change, acted):
    planning = agent(change, call("exit_plan", plan="One."), call("exit_plan", plan="Two."), policy=allow("change"))
    async with open_session("memory:") as session:
        await session.set_mode("plan")
        first = (await planning.run("Change it", session=session)).approvals[0]
        await session.answer(first.id, "deny")
        second = (await planning.resume(session)).approvals[0]

        assert first.digest != second.digest
        assert second.preview.text == "Two."
        assert session.mode == "plan"


@pytest.mark.row("P20")
@pytest.mark.parametrize("option", ["policy", "approver"])
async def test_no_policy_and_no_approver_of_the_program_ends_plan_mode(change, acted, option):
    everything = (
        {"policy": allow("*")}
        if option == "policy"
        else {"approver": lambda request: "allow", "policy": allow("change")}
    )
    planning = agent(change, call("exit_plan", plan="All."), call("change", what="it"), **everything)
    async with open_session("memory:") as session:
        await session.set_mode("plan")
        await planning.run("Change it", session=session)

        assert (acted, session.mode) == ([], "plan")
