"""Rules at the terminal: their scopes, how far an answer reaches, and the command that lists them and tries them on a call."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from treadle import open_session


@pytest.fixture
def ruled(treadle):
    (treadle.folder / ".treadle").mkdir()
    (treadle.folder / ".treadle" / "config.toml").write_text(
        'ask = ["shell(git push:*)"]\ndeny = ["read(path=.env)"]\n'
    )
    (treadle.folder / "own.toml").write_text('allow = ["shell(git:*)", "write(src/*)", "read(path=.env)"]\n')
    (treadle.folder / "managed.toml").write_text('deny = ["shell(git tag:*)"]\n')
    treadle.environment["TREADLE_MANAGED"] = str(treadle.folder / "managed.toml")
    return treadle


def ruling(treadle, *words):
    options = ("--json", "--config", "own.toml", "--tools", "shell,read,write", "--sandbox", "off")
    return treadle.json("permissions", *options, *words, code=0)


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("line", "decision", "rule", "scope"),
    [
        ("git status", "allow", "allow shell(git:*)", "user"),
        ("git push origin", "ask", "ask shell(git push:*)", "project"),
        ("git status; git push", "ask", "ask shell(git push:*)", "project"),
        ("git tag v1", "deny", "deny shell(git tag:*)", "managed"),
        ("cat .env", "deny", "deny read(path=.env)", "project"),
        ("git log --output=x", "ask", "cannot decide: deny shell(git tag:*)", "runtime"),
    ],
)
def test_deny_beats_ask_beats_allow_over_all_scopes(ruled, line, decision, rule, scope):
    found = ruling(ruled, "shell", line)

    assert (found["decision"], found["rule"], found["scope"]) == (decision, rule, scope)


@pytest.mark.row("P11")
def test_a_flag_of_the_person_does_not_lift_what_project_and_organisation_deny(ruled):
    for words in (("read", ".env"), ("shell", "git tag v2")):
        assert ruling(ruled, "--allow", "read", "--allow", "shell", *words)["decision"] == "deny"


@pytest.mark.row("P11")
def test_every_rule_is_listed_with_its_scope_its_file_and_what_it_covers(ruled):
    rules = ruling(ruled, "--ask", "write")

    assert [(one["kind"], one["rule"], one["scope"]) for one in rules] == [
        ("deny", "read(path=.env)", "project"),
        ("deny", "shell(git tag:*)", "managed"),
        ("ask", "write", "session"),
        ("ask", "shell(git push:*)", "project"),
        ("allow", "shell(git:*)", "user"),
        ("allow", "write(src/*)", "user"),
        ("allow", "read(path=.env)", "user"),
    ]
    assert rules[1]["origin"] == str(ruled.folder / "managed.toml")
    assert rules[2]["covers"] == "every call of write"
    assert rules[4]["covers"].startswith("`git` with any arguments, but no option that writes")
    assert "managed  (" in ruled("permissions", code=0).stdout


@pytest.mark.row("P11")
def test_each_rule_says_how_often_it_has_answered(treadle):
    calls = [{"name": "shell", "arguments": {"command": command}} for command in ("touch a && mkdir b", "touch c")]
    script = treadle.script("s.json", [{"calls": calls}, {"text": "Done."}])
    rules = [one for name in ("touch", "mkdir", "rm") for one in ("--allow", f"shell({name}:*)")]
    treadle("run", "-m", script, "--tools", "shell", *rules, "Touch", code=0)

    listed = treadle.json("permissions", *rules, "--json", code=0)
    assert [(one["rule"], one["answered"]) for one in listed] == [
        ("shell(touch:*)", 2),
        ("shell(mkdir:*)", 1),
        ("shell(rm:*)", 0),
    ]
    assert "answered 2x" in treadle("permissions", *rules, code=0).stdout
    assert treadle.json("permissions", "--deny", "shell(sudo:*)", "--json", code=0)[0]["rule"] == "shell(sudo:*)"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
@pytest.mark.parametrize(
    ("words", "is_confined"), [((), True), (("--sandbox", "off"), False), (("--mode", "bypass"), False)]
)
def test_commands_are_confined_by_default_where_a_sandbox_works(treadle, tmp_path_factory, words, is_confined):
    outside = tmp_path_factory.mktemp("outside") / "file"
    line = f"touch inside; touch {outside}"
    script = treadle.script(
        "s.json", [{"calls": [{"name": "shell", "arguments": {"command": line}}]}, {"text": "Done."}]
    )

    treadle("run", "-m", script, "--tools", "shell", "--allow", "shell", *words, "Touch", code=0)

    assert (treadle.folder / "inside").exists()
    assert outside.exists() is not is_confined


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
def test_commands_of_an_agent_that_is_a_tool_are_confined_too(treadle, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "file"
    (treadle.folder / "mine.py").write_text(
        "from treadle import Agent, allow, shell_tool\n"
        "from treadle.testing import ScriptedModel, call, text\n"
        f"turns = [call('shell', command='touch inside; touch {outside}'), text('Done.')]\n"
        "worker = Agent(ScriptedModel(turns), tools=[shell_tool('.')], policy=allow('shell')).as_tool('worker', 'Work.')\n"
    )
    script = treadle.script("s.json", [{"calls": [{"name": "worker", "arguments": {"task": "Go"}}]}, {"text": "Done."}])

    treadle("run", "-m", script, "--tools", "mine.py", "--allow", "shell", "--allow", "worker", "Go", code=0)

    assert (treadle.folder / "inside").exists()
    assert not outside.exists()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
@pytest.mark.parametrize(("line", "decision"), [("make test", "sandbox"), ("git commit -m x", "ask")])
def test_mode_auto_is_tried_with_the_sandbox_that_a_run_would_have(treadle, line, decision):
    words = ("permissions", "--json", "--tools", "shell", "--mode", "auto", "--sandbox", "on", "shell", line)

    assert treadle.json(*words, code=0)["decision"] == decision


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
@pytest.mark.parametrize(
    ("rules", "decision"),
    [((), "ask"), (("--allow", "network(api.example.com)"), "sandbox"), (("--deny", "network(*.com)"), "deny")],
)
def test_a_rule_on_a_host_lets_a_confined_command_reach_it(treadle, rules, decision):
    words = ("permissions", "--json", "--tools", "shell", "--mode", "auto", "--sandbox", "on", *rules)

    assert treadle.json(*words, "shell", "curl api.example.com/x", code=0)["decision"] == decision


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
def test_the_modes_do_what_the_page_says(treadle):
    page = (Path(__file__).parents[2] / "docs/use/modes.md").read_text("utf-8")
    lines = page[page.index("| What is done |") :].partition("\n\n")[0].splitlines()
    heading, _, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines)

    assert treadle.json("permissions", "--modes", "--json", "--sandbox", "auto", code=0) == [
        dict(zip(["what", *heading[1:]], row, strict=True)) for row in rows
    ]
    assert "make test" in treadle("permissions", "--modes", code=0).stdout
    confined = treadle.json("permissions", "--modes", "--json", "--sandbox", "on", code=0)
    assert [one["bypass"] for one in confined if "git commit" in one["what"] or "make test" in one["what"]] == [
        "runs",
        "asks",
    ]


def test_a_call_that_can_never_run_and_a_mode_are_said(ruled):
    assert ruling(ruled, "read", '{"nope": 1}')["decision"] == "invalid"
    assert ruling(ruled, "--mode", "plan", "write", '{"path": "src/a", "content": ""}')["rule"] == "mode plan"
    assert "No tool 'nope'" in ruled("permissions", "nope", code=2).stderr
    asked = ruling(ruled, "write", '{"path": "docs/a", "content": ""}')
    assert (asked["decision"], asked["rules"]) == ("ask", ["write(path=docs/a)"])
    assert not (ruled.folder / "docs").exists()


def test_an_organisations_file_holds_rules_and_nothing_else(ruled):
    (ruled.folder / "managed.toml").write_text('model = "demo"\n')
    assert "model" in ruled("permissions", code=2).stderr
    (ruled.folder / "managed.toml").unlink()
    assert "does not exist" in ruled("permissions", code=2).stderr


# --- how far an answer reaches ---------------------------------------------------------------------------------------


@pytest.fixture
def paused(treadle):
    calls = [[{"name": "write", "arguments": {"path": name, "content": "x"}}] for name in ("a", "a", "b")]
    script = treadle.script("s.json", [*({"calls": one} for one in calls), {"text": "Done."}])
    return treadle.json("run", "--json", "-m", script, "--tools", "write", "Write", code=11)


@pytest.mark.row("P07")
@pytest.mark.parametrize(("scope", "files"), [("once", 1), ("session", 2), ("rule", 2)])
def test_an_answer_reaches_as_far_as_its_scope(treadle, paused, scope, files):
    approval = paused["approvals"][0]

    answered = treadle("approve", approval["id"], "--scope", scope, code=0)
    report = treadle.json("resume", paused["session_id"], "--json", code=11)

    assert len([one for one in report["tool_calls"] if one["status"] == "ok"]) == files
    says = "rule write(path=a): calls of write whose path is a"
    assert (says in answered.stderr) == (scope != "once")
    if scope != "once":
        assert answered.stderr.index(says) < answered.stderr.index("Allowed by")
    kept = treadle.json("permissions", "--json", code=0)
    assert [one["rule"] for one in kept] == (["write(path=a)"] if scope == "rule" else [])


@pytest.mark.row("P14")
def test_what_no_rule_can_vouch_for_is_allowed_once_only(treadle):
    calls = [{"name": "shell", "arguments": {"command": "touch .envrc"}}]
    script = treadle.script("s.json", [{"calls": calls}, {"text": "Done."}])
    treadle("run", "-m", script, "--tools", "shell", "Touch", code=11)
    approval = treadle.json("approvals", "--json", code=0)[0]

    assert approval["rules"] == []
    for scope in ("session", "rule"):
        assert "can be allowed only once" in treadle("approve", approval["id"], "--scope", scope, code=2).stderr
    assert (
        "cannot be combined with --deny"
        in treadle("approve", approval["id"], "--scope", "rule", "--deny", code=2).stderr
    )
    assert json.loads(treadle("permissions", "--json", code=0).stdout) == []
    assert "--scope" not in treadle("approvals", code=0).stdout


@pytest.fixture
def misspelt(treadle):
    """Rules of a person's file that match no call, and what is said of each."""
    (treadle.folder / "own.toml").write_text('deny = ["raed", "read(pat=x)"]\nallow = ["deploy"]\n')
    return treadle


