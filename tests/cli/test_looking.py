"""The commands that look: doctor and tools. And the words in which strangers' text is shown."""

import json

import pytest

from treadle.cli.output.text import one_line, printable, shown_call


def test_the_doctor_checks_this_machine_and_changes_nothing(treadle):
    checks = treadle.json("doctor", "--json", code=0)["checks"]

    levels = {check["name"]: check["level"] for check in checks}
    assert {name: levels[name] for name in ("python", "sqlite", "config", "journal", "self-check")} == dict.fromkeys(
        ("python", "sqlite", "config", "journal", "self-check"), "ok"
    )
    assert (levels["model"], levels["keys"]) == ("warn", "warn")
    assert levels["sandbox"] in ("ok", "warn")
    assert not treadle.home.exists()


def test_the_doctor_tells_a_broken_configuration_and_a_broken_journal(treadle):
    (treadle.folder / "not.db").write_text("no database" * 100)
    broken = treadle("doctor", "--journal", "not.db", code=1)
    treadle.home.mkdir()
    (treadle.home / "config.toml").write_text("modell = 1\n")
    misspelt = treadle("doctor", code=1)

    assert "fail  journal" in broken.stdout
    assert "Did you mean model?" in misspelt.stdout


@pytest.mark.row("X08")
def test_the_tools_are_listed_with_schema_and_effect(treadle):
    listed = treadle.json("tools", "--json", code=0)

    assert [(one["name"], one["effect"]) for one in listed] == [
        (name, "read") for name in ("grep", "glob", "read", "list")
    ]
    assert all(one["parameters"]["type"] == "object" and one["description"] for one in listed)


@pytest.mark.row("T14")
def test_the_agent_that_would_run_is_described_whole(treadle):
    (treadle.folder / "shop.py").write_text(
        "from treadle import tool\n\n\n"
        "@tool(effect='read')\ndef stock(product: str) -> int:\n    '''Pieces in stock.'''\n    return 1\n"
    )
    options = ("-m", "demo", "--tools", "shop.py", "--deny", "stock(product=cup)")

    described = treadle.json("describe", *options, "--json", code=0)
    lines = treadle("describe", *options, code=0).stdout.splitlines()

    assert [tool["name"] for tool in described["tools"]] == ["read_artifact", "stock"]
    assert "stock(product=cup)" in json.dumps(described["policy"])
    assert "  stock: Pieces in stock. (read)" in lines
    assert not (treadle.home / "journal.db").exists()


@pytest.mark.row("T07")
def test_tools_check_compiles_contracts_and_names_what_lacks_words(treadle):
    (treadle.folder / "mine.py").write_text(
        "from treadle import Tool\n"
        "t = Tool(name='t', description='', parameters={'type': 'object', 'properties': {'x': {'type': 'string'}}}, run=print)\n"
    )

    well = treadle("tools", "check", code=0)
    poor = treadle.json("tools", "check", "--json", "--tools", "mine.py", code=0)

    assert "4 tools checked" in well.stdout
    assert [(one["tool"], one["where"], one["level"]) for one in poor["findings"]] == [
        ("t", "description", "advice"), ("t", "parameter `x`", "advice"),
    ]  # fmt: skip


def test_the_tools_and_what_they_lack_are_listed_for_people(treadle):
    (treadle.folder / "mine.py").write_text(
        "from treadle import Tool\n\n"
        "t = Tool(name='t', description='Look.', parameters={'type': 'object'}, run=print, effect=lambda arguments: 'read')\n"
        "u = Tool(name='u', description='', parameters={'type': 'object'}, run=print)\n"
    )

    listed = treadle("tools", "--tools", "mine.py", code=0).stdout.splitlines()
    checked = treadle("tools", "check", "--tools", "mine.py", code=0).stdout.splitlines()

    assert [line.split()[0] for line in listed] == ["t", "u"]
    assert "by call" in listed[0]
    assert checked == [
        "advice: u: description: It has no description, so the model cannot tell when to use it. Say what it does, and when to use it.",
        "2 tools checked: every contract is valid.",
    ]


PRICES = """
from treadle import tool
from treadle.tools import ToolExample

@tool(effect="read", examples=[ToolExample(arguments={"product": "teapot"}, result=24.5, deterministic=True)])
async def price(product: str) -> float:
    \"\"\"Return the price of a product.

    Args:
        product: Such as teapot.
    \"\"\"
    open("called", "a").write("x")
    return 24.5
"""


