"""Instruction files and skills: the instructions of a folder, as text for a model."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from treadle import Agent, file_tools
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import find_skills, folder_instructions, skill_tool

SKILL = """---
name: release
description: How a release is made here. Read it before you tag anything.
---
Run the tests, then tag.
"""


async def main(folder: Path) -> None:
    (folder / "AGENTS.md").write_text("Answer in one sentence.\n")
    place = folder / ".agents" / "skills" / "release"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(SKILL)

    guidance = folder_instructions(folder)
    skills = find_skills(folder / ".agents" / "skills")
    model = ScriptedModel([call("skill", name="release"), text("First the tests run, then the tag is made.")])
    agent = Agent(model, tools=[*file_tools(folder), skill_tool(skills.skills)], instructions=guidance.text)

    result = await agent.run("How is a release made?")

    print(result.text)
    assert "Answer in one sentence." in (model.requests[0].instructions or "")
    assert "Run the tests" not in str(model.requests[0])
    assert "Run the tests" in str(model.requests[1])


with TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
