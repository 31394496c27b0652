"""`treadle mcp` and the servers of a folder: nothing of a folder is started before a person has seen its command."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

RAW = Path(__file__).parents[1] / "toolsets" / "mcp_raw_server.py"


@pytest.fixture
def project(treadle: Any) -> Path:
    """A folder whose .mcp.json names a server, and a script that calls it."""
    write(treadle.folder, str(treadle.folder))
    script = [{"calls": [{"name": "mcp__raw__echo", "arguments": {"text": "hello"}}]}, {"text": "Done."}]
    (treadle.folder / "s.json").write_text(json.dumps(script))
    return treadle.folder


def write(folder: Path, *arguments: str, **more: Any) -> None:
    entry = {"command": sys.executable, "args": ["-S", "-E", str(RAW), *arguments], **more}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))


def run(treadle: Any) -> tuple[bool, str]:
    """Run a task; return whether the server was started, and what a person reads."""
    (treadle.folder / "log").unlink(missing_ok=True)
    done = treadle("run", "-m", "script:s.json", "--allow", "mcp__raw__echo", "go", code=0)
    return (treadle.folder / "log").exists(), done.stderr


@pytest.mark.row("E-MCP-TRUST")
def test_a_server_of_a_folder_is_started_once_its_command_was_approved(treadle: Any, project: Path):
    ran, words = run(treadle)
    assert not ran
    assert "not used until you approve them: raw" in words

    listed = treadle("mcp", code=0).stdout
    assert "waiting" in listed
    assert str(RAW) in listed

    assert str(RAW) in treadle("mcp", "approve", "raw", code=0).stdout
    assert run(treadle)[0]

    write(project, str(project), "hostile")
    ran, words = run(treadle)
    assert not ran
    assert treadle.json("mcp", "--json", code=0)[0]["state"] == "changed"

    treadle("mcp", "approve", code=0)
    assert run(treadle)[0]
    treadle("mcp", "revoke", "raw", code=0)
    assert not run(treadle)[0]


@pytest.mark.row("E-MCP-TRUST")
def test_a_change_of_any_part_of_an_entry_asks_again(treadle: Any, project: Path):
    for change in ({"env": {"A": "1"}}, {"env": {"A": "${HOME}"}}, {"cwd": "/"}, {"url": "http://127.0.0.1:9/mcp"}):
        write(project, str(project))
        treadle("mcp", "approve", code=0)
        write(project, str(project), **change)
        assert treadle.json("mcp", "--json", code=0)[0]["state"] == "changed", change


@pytest.mark.row("E-MCP-TRUST")
@pytest.mark.parametrize(
    ("command", "arguments", "file"),
    [
        (sys.executable, ["server.py", "${SERVERS}", "data.db"], "server.py"),
        (sys.executable, ["-m", "tools.server", "${SERVERS}", "data.db"], "tools/server.py"),
        ("python3", ["${SERVERS}/server.py"], "server.py"),
        ("python3", ["${NOPE:-./server.py}"], "server.py"),
        ("python3", ["-Im", "server"], "server.py"),
        ("sh", ["-c", "cd tools && exec ./start --now"], "tools/start"),
        ("env", ["A=b", "./start"], "start"),
        ("node", ["-r", "./conf.js", "server"], "conf.js"),
        ("node", ["--env-file", "settings.env", "server"], "settings.env"),
        ("${SERVERS}/start", [], "start"),
    ],
)
def test_a_program_of_the_folder_is_approved_with_its_server_however_it_is_named(
    treadle: Any, project: Path, command: str, arguments: list[str], file: str
):
    treadle.environment["SERVERS"] = str(project)
    (project / "tools").mkdir()
    for name in ("server.py", "tools/server.py", "start", "tools/start", "conf.js", "settings.env", "data.db"):
        (project / name).write_text("one")
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"raw": {"command": command, "args": arguments}}}))
    shown = treadle("mcp", "approve", "raw", code=0).stdout.rpartition("with its files: ")[2]
    assert file in shown
    assert "data.db" not in shown

    (project / "data.db").write_text("two")
    assert treadle.json("mcp", "--json", code=0)[0]["state"] == "approved"
    (project / file).write_text("two")
    assert treadle.json("mcp", "--json", code=0)[0]["state"] == "changed"
    assert not run(treadle)[0]


@pytest.mark.row("E-MCP-TRUST")
@pytest.mark.parametrize("said", [{"disabled": True}, {"enabled": False}])
def test_a_server_that_is_disabled_is_shown_and_never_started(treadle: Any, project: Path, said: dict[str, bool]):
    write(project, str(project), **said)
    assert treadle.json("mcp", "--json", code=0)[0]["state"] == "disabled"
    assert "approve" not in treadle("mcp", code=0).stdout
    assert "No server is waiting" in treadle("mcp", "approve", code=0).stdout

    for act in ("approve", "test"):
        assert "is disabled in" in treadle("mcp", act, "raw", code=2).stderr
    ran, words = run(treadle)
    assert not ran
    assert "approve" not in words


@pytest.mark.row("E-MCP-TRUST")
@pytest.mark.parametrize("arguments", [["-c", "import argparse"], ["-m", "json.tool", "--help"]])
def test_a_server_of_python_code_imports_nothing_from_the_folder_that_was_not_approved(
    treadle: Any, project: Path, arguments: list[str]
):
    entry = {"command": sys.executable, "args": arguments}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"raw": entry}}))
    treadle("mcp", "approve", "raw", code=0)
    (project / "gettext.py").write_text("open('ran', 'w')\n")
    treadle("mcp", "test", "raw", code=1)

    assert not (project / "ran").exists()


def test_what_hides_in_a_command_is_shown(treadle: Any, project: Path):
    write(project, "a\u200b\n\x1b[2Jb", env={"K": "${SECRET}"})

    shown = treadle("mcp", code=0).stdout
    assert "<U+200B>" in shown
    assert "<U+001B>" in shown
    assert "K=${SECRET}" in shown
    assert "\x1b" not in shown


def test_a_server_is_added_tested_and_removed(treadle: Any):
    command = ("--", sys.executable, "-S", "-E", str(RAW), str(treadle.folder))
    added = treadle("mcp", "add", "raw", "-e", "SERVICE_TOKEN=canary-5512ab90cd", *command, code=0)
    assert "treadle mcp test raw" in added.stdout
    assert (treadle.home / "mcp.json").stat().st_mode & 0o077 == 0

    tested = treadle("mcp", "test", "raw", code=0).stdout
    assert "works, 19 tools" in tested
    assert "mcp__raw__echo" in tested
    assert "own" in treadle("mcp", "list", code=0).stdout
    assert "already" in treadle("mcp", "add", "raw", *command, code=2).stderr

    treadle("mcp", "remove", "raw", code=0)
    assert "No MCP server is configured" in treadle("mcp", code=0).stdout
    assert "no server 'raw'" in treadle("mcp", "remove", "raw", code=2).stderr


def test_the_test_of_a_server_says_what_is_odd_about_a_tool_and_why_another_is_missing(treadle: Any):
    command = ("--", sys.executable, "-S", "-E", str(RAW), str(treadle.folder), "loose")
    treadle("mcp", "add", "raw", *command, code=0)

    tested = treadle("mcp", "test", "raw", code=0).stdout
    assert "works, 14 tools" in tested
    assert "note: a default does not fit and is not filled in: `folder`: expected string; got null." in tested
    assert "note: a default does not fit and is not filled in: `deep`: expected boolean;" in tested
    assert "note: The schema of its parameters was corrected: it is not a valid JSON Schema: " in tested
    assert "the schema refers to 'https://example.com/schema.json', and only references within" in tested
    assert "words: not offered: inputSchema: Input should be a valid dictionary" in tested


def test_a_server_of_the_project_is_written_into_its_file_and_counts_for_who_wrote_it(treadle: Any):
    where = ("--scope", "project", "--header", "X-Key: ${DOCS_KEY:-none}")
    treadle("mcp", "add", "docs", *where, "http://127.0.0.1:9/mcp", code=0)

    entry = json.loads((treadle.folder / ".mcp.json").read_text())["mcpServers"]["docs"]
    assert entry == {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${DOCS_KEY:-none}"}}
    assert treadle.json("mcp", "--json", code=0)[0]["state"] == "approved"


def test_a_test_of_a_server_that_does_not_work_says_why(treadle: Any):
    treadle("mcp", "add", "raw", "--", sys.executable, str(RAW), str(treadle.folder), "crash", code=0)

    assert (
        "raw: It has ended with exit code 3. Its last output: no licence found" in treadle("mcp", "test", code=1).stdout
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "mcpServers"),
        ('{"mcpServers": {"a": 5}}', "must be an object"),
    ],
)
def test_a_broken_file_of_a_folder_is_reported_and_the_run_goes_on(
    treadle: Any, project: Path, content: str, words: str
):
    (project / ".mcp.json").write_text(content)

    ran, said = run(treadle)
    assert not ran
    assert words in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mcp", "add"), "Name the server"),
        (("mcp", "add", "a"), "Give the command"),
        (("mcp", "add", "a", "-e", "X", "--", "true"), "NAME=VALUE"),
        (("mcp", "add", "a", "--", "${NOT_SET_ANYWHERE}"), "NOT_SET_ANYWHERE"),
        (("mcp", "test", "a"), "no MCP server 'a'"),
        (("mcp", "test"), "No MCP server is configured"),
    ],
)
def test_what_is_wrong_with_a_command_is_told(treadle: Any, arguments: tuple[str, ...], words: str):
    assert words in treadle(*arguments, code=2).stderr


def test_of_two_servers_whose_tools_have_the_same_names_the_persons_is_used(treadle: Any, project: Path):
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"my.raw": {"command": "false"}}}))
    treadle("mcp", "add", "my_raw", "--", "true", code=0)

    assert [(one["name"], one["state"]) for one in treadle.json("mcp", "--json", code=0)] == [("my_raw", "own")]


def table(folder: Path, *arguments: str, more: str = "") -> str:
    """Return a server as a table of a configuration."""
    words = json.dumps(["-S", "-E", str(RAW), str(folder), *arguments])
    return f"[mcp.servers.raw]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n{more}"


@pytest.mark.row("E-MCP-CONFIG")
def test_a_server_of_the_persons_configuration_is_used(treadle: Any, project: Path):
    (project / ".mcp.json").unlink()
    treadle.home.mkdir(exist_ok=True)
    config = treadle.home / "config.toml"
    config.write_text(table(project, more='effects = {echo = "read"}\ntimeout = 9.5\nenv = {TOKEN = "${HOME}"}\n'))

    (listed,) = treadle.json("mcp", "--json", code=0)
    assert (listed["state"], listed["origin"]) == ("own", str(config))
    assert str(config) in treadle("mcp", code=0).stdout
    assert run(treadle)[0]


def test_tools_that_the_configuration_names_switch_no_server_off(treadle: Any, project: Path):
    treadle("mcp", "approve", "raw", code=0)
    treadle.home.mkdir(exist_ok=True)
    (treadle.home / "config.toml").write_text('tools = ["read"]\n')
    assert run(treadle)[0]

    (project / "log").unlink()
    treadle("run", "-m", "script:s.json", "--allow", "mcp__raw__echo", "--tools", "read", "go")
    assert not (project / "log").exists()


@pytest.mark.row("E-MCP-CONFIG")
def test_a_server_of_a_projects_configuration_waits_for_the_person(treadle: Any, project: Path):
    (project / ".mcp.json").unlink()
    config = project / ".treadle" / "config.toml"
    config.parent.mkdir()
    config.write_text(table(project))

    ran, words = run(treadle)
    assert not ran
    assert "not used until you approve them: raw" in words
    treadle("trust", "approve", code=0)  # the folder's rules are another matter
    assert not run(treadle)[0]
    treadle("mcp", "approve", "raw", code=0)
    assert run(treadle)[0]

    config.write_text(table(project, "hostile"))
    assert treadle.json("mcp", "--json", code=0)[0]["state"] == "changed"
    assert not run(treadle)[0]


@pytest.mark.row("E-MCP-CONFIG")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[mcp.server.a]\ncommand = 'x'", "Did you mean servers?"),
        ("[mcp.servers.a]\ncomand = 'x'", "Did you mean command?"),
        ("[mcp.servers.a]\nargs = ['x']", "needs either 'command'"),
        ("[mcp.servers.a]\ncommand = 'x'\nurl = 'http://127.0.0.1:9'", "needs either 'command'"),
        ("[mcp.servers]\na = 'x'", "must be a table"),
        ("[mcp.servers.a]\ncommand = 'x'\ntrusted = true", "cannot set 'trusted'"),
    ],
)
def test_a_wrong_server_of_a_configuration_is_reported_with_its_line(treadle: Any, text: str, words: str):
    config = treadle.folder / ".treadle" / "config.toml"
    config.parent.mkdir()
    config.write_text(text)

    failed = treadle("mcp", code=2).stderr
    assert words in failed
    assert ".treadle/config.toml, line" in failed
