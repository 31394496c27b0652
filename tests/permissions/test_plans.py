"""Out of plan mode: the model proposes a plan, and only a person's consent to this very plan lets anything be changed."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Decision, Session, Tool, allow, ask, mcp_server, open_session, shell_tool, tool
from treadle.permissions import can_use_tool
from treadle.ports import Hook
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Answer
from treadle.toolsets import ShellTools, exit_plan_tool

RAW = Path(__file__).parents[1] / "toolsets" / "mcp_raw_server.py"


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


@asynccontextmanager
async def in_plan_mode() -> AsyncIterator[Session]:
    async with open_session("memory:") as session:
        await session.set_mode("plan", by="ada")
        yield session


PLANS = call("exit_plan", plan="All."), call("change", what="it")


@pytest.mark.row("P20")
async def test_a_plan_that_a_person_allows_ends_plan_mode_and_is_carried_out(change, acted):
    planning = agent(change, call("change", what="early"), *PLANS, policy=allow("change"))
    async with in_plan_mode() as session:
        paused = await planning.run("Change it", session=session)
        (asked,) = paused.approvals
        assert (asked.approval_type, asked.preview.text, asked.rules) == ("plan", "All.", ())
        assert (acted, session.mode) == ([], "plan")

        await session.answer(asked.id, "allow", by="ada")
        result = await planning.resume(session)

        assert (result.completed, acted, session.mode) == (True, ["it"], "ask")
        kinds = [event.type for event in await session.events()]
        after_answer = kinds[kinds.index("approval.answered") + 1]
        assert after_answer == "mode.changed"  # with the answer, before anything is decided
        plan = session.state.facts.values["plan"]
        assert (plan["text"], plan["state"]) == ("All.", "allowed")
        assert plan["version"] in session.messages[-4].results[0].content


@pytest.mark.row("P20")
async def test_a_plan_that_is_denied_changes_nothing(change, acted):
    planning = agent(change, *PLANS, policy=allow("change"))
    async with in_plan_mode() as session:
        paused = await planning.run("Change it", session=session)
        await session.answer(paused.approvals[0].id, "deny", reason="Smaller.")
        result = await planning.resume(session)

        assert (acted, session.mode) == ([], "plan")
        assert [one.status for one in result.tool_calls] == ["denied", "denied"]


@pytest.mark.row("G09", "P20")
async def test_another_version_of_a_plan_is_asked_about_anew(change, acted):
    planning = agent(change, call("exit_plan", plan="One."), call("exit_plan", plan="Two."), policy=allow("change"))
    async with in_plan_mode() as session:
        first = (await planning.run("Change it", session=session)).approvals[0]
        await session.answer(first.id, "deny")
        second = (await planning.resume(session)).approvals[0]

        assert first.digest != second.digest
        assert (second.preview.text, session.mode) == ("Two.", "plan")


PROGRAMS: dict[str, dict[str, Any]] = {
    "policy": {"policy": allow("*")},
    "approver": {"policy": allow("change"), "approver": lambda _: "allow"},
    "one that signs as a person": {"policy": allow("change"), "approver": lambda _: Answer(answer="allow", by="ada")},
    "and edits": {
        "policy": allow("change"), "approver": lambda _: Answer(answer="allow", by="ada", arguments={"plan": "Edited."})
    },
}  # fmt: skip


@pytest.mark.row("P20")
@pytest.mark.parametrize("program", PROGRAMS)
async def test_no_policy_and_no_approver_of_the_program_ends_plan_mode(change, acted, program):
    async with in_plan_mode() as session:
        await agent(change, *PLANS, **PROGRAMS[program]).run("Change it", session=session)

        assert (acted, session.mode) == ([], "plan")


@pytest.mark.row("P20")
async def test_a_plan_that_an_approver_allows_still_waits_for_a_person(change, acted):
    planning = agent(change, *PLANS, policy=allow("change"), approver=lambda request: "allow")
    async with in_plan_mode() as session:
        paused = await planning.run("Change it", session=session)
        (asked,) = paused.approvals
        assert (asked.approval_type, acted, session.mode) == ("plan", [], "plan")
        assert "plan" not in session.state.facts.values

        await session.answer(asked.id, "allow", by="ada")
        await planning.resume(session)

        assert (acted, session.mode) == (["it"], "ask")


@pytest.mark.row("P20")
async def test_an_approver_may_deny_a_plan(change, acted):
    planning = agent(change, call("exit_plan", plan="Raze it."), approver=lambda request: "deny")
    async with in_plan_mode() as session:
        result = await planning.run("Change it", session=session)

        assert ([one.status for one in result.tool_calls], session.mode) == (["denied"], "plan")


@pytest.mark.row("P20")
async def test_plan_mode_survives_a_restart_and_its_plan_is_allowed_by_another_process(tmp_path, change, acted):
    place = tmp_path / "a.db"
    turns = (call("change", what="early"), call("exit_plan", plan="One."), call("change", what="it"))
    async with open_session(place, id="s") as session:
        await session.set_mode("plan")
        await agent(change, *turns, policy=allow("change")).run("Change it", session=session)
    async with open_session(place, id="s") as session:
        assert session.mode == "plan"
        (asked,) = await session.approvals()
        await session.answer(asked.id, "allow", by="ada")
    async with open_session(place, id="s") as session:
        assert acted == []
        result = await agent(change, call("change", what="it"), policy=allow("change")).resume(session)

        assert (result.completed, acted, session.mode) == (True, ["it"], "ask")


@pytest.mark.row("P20")
@pytest.mark.parametrize(
    ("effect", "turns", "policy"),
    [("read", PLANS[1:], allow("*")), ("unsafe", PLANS[1:], allow("*")), ("read", PLANS, allow("change"))],
    ids=["that reads", "that acts", "that has a plan of its own"],
)
async def test_an_agent_as_a_tool_changes_nothing_in_plan_mode_and_does_not_end_it(
    change, acted, effect, turns, policy
):
    helper = agent(change, *turns, policy=policy).as_tool("helper", "Do it.", effect=effect)
    lead = Agent(ScriptedModel([call("helper", task="go"), text("Done.")]), tools=[helper], policy=allow("*"))
    async with in_plan_mode() as session:
        await lead.run("Change it", session=session)
        assert (acted, session.mode) == ([], "plan")


@pytest.mark.row("P20")
async def test_a_tool_of_a_server_that_says_that_it_only_reads_is_held_back(tmp_path):
    server = mcp_server("raw", [sys.executable, "-S", "-E", str(RAW), str(tmp_path), ""])
    lead = Agent(ScriptedModel([call("mcp__raw__echo", text="x"), text("Done.")]), tools=[server], policy=allow("*"))
    async with in_plan_mode() as session:
        result = await lead.run("Go", session=session)

    assert [one.status for one in result.tool_calls] == ["denied"]


@pytest.mark.row("P20")
async def test_no_hook_loosens_plan_mode(change, acted):
    class Loosens:
        def before(self, call):
            return Decision(kind="allow", reason="I say so.")

        def after(self, call, result):
            return result

    planning = agent(
        change, call("change", what="it"), *PLANS, policy=allow("*"), interceptors=[Loosens()],
        hooks=[Hook(at="before_tool", run=lambda context: None)],
    )  # fmt: skip
    async with in_plan_mode() as session:
        paused = await planning.run("Change it", session=session)

        assert (acted, session.mode) == ([], "plan")
        assert [one.approval_type for one in paused.approvals] == ["plan"]


@pytest.mark.row("P20")
async def test_consent_from_before_plan_mode_lets_nothing_run_in_it(change, acted):
    planning = agent(change, call("change", what="it"))
    async with open_session("memory:") as session:
        paused = await planning.run("Change it", session=session)
        await session.set_mode("plan")
        await session.answer(paused.approvals[0].id, "allow")
        result = await planning.resume(session)

        assert (acted, session.mode) == ([], "plan")
        assert [one.status for one in result.tool_calls] == ["denied"]


@pytest.mark.row("P20")
async def test_consent_to_a_plan_with_invalid_edits_ends_nothing(change, acted):
    planning = agent(change, *PLANS, policy=allow("change"))
    async with in_plan_mode() as session:
        (asked,) = (await planning.run("Change it", session=session)).approvals
        await session.answer(asked.id, "allow", arguments={"plan": ""})
        paused = await planning.resume(session)

        assert (acted, session.mode, len(paused.approvals)) == ([], "plan", 1)


@pytest.mark.row("P20")
async def test_a_plan_that_a_person_has_edited_is_what_is_allowed(change, acted):
    planning = agent(change, *PLANS, policy=allow("change"))
    async with in_plan_mode() as session:
        (asked,) = (await planning.run("Change it", session=session)).approvals
        await session.answer(asked.id, "allow", arguments={"plan": "Two."})
        await planning.resume(session)

        assert (acted, session.mode) == (["it"], "ask")
        assert "Two." in session.messages[2].results[0].content


@pytest.mark.row("P20")
@pytest.mark.parametrize(
    "command", ["touch x", "ls > x", "ls | tee x", "A=1 ls", "git status; touch x", "find . -delete"]
)
async def test_a_line_of_shell_that_may_act_is_held_back_in_plan_mode(tmp_path, command):
    lead = Agent(
        ScriptedModel([call("shell", command=command), text("Done.")]), tools=[shell_tool(tmp_path)], policy=allow("*")
    )
    async with in_plan_mode() as session:
        result = await lead.run("Go", session=session)

    assert [one.status for one in result.tool_calls] == ["denied"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.row("P20")
async def test_the_consent_to_one_plan_does_not_end_a_later_plan_mode(change, acted):
    planning = agent(change, PLANS[0], text("Done."), *PLANS, policy=allow("change"))
    async with in_plan_mode() as session:
        (asked,) = (await planning.run("Plan", session=session)).approvals
        await session.answer(asked.id, "allow")
        await planning.resume(session)
        await session.set_mode("plan")
        again = await planning.run("Again", session=session)

        assert (acted, session.mode, len(again.approvals)) == ([], "plan", 1)


@pytest.mark.row("P20")
async def test_a_call_that_a_restart_would_run_again_is_held_back_in_plan_mode(tmp_path):
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, timeout=120, check=False
    )
    assert killed.returncode == 9, killed.stderr
    acted: list[str] = []

    @tool(effect="idempotent")
    async def change(what: str) -> str:
        """Change something."""
        acted.append(what)
        return "changed"

    async with open_session(tmp_path / "a.db", id="s") as session:
        await session.set_mode("plan")
        await Agent(ScriptedModel([text("Done.")]), tools=[change], policy=allow("change")).resume(session)
        assert (acted, session.mode) == ([], "plan")


DIES = """
import asyncio, os, sys
from treadle import Agent, allow, open_session, tool
from treadle.testing import ScriptedModel, call

