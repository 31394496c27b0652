"""Runs that continue by their session's id, in a process that has never seen the handle of one."""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Agents, Budget, ConfigurationError, allow, open_journal, open_session, tool
from treadle.errors import (
    AgentChanged,
    NoRunYet,
    RunCompleted,
    SessionConflict,
    SessionNotActive,
    UnknownAgent,
    UnknownSession,
)
from treadle.events import RunResumed, RunStarted
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text

HERE = Path(__file__).resolve().parent


@tool(effect="read")
async def look(n: int) -> str:
    """Look something up."""
    return f"{n}"


def clerk(*turns: Any, name: str | None = "clerk", **options: Any) -> Agent:
    return Agent(ScriptedModel(turns or [text("done")]), name=name, tools=[look], **options)


class Processes:
    """Starts one process after the other, each with a registry of its own."""

    def __init__(self, journal: str, folder: Path) -> None:
        self.journal = journal
        self._paid = folder / "paid"

    async def run(self, act: str, *, tool_choice: str = "auto", changed: str = "refuse", decision: str = "ask") -> Any:
        """Return what the process printed, or the signal that ended it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "registered.py"), act, self.journal, "invoice-7", str(self._paid), tool_choice, changed,
            decision,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode is not None
        return json.loads(out) if process.returncode == 0 else -process.returncode

    @property
    def payments(self) -> list[str]:
        return self._paid.read_text().splitlines() if self._paid.exists() else []


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Processes:
    journal = str(tmp_path / "agent.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    return Processes(journal, tmp_path)


async def answer(journal: str) -> None:
    async with open_session(journal, id="invoice-7", must_exist=True) as session:
        (approval,) = session.approvals()
        await session.answer(approval.id, "allow")


@pytest.mark.row("R-BY-ID")
async def test_a_run_that_was_killed_goes_on_by_its_sessions_id_in_another_process(processes):
    assert await processes.run("kill", decision="allow") == signal.SIGKILL

    resumed = await processes.run("resume", decision="allow")

    assert resumed == {"reason": "completed", "text": "The invoice is paid.", "calls": ["ok"]}
    assert len(processes.payments) == 2  # once by the process that died
    assert len(set(processes.payments)) == 1  # under one key


@pytest.mark.row("R-BY-ID")
async def test_a_run_that_waited_for_a_person_goes_on_elsewhere_and_a_changed_agent_only_once_that_is_accepted(
    processes,
):
    started = await processes.run("start")
    waiting = await processes.run("resume")
    await answer(processes.journal)
    refused = await processes.run("resume", tool_choice="required")
    payments = processes.payments
    accepted = await processes.run("resume", tool_choice="required", changed="accept")

    assert [one["reason"] for one in (started, waiting)] == ["approval_required"] * 2
    assert refused["error"] == "AgentChanged"
    assert "'clerk' has changed" in refused["message"]
    assert "Changed: answer." in refused["message"]
    assert payments == []
    assert accepted == {"reason": "completed", "text": "The invoice is paid.", "calls": ["ok"]}
    assert len(processes.payments) == 1


# --- what is recorded, and what is refused


@pytest.mark.row("R-BY-ID")
async def test_a_run_records_its_agent_and_its_fingerprint():
    agent = clerk(call("look", n=1), text("done"), budget=Budget(max_model_turns=1), on_limit="report")
    async with open_session("memory:", id="s") as session:
        await agent.run("go", session=session)
        await agent.resume(session, budget=Budget(max_model_turns=5))
        events = await session.events()

    named = [(one.agent, one.fingerprint) for one in events if isinstance(one, RunStarted | RunResumed)]
    assert named == [("clerk", dict(agent.fingerprint))] * 2
    assert set(agent.fingerprint) == {"model", "tools", "answer"}


async def test_an_agent_without_a_name_records_neither():
    async with open_session("memory:", id="s") as session:
        await clerk(text("done"), name=None).run("go", session=session)
        events = await session.events()

    (started,) = [one for one in events if isinstance(one, RunStarted)]
    assert (started.agent, started.fingerprint) == ("", {})


@tool(effect="read", name="look")
async def look_elsewhere(n: str) -> str:
    """Look something up elsewhere."""
    return n


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"tools": [look_elsewhere]}, "tools"),
        ({"tools": []}, "tools"),
        ({"output": list[str]}, "answer"),
        ({"tool_choice": "required"}, "answer"),
        ({"model": ScriptedModel([text("done")], name="another")}, "model"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_each_part_of_an_agent_that_its_runs_depend_on_changes_its_fingerprint(options, part):
    before = clerk().fingerprint
    given = {"model": ScriptedModel([text("done")]), "tools": [look], **options}

    now = Agent(given.pop("model"), name="clerk", **given).fingerprint

    assert [name for name in before if now[name] != before[name]] == [part]


def test_what_belongs_to_the_process_changes_no_fingerprint():
    seen: list[Any] = []

    agent = clerk(
        text("other words"),
        budget=Budget(max_model_turns=3),
        profile="p",
        instructions="Be brief.",
        subscribers=[seen.append],
    )

    assert agent.fingerprint == clerk().fingerprint


@pytest.mark.row("R-BY-ID")
async def test_a_changed_agent_records_nothing_and_an_accepted_one_is_the_agent_of_the_run_from_then_on():
    journal = await open_journal("memory:")
    async with open_session(journal, id="s") as session:
        limited = clerk(call("look", n=1), budget=Budget(max_model_turns=1), on_limit="report")
        await limited.run("go", session=session)
    before = await journal.read("s")
    changed = Agents([clerk(text("done"), tool_choice="required")])

    with pytest.raises(AgentChanged, match=r"Changed: answer\. Register the agent as it was"):
        await changed.resume(journal, "s", budget=Budget(max_model_turns=5))
    assert await journal.read("s") == before

    result = await changed.resume(journal, "s", budget=Budget(max_model_turns=5), changed="accept")
    assert result.completed
    async with open_session(journal, id="s") as session:
        assert session.state.run is not None
        assert session.state.run.fingerprint == changed["clerk"].fingerprint


async def test_a_resume_by_id_says_what_is_missing():
    journal = await open_journal("memory:")
    agents = Agents([clerk(text("done"))])
    async with open_session(journal, id="new"):
        pass
    for id, name in (("unnamed", None), ("stranger", "stranger")):  # noqa: A001 - the face's word
        async with open_session(journal, id=id) as session:
            limited = clerk(call("look", n=1), name=name, budget=Budget(max_model_turns=1), on_limit="report")
            await limited.run("go", session=session)
    async with open_session(journal, id="over") as session:
        await clerk(text("done")).run("go", session=session)
    async with open_session(journal, id="asleep") as session:
        await session.change(status="suspended")

    with pytest.raises(UnknownSession):
        await agents.resume(journal, "none")
    with pytest.raises(NoRunYet):
        await agents.resume(journal, "new")
    with pytest.raises(UnknownAgent, match="without a name"):
        await agents.resume(journal, "unnamed")
    with pytest.raises(UnknownAgent, match=r"'stranger'. Registered: 'clerk'"):
        await agents.resume(journal, "stranger")
    with pytest.raises(RunCompleted):
        await agents.resume(journal, "over")
    with pytest.raises(SessionNotActive):
        await agents.resume(journal, "asleep")


@pytest.mark.parametrize(
    "agents", [[clerk(name=None)], [clerk(), clerk()], ["clerk"]], ids=["no name", "one name twice", "no agent"]
)
def test_a_registry_refuses_what_it_could_not_find_by_name(agents):
    with pytest.raises(ConfigurationError):
        Agents(agents)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
def test_a_name_that_nobody_could_write_is_refused(name):
    with pytest.raises(ConfigurationError, match="An agent's name"):
        clerk(name=name)


# --- where it meets others


class Overtaken(MemoryJournal):
    """A journal in which something else happens just before a lease is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def acquire(self, *args: Any, **options: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().acquire(*args, **options)


async def test_a_run_that_another_agent_has_begun_meanwhile_is_not_taken_for_the_one_that_was_found():
    journal = Overtaken()
    limited: dict[str, Any] = {"budget": Budget(max_model_turns=1), "on_limit": "report"}

    async def another_task() -> None:
        async with open_session(journal, id="s") as session:
            await clerk(call("look", n=2), name="other", **limited).run("another", session=session)

    async with open_session(journal, id="s") as session:
        await clerk(call("look", n=1), **limited).run("go", session=session)
    journal.meanwhile = another_task

    with pytest.raises(SessionConflict, match="'other'"):
        await Agents([clerk(text("done"))]).resume(journal, "s")


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    return "paid"


async def test_an_agent_as_a_tool_goes_on_with_its_caller_and_not_by_the_id_of_its_own_session():
    def registry(lead: list[Any], child: list[Any]) -> Agents:
        payer = Agent(ScriptedModel(child), name="payer", tools=[pay])
        tools = [payer.as_tool("delegate", "Pay one thing.")]
        return Agents(
            [Agent(ScriptedModel(lead), name="lead", tools=tools, policy=allow("delegate", "pay(amount=1)")), payer]
        )

    journal = await open_journal("memory:")
    first = registry([call("delegate", task="Pay 40")], [call("pay", amount=40)])
    async with open_session(journal, id="s") as session:
        waiting = await first["lead"].run("go", session=session)
        (child_id,) = session.state.run.children
        await session.answer(waiting.approvals[0].id, "allow")

    later = registry([text("All is paid.")], [text("Paid.")])
    with pytest.raises(SessionNotActive, match="Resume session 's' instead"):
        await later.resume(journal, child_id)
    result = await later.resume(journal, "s")

    assert (result.text, [one.status for one in result.tool_calls]) == ("All is paid.", ["ok"])
