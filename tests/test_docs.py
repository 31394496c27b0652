"""What the pages say is so: samples are files that run, and every table of names is the one that the code has."""

import ast
import doctest
import importlib.util
import inspect
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

import program
import treadle
import treadle.context
from house import PROJECT, module_name, source_files, tree
from treadle import Agent, TenantBudget, allow, errors, testing, tool
from treadle.budgets import Budget, Guards
from treadle.context import compilers
from treadle.drivers import ScriptedDriver
from treadle.events import AnyEvent
from treadle.mock.script import Cut, CutBy
from treadle.providers.http.endpoint import Timeouts
from treadle.providers.vendors import VENDORS, Vendor
from treadle.redaction import Redactor
from treadle.sandboxes import Bubblewrap
from treadle.stops import StopReason, exit_code
from treadle.testing import ScriptedModel
from treadle.testing import text as answer
from treadle.tools import CallStatus, Effect

SAMPLES = sorted((PROJECT / "docs_src").glob("*.py"))
TUTORIAL = PROJECT / "docs_src" / "tutorial"
RECIPES = PROJECT / "docs_src" / "recipes"


def load(path: Path) -> ModuleType:
    """Import a file that is part of no package."""
    spec = importlib.util.spec_from_file_location(f"project_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = load(PROJECT / "scripts" / "docs.py")
PAGES: list[Path] = docs.pages()


def page(name: str) -> str:
    """Return a page by its name, in whichever book it is: no two pages have one name."""
    (found,) = (PROJECT / "docs").rglob(name)
    return found.read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of every table row of a page, without heads and rules."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0].startswith("`")]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- samples ---------------------------------------------------------------------------------------------------------


GENERATED = set(re.findall(r"reference/[\w-]+\.md", (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")))
"""Pages that `make docs` makes: the strict build finds a link to one that it does not make."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_each_sample_runs(sample, tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "TREADLE_HOME": str(tmp_path / "treadle")}
    code = (
        f"import runpy, warnings\nwarnings.simplefilter('error')\nrunpy.run_path({str(sample)!r}, run_name='__main__')"
    )

    ran = program.run((program.CODE, code), folder=tmp_path, environment=environment)

    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stderr == b""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_each_page_shows_its_samples_as_they_are(path):
    text = path.read_text(encoding="utf-8")

    assert docs.written_anew(text) == text, "say: make docs"


def test_each_sample_is_shown_on_a_page():
    shown = {name for path in PAGES for name in docs.shown(path.read_text(encoding="utf-8"))}

    assert shown == {
        str(sample.relative_to(PROJECT))
        for sample in [*SAMPLES, *TUTORIAL.glob("*.py"), *RECIPES.rglob("*.py")]
        if sample.name != "__init__.py"
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_each_python_block_of_a_page_is_python(path):
    for code in docs.fences(path.read_text(encoding="utf-8")):
        compile(code, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_a_page_that_differs_from_its_sample_is_noticed(tmp_path):
    (tmp_path / "docs_src").mkdir()
    (tmp_path / "docs_src" / "a.py").write_text("a = 1\n")

    stale = '# Page\n\n```python title="docs_src/a.py"\na = 0\n```\n\ntail\n'

    assert docs.written_anew(stale, tmp_path) == stale.replace("a = 0", "a = 1")


@pytest.mark.parametrize("name", ["docs_src/none.py", "../outside.py", "src/treadle/errors.py"])
def test_a_page_that_names_no_sample_is_refused(tmp_path, name):
    (tmp_path / "docs_src").mkdir()

    with pytest.raises((FileNotFoundError, ValueError)):
        docs.written_anew(f'```python title="{name}"\n```\n', tmp_path)


def examples(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            found = re.search(r"^Example:\n((?:    .*\n?|\n)+)", ast.get_docstring(node) or "", re.MULTILINE)
            if found:
                yield "".join(line[4:] if line.strip() else "\n" for line in found[1].splitlines(keepends=True))


@pytest.mark.parametrize(
    "path", [path for path in source_files() if "Example:\n" in path.read_text(encoding="utf-8")], ids=module_name
)
def test_each_example_in_a_docstring_is_python(path):
    texts = list(examples(path))
    assert texts != []

    for text in texts:
        sessions = [part.source for part in doctest.DocTestParser().get_examples(text)]
        for code in sessions or [text]:
            compile(code, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("path", [*PAGES, *sorted(PROJECT.glob("*.md"))], ids=lambda path: path.name)
def test_each_link_to_a_file_leads_somewhere(path):
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text(encoding="utf-8"))

    assert [
        link for link in links if not (path.parent / link).exists() and link.removeprefix("../") not in GENERATED
    ] == []


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_page_of_errors_shows_the_tree():
    assert docs.drawn(PROJECT / "src/treadle/errors.py") in page("errors.md")


def test_the_tree_of_errors_is_the_tree_of_classes():
    """A branch in parentheses is a heading: what hangs from it descends from the root."""
    root, *branches = docs.drawn(PROJECT / "src/treadle/errors.py").splitlines()
    path, parents = [root], {}
    for branch in branches:
        stem, name = re.match(r"(.*)── (\w+|\(.*\))", branch).groups()
        depth = len(stem) // 4 + 1
        heading = name.startswith("(")
        path[depth:] = [root if heading else name]
        if not heading:
            parents[name] = path[depth - 1]

    named = {name: vars(errors)[name] for name in errors.__all__ if name != root}
    classes = {
        name: one.__bases__[0].__name__
        for name, one in named.items()
        if isinstance(one, type) and issubclass(one, errors.TreadleError)
    }

    assert parents == classes


def test_the_table_of_what_may_change_is_about_every_option_of_an_agent_and_says_what_its_fingerprint_says():
    """A part of the fingerprint differs if, and only if, the table names it beside the option."""
    table = page("continue.md").partition("| Part | Options of `Agent` |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if "`" in line]
    told = {option: part.strip(" `") for part, options, _ in rows for option in names_in(options)}
    given = {"model": ScriptedModel([answer("done")]), "name": "clerk", "tools": [tool(effect="read")(page)]}
    before, found = Agent(**given).fingerprint, dict[str, str]()
    for option, value in CHANGED_OPTIONS.items():
        now = Agent(**{**given, option: value}).fingerprint
        (found[option],) = [part for part in before if now[part] != before[part]] or ["none"]

    assert told == found
    assert {*told, "name", "self"} == {*inspect.signature(Agent.__init__).parameters}


CHANGED_OPTIONS: dict[str, Any] = {
    "model": ScriptedModel([answer("done")], name="another"),
    "instructions": "Be brief.",
    "tools": [],
    "policy": allow("*"),
    "sandbox": Bubblewrap(),
    "approver": allow("*"),
    "approver_seconds": 1.0,
    "driver": ScriptedDriver(ScriptedModel([answer("done")])),
    "budget": Budget(max_model_turns=1),
    "tenant_budgets": [TenantBudget(max_total_cost=1)],
    "profile": "research",
    "compiler": treadle.context.WholeHistory(),
    "compactor": treadle.context.Summarize(),
    "output": int,
    "tool_choice": "required",
    "history": "current",
    "guards": Guards(no_progress=None),
    "on_limit": "report",
    "cancel_siblings": "on_unsafe_error",
    "on_failure": "stop",
    "on_denial": "skip",
    "failure_text": "whole",
    "strict": True,
    "unpriced": "warn",
    "parallel_hint": False,
    "in_doubt": "tell",
    "approval_seconds": 1.0,
    "batch_seconds": 1.0,
    "toolset_seconds": 1.0,
    "step_result_chars": 1000,
    "done_when": lambda view: None,
    "subscribers": [print],
    "interceptors": [],
    "hooks": [],
    "required": ["page"],
    "max_depth": 1,
}


def test_the_page_of_events_names_every_event_and_maps_the_names_of_the_founding_document():
    text = page("events.md")
    named = [names_in(row[0])[0] for row in rows_of(text.partition("## The names of the founding document")[0])]
    mapped = {name: names_in(row[1])[0] for row in rows_of(text) for name in names_in(row[0]) if name[0].isupper()}

    assert sorted(named) == sorted(str(event.__struct_config__.tag) for event in get_args(AnyEvent))
    assert mapped == {
        "InferenceRequestStarted": "model.started",
        "InferenceResponseReceived": "model.finished",
        "ToolCallStarted": "tool.started",
        "ToolCallCompleted": "tool.finished",
        "DecisionExtractionFailed": "decision.rejected",
        "ValidationFailed": "decision.rejected",
    }


def test_the_page_of_events_says_which_are_not_recorded_yet():
    made = {
        ast.unparse(node.func).rpartition(".")[2]
        for path in source_files()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
    }
    waiting = [str(event.__struct_config__.tag) for event in get_args(AnyEvent) if event.__name__ not in made]
    line = next((line for line in page("events.md").splitlines() if line.startswith("Not recorded yet")), "")

    assert names_in(line) == sorted(waiting)


def test_the_page_of_budgets_has_the_ten_names_and_their_defaults():
    text = page("budgets.md").partition("\n## How a run ends")[0]
    defaults = dict(zip(Budget.__struct_fields__, Budget.__struct_defaults__, strict=True))

    assert {names_in(row[0])[0]: row[1] for row in rows_of(text)} == {
        name: "none" if value is None else f"{value:,}" for name, value in defaults.items()
    }


def test_the_page_of_budgets_has_the_guards_and_their_defaults():
    text = page("guards.md")
    defaults = dict(zip(Guards.__struct_fields__, Guards.__struct_defaults__, strict=True))

    assert {names_in(row[0])[0]: row[1] for row in rows_of(text)} == {
        name: str(value) for name, value in defaults.items() if name != "finish_reasons"
    }


def test_the_page_of_budgets_has_every_stop_reason_with_its_status_and_exit_code():
    text = page("budgets.md").partition("## How a run ends")[2]
    told = {reason: (row[1], row[2], row[3].partition(",")[0]) for row in rows_of(text) for reason in names_in(row[0])}

    assert told == {
        str(reason): (str(reason.status), "yes" if reason.is_completed else "no", str(exit_code(reason)))
        for reason in StopReason
    }


def test_the_page_of_effects_has_every_effect_and_every_status():
    effects, _, statuses = page("effects.md").partition("## How a call can end")

    assert [names_in(row[0])[0] for row in rows_of(effects)] == list(Effect)
    assert [names_in(row[0])[0] for row in rows_of(statuses)] == list(CallStatus)


DIALECTS = {
    "OpenAIResponses": "Responses",
    "OpenAIChat": "Chat Completions",
    "Anthropic": "Messages",
    "Gemini": "generateContent",
    "Bedrock": "Converse",
    "Cohere": "Chat v2",
}


def told_of(vendor: Vendor) -> tuple[str, list[str], list[str]]:
    """Return what the page says of a vendor: its dialect, address and variables."""
    variables = [vendor.key_variable, vendor.other_key_variable, vendor.address_variable]
    dialect = DIALECTS[vendor.adapter.partition(":")[2]]
    return dialect, [vendor.address] if vendor.address else [], [name for name in variables if name]


def test_the_page_of_providers_has_every_vendor_with_its_dialect_address_and_variables():
    text = page("providers.md").partition("## What the dialects have in common")[0]
    told = {names_in(row[0])[0]: (row[1], names_in(row[2]), names_in(row[3])) for row in rows_of(text)}

    assert told == {f"{name}:": told_of(vendor) for name, vendor in VENDORS.items()}


def test_the_page_of_providers_has_the_time_limits_of_a_request():
    text = page("providers.md")
    told = {names_in(row[0])[0]: row[1] for row in rows_of(text) if row[0].endswith(("_seconds`", "_per_second`"))}

    assert told == {name: str(getattr(Timeouts(), name)) for name in Timeouts.__struct_fields__}


def test_the_page_of_testing_names_doubles_that_there_are_and_every_checker_of_a_history():
    doubles = page("testing.md").partition("\n## What the model says")[0]
    told = {names_in(row[0])[0] for row in rows_of(doubles)}
    checkers = {names_in(row[0])[0] for row in rows_of(page("scripts.md").partition("\n## A history of your own")[2])}

    assert told <= set(testing.__all__)
    assert checkers == {name for name in testing.__all__ if name.startswith("check_")}
    pages = page("testing.md") + page("scripts.md") + page("evals.md")
    assert not [name for name in testing.__all__ if name not in pages]


def test_the_page_of_testing_has_every_key_of_a_script_and_where_and_how_an_answer_breaks_off():
    table = page("scripts.md").partition("\n## A script's file")[2].partition("\n## ")[0]
    told = {key: row[1] for row in rows_of(table) for key in names_in(row[0])}

    assert set(told) == {*testing.Turn.__struct_fields__, "body_base64"}
    places = [place for kind in get_args(Cut) for place in get_args(kind)]
    assert names_in(told["cut"]) == places
    assert names_in(told["cut_by"]) == list(get_args(CutBy))


SECRET = "Ab3d5Fg7Hj9Kl1Mn3Pq5"


def secrets_on_the_page() -> list[str]:
    """Return each example of the table of forms, with a secret in the place of its dots."""
    table = page("redaction.md").partition("| Form | Examples |")[2].partition("\n\n")[0]
    found = [one for one in re.findall(r"`([^`]+)`", table) if "..." in one]
    filled = [one.replace(".....", f".{SECRET}.{SECRET}").replace("....", f"{SECRET}.") for one in found]
    return [one.replace("...", SECRET.upper() if one.startswith(("AKIA", "ASIA")) else SECRET) for one in filled]


def test_each_form_of_a_secret_that_the_page_of_configuration_names_is_hidden():
    examples = secrets_on_the_page()
    left = [one for one in examples if SECRET.lower() in Redactor().text(one).lower()]

    assert len(examples) >= 30
    assert left == []


def test_the_page_of_context_names_every_compiler():
    told = {names_in(row[0])[0].partition("(")[0] for row in rows_of(page("context.md"))}

    assert told == {name for name in compilers.__all__ if hasattr(getattr(compilers, name), "compile")}


def test_the_page_of_design_gives_every_dependency_and_extra_a_reason():
    text = page("design-dependencies.md").partition("| Part | Reason |")[2].partition("\n\n")[0]
    parts = [line.strip("|").split("|")[0].strip() for line in text.splitlines() if line.startswith("|")][1:]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [
        f"{distribution(one)} (extra `{extra}`)"
        for extra, needs in project["optional-dependencies"].items()
        for one in needs
    ]

    assert sorted(part for part in parts if not part.startswith("asyncio")) == sorted(
        [*map(distribution, project["dependencies"]), *extras]
    )


def distribution(requirement: str) -> str:
    return re.split(r"[\[<>=]", requirement)[0]


def test_the_index_leads_to_every_page():
    folder = PROJECT / "docs"
    links = set(re.findall(r"\]\(([\w/-]+\.md)\)", page("index.md")))

    assert links == {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} - {"index.md"}


def test_twenty_words_are_enough_for_the_tutorial():
    words = page("twenty-words.md")
    tutorial = [path.read_text(encoding="utf-8") for path in (PROJECT / "docs" / "use").glob("tutorial-*.md")]
    tutorial += [page(f"{name}.md") for name in ("quickstart", "tools", "agents", "streaming")]
    used = {
        name
        for text in tutorial
        for line in re.findall(r"^from treadle import (.+)$", text, re.MULTILINE)
        for name in line.split(", ")
    }

    assert len(re.findall(r"^\| [a-z ]+ \|", words, re.MULTILINE)) == 20
    assert {name for name in used if not re.search(rf"\b{name}\b", words)} == set()


def test_each_public_name_is_on_a_page():
    pages = " ".join(path.read_text(encoding="utf-8") for path in PAGES)
    words = set(re.findall(r"\w+", pages))

    assert [name for name in treadle.__all__ if name not in words] == []
