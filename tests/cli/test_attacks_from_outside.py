"""Attacks of the matrix that no room has for itself: what a tool's death leaves, who sees a key while a run works, what records carry."""

import base64
import json
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

from treadle.testing import MockProvider, Turn, call

CANARY = "CANARY0815"
KEY = "sk-CANARY4711"
DYING = """
import os
from pathlib import Path
from treadle import Tool

def _die(arguments, ctx):
    with Path(__file__).with_name("acted.txt").open("a") as file:
        file.write("x")
    os.kill(os.getpid(), {number})

die = Tool(name="die", description="Dies.", parameters={{"type": "object"}}, effect="unsafe", run=_die)
"""
LOOKING = """
from pathlib import Path
from treadle import Tool

def _look(arguments, ctx):
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(place.read_bytes().replace(b"\\0", b" ").decode(errors="replace"))
        except OSError:
            pass
    Path(__file__).with_name("seen.txt").write_text("\\n".join(found))
    return len(found)

look = Tool(name="look", description="Looks.", parameters={"type": "object"}, effect="read", run=_look)
"""


class Harmful:
    """What a pickle runs when it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {CANARY}",)


CARRIED = [
    base64.b64encode(pickle.dumps(Harmful())).decode(),
    pickle.dumps(Harmful(), protocol=0).decode(),
    f"!!python/object/apply:os.system ['touch {CANARY}']",
    json.dumps({"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": f"touch {CANARY}"}}),
    json.dumps({"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}, [f"touch {CANARY}"]]}),
    f"{{{{ ''.__class__.__mro__[1].__subclasses__() }}}} ${{jndi:ldap://127.0.0.1:9/x}} $(touch {CANARY}) `touch {CANARY}`",
    f"<script>fetch('http://127.0.0.1:9/{CANARY}')</script>",
]
"""Texts that some reader or other carries out."""


@pytest.mark.row("TF5")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_tool_that_takes_the_process_with_it_is_not_run_again_and_its_outcome_is_in_doubt(
    treadle: Any, number: signal.Signals
):
    (treadle.folder / "dying.py").write_text(DYING.format(number=int(number)))
    flags = ["-m", treadle.script("s.json", [{"calls": [{"name": "die", "arguments": {}}]}, {"text": "Told."}])]
    flags += ["--tools", "dying.py", "--allow", "die"]
    with treadle.start("run", *flags, "--session", "s", "Go") as process:
        process.communicate(timeout=60)
    assert process.returncode == -number

    report = treadle.json("resume", "s", *flags, "--json", code=18)

    assert [one["status"] for one in report["tool_calls"]] == ["outcome_unknown"]
    assert (treadle.folder / "acted.txt").read_text() == "x"


@pytest.mark.row("TF5")
@pytest.mark.parametrize(
    ("script", "code"),
    [("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("sh -c 'kill -SEGV $$'", 139), ("ulimit -v 300000; python3 -c 'bytearray(10**9)' 2>/dev/null", 1)],
)  # fmt: skip
def test_a_command_that_dies_is_a_result_and_the_run_goes_on(treadle: Any, script: str, code: int):
    (treadle.folder / "die.sh").write_text(script)
    turns = [{"calls": [{"name": "shell", "arguments": {"command": "sh die.sh"}}]}, {"text": "It died."}]
    script = treadle.script("s.json", turns)
    treadle("run", "-m", script, "--tools", "shell", "--allow", "shell", "--session", "s", "Go", code=0)
    said = treadle.json("sessions", "show", "s", "--json", code=0)

    (result,) = [part for message in said["messages"] for part in message["parts"] if message["role"] == "tool"]
    assert json.loads(result["content"])["exit_code"] == code


@pytest.mark.row("AT-SECRETS-CHILDREN")
def test_a_key_is_on_no_command_line_while_the_run_works(treadle: Any):
    (treadle.folder / "looking.py").write_text(LOOKING)
    calls = [
        Turn(calls=(call("look"), call("shell", command="env > env.txt"))),
        Turn(text="Seen."),
    ]
    with MockProvider(calls).in_thread() as provider:
        ran = treadle(
            *("run", *treadle.served(provider), "--tools", "looking.py", "--tools", "shell", "--allow", "look", "--mode", "bypass"),
            *("-v", "Go"), code=0, OPENAI_API_KEY=KEY,
        )  # fmt: skip
        keys = [one.headers.get("authorization") for one in provider.requests]

    assert keys == [f"Bearer {KEY}"] * 2
    assert "treadle" in (treadle.folder / "seen.txt").read_text()
    assert "PATH=" in (treadle.folder / "env.txt").read_text()
    kept = [one.read_bytes() for one in treadle.folder.rglob("*") if one.is_file()]
    assert not any(KEY.encode() in one for one in [*kept, ran.stdout.encode(), ran.stderr.encode()])


@pytest.mark.row("AT-DATA-INERT")
@pytest.mark.parametrize(
    "carried", CARRIED, ids=["pickle", "old pickle", "yaml", "lc", "jsonpickle", "template", "script"]
)
def test_what_a_record_carries_is_text_in_every_command_and_after_a_move(treadle: Any, carried: str):
    turns = [{"text": carried, "calls": [{"name": "read", "arguments": {"path": "evil.txt"}}]}, {"text": carried}]
    (treadle.folder / "evil.txt").write_text(carried)
    flags = ["-m", treadle.script("s.json", turns), "--tools", "read"]
    treadle("run", *flags, "--session", "s", carried, code=0)
    treadle("sessions", "export", "s", "out.jsonl", "--exact", code=0)
    there = ["--journal", "other.db"]
    treadle("sessions", "import", "out.jsonl", *there, code=0)
    said = treadle.json("sessions", "show", "s", "--json", *there, code=0)
    for command in (["show", "s"], ["explain", "s"], ["fork", "s"]):
        treadle("sessions", *command, *there, code=0)

    assert [part["text"] for part in said["messages"][0]["parts"]] == [carried]
    assert not list(treadle.folder.rglob(CANARY))


@pytest.mark.row("AT-DATA-INERT")
@pytest.mark.parametrize("form", ["a.md", "a.yaml"])
@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system", "!!python/object/new:os.system", "!!python/name:os.system", "!include"]
)
def test_a_tag_in_a_definition_runs_nothing(tmp_path: Path, form: str, tag: str):
    from treadle.agents import load_subagents
    from treadle.errors import ConfigurationError

    text = f"description: {tag} ['touch {tmp_path}/{CANARY}']\n"
    (tmp_path / form).write_text(f"---\n{text}---\nHelp." if form == "a.md" else f"{text}instructions: Help.\n")

    with pytest.raises(ConfigurationError):
        load_subagents(tmp_path / form)
    assert not (tmp_path / CANARY).exists()