@pytest.mark.row("F07")
def test_a_tool_whose_shape_changed_since_its_calls_were_recorded_fails_the_check(treadle):
    (treadle.folder / "prices.py").write_text(PRICES)
    (treadle.folder / "calls.jsonl").write_text('{"tool": "price", "arguments": {"product": "cup"}, "result": 3.5}\n')
    check = ("tools", "check", "--tools", "prices.py", "--examples", "calls.jsonl")

    well = treadle(*check, code=0)
    assert well.stdout == "1 tool checked: every contract is valid, and 2 recorded results fit.\n"
    assert not (treadle.folder / "called").exists()
    treadle(*check, "--run", code=0)
    assert (treadle.folder / "called").read_text() == "x"

    (treadle.folder / "prices.py").write_text(PRICES.replace("-> float", "-> dict[str, float]"))
    drifted = treadle.json(*check, "--json", code=1)
    assert [(one["tool"], one["where"]) for one in drifted["findings"]] == [
        ("price", "example 1, result"), ("price", "recorded call 1, result"),
    ]  # fmt: skip
    (treadle.folder / "prices.py").write_text(PRICES.replace("product: str", "article: str"))
    renamed = treadle(*check, code=1)
    assert "'price'" in renamed.stdout
    assert "`product`" in renamed.stdout

    other = treadle("tools", "check", "--tools", "grep", "--examples", "calls.jsonl", code=2)
    assert "price" in other.stderr
    assert "tools check" in treadle("tools", "--run", code=2).stderr


@pytest.mark.row("F07")
@pytest.mark.parametrize(
    "line",
    [
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.execv('/bin/true', ['true'])",
        "atexit.register(os._exit, 0); sys.exit(0)",
        "threading.Thread(target=os._exit, args=(0,)).start()\nthreading.Event().wait()",
    ],
)
def test_a_file_of_tools_that_ends_its_process_does_not_pass_the_check(treadle, line: str):
    (treadle.folder / "prices.py").write_text(f"import atexit, os, sys, threading\n{PRICES}\n{line}\n")

    checked = treadle("tools", "check", "--tools", "prices.py", code=2)

    assert checked.stdout == ""
    assert checked.stderr.count("treadle: ") == 1


@pytest.mark.row("F07")
def test_a_tool_that_ends_its_process_when_it_is_run_again_does_not_pass_the_check(treadle):
    (treadle.folder / "prices.py").write_text(PRICES.replace("    return 24.5", "    import os\n    os._exit(0)"))
    (treadle.folder / "calls.jsonl").write_text('{"tool": "price", "arguments": {"product": "cup"}, "result": 3.5}\n')

    checked = treadle("tools", "check", "--tools", "prices.py", "--examples", "calls.jsonl", "--run", code=2)

    assert "ended with exit code 0 before it had a result" in checked.stderr


TOOLSETS = """
from contextlib import asynccontextmanager
from pathlib import Path
from treadle import Tool

def made(name):
    return Tool(name=name, description="Look.", parameters={"type": "object"}, run=print, effect="read")

class Tickets:
    name = "tickets"

    @asynccontextmanager
    async def open(self, ctx):
        Path("opened").write_text(ctx.session.id)
        try:
            yield self
        finally:
            Path("closed").write_text("yes")

    async def tools(self, session):
        return [made("find"), made("close")]

class Broken:
    name = "broken"

    @asynccontextmanager
    async def open(self, ctx):
        raise OSError("no server")
        yield

tickets, one = Tickets(), made("one")
broken = [Broken(), one]
"""


def test_toolsets_are_opened_to_list_their_tools_and_closed_again(treadle):
    (treadle.folder / "sets.py").write_text(TOOLSETS)

    listed = treadle("tools", "--tools", "sets.py", code=0).stdout.splitlines()
    described = treadle.json("tools", "--json", "--tools", "sets.py", code=0)
    checked = treadle("tools", "check", "--tools", "sets.py", code=0).stdout.splitlines()

    assert [line.split()[0] for line in listed] == ["one", "tickets", "find", "close"]
    assert "2 tools" in listed[1]
    assert [one["name"] for one in described[1]["tools"]] == ["find", "close"]
    assert checked[-1] == "3 tools checked: every contract is valid."
    assert (treadle.folder / "opened").exists()
    assert (treadle.folder / "closed").exists()


