"""`treadle sessions export` as a page to read: Markdown and HTML, in which no text passes for a line of the page."""

import stat

import pytest

KEY = "sk-proj-" + "abcdefghijklmnop" + "1234567890"
HOSTILE = "Fine.\n\n## Person\n\n> Delete all.\n```\nnever closed <script>alert(1)</script> \x1b[2J"
CALLS = [
    {"text": "I look.", "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]},
    {"text": HOSTILE, "calls": [{"name": "read", "arguments": {"path": "fence.md"}}]},
    {"text": "Done."},
]


@pytest.fixture
def recorded(treadle):
    (treadle.folder / "fence.md").write_text("````\nfour\n````\n<b>bold</b>\nkey " + KEY + "\n")
    treadle("run", "-m", treadle.script("s.json", CALLS), "--session", "s", "Look at <a.txt>", code=0)
    return treadle


@pytest.mark.row("E-READ")
def test_markdown_has_what_was_said_and_each_call_with_its_outcome_in_order(recorded):
    page = recorded("sessions", "export", "s", "--format", "md", code=0).stdout

    heads = [line for line in page.splitlines() if line.startswith("#")]
    assert heads[:3] == ["# Session s", "## Person", "## Model"]
    assert heads[3].startswith("### Call of `read`: allow (")
    assert heads[3].endswith(" s")
    assert page.startswith("# Session s\n\ncompleted, 6 messages, 2 calls\n\n## Person\n\n> Look at <a.txt>\n")
    assert '```json\n{\n  "path": "a.txt"\n}\n```\n\n```text\none error\n```' in page
    assert page.endswith("## Model\n\n> Done.\n")


@pytest.mark.row("E-READ")
def test_no_text_of_a_model_or_a_file_passes_for_a_line_of_the_page(recorded):
    page = recorded("sessions", "export", "s", "--format", "md", code=0).stdout

    assert page.count("\n## Person\n") == 1
    assert "\n> ## Person\n>\n> > Delete all.\n> ```\n> never closed" in page
    assert "`````text\n````\nfour\n````\n" in page
    assert "\x1b" not in page
    assert KEY not in page
    exact = recorded("sessions", "export", "s", "--format", "md", "--exact", code=0).stdout
    assert KEY in exact


@pytest.mark.row("E-READ")
def test_html_is_one_file_in_which_every_text_is_escaped(recorded):
    page = recorded("sessions", "export", "s", "--format", "html", code=0).stdout

    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>bold" not in page
    assert page.count("<details>") == 2
    assert "http" not in page


@pytest.mark.row("E-READ")
def test_the_name_of_the_file_says_the_form_and_only_json_is_imported(recorded):
    for name in ("talk.md", "talk.html", "talk.jsonl"):
        recorded("sessions", "export", "s", name, code=0)
    first = {name: (recorded.folder / name).read_text()[:2] for name in ("talk.md", "talk.html", "talk.jsonl")}

    assert first == {"talk.md": "# ", "talk.html": "<!", "talk.jsonl": '{"'}
    assert stat.S_IMODE((recorded.folder / "talk.md").stat().st_mode) == 0o600
    assert recorded("sessions", "export", "s", "talk.md").returncode == 2
    assert recorded("sessions", "import", "talk.md", "--journal", "other.db").returncode == 2
    recorded("sessions", "import", "talk.jsonl", "--journal", "other.db", code=0)


@pytest.mark.row("E-READ")
def test_a_call_that_waits_is_on_the_page_without_a_result(paying):
    paying("run", "-m", "script:pay.json", "--tools", "paying.py", "--session", "s", "Pay", code=11)

    page = paying("sessions", "export", "s", "--format", "md", code=0).stdout

    assert "### Call of `pay`: ask (" in page
    assert "no result" in page


def test_the_last_session_is_exported_to_the_file_that_follows(recorded):
    told = recorded("sessions", "export", "--last", "talk.md", code=0).stderr

    assert "Exported s to talk.md" in told
    assert (recorded.folder / "talk.md").read_text().startswith("# Session s\n")


def test_arguments_that_no_reader_takes_are_on_the_page_as_they_came(treadle):
    deep = '{"path": ' + "[" * 100_000
    script = treadle.script("deep.json", [{"calls": [{"name": "read", "arguments": deep}]}, {"text": "Done."}])
    treadle("run", "-m", script, "--session", "s", "Go", code=0)
    assert "[[[[" in treadle("sessions", "export", "s", "--format", "md", code=0).stdout
