"""What the house rules look at: the project's files, their syntax trees and the import graph. Judges nothing."""

import ast
import importlib
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

__all__ = [
    "ADAPTERS",
    "CORE",
    "EDGES",
    "NOUNS",
    "PACKAGE",
    "PACKAGES",
    "PROJECT",
    "all_names",
    "functions",
    "graph",
    "module_name",
    "project_files",
    "public_names",
    "source_files",
    "test_files",
    "tree",
]

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "treadle"

NOUNS = (
    "errors",
    "fields",
    "messages",
    "stops",
    "canonical",
    "budgets",
    "tools",
    "events",
    "state",
    "ports",
)
"""The files at the root, and the folders that are one noun each: values that everybody may know. Each is public."""
PACKAGES = (
    "agents",
    "batch",
    "context",
    "drivers",
    "hooks",
    "permissions",
    "providers",
    "redaction",
    "resolve",
    "resolve.archives",
    "resolve.command_hooks",
    "sandboxes",
    "sessions",
    "sync",
    "tooling",
    "toolsets",
    "workers",
)
"""What else has public names, beside the root."""
EDGES = ("cli", "serve", "web", "integrations", "otel", "conformance")
CORE = ("engine", "sessions", "permissions", "context", "hooks")
"""What carries a run out, and knows no provider, no store and no screen."""
ADAPTERS = ("providers", "journals", "drivers", "sandboxes", "toolsets", "mock")

_NOT_OURS = {".git", ".venv", "__pycache__", "build", "dist", "htmlcov"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_files() -> list[Path]:
    return sorted((PROJECT / "tests").rglob("*.py"))


test_files.__test__ = False  # its name is a noun here; pytest would take it for a test


def project_files() -> list[Path]:
    """Return the files that are ours, whether committed or about to be."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=PROJECT, capture_output=True
    )
    if listing.returncode == 0:
        return [path for name in listing.stdout.decode().split("\0") if name and (path := PROJECT / name).is_file()]
    return [path for path in PROJECT.rglob("*") if path.is_file() and not _NOT_OURS & set(path.parts)]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def graph() -> grimp.ImportGraph:
    """Return who imports whom, foreign packages included. Never change it: all tests share it."""
    return grimp.build_graph(
        "treadle", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function's place and the lines of its body, docstring not counted."""
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            first = node.body[0]
            has_docstring = ast.get_docstring(node, clean=False) is not None
            docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if has_docstring else 0
            yield (
                f"{path.relative_to(PROJECT)}:{node.lineno} {node.name}",
                (node.end_lineno or node.lineno) - first.lineno + 1 - docstring,
            )


def all_names(path: Path) -> list[str] | None:
    """Return what a module's `__all__` says, or None where it has none. One that is computed is asked for."""
    for node in tree(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List()):
                return list(ast.literal_eval(node.value))
            case ast.Assign(targets=[ast.Name(id="__all__") | ast.Tuple(elts=[ast.Name(id="__all__"), *_])]):
                return list(importlib.import_module(module_name(path)).__all__)
    return None


def public_names(path: Path) -> set[str]:
    """Return the public names that a module defines itself, at its top level."""
    names: set[str] = set()
    for node in tree(path).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}
