"""A journal that fails under a run is reported: when it happens, at the end, in the report and by the exit code."""

import json

import pytest

LOCKING = '''
import sqlite3

from treadle import tool

KEPT = []


@tool(effect="read", permission="allow")
async def lock() -> str:
    """Keep the journal locked until the process ends."""
    other = sqlite3.connect("agent.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    KEPT.append(other)
    return "locked"
'''

LOCKING_DATABASE = '''
import os

import psycopg

from treadle import tool

KEPT = []


@tool(effect="read", permission="allow")
async def lock() -> str:
    """Keep the journal locked until the process ends."""
    other = psycopg.connect(os.environ["DATABASE"])
    other.execute("LOCK TABLE event IN ACCESS EXCLUSIVE MODE")
    KEPT.append(other)
    return "locked"
'''

SCRIPT = [{"calls": [{"name": "lock", "arguments": {}}]}, {"text": "It is done."}]


@pytest.mark.row("N09")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_was_never_stored_is_reported_on_standard_error_and_by_the_exit_code(request, treadle, store):
    journal = "agent.db" if store == "sqlite" else request.getfixturevalue("postgres_url")
    (treadle.folder / "locking.py").write_text(LOCKING if store == "sqlite" else LOCKING_DATABASE)
    (treadle.folder / "script.json").write_text(json.dumps(SCRIPT))
    flags = ["-m", "script:script.json", "--journal", journal, "--session", "s1", "--tools", "locking.py"]

    ran = treadle("run", *flags, "--json", "Lock it", code=17, DATABASE=journal)

    report = json.loads(ran.stdout)
    assert report["text"] == "It is done."
    assert report["degraded"] is True
    assert report["unstored"] > 0
    first, last = (line for line in ran.stderr.splitlines() if line.startswith("treadle:"))
    assert "the journal failed; the run continues" in first
    assert f"is missing the last {report['unstored']} events of session s1" in last
    assert "Traceback" not in ran.stderr
    assert "psycopg" not in ran.stderr
    assert "sqlite3." not in ran.stderr
