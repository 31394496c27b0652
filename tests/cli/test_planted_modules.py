"""Modules that a model plants in a folder take the place of none of ours: Python looks for those of the folder last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = """
import asyncio, sys
from pathlib import Path
from treadle import tool
import neighbour

FOLDER = Path({folder!r})

@tool(effect="unsafe", permission="allow")
def plant() -> str:
    \"\"\"Plant a module of the standard library that nobody has imported yet.\"\"\"
    FOLDER.joinpath("chunk_of_ours.py").write_text("")
    FOLDER.joinpath("colorsys.py").write_text("PLANTED = True")
    return "planted"

@tool(effect="read")
def imported() -> list[str]:
    \"\"\"Import it.\"\"\"
    import chunk_of_ours
    import colorsys
    return [str(hasattr(colorsys, "PLANTED")), neighbour.NAME, Path(chunk_of_ours.__file__).name]
"""


@pytest.mark.parametrize("way", ["python -m", "a file of tools"])
def test_a_planted_module_takes_the_place_of_none_of_ours(tmp_path: Path, way: str):
    folder, tools = tmp_path / "folder", tmp_path / "folder" if way == "a file of tools" else tmp_path / "tools"
    for place in {folder, tools}:
        place.mkdir()
    (tools / "tools.py").write_text(TOOLS.format(folder=str(folder)))
    (tools / "neighbour.py").write_text("NAME = 'neighbour'")
    script = [
        {"calls": [{"name": "plant", "arguments": {}}]},
        {"calls": [{"name": "imported", "arguments": {}}]},
        {"text": "Done."},
    ]
    (folder / "s.json").write_text(json.dumps(script))
    line = [sys.executable, "-m", "treadle", "run", "-m", "script:s.json", "--tools", f"{tools}/tools.py", "go"]
    if way == "a file of tools":
        line[1:3] = ["-P", "-m", "treadle"]
    env = {**os.environ, "TREADLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=True)

    assert '["False","neighbour","chunk_of_ours.py"]' in done.stderr
