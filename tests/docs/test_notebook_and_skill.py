"""What people run and agents read besides the pages: the notebook runs from top to bottom, and what the skill teaches runs too."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import program
from house import PROJECT
from treadle import Agent, allow, file_tools
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import find_skills, skill_tool, writing_tools

SKILLS = PROJECT / "docs" / "skills"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    notebook = nbformat.read(PROJECT / "docs_src" / "tutorial.ipynb", as_version=4)
    environment = {**os.environ, "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path)}

    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": tmp_path}}).execute(env=environment)

    said = ["".join(one.get("text", "") for one in cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert said[0] == "12 teapots are in stock.\n"
    assert said[-1].startswith("step_limit_reached - ")


@pytest.mark.row("M-REFERENCE")
async def test_an_agent_that_reads_the_skill_can_write_a_program_that_runs(tmp_path: Path) -> None:
    """The agent is scripted: it reads the skill by its tool, and writes down the programs that stand in it."""
    found = find_skills(SKILLS)
    assert found.notes == ()
    whole = found.skills[0].text
    programs = CODE.findall(whole)
    model = ScriptedModel(
        [
            call("skill", name="treadle"),
            [call("write", path=f"{number}.py", content=code) for number, code in enumerate(programs)],
            text("Written."),
        ]
    )
    tools = [*file_tools(tmp_path), *writing_tools(tmp_path), skill_tool(found.skills)]

    await Agent(model, tools=tools, policy=allow("*")).run("Build an agent with Treadle")

    assert "Give every tool its effect" in str(model.requests[1].messages[-1].results[0].content)
    assert len(programs) == 2
    for number in range(len(programs)):
        ran = program.run(
            (program.CODE, (tmp_path / f"{number}.py").read_text()), folder=tmp_path, environment=dict(os.environ)
        )
        assert ran.returncode == 0, ran.stderr.decode()
