"""Limits over all workers in configuration files: who sets them, what a flag replaces, and what a wrong one says."""

from pathlib import Path
from typing import Any

import pytest

from treadle.cli.commands.workers import _limits  # what the command gives its worker, without one at work
from treadle.cli.input.commands import WorkerOptions
from treadle.cli.input.settings import settings_of

pytestmark = pytest.mark.row("W13")

FAIR = '[workers.limits.fair]\nsessions = 2\neach = "tenant"\n'


def shown(treadle: Any, *words: str) -> dict[str, dict[str, object]]:
    told = treadle.json("config", "show", "--json", *words, code=0)
    return {name: one for name, one in told.items() if name.startswith("workers.")}


def test_a_file_has_limits_and_a_project_adds_some_but_changes_none(treadle: Any) -> None:
    (treadle.folder / "own.toml").write_text(FAIR)
    (treadle.folder / ".treadle").mkdir()
    project = treadle.folder / ".treadle" / "config.toml"
    project.write_text("[workers.limits.fair]\nsessions = 9\n[workers.limits.key]\nrequests = 5\nmodels = ['x:*']\n")
    assert shown(treadle, "--config", "own.toml") == {
        "workers.limits.fair": {"value": {"sessions": 2, "each": "tenant"}, "origin": "own.toml"},
        "workers.limits.key": {"value": {"requests": 5, "models": ["x:*"]}, "origin": ".treadle/config.toml"},
    }
    for words in (["config", "show"], ["worker", "--journal", "/proc/no/a.db", "-m", "demo"]):
        noted = treadle(*words, "--config", "own.toml").stderr
        assert "note: .treadle/config.toml cannot change workers.limits.fair, which own.toml sets" in noted


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
def test_a_wrong_limit_is_told_with_file_and_line(treadle: Any, content: str, says: str) -> None:
    (treadle.folder / "own.toml").write_text(content)
    told = treadle("worker", "--journal", "a.db", "--config", "own.toml", "-m", "demo", code=2).stderr
    assert "own.toml" in told
    assert says in told
    assert not (treadle.folder / "a.db").exists()
