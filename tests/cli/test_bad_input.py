"""Bad input: one clear sentence on standard error that says what to do, the documented exit code, and no traceback."""

import os
import sqlite3
import subprocess

import pytest

import program
from treadle.resolve import local_servers
from treadle.testing import MockProvider, Turn


def sentence(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the one line on standard error of a program that did nothing else."""
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith("treadle: ")
    return line


USAGE = [
    (["rnu", "x"], "Did you mean run?"),
    (["run"], "No task was given."),
    (["run", ""], "The task is empty"),
    (["sessions", "shwo", "s"], "Did you mean show?"),
    (["config", "shwo"], "Did you mean show?"),
    (["tools", "chek"], "Did you mean check?"),
    (["-q", "run"], "Write -q after the command: `treadle run ... -q`"),
    (["-m", "demo", "sessions"], "Write -m after the command"),
    (["-m", "demo"], "No task was given."),
    (["-c"], "No task was given."),
    (["chat"], "needs an interactive terminal"),
    (["-p", "hi"], '`treadle run "TASK"` carries out one task'),
    (["run", "--yes", "x"], "Unknown option '--yes'. --mode bypass"),
    (["run", "x", "--output-format", "json"], "Use --json"),
    (["run", "--resume", "x"], "`treadle resume ID`"),
    (["run", "--sek", "x"], "Unknown option '--sek'. `treadle run --help-all`"),
    (["sessions", "--yolo"], "Unknown option '--yolo'. `treadle sessions --help`"),
    (["ls"], "Unknown command 'ls'. `treadle sessions` lists"),
    (["version"], "Use `treadle --version`"),
    (["help"], "Use `treadle --help`"),
    (["export"], "Use `treadle sessions export`"),
    (["frobnicate"], "Unknown command 'frobnicate'. To list all"),
    (["run", "-m", "demo", "--tools", "bash", "x"], "There is no tool 'bash'. Built-in tools"),
    (["sessions", "rewind", "s1"], "Name the session and POINT: `treadle sessions rewind ID POINT`"),
    (["run", "--on-limit", "reprot", "x"], "Did you mean report?"),
    (["run", "-m", "demo", "two", "words"], "put quotes around an argument with spaces"),
    (["run", "--max-tol-calls", "3", "x"], "Did you mean --max-tool-calls?"),
    (["run", "--max-tol-calls=3"], "Did you mean --max-tool-calls?"),
    (["run", "--jso", "x"], "Did you mean --json?"),
    (["--json", "sessions"], "after the command"),
    (["sessions", "show", "s1", "--jurnal", "x"], "Did you mean --journal?"),
    (["run", "--max-tool-calls", "many", "x"], "such as 20"),
    (["run", "--max-tool-calls", "-1", "x"], "0 or more"),
    (["run", "--max-tool-calls", "1.5", "x"], "a whole number or none; got 1.5."),
    (["run", "--max-tool-calls"], "expected one argument"),
    (["run", "--on-limit", "stop", "x"], "summarize"),
    (["run", "x"], "-m demo"),
    (["run", "-m", "gpt-5", "x"], "Unknown model 'gpt-5'. Did you mean 'openai:gpt-5'?"),
    (["models", "gtp-5"], "No vendor and no known model is named 'gtp-5'. Did you mean gpt-5?"),
    (["run", "-m", "openai-chat:gpt-5-mini", "x"], "OPENAI_API_KEY is not set"),
    (["run", "-m", "openai-chat:m", "--base-url", "localhost:80", "x"], "http://"),
    (["run", "-m", "script:none.json", "x"], "none.json"),
    (["run", "-m", "demo", "-C", "nowhere", "x"], "Name another with -C"),
    (["run", "-m", "demo", "-C", "a.txt", "x"], "is not a folder"),
    (["run", "-m", "demo", "--allow", "read(x", "x"], "read(x"),
    (["run", "-m", "demo", "--deny", "", "x"], "Rule ''"),
    (["run", "-m", "demo", "--tools", "grp", "x"], "Did you mean grep?"),
    (["run", "-m", "demo", "--tools", "none.py", "x"], "none.py does not exist"),
    (["run", "-m", "demo", "--tools", "nomodule:x", "x"], "no module 'nomodule'"),
    (["run", "-m", "demo", "--tools", "json:nothing", "x"], "has no 'nothing'"),
    (["run", "-m", "demo", "--tools", "json:dumps", "x"], "neither a Tool, a toolset nor a list"),
    (["run", "-m", "demo", "--journal", "a.txt", "x"], "not a Treadle journal"),
    (["run", "-m", "demo", "--journal", "a.txt/x/journal.db", "x"], "cannot be opened"),
    (["run", "-m", "demo", "--journal", "", "x"], "--journal needs"),
    (["run", "-m", "demo", "--session", "", "x"], "session id"),
    (["run", "-m", "demo", "--config", "none.toml", "x"], "none.toml cannot be read"),
    (["run", "-m", "demo", "--config", ".", "x"], "cannot be read"),
    (["run", "-m", "demo", "--profile", "qa", "x"], "no configuration has a profile 'qa'"),
    (["resume"], "treadle resume --last"),
    (["resume", "a", "--last"], "Name one session"),
    (["resume", "nope"], "does not exist yet"),
    (["sessions", "shwo"], "Invalid action 'shwo'. Did you mean show? Choose from list, show, explain,"),
    (["run", "--mode", "pln", "x"], "Invalid --mode 'pln'. Did you mean plan? Choose from plan, ask, accept-edits,"),
    (["sessions", "show", "nope"], "does not exist yet"),
    (["approve", "nope"], "does not exist yet"),
    (["mock"], "SCRIPT"),
    (["mock", "none.json"], "none.json"),
    (["mock", "none.json", "--port", "70000"], "0 (any free one) to 65535"),
    (["config", "shwo"], "show"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=[" ".join(arguments) for arguments, _ in USAGE])
def test_a_wrong_command_line_gets_one_sentence_and_code_2(treadle, arguments, words):
    assert words.lower() in sentence(treadle(*arguments, code=2)).lower()


BROKEN = {
    "no toml": ("model = \n", "line 1"),
    "not utf-8": (b"model = '\xff'\n", "not UTF-8"),
    "deep": ("a = " + "[" * 5000, "not valid TOML"),
    "unknown key": ("\nmodell = 'demo'\n", "line 2: unknown key 'modell'. Did you mean model?"),
    "swapped letters": ("modle = 'demo'\n", "unknown key 'modle'. Did you mean model?"),
    "no guess": ("colour = 'demo'\n", "unknown key 'colour'. Known:"),
    "a key of a vendor": (
        "api_key = 'x'\n",
        "line 1: unknown key 'api_key'. Keys are never in a configuration: set the vendor's variable, such as OPENAI_API_KEY.",
    ),
    "rules as elsewhere": (
        "[permissions]\nallow = ['shell']\n",
        "line 1: unknown key 'permissions'. Write `allow`, `ask` and `deny` at the top of the file, outside any table.",
    ),
    "misspelt budget": (
        "[budget]\nmax_tool_cals = 3\n",
        "line 2: unknown budget 'max_tool_cals'. Did you mean max_tool_calls?",
    ),
    "negative budget": ("[budget]\nmax_tool_calls = -3\n", "line 2: Budget max_tool_calls"),
    "budget of text": ("[budget]\n\nmax_tool_calls = '3'\n", "line 3: Budget max_tool_calls"),
    "budget no table": ("budget = 3\n", "line 1: 'budget' must be a table"),
    "profile budget": ("[profiles.qa.budget]\nmax_turns = 3\n", "line 2: unknown budget 'max_turns'"),
    "profile no table": ("[profiles]\nqa = 3\n", "line 2: profile 'qa' must be a table"),
    "guard": ("[guards]\nrepeat = 3\n", "line 2: unknown guard 'repeat'. Did you mean repeats?"),
    "guard of 0": ("[guards]\nrepeats = 0\n", "line 2: Guard repeats"),
    "word": ("on_limit = 'stop'\n", "line 1: 'on_limit' must be one of summarize, report"),
    "rule": ("allow = ['read(x']\n", "line 1: Rule"),
    "rules of numbers": ("deny = [3]\n", "line 1: 'deny' must be a list of strings"),
    "price": ("[price]\ninput = 1\n", "a price needs 'output'"),
    "price of nan": ("price = {input = nan, output = 1}\n", "must be a number of 0 or more"),
}


@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
@pytest.mark.row("B02")
def test_a_broken_configuration_is_told_with_file_and_line(treadle, content, words):
    treadle.home.mkdir()
    path = treadle.home / "config.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    told = sentence(treadle("budgets", code=2))

    assert str(path) in told
    assert words in told


TOOLS = {
    "syntax": ("def f(:\n", "line 1: SyntaxError"),
    "exception": ("x = 1\ny = missing\n", "line 2: NameError: name 'missing'"),
    "exit": ("import sys\nsys.exit(3)\n", "line 2: SystemExit"),
    "no tool": ("x = 1\n", "defines no tool"),
    "bad effect": (
        "from treadle import Tool\nt = Tool(name='t', description='', parameters={}, run=print, effect='writes')\n",
        "effect 'writes' is not one of",
    ),
    "typed": (
        "from treadle import tool\n\n@tool(effect='raed')\ndef f(x: int): ...\n",
        "mine.py, line 3: Tool 'f': effect 'raed' is not one of",
    ),
    "bad schema": (
        "from treadle import Tool\nt = Tool(name='t', description='', parameters={'type': 'objekt'}, run=print)\n",
        "'t'",
    ),
    "conflict": (
        "from treadle import Tool\na, b = (Tool(name='t', description='', parameters={'type': 'object'}, run=print) for _ in 'ab')\n",
        "'t'",
    ),
}


@pytest.mark.parametrize(("content", "words"), TOOLS.values(), ids=TOOLS)
def test_a_tools_file_with_an_error_gets_one_sentence_with_its_place(treadle, content, words):
    (treadle.folder / "mine.py").write_text(content)

    assert words in sentence(treadle("run", "-m", "demo", "--tools", "mine.py", "x", code=2))


def test_a_tools_file_that_cannot_be_read_is_no_fault_of_a_line_of_ours(treadle):
    (treadle.folder / "mine.py").write_bytes(b"\xff\xfe")

    told = sentence(treadle("run", "-m", "demo", "--tools", "mine.py", "x", code=2))

    assert "The tools of mine.py cannot be loaded" in told
    assert "tool_sources" not in told


@pytest.mark.row("X09")
@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("openai-chat:gpt-5-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini:gemini-2.5-flash", "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY"),
        ("groq:llama", "GROQ_API_KEY"),
        ("mistral:large", "MISTRAL_API_KEY"),
        ("openrouter:some/model:free", "OPENROUTER_API_KEY"),
        ("azure:gpt", "AZURE_BASE_URL"),
    ],
)
def test_a_missing_key_fails_before_anything_is_asked_or_written(treadle, model, variable):
    ran = treadle("run", "-m", model, "x", code=2)

    assert variable in sentence(ran)
    assert not treadle.home.exists()


@pytest.mark.parametrize("name", sorted(local_servers()))
def test_a_server_of_one_s_own_needs_no_key_and_is_found_by_its_variable(treadle, name):
    with MockProvider(["Here."]).in_thread() as provider:
        ran = treadle("run", "-m", f"{name}:qwen3:8b", "x", code=0, **{f"{name.upper()}_BASE_URL": provider.base_url})

    assert ran.stdout == "Here.\n"


HTML = Turn(body=b"<html><title>Login</title></html>", headers={"content-type": "text/html"})


@pytest.mark.parametrize(
    "turn", [HTML, Turn(body=b""), Turn(status=404, error="no such model"), Turn(cut="before-body")]
)
def test_a_server_that_is_no_model_ends_the_run_in_words_and_the_session_stays(treadle, turn):
    with MockProvider([turn]).in_thread() as provider:
        served = treadle.served(provider)
        ran = treadle("run", "--max-retries-per-model-call", "0", *served, "x", code=1)

    lines = ran.stderr.splitlines()
    assert lines[1].startswith("treadle: failed (")
    assert provider is not None
    assert [one["state"] for one in treadle.json("sessions", "--json")] == ["failed"]
    assert ran.stdout == ""


def test_a_request_beyond_the_context_is_not_told_to_be_resumed(treadle):
    with MockProvider([Turn(status=413, error="too long")]).in_thread() as provider:
        ran = treadle("run", *treadle.served(provider), "x", code=1)

    assert "(context_overflow)" in ran.stderr
    assert "then: treadle resume" not in ran.stderr


def test_nobody_at_the_address_ends_the_run_in_words(treadle):
    with MockProvider(["x"]).in_thread() as provider:
        url = provider.base_url

    ran = treadle(
        "run", "--json", "--max-retries-per-model-call", "0", "-m", "openai-chat:m", "--base-url", url, "x", code=1
    )

    assert '"reason":"model_error"' in ran.stdout
    assert "treadle: failed (model_error)" in ran.stderr


def test_a_journal_of_another_program_stays_as_it_is(treadle):
    path = treadle.folder / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    told = sentence(treadle("run", "-m", "demo", "--journal", "other.db", "x", code=2))

    assert "another program" in told
    assert path.read_bytes() == before


def test_a_file_where_the_state_folder_should_be_is_told(treadle):
    treadle.home.write_text("a file")

    assert str(treadle.home) in sentence(treadle("run", "-m", "demo", "x", code=2))


def test_an_unexpected_failure_is_told_without_a_traceback_unless_it_is_asked_for(treadle):
    (treadle.folder / "mine.py").write_text(
        "from treadle import Tool\nimport treadle.cli.commands.run\ntreadle.cli.commands.run.start = None\n"
        "t = Tool(name='t', description='', parameters={'type': 'object'}, run=print)\n"
    )
    line = ["run", "-m", "demo", "--tools", "mine.py", "x"]

    told = sentence(treadle(*line, code=1, is_apart=True))
    environment = {**treadle.environment, "TREADLE_DEBUG": "1"}
    debugged = program.run(line, folder=treadle.folder, environment=environment, is_apart=True)

    assert "unexpected TypeError" in told
    assert "TREADLE_DEBUG=1" in told
    assert b"Traceback" in debugged.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full: this system cannot play a full disk")  # noqa: PTH110 - an expression
def test_an_answer_that_cannot_be_written_is_a_failure(treadle):
    model = treadle.script("s.json", [{"text": "Done."}])
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        process = treadle.start("run", "-q", "-m", model, "x", stdout=full)
        _, error = process.communicate(timeout=60)

    assert process.returncode == 1
    assert b"standard output cannot be written" in error
    assert treadle.json("sessions", "--json")[0]["state"] == "completed"


def test_no_command_prints_the_help_and_ends_with_code_2(treadle):
    ran = treadle(code=2)

    assert ran.stdout == ""
    assert "commands:" in ran.stderr


HEAVY = {"aiohttp", "asyncio", "pydantic", "sqlite3", "ssl", "jsonschema_rs", "jiter", "tomllib", "rich"}


@pytest.mark.parametrize(
    ("begin", "without", "says"),
    [
        ("main(['--version'])", HEAVY | {"argparse", "msgspec"}, "treadle "),
        ("main(['run', '--help-all'])", HEAVY, "--max-tool-calls"),
        ("import treadle.cli.commands.chat", {"aiohttp", "pydantic", "rich", "treadle.cli.commands.doctor"}, ""),
    ],
)
def test_the_version_help_and_a_conversation_load_nothing_that_they_do_not_need(treadle, begin, without, says):
    code = (
        f"import sys; from treadle.cli.main import main; {begin}; "
        f"print(sorted({without!r} & set(sys.modules)), file=sys.stderr)"
    )
    # Measuring coverage loads some of it itself.
    environment = {name: value for name, value in treadle.environment.items() if not name.startswith("COVERAGE_")}
    ran = subprocess.run(
        [treadle.command()[0], "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )

    assert ran.stderr.strip() == "[]"
    assert says in ran.stdout