RAED = "The rule `deny raed` of own.toml denies nothing: there is no tool `raed`. Did you mean `read`?"
PAT = "The rule `deny read(pat=x)` of own.toml denies nothing: `read` has no argument `pat`. Did you mean `path`?"
DEPLOY = "The rule `allow deploy` of own.toml allows nothing: there is no tool `deploy`."


@pytest.mark.row("P11")
def test_rules_that_match_no_call_are_told_before_a_run_but_no_permission_for_tools_that_are_elsewhere(misspelt):
    ran = misspelt(
        "run", "-q", "-m", "demo", "--config", "own.toml", "--deny", "bash", "--allow", "deplyo", "hello", code=0
    )

    assert [line for line in ran.stderr.splitlines() if line.startswith("warning: The rule")] == [
        f"warning: {RAED}",
        f"warning: {PAT}",
        "warning: The rule `deny bash` denies nothing: there is no tool `bash`. Did you mean `shell`?",
        "warning: The rule `allow deplyo` allows nothing: there is no tool `deplyo`.",
    ]


@pytest.mark.row("P11")
def test_permissions_and_doctor_list_all_rules_that_match_no_call(misspelt):
    listed = misspelt("permissions", "--config", "own.toml", code=0).stdout.splitlines()
    rules = misspelt.json("permissions", "--json", "--config", "own.toml", code=0)
    checks = misspelt.json("doctor", "--json", "--config", "own.toml", code=0)["checks"]

    assert listed[-3:] == [f"warning: {one}" for one in (RAED, PAT, DEPLOY)]
    assert [one["unmatched"] for one in rules] == [RAED, PAT, DEPLOY]
    assert [(one["level"], one["message"]) for one in checks if one["name"] == "rules"] == [
        ("warn", RAED),
        ("warn", PAT),
        ("warn", DEPLOY),
    ]


