"""The house rules that no linter knows: who may import whom, what importing costs, how large things may grow."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from house import (
    ADAPTERS,
    CORE,
    EDGES,
    NOUNS,
    PACKAGE,
    PACKAGES,
    PROJECT,
    all_names,
    functions,
    graph,
    module_name,
    project_files,
    public_names,
    source_files,
    test_files,
    tree,
)

# --- who may import whom ---------------------------------------------------------------------------------------------

PUBLIC_MODULES = {
    "treadle",
    "treadle.conformance",
    "treadle.lazy",
    "treadle.otel",
    "treadle.serve",
    "treadle.testing",
    "treadle.web",
    *(f"treadle.{name}" for name in (*NOUNS, *PACKAGES)),
}
ASKS_THE_WORLD = {"os", "random", "secrets", "socket", "subprocess", "tempfile", "time", "urllib", "uuid"}
OUTSIDE = {"aiohttp", "http", "opentelemetry", "prompt_toolkit", "psycopg", "pydantic", "rich", "sqlite3", "ssl"}
SHIPPED_DOUBLES = ("treadle.mock", "treadle.mock.model")


def existing(*names: str) -> list[str]:
    return [f"treadle.{name}" for name in names if f"treadle.{name}" in graph().modules]


def below(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def imports(module: str) -> set[str]:
    return graph().find_modules_directly_imported_by(module)


def inside(package: str) -> list[str]:
    return sorted({package, *graph().find_descendants(package)})


def test_import_contracts_hold():
    lint = Path(sys.executable).with_name("lint-imports")

    checked = subprocess.run([lint, "--no-cache"], cwd=PROJECT, capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout


def test_nouns_import_the_standard_library_msgspec_and_typing_extensions_only():
    foreign = {
        (noun, name)
        for noun in existing(*NOUNS)
        for name in imports(noun)
        if name not in {"msgspec", "typing_extensions"}
        and name not in sys.stdlib_module_names
        and not below(name, *existing(*NOUNS))
    }

    assert foreign == set()


def test_nouns_do_no_io_read_no_clock_and_log_nothing():
    forbidden = ASKS_THE_WORLD | {"asyncio", "logging", "pathlib", "sqlite3", "threading"}

    assert {(noun, name) for noun in existing(*NOUNS) for name in imports(noun) & forbidden} == set()


def core() -> list[str]:
    return [module for room in existing(*CORE) for module in inside(room)]


def test_the_core_asks_the_world_through_ports_only():
    assert {(module, name) for module in core() for name in imports(module) & ASKS_THE_WORLD} == set()


@pytest.mark.row("L30")
def test_the_core_reaches_no_provider_journal_database_http_or_screen():
    reached = {
        (module, name)
        for module in core()
        for name in graph().find_upstream_modules(module)
        if name in OUTSIDE or below(name, *existing(*ADAPTERS, *EDGES, "workers"))
    }

    assert reached == set()


def test_only_edges_import_the_package_root():
    importers = graph().find_modules_that_directly_import("treadle")

    assert {name for name in importers if not below(name, *(f"treadle.{edge}" for edge in EDGES))} == set()


def test_edges_see_the_public_modules_only():
    seen = {
        (module, name)
        for edge in existing(*EDGES)
        for module in inside(edge)
        for name in imports(module)
        if below(name, "treadle") and not below(name, edge) and name not in PUBLIC_MODULES
    }

    assert seen == set()


def test_testing_sees_nouns_and_the_doubles_that_are_models_too():
    allowed = (*existing(*NOUNS), *SHIPPED_DOUBLES, "treadle.testing")

    seen = {
        (module, name)
        for module in inside("treadle.testing")
        for name in imports(module)
        if below(name, "treadle") and not below(name, *allowed)
    }

    assert seen == set()


def private_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and below(node.module or "", "treadle"):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in whole if "._" in name)


def test_nothing_imports_a_private_name():
    found = {(str(path.relative_to(PROJECT)), name) for path in source_files() for name in private_imports(path)}

    assert found == set()


# --- what is public, and what importing it costs ---------------------------------------------------------------------

HEAVY = {"aiohttp", "asyncio", "jiter", "jsonschema_rs", "pydantic", "rich", "sqlite3", "ssl", "tomllib"}


def in_a_fresh_process(code: str, folder: Path) -> str:
    # Without coverage, which loads sqlite3 by itself and would hide that we do.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment = {**inherited, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


def test_importing_the_package_loads_nothing_heavy(tmp_path):
    bare = json.loads(in_a_fresh_process("import sys, json; print(json.dumps(list(sys.modules)))", tmp_path))
    loaded = json.loads(in_a_fresh_process("import treadle, sys, json; print(json.dumps(list(sys.modules)))", tmp_path))

    assert set(bare) & HEAVY == set()
    assert set(loaded) & HEAVY == set()


def test_importing_every_module_prints_nothing_and_makes_no_file(tmp_path):
    modules = [module_name(path) for path in source_files() if path.name != "__main__.py"]

    assert in_a_fresh_process(f"import importlib; [importlib.import_module(m) for m in {modules!r}]", tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def is_public(path: Path) -> bool:
    return not any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(PACKAGE).parts)


def in_order(names: list[str]) -> list[str]:
    """Sort as the linter does: constants, then classes, then functions."""
    return sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))


@pytest.mark.parametrize("path", [path for path in source_files() if is_public(path)], ids=module_name)
def test_each_public_module_names_its_public_names(path):
    names = all_names(path)

    if names is None:
        assert public_names(path) == set(), f"{module_name(path)} has public names and no __all__"
    else:
        module = importlib.import_module(module_name(path))
        assert names in (in_order(names), sorted(names))
        assert [name for name in names if name not in dir(module)] == []
        assert {name: getattr(module, name) for name in names}.keys() == set(names)


def test_the_package_names_exactly_what_it_offers():
    root = PACKAGE / "__init__.py"
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree(root))
        if isinstance(node, ast.ImportFrom) and below(node.module or "", "treadle") and node.module != "treadle.lazy"
        for alias in node.names
    }

    assert len(typed) <= 45, "what the tutorial does not need is in the packages"
    assert set(all_names(root) or ()) - {"__version__"} == typed


def test_each_module_says_in_its_docstring_what_it_is():
    silent = [module_name(path) for path in source_files() if tree(path).body and not ast.get_docstring(tree(path))]

    assert silent == []


# --- how large things may grow ---------------------------------------------------------------------------------------


def test_functions_are_short():
    lengths = [found for path in source_files() for found in functions(path)]
    long = [found for found in lengths if found[1] >= 35]

    assert [found for found in lengths if found[1] > 60] == []
    assert len(long) <= len(lengths) / 10, long


def test_no_decorator_stands_twice():
    """A decorator that is applied twice does its work twice, at every call."""
    found = [
        (str(path.relative_to(PROJECT)), node.name, node.lineno)
        for path in source_files()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and len(node.decorator_list) > len({ast.dump(one) for one in node.decorator_list})
    ]

    assert found == []


def test_checked_and_proposed_calls_keep_their_names():
    """A CheckedCall is `call`, a ToolCall beside it `proposed`: no reader meets `decided.call.call`."""
    chain = re.compile(r"\.call\.call\b")
    rooms = [path for path in source_files() if below(module_name(path), "treadle.engine", "treadle.permissions")]
    found = [where for path in rooms for where, line in lines(path) if chain.search(line)]

    assert [where for where in found if "calls.py" not in where] == []  # `Decided.proposed` is the one place


@pytest.mark.row("L30")
def test_the_loop_stays_small():
    loop = PACKAGE / "engine" / "loop.py"

    assert len(loop.read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.row("L30")
def test_the_core_names_no_provider():
    vendors = re.compile("openai|anthropic|claude|gemini|gpt|ollama|mistral|bedrock", re.IGNORECASE)
    rooms = [path for path in source_files() if path.relative_to(PACKAGE).parts[0] in CORE]

    assert [where for path in rooms for where, line in lines(path) if vendors.search(line)] == []


# --- what no file may hold -------------------------------------------------------------------------------------------

# Written in pieces, so that this file does not find itself.
HOSTS = re.compile("|".join(("pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.", "astral" + r"\.sh")))
PATHS = re.compile(r"(?<![\w.\-])/(?:work/(?:main|shared)|root/|tmp/venv|home/\w|Users/\w)")
KEYS = re.compile(r"\bsk-(?:ant-|proj-)?[A-Za-z0-9]{20,}|\bAIza[\w\-]{30,}|\bAKIA[A-Z0-9]{16}")
EXCUSE = re.compile(r"# (?:path|host|key): \S")
REASONED = re.compile(r"# noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*(?: -|  #) \S|# type: ignore\[[\w, -]+\]  # \S")


def lines(path: Path) -> Iterator[tuple[str, str]]:
    content = path.read_bytes()
    if b"\0" not in content:
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            yield f"{path.relative_to(PROJECT)}:{number}", line


@pytest.mark.parametrize("pattern", [HOSTS, PATHS, KEYS], ids=["registry hosts", "paths of a machine", "keys"])
def test_no_file_of_the_project_holds(pattern):
    found = [
        where
        for path in project_files()
        for where, line in lines(path)
        if pattern.search(line) and not EXCUSE.search(line)
    ]

    assert found == []


def test_each_silenced_rule_has_its_reason_beside_it():
    silenced = re.compile("# noqa" + "|" + "# type: ignore")
    found = [
        where
        for path in source_files()
        for where, line in lines(path)
        if silenced.search(line) and not REASONED.search(line)
    ]

    assert found == []


# --- how tests may not be written ------------------------------------------------------------------------------------


def sleeps(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(tree(path)):
        match node:
            case ast.ImportFrom(module="time" | "asyncio", names=names) if any(
                alias.name == "sleep" for alias in names
            ):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}: import the module, so that this check sees the call"
            case ast.Call(args=args) if ast.unparse(node.func) in ("time.sleep", "asyncio.sleep"):
                only_yields = [ast.unparse(arg) for arg in args] == ["0"]
                if not only_yields and "# sleep: " not in source[node.lineno - 1]:
                    yield f"{path.relative_to(PROJECT)}:{node.lineno}"


def patches(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        match node:
            case ast.arg(arg="monkeypatch" | "mocker") | ast.Attribute(attr="MonkeyPatch"):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}"
            case ast.ImportFrom(module="unittest", names=names) if any(alias.name == "mock" for alias in names):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}"
            case ast.ImportFrom(module="unittest.mock" | "mock"):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}"
            case ast.Import(names=names) if any(alias.name in ("unittest.mock", "mock") for alias in names):
                yield f"{path.relative_to(PROJECT)}:{node.lineno}"


def test_no_test_sleeps():
    """A tool under test may have to block: `# sleep: <reason>` on the line says so."""
    assert [where for path in test_files() for where in sleeps(path)] == []


def test_no_test_patches():
    assert [where for path in test_files() for where in patches(path)] == []


@pytest.mark.row("H15")
def test_every_logger_redacts_what_it_logs():
    makers = {module_name(path) for path in source_files() if "getLogger(__name__)" in path.read_text()}

    assert makers == set()


def test_two_files_of_tests_never_have_one_name():
    """pytest imports a test file by its name: of two that are alike one is not run."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))

    assert [name for name, count in names.items() if count > 1] == []