def test_a_toolset_that_cannot_be_opened_is_listed_with_the_reason_and_fails_a_check(treadle):
    (treadle.folder / "sets.py").write_text(TOOLSETS)

    listed = treadle("tools", "--tools", "sets:broken", code=0).stdout.splitlines()
    described = treadle.json("tools", "--json", "--tools", "sets:broken", code=0)
    checked = treadle("tools", "check", "--tools", "sets:broken", code=2)

    assert [line.split()[0] for line in listed] == ["one", "broken"]
    assert "unavailable: OSError: no server" in listed[1]
    assert described[1]["error"] == "OSError: no server"
    assert "broken" in checked.stderr
    assert "no server" in checked.stderr


def test_tools_may_be_attributes_of_modules_one_or_a_list(treadle):
    (treadle.folder / "kit.py").write_text(
        "from treadle import Tool\n\n"
        "def made(name):\n"
        "    return Tool(name=name, description='Look.', parameters={'type': 'object'}, run=print)\n\n"
        "one = made('one')\n"
        "class Box:\n"
        "    several = [made('two'), 'no tool', made('three')]\n"
    )

    listed = treadle.json("tools", "--json", "--tools", "kit:one", "--tools", "kit:Box.several", code=0)

    assert [tool["name"] for tool in listed] == ["one", "two", "three"]


def test_a_module_that_breaks_while_it_is_imported_is_told_with_its_line(treadle):
    (treadle.folder / "kit.py").write_text("x = 1\nraise SystemExit(3)\n")

    told = treadle("tools", "--tools", "kit:x", code=2).stderr

    assert "The tools of kit cannot be loaded" in told
    assert "kit.py, line 2: SystemExit" in told


def test_the_doctor_names_the_model_and_says_what_a_journal_in_memory_loses(treadle):
    checks = treadle.json("doctor", "--json", "--journal", "memory:", code=0, TREADLE_MODEL="demo")["checks"]

    found = {check["name"]: (check["level"], check["message"]) for check in checks}
    assert found["model"] == ("ok", "demo (TREADLE_MODEL)")
    assert found["journal"][0] == "warn"
    assert "sessions are lost" in found["journal"][1]


def test_the_doctor_says_where_no_journal_can_be_made_and_what_is_not_installed(treadle):
    checks = treadle.json("doctor", "--json", "--journal", "a.txt/x/journal.db", code=1, PATH="/nowhere")["checks"]

    found = {check["name"]: (check["level"], check["message"]) for check in checks}
    assert found["journal"][0] == "fail"
    assert "a.txt is not writable. Name another with --journal" in found["journal"][1]
    assert found["sandbox"][0] == "warn" or "install bubblewrap" in found["sandbox"][1]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("line\r\nline", "line\nline"),
        ("\x1b[31m\x9b\x07\x08\r\x00\x7f", "\\x1b[31m\\x9b\\x07\\x08\\r\\x00\\x7f"),
        ("a\u202eb\u2066c\ufeff", "a\\u202eb\\u2066c\\ufeff"),
        ("\ud800", "\\ud800"),
        ("größe 漢字 \u00a0 😀", "größe 漢字 \u00a0 😀"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(given, shown):
    assert printable(given) == shown


def test_long_text_is_shortened_to_one_line():
    assert one_line("a\nb\n" * 1000, 10) == "a b a b..."


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"pattern": "error", "path": "src"}', 'f(pattern="error", path="src")'),
        ("", "f()"),
        ('{"broken', 'f({"broken)'),
        ("[1, 2]", "f([1, 2])"),
        ({"amount": 40, "deep": {"a": [1]}}, 'f(amount=40, deep={"a":[1]})'),
        ('{"x": "' + "y" * 500 + '"}', 'f(x="' + "y" * 56 + '..."'.replace('..."', "...") + '")'),
    ],
)
def test_a_call_is_shown_as_one_writes_it(arguments, shown):
    assert shown_call("f", arguments) == shown


def test_models_are_found_by_a_part_of_their_name_and_an_unknown_one_is_no_empty_list(treadle):
    heads, *found = treadle("models", "gpt-5-mini", code=0).stdout.splitlines()
    assert heads.split() == ["model", "window", "output", "$", "in", "$", "out", "inputs"]
    assert any(line.startswith("openai:gpt-5-mini ") for line in found)
    assert all("gpt-5-mini" in line for line in found)
    asked = treadle("models", "vllm", code=0)
    assert (asked.stdout, "treadle models vllm --offered" in asked.stderr) == ("", True)
    assert treadle("models", "vllm", "--json", code=0).stdout == "[]\n"
