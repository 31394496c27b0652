"""What people see who come from another library, or look at an object in a prompt: what to write here, and one short line."""

import inspect
from typing import Any

import pytest

from treadle import Agent, Agents, Budget, Worker, file_tools, open_journal, open_session, resolve_model, tool
from treadle.errors import ToolDefinitionError
from treadle.testing import ScriptedModel, call, text


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ("max_turns", "budget=Budget(max_model_turns=...)"),
        ("usage_limits", "budget=Budget(...)"),
        ("system_prompt", "instructions="),
        ("deps_type", "Agent[Deps, Output](...), and run(deps=...)"),
        ("context", "run(deps=...)"),
        ("output_type", "output=, a type or a JSON Schema"),
        ("handoffs", "tools=[agent.as_tool(name, description)]"),
        ("mcp_servers", "tools=[mcp_server(name, command)]"),
        ("callbacks", "subscribers=[...]"),
        ("checkpointer", "run(session=...), with open_session(journal, id=...)"),
    ],
)
def test_another_librarys_name_of_an_option_is_answered_with_what_to_write(option: str, written: str) -> None:
    given: dict[str, Any] = {option: 3}
    for make in (
        lambda: Agent("demo", **given),
        lambda: Agent("demo").run_sync("Go", **given),
        lambda: Budget(**given),
    ):
        with pytest.raises(TypeError, match=f"has no option '{option}'") as refused:
            make()
        assert str(refused.value).endswith(f" Write {written}.")


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ("description", "a docstring in the function"),
        ("args_schema", "annotations in the function, or Tool(parameters=...)"),
        ("return_direct", "ends_run=True"),
        ("needs_approval", "permission="),
        ("read_only", 'effect="read"'),
        ("max_retries", "retries="),
    ],
)
def test_another_librarys_option_of_a_tool_is_answered_with_what_to_write(option: str, written: str) -> None:
    given: dict[str, Any] = {option: 3}
    with pytest.raises(ToolDefinitionError, match=f"does not know {option}") as refused:
        tool(**given)
    assert f" Write {written}. " in str(refused.value)


@pytest.mark.parametrize(
    ("option", "written"), [("policy", "Agent(policy=...)"), ("input", "the task as the first argument")]
)
def test_what_a_run_does_not_take_is_answered_with_where_it_belongs(option: str, written: str) -> None:
    given: dict[str, Any] = {option: 3}
    with pytest.raises(TypeError, match="has no option") as refused:
        Agent("demo").run_sync("Go", **given)
    assert str(refused.value).endswith(f" Write {written}.")


@pytest.mark.parametrize(
    ("door", "option", "said"),
    [
        (open_session, "session_id", "Write id=."),
        (open_session, "thread_id", "Write id=."),
        (open_session, "checkpointer", "Write run(session=...), with open_session(journal, id=...)."),
        (resolve_model, "timeout", "Did you mean 'timeouts'?"),
        (Worker, "max_turns", "Write budget=Budget(max_model_turns=...)."),
        (Agents, "callbacks", "Write subscribers=[...]."),
        (open_journal, "checkpointer", "Write run(session=...), with open_session(journal, id=...)."),
        (file_tools, "root_dir", "Did you mean 'root'?"),
    ],
)
def test_another_librarys_name_is_answered_at_every_door(door: Any, option: str, said: str) -> None:
    given: dict[str, Any] = {option: 3}
    with pytest.raises(TypeError, match=f"has no option '{option}'") as refused:
        made = door("x", **given)
        made = made.__aenter__() if hasattr(made, "__aenter__") else made
        made.send(None)
    assert str(refused.value).endswith(said)


async def test_a_misspelt_option_of_a_run_is_answered_with_the_one_that_was_meant() -> None:
    misspelt: dict[str, Any] = {"sesion": None}
    with pytest.raises(TypeError, match="Did you mean 'session'"):
        await Agent("demo").run("Go", **misspelt)


async def test_agents_runs_results_and_sessions_are_shown_in_one_short_line() -> None:
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "x" * 10_000

    agent = Agent(ScriptedModel([call("look"), text("Seen. " * 1000)]), name="clerk", tools=[look])
    async with open_session("memory:", id="s-1") as session:
        run = agent.stream("Go", session=session)
        before = repr(run)
        result = await run.finish()

        assert repr(agent) == "<Agent 'clerk', scripted, tools: look>"
        assert (before, repr(run)) == ("<Run of a new session, not begun>", "<Run of s-1, ended: completed>")
        assert repr(result).startswith("<RunResult completed of s-1, 2 steps, 1 calls: 'Seen. ")
        assert repr(session).startswith("<Session s-1, 4 messages, ")
        assert all(len(repr(one)) < 250 for one in (agent, run, result, session))


def test_the_signature_of_an_agent_fits_on_a_screen() -> None:
    assert len(str(inspect.signature(Agent))) < 1700
