"""A journal that fails under a run is reported: when it happens, at the end, in the report and by the exit code."""

import json

import pytest

REMOVING = '''
import os

from treadle import tool


@tool(effect="read", permission="allow")
async def break_journal() -> str:
    """Remove the journal for good."""
    os.unlink("agent.db")
    return "broken"
'''

DROPPING = '''
import os

import psycopg

from treadle import tool


@tool(effect="read", permission="allow")
async def break_journal() -> str:
    """Remove the journal's events for good."""
    with psycopg.connect(os.environ["DATABASE"], autocommit=True) as other:
        other.execute("DROP TABLE event")
    return "broken"
'''

SCRIPT = [{"calls": [{"name": "break_journal", "arguments": {}}]}, {"text": "It is done."}]


@pytest.mark.row("N09")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_what_was_never_stored_is_reported_on_standard_error_and_by_the_exit_code(request, treadle, store):
    journal = "agent.db" if store == "sqlite" else request.getfixturevalue("postgres_url")
    (treadle.folder / "breaking.py").write_text(REMOVING if store == "sqlite" else DROPPING)
    (treadle.folder / "script.json").write_text(json.dumps(SCRIPT))
    flags = ["-m", "script:script.json", "--journal", journal, "--session", "s1", "--tools", "breaking.py"]

    ran = treadle("run", *flags, "--json", "Break it", code=17, DATABASE=journal)

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
