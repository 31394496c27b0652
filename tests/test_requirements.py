"""The requirement manifest against the tests, both ways, and the tools that keep them together."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from house import PROJECT
from requirements import Row, behaviours, decided_differently, lacking, mark_done, marks, problems, read_rows, report

MANIFEST = """# head
[[row]]
id = "L01"
issue = "A"
sentence = "state = \\"open\\" stands here too."
source = ["000"]
state = "open"

# a comment between
[[row]]
id = "L02"
issue = "B"
sentence = "Two."
source = ["000", "own"]
state = "open"
"""


def row(row_id: str, state: str) -> Row:
    return Row(id=row_id, issue="A", sentence="It does.", source=("own",), state=state)


def marked(folder: Path, text: str, name: str = "test_it.py") -> Path:
    (folder / name).write_text(f"import pytest\n{text}")
    return folder


# --- the project's own manifest --------------------------------------------------------------------------------------


def test_every_done_row_has_a_test_and_every_test_names_a_known_row():
    assert problems(read_rows(), marks()) == []


def test_the_manifest_holds_the_rows_of_the_issues_that_are_open():
    rows = read_rows().values()

    assert {row.issue for row in rows} == {"FAULTS", "A", "B", "C", "D", "E", "F", "H", "M", "P", "R", "S", "W"}
    assert [row.id for row in rows if not row.sentence.endswith(".") or not row.source] == []


@pytest.mark.row("FAULTS-21")
def test_every_founding_behaviour_has_a_row_or_a_reason():
    assert lacking(behaviours(), read_rows(), decided_differently()) == []


@pytest.mark.row("FAULTS-21")
def test_the_manifest_keeps_every_id_of_the_founding_page():
    page = PROJECT.parent / "shared" / "behaviours.md"
    # A clone of the project alone has no such page: the copy of its ids is what counts there, and the test above holds it.
    assert page.exists() or os.environ.get("TREADLE_NO_SKIPS") != "1"
    text = page.read_text() if page.exists() else "".join(f"| {one} |\n" for one in behaviours())

    assert behaviours() == re.findall(r"^\| ([A-Z]+\d+) \|", text, re.MULTILINE)


def test_a_behaviour_without_a_row_or_with_an_empty_reason_is_lacking():
    found = lacking(["L01", "L02", "L03", "L04"], {"L01": row("L01", "open")}, {"L02": "As it is.", "L03": ""})

    assert [one.split()[1] for one in found] == ["L03", "L04"]


# --- the check itself ------------------------------------------------------------------------------------------------


def test_a_done_row_without_a_test_is_a_problem():
    assert problems({"L01": row("L01", "done")}, []) == ["row L01 is done and no test names it"]


def test_an_open_row_without_a_test_is_none():
    assert problems({"L01": row("L01", "open")}, []) == []


def test_a_test_that_names_an_unknown_row_is_a_problem(tmp_path):
    folder = marked(tmp_path, '@pytest.mark.row("L01", "X99")\ndef test_a(): ...\n')

    assert problems({"L01": row("L01", "done")}, marks(folder)) == ["test_it.py:2: no row 'X99'"]


@pytest.mark.parametrize(
    "text",
    [
        '@pytest.mark.row("L01")\nasync def test_a(): ...\n',
        '@pytest.mark.row("L01")\nclass TestA: ...\n',
        'pytestmark = pytest.mark.row("L01")\n',
        'pytestmark = [pytest.mark.row("L01")]\n',
        'cases = [pytest.param(1, marks=pytest.mark.row("L01"))]\n',
    ],
    ids=["function", "class", "module", "list", "case"],
)
def test_marks_are_found_wherever_pytest_takes_them(tmp_path, text):
    assert problems({"L01": row("L01", "done")}, marks(marked(tmp_path, text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.row()\ndef test_a(): ...\n",
        "@pytest.mark.row(ID)\ndef test_a(): ...\n",
        '@pytest.mark.row(id="L01")\ndef test_a(): ...\n',
        '@pytest.mark.row("L01")\ndef helper(): ...\n',
        '@pytest.mark.row("L01")\n@pytest.fixture\ndef thing(): ...\n',
    ],
    ids=["no id", "a name", "a keyword", "a helper", "a fixture"],
)
def test_a_mark_that_proves_nothing_is_a_problem_and_does_not_count(tmp_path, text):
    found = marks(marked(tmp_path, text))

    assert len(problems({"L01": row("L01", "done")}, found)) == 2


def test_a_mark_on_a_test_that_only_the_soak_runs_is_a_problem(tmp_path):
    found = marks(marked(tmp_path, "@pytest.mark.soak\n@pytest.mark.row('L01')\ndef test_it(): ...\n"))

    assert [line for line in problems({"L01": row("L01", "done")}, found) if "`make test` runs" in line]


def test_a_mark_in_a_file_that_pytest_does_not_collect_is_a_problem(tmp_path):
    folder = marked(tmp_path, '@pytest.mark.row("L01")\ndef test_a(): ...\n', name="helpers.py")

    assert problems({"L01": row("L01", "open")}, marks(folder)) != []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('state = "open"\n\n#', 'state = "perhaps"\n\n#'),
        ('id = "L02"', 'id = "L01"'),
        ('issue = "B"\n', ""),
        ('issue = "B"', 'isue = "B"'),
    ],
    ids=["unknown state", "id twice", "key missing", "key misspelt"],
)
def test_a_malformed_manifest_is_refused(tmp_path, old, new):
    manifest = tmp_path / "requirements.toml"
    manifest.write_text(MANIFEST.replace(old, new))

    with pytest.raises(ValueError, match="Row L0"):
        read_rows(manifest)


def test_marking_done_changes_only_the_state_of_rows_that_a_test_names(tmp_path):
    manifest = tmp_path / "requirements.toml"
    manifest.write_text(MANIFEST)
    marked(tmp_path, '@pytest.mark.row("L01")\ndef test_a(): ...\n')

    assert mark_done(manifest, tmp_path) == ["L01"]

    assert manifest.read_text() == MANIFEST.replace('state = "open"\n\n#', 'state = "done"\n\n#')
    assert mark_done(manifest, tmp_path) == []


def test_the_report_counts_open_rows_by_issue():
    rows = {"L01": row("L01", "open"), "L02": row("L02", "done")}

    assert report(rows) == ["issue A: 1 of 2 rows open"]


# --- what the suite does with skips and hangs ------------------------------------------------------------------------

SKIPS = """
import pytest
@pytest.mark.skip(reason="no moon")
def test_marked(): ...
def test_called(): pytest.skip("no stars")
@pytest.mark.xfail(reason="known")
def test_expected(): assert False
def test_passes(): ...
"""


def suite(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests in a process of its own, under this project's conftest."""
    (folder / "test_it.py").write_text(text)
    tests = str(PROJECT / "tests")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": tests, "TREADLE_NO_SKIPS": "0", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_skipped_tests_are_told_with_their_reasons(tmp_path):
    ran = suite(tmp_path, SKIPS)

    assert ran.returncode == 0
    assert "SKIPPED: 2 tests proved nothing" in ran.stdout
    assert "no moon\n    test_it.py::test_marked" in ran.stdout
    assert "no stars\n    test_it.py::test_called" in ran.stdout


def test_where_nothing_may_be_skipped_a_skip_fails_with_its_reason(tmp_path):
    ran = suite(tmp_path, SKIPS, TREADLE_NO_SKIPS="1")

    assert ran.returncode == 1
    assert "nothing may be skipped (TREADLE_NO_SKIPS=1): no moon" in ran.stdout
    assert "nothing may be skipped (TREADLE_NO_SKIPS=1): no stars" in ran.stdout
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in ran.stdout


def test_where_nothing_may_be_skipped_a_skipped_file_fails_too(tmp_path):
    ran = suite(tmp_path, 'import pytest\npytest.skip("no sun", allow_module_level=True)\n', TREADLE_NO_SKIPS="1")

    assert ran.returncode != 0
    assert "no sun" in ran.stdout


def test_a_hanging_test_ends_with_every_stack_printed(tmp_path):
    ran = suite(tmp_path, "import threading\ndef test_hangs(): threading.Event().wait()\n", TREADLE_HANG_SECONDS="0.5")

    assert ran.returncode != 0
    assert "in test_hangs" in ran.stderr
