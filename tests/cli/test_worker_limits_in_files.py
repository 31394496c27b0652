"""Limits over all workers in configuration files: who sets them, what a flag replaces, and what a wrong one says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.cli.commands.workers import _limits  # what the command gives its worker, without one at work
from treadle.cli.input.commands import WorkerOptions
from treadle.cli.input.settings import settings_of

pytestmark = pytest.mark.row("W13")

FAIR = '[workers.limits.fair]\nsessions = 2\neach = "tenant"\n'


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "treadle", *words, "-C", str(folder)],
        cwd=folder, env={**os.environ, "TREADLE_HOME": str(home), "OPENAI_API_KEY": "sk-mock"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def shown(folder: Path, *words: str) -> dict[str, dict[str, object]]:
    told = json.loads(run(folder, "config", "show", "--json", *words).stdout)
    return {name: one for name, one in told.items() if name.startswith("workers.")}


def test_a_file_has_limits_and_a_project_adds_some_but_changes_none(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(FAIR)
    (tmp_path / ".treadle").mkdir()
    project = tmp_path / ".treadle" / "config.toml"
    project.write_text("[workers.limits.fair]\nsessions = 9\n[workers.limits.key]\nrequests = 5\nmodels = ['x:*']\n")
    assert shown(tmp_path, "--config", "own.toml") == {
        "workers.limits.fair": {"value": {"sessions": 2, "each": "tenant"}, "origin": "own.toml"},
        "workers.limits.key": {"value": {"requests": 5, "models": ["x:*"]}, "origin": str(project)},
    }
    for words in (["config", "show"], ["worker", "--journal", "/proc/no/a.db"]):
        noted = run(tmp_path, *words, "--config", "own.toml", "-m", "openai-chat:mock").stderr
        assert "note: " + str(project) + " cannot change workers.limits.fair, which own.toml sets" in noted


def test_a_flag_replaces_the_limit_of_its_name_and_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(FAIR + "[workers.limits.key]\ntokens = 7\n")
    options = WorkerOptions(
        folder=str(tmp_path),
        config=str(tmp_path / "own.toml"),
        worker_limits=("fair sessions=3", "new requests=1"),
    )
    found = _limits(options, settings_of(options, {"TREADLE_HOME": str(tmp_path)}))
    assert [(one.name, one.sessions, one.requests_per_minute, one.tokens_per_minute, one.each) for one in found] == [
        ("key", None, None, 7, ""),
        ("fair", 3, None, None, ""),
        ("new", None, 1, None, ""),
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[workers.limits.fair]\nsessions = 0", "line 2: 'sessions' must be a whole number above 0; got 0"),
        ("[workers.limits.fair]\nrequests = 1.5", "line 2: 'requests' must be a whole number above 0; got 1.5"),
        ("[workers.limits.fair]\ntokens = true", "line 2: 'tokens' must be a whole number above 0; got True"),
        ("[workers.limits.fair]\nsession = 4", "line 2: unknown key 'session'. Did you mean sessions?"),
        ("[workers.limits.fair]\nsessions = 1\neach = 'galaxy'", "line 3: 'each' must be one of tenant, agent, model"),
        ("[workers.limits.fair]\nsessions = 1\nmodels = 'x'", "line 3: 'models' must be a list of strings"),
        ("[workers.limits.fair]\neach = 'tenant'", "line 1: the limit 'fair' limits nothing"),
        ("[workers.limits]\nfair = 5", "line 2: limit 'fair' must be a table"),
        ("[workers.limits.'']\nsessions = 1", "1 to 100 printable characters"),
        ("[workers]\nlimit = 5", "line 2: unknown key 'limit'. Did you mean limits?"),
        ("[[workers.limits]]\nname = 'fair'", "must be a table: write [workers.limits]"),
        ("workers = 5", "'workers' must be a table"),
    ],
)
def test_a_wrong_limit_is_told_with_file_and_line(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "own.toml").write_text(content)
    ended = run(tmp_path, "worker", "--journal", "a.db", "--config", "own.toml", "-m", "openai-chat:mock")
    assert ended.returncode == 2
    assert "own.toml" in ended.stderr
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "a.db").exists()
