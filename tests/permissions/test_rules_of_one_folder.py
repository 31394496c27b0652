"""Rules on whole commands and relative programs: they hold in the root folder, since elsewhere the same words run something else."""

import subprocess
from pathlib import Path

import pytest

from treadle import Agent, allow, open_session, shell_tool
from treadle.testing import ScriptedModel, call, text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "W"
    for place in (folder, folder / "vendor"):
        place.mkdir()
        (place / "run.sh").write_text(f"#!/bin/sh\necho from {place.name}\n")
        (place / "run.sh").chmod(0o755)
        (place / "Makefile").write_text(f"all:\n\t@echo from {place.name}\n")
    (folder / "here").symlink_to(".")
    return folder


async def becomes(command: str, root: Path, *rules: str, first: str = "true") -> str:
    """Return what becomes of a command after another one, which may change the folder."""
    model = ScriptedModel([call("shell", command=first), call("shell", command=command), text("ok")])
    result = await Agent(model, tools=[shell_tool(root)], policy=allow(*rules, "shell(cd:*)", "shell(true)")).run("go")
    return "asked" if str(result.status) == "paused" else "ran"


COMMANDS = [
    ("./run.sh", "shell(./run.sh)"),
    ("./run.sh", "shell(./run.sh:*)"),
    ("bash ./run.sh", "shell(bash ./run.sh)"),
    ("make all", "shell(make all)"),
    ("npm test", "shell(npm test)"),
    ("touch x", "shell(touch x)"),
]


@pytest.mark.row("P15")
@pytest.mark.parametrize(("command", "rule"), COMMANDS)
async def test_a_rule_on_a_whole_command_or_a_relative_program_means_the_root_folder(root, command, rule):
    assert await becomes(command, root, rule) == "ran"
    assert await becomes(command, root, rule, first="cd vendor") == "asked"
    assert await becomes(f"cd vendor && {command}", root, rule) == "asked"
    assert await becomes(f"cd vendor; cd ..; {command}", root, rule) == "asked"
    assert await becomes(f"cd {root} && {command}", root, rule) == "ran"
    assert await becomes(command, root, rule, first="cd here") == "ran"


@pytest.mark.row("P15")
@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("npm run test", "shell(npm run:*)"),
        ("touch x", "shell(touch:*)"),
        ("cat run.sh", "shell(cat run.sh)"),
        ("git status", "shell(git status)"),
        ("/bin/echo x", "shell(/bin/echo:*)"),
    ],
)
async def test_a_rule_by_prefix_and_one_on_a_command_that_only_reads_hold_in_every_folder(root, command, rule):
    assert await becomes(command, root, rule, first="cd vendor") == "ran"


@pytest.mark.row("P15")
async def test_a_folder_that_an_option_names_is_part_of_the_command(root):
    rule = "shell(make -C vendor all)"
    assert await becomes("make -C vendor all", root, rule) == "ran"
    assert await becomes("cd vendor && make -C vendor all", root, rule) == "asked"
    assert await becomes("make -C vendor all", root, "shell(make all)") == "asked"


@pytest.mark.row("P14")
async def test_what_is_allowed_always_is_asked_about_in_another_folder(root):
    lines = ["./run.sh", "./run.sh", "cd vendor", "./run.sh"]
    model = ScriptedModel([*(call("shell", command=line) for line in lines), text("ok")])
    agent = Agent(model, tools=[shell_tool(root)])
    async with open_session("memory:") as session:
        paused = await agent.run("go", session=session)
        assert [one.rules for one in paused.approvals] == [("shell(./run.sh:*)",)]
        await session.answer(paused.approvals[0].id, "allow", scope="session")

        again = await agent.resume(session)

        assert [one.arguments["command"] for one in again.approvals] == ["./run.sh"]
        assert again.approvals[0].rules == ()  # a rule would mean the one in the root folder
        assert "It starts in the folder vendor." in again.approvals[0].reason


@pytest.mark.row("P14")
async def test_what_fetching_takes_away_is_asked_about_though_fetching_is_allowed(root):
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    lines = ["git fetch origin", "git fetch origin", "git fetch origin --prune '+refs/heads/*:refs/heads/*'"]
    model = ScriptedModel([*(call("shell", command=line) for line in lines), text("ok")])
    agent = Agent(model, tools=[shell_tool(root)])
    async with open_session("memory:") as session:
        paused = await agent.run("go", session=session)
        assert [one.rules for one in paused.approvals] == [("shell(git fetch:*)",)]
        await session.answer(paused.approvals[0].id, "allow", scope="session")

        again = await agent.resume(session)

        assert [one.arguments["command"] for one in again.approvals] == lines[2:]
        assert "`--prune` deletes or overwrites something" in again.approvals[0].preview.text
