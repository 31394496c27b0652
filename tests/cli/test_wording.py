"""Advice of the library at the command line: options and commands, never Python."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import treadle as package
from treadle.cli.output.text import for_terminal
from treadle.testing import MockProvider, Turn

PYTHON = re.compile(
    r"\b(?:agent|session)\.\w+\(|(?<!must be )\b(?:resolve_model|Agent|Price|ModelFacts)\(|\bapi_key=(?!X)|(?<![-\w])base_url\b"
)

FOR_PROGRAMS = [
    "src/treadle/agents",  # mistakes of whoever builds an agent
    "src/treadle/errors.py",  # what other libraries call an option
    "src/treadle/mock",
    "src/treadle/testing",
    "src/treadle/cli",
    "src/treadle/workers/worker.py",  # the name of a worker's agent
    "src/treadle/providers/recorded.py",
    "src/treadle/stops.py",  # for programs; people read the words of next_step
    "src/treadle/sync.py",
]


def literals(tree: ast.AST) -> Iterator[str]:
    """Return the texts of a module but for its docstrings, with X for each value that is put in."""
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "'X'" if "!r" in ast.unparse(part) else "X"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented | inside:
            yield node.value


def sentences() -> Iterator[str]:
    root = Path(package.__file__).parents[2]
    for file in sorted(root.glob("src/treadle/**/*.py")):
        name = file.relative_to(root).as_posix()
        text = file.read_text()
        if not name.startswith(tuple(FOR_PROGRAMS)) and PYTHON.search(text):
            yield from (one for one in literals(ast.parse(text)) if " " in one and PYTHON.search(one))


def test_no_advice_of_the_library_is_python_at_the_command_line():
    found = list(sentences())

    assert len(found) > 10
    assert [one for one in map(for_terminal, found) if PYTHON.search(one)] == []


@pytest.mark.parametrize(
    ("status", "key", "advice"),
    [
        (401, "k" * 20, "Check the API key (of the variable that it was read from, such as OPENAI_API_KEY)"),
        (401, "", "No API key was sent: set OPENAI_API_KEY."),
        (404, "", "Check the model's name and --base-url."),
    ],
)
def test_a_refused_request_says_what_to_do_at_the_command_line(treadle, status, key, advice):
    with MockProvider([Turn(status=status, error="no")]).in_thread() as provider:
        told = treadle("run", *treadle.served(provider), "x", code=1, OPENAI_API_KEY=key).stderr

    assert advice in told
    assert not PYTHON.search(told)
    assert "Read the message" not in told


def test_a_limit_on_the_cost_of_a_model_without_a_price_names_the_configuration(treadle):
    with MockProvider(["Hi."]).in_thread() as provider:
        told = treadle("run", *treadle.served(provider), "--max-total-cost", "1", "x", code=2).stderr

    assert "as `[price]` in your configuration" in told
    assert not PYTHON.search(told)


def test_a_missing_key_and_a_suspended_session_name_commands(treadle):
    assert not PYTHON.search(treadle("run", "-m", "openai-chat:m", "x", code=2).stderr)
    treadle("run", "-m", treadle.script("s.json", [{"text": "Hi."}]), "--session", "s", "x", code=0)
    assert "or agent" not in treadle("resume", "s", code=2).stderr
    treadle("sessions", "suspend", "s", code=0)
    told = treadle("run", "-m", "script:s.json", "--session", "s", "x", code=2).stderr
    assert "`treadle sessions activate s" in told
    assert not PYTHON.search(told)
