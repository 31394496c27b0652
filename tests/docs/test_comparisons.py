"""The pages for people who come from another library: what they say of Treadle exists here."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import treadle
from house import PROJECT
from treadle import Agent, RunResult, Session, ToolContext, otel, testing

OWNERS = {"agent": Agent, "session": Session, "result": RunResult, "ctx": ToolContext}
PAGES = sorted((PROJECT / "docs").rglob("from-*.md"))
ROW = re.compile(r"^\| (?P<other>.+) \| (?P<here>.+) \|$", re.MULTILINE)


def rows(page: str) -> Iterator[tuple[str, str]]:
    """Yield each row of the table of names: what the other library calls it, and what it is here."""
    table = page.partition("## What is called what")[2].partition("\n## ")[0]
    found = [(row["other"], row["here"]) for row in ROW.finditer(table)]
    return iter(found[1:])


def code_of(cell: str) -> list[ast.expr]:
    """Return each piece of a cell's code that is an expression."""
    pieces = []
    for code in re.findall(r"`([^`]+)`", cell):
        try:
            pieces.append(
                ast.parse(code.removeprefix("@").replace("=,", "=...,").replace("=)", "=...)"), mode="eval").body
            )
        except SyntaxError:
            continue
    return pieces


def known(node: ast.expr) -> Any:
    """Return what a piece of code names here; None where it names nothing."""
    match node:
        case ast.Call(func=function):
            return known(function)
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OWNERS:
            return (
                vars(OWNERS[owner]).get(name)
                or OWNERS[owner].__annotations__.get(name)
                or getattr(OWNERS[owner], name, None)
            )
        case ast.Name(id=name):
            return next(filter(None, (getattr(one, name, None) for one in (treadle, testing, otel))), None)
    return None


def is_of_treadle(node: ast.expr) -> bool:
    """Whether a piece is a name, a member or a call, and not an option such as `output=` or a path."""
    return isinstance(node, ast.Call | ast.Attribute) or (isinstance(node, ast.Name) and not node.id.islower())


@pytest.mark.row("M-REFERENCE")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_what_a_comparison_names_of_treadle_exists_with_its_options(page):
    cells = [here for _, here in rows(page.read_text(encoding="utf-8"))]
    nodes = [node for cell in cells for node in code_of(cell) if is_of_treadle(node)]

    assert [ast.unparse(node) for node in nodes if known(node) is None] == []
    wrong = [
        f"{ast.unparse(node)}: {option.arg}"
        for node in nodes
        if isinstance(node, ast.Call)
        for option in node.keywords
        if option.arg not in inspect.signature(known(node)).parameters
    ]

    assert len(nodes) > 8
    assert wrong == []


@pytest.mark.row("M-REFERENCE")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_an_option_that_a_comparison_names_by_itself_is_one_of_an_agent_a_tool_or_a_run(page):
    cells = [here for _, here in rows(page.read_text(encoding="utf-8"))]
    options = {name for cell in cells for name in re.findall(r"`(\w+)=`", cell)}
    callables = (Agent.__init__, Agent.run, treadle.tool)

    assert options - {name for one in callables for name in inspect.signature(one).parameters} == set()
