"""The requirement manifest and the tests that name its rows. Reads files only; runs no test and imports none.

Tests carry ids as `@pytest.mark.row("L01", "PF9")`. They are collected from the source, so that the check does not
depend on which tests ran.

    python tests/requirements.py                what is open, per issue
    python tests/requirements.py --open A       the open rows of one issue
    python tests/requirements.py --mark-done    set the state of every row that a test names
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

__all__ = [
    "Mark",
    "Row",
    "behaviours",
    "decided_differently",
    "lacking",
    "mark_done",
    "marks",
    "problems",
    "read_rows",
    "report",
]

TESTS = Path(__file__).resolve().parent
MANIFEST = TESTS / "requirements.toml"
DESIGN = TESTS.parent / "docs" / "design-dependencies.md"

_FIELDS = {"id", "issue", "sentence", "source", "state"}
_ROW = re.compile(r"^\[\[row\]\]$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One promise."""

    id: str
    issue: str
    sentence: str
    source: tuple[str, ...]
    state: str

    @property
    def is_done(self) -> bool:
        return self.state == "done"

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> Self:
        if wrong := set(table) ^ _FIELDS:
            raise ValueError(f"Row {table.get('id', '?')}: missing or unknown keys {sorted(wrong)}.")
        if table["state"] not in ("open", "done"):
            raise ValueError(f"Row {table['id']}: state must be open or done; got {table['state']!r}.")
        return cls(**{**table, "source": tuple(table["source"])})


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One use of `pytest.mark.row` and where it stands."""

    ids: tuple[str, ...]
    where: str
    problem: str | None = None


def read_rows(manifest: Path = MANIFEST) -> dict[str, Row]:
    """Return the rows by id, in the manifest's order.

    Raises:
        ValueError: A row is malformed or its id is taken.
    """
    rows: dict[str, Row] = {}
    for table in tomllib.loads(manifest.read_text(encoding="utf-8"))["row"]:
        row = Row.parse(table)
        if row.id in rows:
            raise ValueError(f"Row {row.id} stands twice in the manifest.")
        rows[row.id] = row
    return rows


def behaviours(manifest: Path = MANIFEST) -> list[str]:
    """Return the ids of the founding page of behaviours, of which the manifest keeps a copy."""
    return list(tomllib.loads(manifest.read_text(encoding="utf-8"))["behaviours"])


def decided_differently(page: Path = DESIGN) -> dict[str, str]:
    """Return the reason of each behaviour that is not built, by its id."""
    section = page.read_text(encoding="utf-8").partition("## Decided differently")[2]
    rows = (line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| [A-Z]+\d+ \| ", line))
    return {cells[0]: cells[-1].strip() for cells in rows if len(cells) == 3}


def lacking(ids: Iterable[str], rows: Mapping[str, Row], reasons: Mapping[str, str]) -> list[str]:
    """Return every behaviour that is neither a row nor has a reason."""
    return [
        f"behaviour {one} has no row in tests/requirements.toml and no reason in docs/design-dependencies.md, 'Decided differently'"
        for one in ids
        if one not in rows and not reasons.get(one)
    ]


def marks(folder: Path = TESTS) -> list[Mark]:
    """Return every row mark under a folder of tests."""
    return [mark for path in sorted(folder.rglob("*.py")) for mark in _marks_in(path, path.relative_to(folder))]


def _marks_in(path: Path, name: Path) -> Iterator[Mark]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    not_tests = {id(mark): definition.name for definition, mark in _decorating(tree) if not _is_test(definition, name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_row(node.func):
            yield _mark(node, f"{name}:{node.lineno}", not_tests.get(id(node)))


def _decorating(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from ((node, decorator) for decorator in node.decorator_list)


def _is_test(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, file: Path) -> bool:
    prefix = "Test" if isinstance(definition, ast.ClassDef) else "test"
    soaks = any(isinstance(mark, ast.Attribute) and mark.attr == "soak" for mark in definition.decorator_list)
    return definition.name.startswith(prefix) and file.name.startswith("test_") and not soaks


def _is_row(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "row"
        and (isinstance(node.value, ast.Attribute) and node.value.attr == "mark")
    )


def _mark(node: ast.Call, where: str, not_a_test: str | None) -> Mark:
    ids = tuple(arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
    problem = None
    if not ids or len(ids) != len(node.args) or node.keywords:
        problem = f"{where}: a row mark takes ids as literal strings, at least one"
    elif not_a_test is not None:
        problem = f"{where}: {not_a_test} carries a row mark and is not a test that `make test` runs"
    return Mark(ids=ids, where=where, problem=problem)


def problems(rows: Mapping[str, Row], found: list[Mark]) -> list[str]:
    """Return every way in which manifest and tests contradict each other."""
    tested = _tested(found)
    return [
        *(mark.problem for mark in found if mark.problem),
        *(f"{mark.where}: no row {row_id!r}" for mark in found for row_id in mark.ids if row_id not in rows),
        *(
            f"row {row.id} is done and no test names it"
            for row in rows.values()
            if row.is_done and row.id not in tested
        ),
    ]


def report(rows: Mapping[str, Row]) -> list[str]:
    """Return one line an issue: how many of its rows are open."""
    by_issue: dict[str, list[Row]] = defaultdict(list)
    for row in rows.values():
        by_issue[row.issue].append(row)
    return [
        f"issue {issue}: {sum(not row.is_done for row in its)} of {len(its)} rows open"
        for issue, its in sorted(by_issue.items())
    ]


def mark_done(manifest: Path = MANIFEST, folder: Path = TESTS) -> list[str]:
    """Set the state of every open row that a test names, keep the file's formatting, and return the ids."""
    tested = _tested(marks(folder))
    changed = [row.id for row in read_rows(manifest).values() if not row.is_done and row.id in tested]
    head, *blocks = _ROW.split(manifest.read_text(encoding="utf-8"))
    done = [_as_done(block) if _id_of(block) in changed else block for block in blocks]
    manifest.write_text("[[row]]".join([head, *done]), encoding="utf-8")
    return changed


def _tested(found: list[Mark]) -> set[str]:
    return {row_id for mark in found if mark.problem is None for row_id in mark.ids}


def _id_of(block: str) -> str:
    return str(tomllib.loads(block)["id"])


def _as_done(block: str) -> str:
    return re.sub(r'^state = "open"', 'state = "done"', block, count=1, flags=re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    """Run the script mode and return its exit code: 1 when manifest and tests contradict each other."""
    parser = argparse.ArgumentParser(description="Rows of the requirement manifest and the tests that name them.")
    parser.add_argument("--mark-done", action="store_true", help="set the state of every row that a test names")
    parser.add_argument("--open", metavar="ISSUE", help="list the open rows of one issue")
    options = parser.parse_args(arguments)
    if options.mark_done:
        changed = mark_done()
        print(f"done now: {', '.join(changed) or 'nothing new'}")
    rows = read_rows()
    if options.open:
        for row in rows.values():
            if row.issue == options.open and not row.is_done:
                print(f"{row.id:5} {row.sentence}")
    print(
        "\n".join(
            [*report(rows), *(found := [*problems(rows, marks()), *lacking(behaviours(), rows, decided_differently())])]
        )
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
