"""The reference and the pages that people wrote: every public name and every parameter is explained."""

import importlib
import inspect
import re
from collections.abc import Iterator

import griffe
import msgspec
import pytest
from typing_extensions import is_protocol

from house import PACKAGE, PROJECT, all_names, module_name
from manual import texts
from manual.names import FURTHER, documented, find, pages
from manual.struct_signatures import constructor, is_struct
from treadle import Agent, Budget, Tool, tool

PAGES = {path.name: path.read_text(encoding="utf-8") for path in (PROJECT / "docs").rglob("*.md")}


def nouns() -> list[str]:
    """Return the public modules: the files at the root, and the folders that are one noun."""
    files = [path for path in PACKAGE.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    folders = [PACKAGE / name / "__init__.py" for name in ("events", "ports", "state", "testing", "tools")]
    tools = [PACKAGE / "toolsets" / name for name in ("wrappers.py", "shell/__init__.py")]
    return [module_name(path) for path in (*files, *folders, *tools) if all_names(path)]


@pytest.mark.row("M-REFERENCE")
def test_each_public_name_is_in_the_reference_once():
    listed = [name for page in pages() for name in page.names]
    homes = {find(name).path for name in documented()}
    public = [f"{module}.{name}" for module in ("treadle", *nouns(), *FURTHER) for name in all_names_of(module)]

    assert len(listed) == len(set(listed))
    assert [name for name in public if find(name).path not in homes] == []


def all_names_of(module: str) -> list[str]:
    path = PACKAGE.parent / module.replace(".", "/")
    return all_names(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")) or []


@pytest.mark.row("M-REFERENCE")
def test_each_public_name_has_a_sentence():
    assert [name for name in documented() if not find(name).docstring] == []


def described(function: griffe.Function) -> set[str]:
    sections = function.docstring.parsed if function.docstring else []
    return {
        one.name.lstrip("*")
        for section in sections
        if section.kind is griffe.DocstringSectionKind.parameters
        for one in section.value
    }


def of_ports(method: str) -> set[str]:
    """Return the parameters that a port describes: a double has the methods of its port."""
    ports = [find(f"treadle.ports.{name}") for name in ("Journal", "Clock")]
    return set().union(*(described(port.members[method]) for port in ports if method in port.members))


def is_constructor(owner: griffe.Object, name: str) -> bool:
    """Return whether people call it: the members of an enumeration are made by the enumeration."""
    return name == "__init__" and not any(str(base).endswith("Enum") for base in getattr(owner, "bases", ()))


def parameters(owner: griffe.Object) -> Iterator[tuple[str, str]]:
    """Yield each parameter of a function, or of a class's constructor and methods, that no docstring of the owner describes."""
    functions = (
        [owner]
        if isinstance(owner, griffe.Function)
        else [
            member
            for name, member in owner.all_members.items()  # a session's methods stand in three classes
            if member.is_function and (is_constructor(owner, name) or not name.startswith("_"))
        ]
    )
    known = described(owner).union(*map(described, functions)) if functions else set()
    for function in functions:
        for parameter in function.parameters:
            name = parameter.name.lstrip("*")
            if name not in ("self", "cls") and not name.startswith("_") and name not in known | of_ports(function.name):
                yield f"{owner.name}.{function.name}", name


def shown_constructor(name: str) -> list[tuple[str, str, bool]]:
    shown = constructor(find(name)).parameters
    return [(one.name, str(one.kind.value), one.default is None) for one in shown if one.name != "self"]


def real_constructor(name: str) -> list[tuple[str, str, bool]]:
    module, _, struct = find(name).path.rpartition(".")
    real = inspect.signature(getattr(importlib.import_module(module), struct)).parameters.values()
    return [(one.name, one.kind.description, one.default is inspect.Parameter.empty) for one in real]


@pytest.mark.row("M-REFERENCE")
def test_a_structs_signature_shows_each_field_that_its_constructor_takes():
    structs = [name for name in documented() if isinstance(one := find(name), griffe.Class) and is_struct(one)]

    assert len(structs) > 50
    assert [name for name in structs if shown_constructor(name) != real_constructor(name)] == []


@pytest.mark.row("M-REFERENCE")
def test_help_shows_the_options_of_each_class_and_function_that_people_call():
    """A name with a bare `**options` completes nothing in an editor."""
    hidden = []
    for path in (one for one in face() if not one.startswith(("treadle.ports.", "treadle.testing."))):
        module, _, name = path.rpartition(".")
        one = getattr(importlib.import_module(module), name)
        if inspect.isfunction(one) or (
            inspect.isclass(one) and not issubclass(one, Exception) and not is_protocol(one)
        ):
            kinds = {parameter.kind for parameter in inspect.signature(one).parameters.values()}
            if inspect.Parameter.VAR_KEYWORD in kinds:
                hidden.append(name)

    assert hidden == []
    assert list(inspect.signature(Agent).parameters) == list(inspect.signature(Agent.__init__).parameters)[1:]


def face() -> set[str]:
    """Return every public name that people call or construct, by its path."""
    modules = ["treadle", "treadle.ports", "treadle.testing", "treadle.toolsets.wrappers", "treadle.toolsets.shell"]
    packages = [module for module in FURTHER if hasattr(importlib.import_module(module), "__getattr__")]
    names = {f"{module}.{name}" for module in (*modules, *packages) for name in all_names_of(module)}
    return names | {"treadle.hooks.envelope", "treadle.redaction.Redactor", "treadle.resolve.with_fallback"}


SEEN = re.compile(r"`[^`\n]*`|^.*=.*$", re.MULTILINE)
WRITTEN = " ".join(found[0] for text in PAGES.values() for found in SEEN.finditer(text))


@pytest.mark.row("M-REFERENCE")
def test_each_parameter_of_the_face_is_explained_in_its_docstring_or_shown_on_a_page():
    named = [(name, where, word) for name in sorted(face()) for where, word in parameters(find(name))]

    assert [one for one in named if not re.search(rf"\b{one[2]}\b", WRITTEN)] == []


@pytest.mark.row("M-REFERENCE")
def test_the_face_has_what_tools_sandboxes_rules_hooks_toolsets_modes_and_decisions_bring():
    """Whoever adds a room adds its names to the face; this holds that the tests above see them."""
    for name in (
        "treadle.shell_tool",
        "treadle.toolsets.writing_tools",
        "treadle.file_tools",
        "treadle.sandboxes.Bubblewrap",
        "treadle.sandboxes.Landlock",
        "treadle.sandboxes.Confinement",
        "treadle.allow",
        "treadle.Decision",
        "treadle.ports.Hook",
        "treadle.ports.HookContext",
        "treadle.toolsets.Prefixed",
        "treadle.ports.Toolset",
        "treadle.testing.tool_context",
    ):
        assert name in face(), name
    assert {"mode", "set_mode"} <= set(find("treadle.Session").all_members)


def first_cells(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.row("M-REFERENCE")
def test_the_page_of_agents_has_every_option_of_an_agent():
    options = set(inspect.signature(Agent.__init__).parameters) - {"self"}

    assert first_cells(PAGES["agent-options.md"].partition("## All options")[2]) == options


@pytest.mark.row("M-REFERENCE")
def test_the_page_of_tools_has_every_option_of_a_tool():
    of_tool, _, of_struct = PAGES["tool-options.md"].partition("## Options")[2].partition("`Tool(...)` makes a tool")
    options = set(inspect.signature(tool).parameters) - {"function"}

    assert first_cells(of_tool) == options
    assert first_cells(of_struct.partition("\n## ")[0]) == set(Tool.__struct_fields__) - options


@pytest.mark.row("M-REFERENCE")
def test_no_row_of_a_generated_table_lacks_its_meaning():
    tables = {path: text for path, text in texts.reference().items() if "::: " not in text}
    rows = [(path, line) for path, text in tables.items() for line in text.splitlines() if line.startswith("| ")]

    assert len(tables) == 4
    assert [row for row in rows if re.search(r"\|\s*\|", row[1])] == []


def test_the_reference_shows_the_constructor_of_a_struct():
    text = texts.written_out("::: treadle.Budget\n")

    assert f"max_model_turns: int | None = {msgspec.structs.fields(Budget)[0].default}" in text