@tool(effect="idempotent")
async def change(what: str) -> str:
    "Change something."
    os._exit(9)

async def main():
    async with open_session(sys.argv[1] + "/a.db", id="s") as session:
        await Agent(ScriptedModel([call("change", what="it")]), tools=[change], policy=allow("change")).run("Go", session=session)

asyncio.run(main())
"""


@pytest.fixture
def looking(acted: list[str]) -> Tool:
    """A tool whose effect its arguments say."""

    def effect(arguments: Any) -> str:
        return "unsafe" if arguments.get("what") == "act" else "read"

    async def run(arguments: Any, ctx: Any) -> str:
        acted.append(arguments["what"])
        return "done"

    return Tool(name="tend", description="Tend.", parameters={"type": "object"}, effect=effect, run=run)


REWRITES: dict[str, dict[str, Any]] = {
    "hook": {"hooks": [Hook(at="before_tool", run=lambda _: Decision(kind="allow", arguments={"what": "act"}))]},
    "policy": {"policy": can_use_tool(lambda *_: {"behavior": "allow", "updatedInput": {"what": "act"}})},
    "approver": {"policy": ask("tend"), "approver": lambda _: Answer(answer="allow", arguments={"what": "act"})},
    "model": {"policy": allow("*")},
}


@pytest.mark.row("P20", "R-MODE")
@pytest.mark.parametrize("who", REWRITES)
async def test_nobody_makes_an_act_of_a_read_in_plan_mode(looking, acted, who):
    model = ScriptedModel([call("tend", what="act" if who == "model" else "look"), text("Done.")])
    async with in_plan_mode() as session:
        result = await Agent(model, tools=[looking], **REWRITES[who]).run("Go", session=session)

    assert ([str(one.status) for one in result.tool_calls], acted) == (["denied"], [])


@pytest.mark.row("P20", "K06")
async def test_a_process_that_was_started_before_plan_mode_is_read_and_neither_written_to_nor_ended(tmp_path):
    def working(*calls: Any) -> Agent:
        return Agent(ScriptedModel([list(calls), text("Done.")]), tools=[ShellTools(tmp_path)], policy=allow("*"))

    async with open_session("memory:") as session:
        start = call("shell", command="cat > out.txt", background=True, lifetime=60, keep=True)
        begun = await working(start).run("Start", session=session)
        (answer,) = [one for message in begun.messages for one in message.results]
        which = json.loads(answer.content)["process"]
        await session.set_mode("plan")
        names = ("write_process", "kill_process", "read_process")
        calls = [call(name, process=which, **({"text": "x"} if name == "write_process" else {})) for name in names]
        result = await working(*calls).run("Write", session=session)
        await session.set_mode("ask")
        ended = await working(call("kill_process", process=which)).run("End", session=session)

    assert [str(one.status) for one in result.tool_calls] == ["denied", "denied", "ok"]
    assert ended.completed
    assert (tmp_path / "out.txt").read_text() == ""


@pytest.mark.row("P20", "TF7")
async def test_what_the_function_of_an_effect_does_to_the_arguments_reaches_nobody(acted):
    def effect(arguments: Any) -> str:
        arguments["what"] = "act"
        return "read"

    async def run(arguments: Any, ctx: Any) -> str:
        acted.append(arguments["what"])
        return "done"

    sly = Tool(name="tend", description="Tend.", parameters={"type": "object"}, effect=effect, run=run)
    async with in_plan_mode() as session:
        model = ScriptedModel([call("tend", what="look"), text("Done.")])
        await Agent(model, tools=[sly]).run("Go", session=session)

    assert acted == ["look"]


async def test_a_mode_that_no_run_has_taken_in_yet_stays_known_over_a_rewind(tmp_path):
    agent = Agent(ScriptedModel([text("Hello.")]))
    async with open_session(tmp_path / "j.db", id="s") as session:
        await agent.run("Go", session=session)
        await session.mark("here")
        await session.set_mode("plan")
        await session.rewind("here")
        assert session.mode == "plan"

        await agent.run("Go on", session=session)
        async with open_session(tmp_path / "j.db", id="s") as other:
            await other.set_mode("ask")
        await agent.run("Go on", session=session)
        assert session.mode == "ask"