@pytest.mark.row("P11")
def test_a_line_is_judged_where_commands_may_run_in_the_background_too(treadle):
    about = ("permissions", "--tools", "read,background", "--deny", "shell(git push:*)")
    assert treadle(*about, "shell", "git -C x push", code=0).stdout.startswith("deny: deny shell(git push:*)")
    missing = treadle(*about, "background", "git push", code=2)
    assert "Available: kill_process, list_processes, read, read_process, shell, write_process." in missing.stderr


def test_a_call_of_a_tool_that_only_a_conversation_has_is_decided_too(treadle):
    ran = treadle("permissions", "shell", "git push", "--ask", "shell(git push:*)", "--sandbox", "off", code=0)

    assert ran.stdout.startswith("ask: ask shell(git push:*) (session)")
    assert "`treadle run` has it only with --tools" in ran.stderr
    assert "note" not in treadle("permissions", "shell", "git push", "--tools", "shell", code=0).stderr
    assert "also has write, edit, shell" in treadle("tools", code=0).stderr
    assert treadle("tools", "--tools", "read", code=0).stderr == ""


@pytest.mark.parametrize(("given", "code"), [([], 0), (["--mode", "ask"], 11)])
def test_the_mode_of_the_command_line_replaces_one_that_was_set_since_the_last_run(treadle, given, code):
    write = {"calls": [{"name": "write", "arguments": {"path": "new.txt", "content": "new"}}]}
    treadle("run", "-m", treadle.script("one.json", [{"text": "Hello."}]), "--session", "s", "Greet", code=0)

    async def set_mode() -> None:
        async with open_session(treadle.home / "journal.db", id="s") as session:
            await session.set_mode("bypass")

    asyncio.run(set_mode())
    two = treadle.script("two.json", [write, {"text": "Done."}])
    treadle("run", "-m", two, "--tools", "write", "--session", "s", *given, "Write", code=code)
