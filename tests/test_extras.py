"""What needs an extra says which, and how to install it, where its packages are missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("starlette", "uvicorn", "jinja2", "markdown_it", "mcp", "acp", "ag_ui", "rich", "prompt_toolkit", "psycopg")
BEGIN = f"import sys; sys.modules.update(dict.fromkeys({PACKAGES})); "
COMMAND = BEGIN + "from treadle.cli.main import main; sys.exit(main())"


def without_packages(folder: Path, code: str, *words: str) -> str:
    environment = {**os.environ, "HOME": str(folder), "TREADLE_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "extra"), [(["web"], "web"), (["mcp", "serve"], "mcp"), (["acp"], "acp")], ids=["web", "mcp", "acp"]
)
def test_a_command_names_the_extra_that_it_needs(tmp_path: Path, words: list[str], extra: str) -> None:
    assert f"pip install '.[{extra}]'" in without_packages(tmp_path, COMMAND, *words)


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("web.web", "web"),
        ("serve.serve_acp", "acp"),
        ("serve.serve_ag_ui", "ag-ui"),
        ("serve.serve_mcp", "mcp"),
        ("serve.serve_mcp_http", "mcp"),
    ],
)
def test_a_name_of_the_library_names_the_extra_that_it_needs(tmp_path: Path, name: str, extra: str) -> None:
    package, _, attribute = name.partition(".")
    said = without_packages(tmp_path, BEGIN + f"from treadle.{package} import {attribute}")

    assert f"pip install '.[{extra}]'" in said
