"""Named code: what code that stands in a command loads, and whether a command runs all files of a folder. Starts and imports nothing."""

import ast
import re
from collections.abc import Iterator, Sequence

__all__ = ["JAVASCRIPT", "loaded_by", "python_code", "spreads"]

_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")
_CODE_OPTION = re.compile(r"-[bBdEhiIOPqRsStuvVx]*c(.*)", re.DOTALL)
_INTERPRETER = re.compile(r"(?:.*/)?(?:node|nodejs|deno|bun|tsx|ts-node|perl|ruby|php|lua|luajit|Rscript|julia)[\d.]*")
_QUOTED = re.compile(r"""(['"`])([^'"`\n]{1,300})\1""")
_UNKNOWN_LOAD = re.compile(r"\b(?:require|import|require_relative|load|dofile|loadfile|include)\s*\(\s*[^'\")\s]")
_PERL_MODULE = re.compile(r"(?:^-[Mm]|\buse\s+|\brequire\s+)([A-Za-z]\w*(?:::\w+)*)")
JAVASCRIPT = (".js", ".mjs", ".cjs", ".ts", ".mts", "/index.js", "/package.json")
"""What may follow the name of a module of JavaScript."""
_ENDS = (".rb", ".pl", ".pm", ".php", ".lua", ".R", ".jl")
_DYNAMIC = frozenset(
    """
    __import__ import_module run_path run_module exec eval execfile spec_from_file_location SourceFileLoader load_source
    """.split()  # noqa: SIM905 - a table reads better as words
)
"""Names in Python by which code loads what only a run knows."""


def python_code(words: Sequence[str]) -> Iterator[str]:
    """Yield the code that words give to Python by `-c`."""
    for at, word in enumerate(words):
        if _PYTHON.fullmatch(word) is None:
            continue
        rest = list(words[at + 1 :])
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if (found := _CODE_OPTION.fullmatch(option)) is not None:
                yield found[1] or (rest[0] if rest else "")
                break
            if option in ("-W", "-X"):
                rest[:1] = []


def loaded_by(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that code in a command may load, by their names in a folder, and the code that nobody can know them of."""
    names, unknown = list[str](), list[str]()
    for code in python_code(words):
        modules = _modules(code)
        if modules is None:
            unknown.append(code)
        for module in modules or ():
            parts = module.split(".")
            names += [f"{'/'.join(parts)}.py", f"{'/'.join(parts)}/__main__.py"]
            names += [f"{'/'.join(parts[:length])}/__init__.py" for length in range(1, len(parts) + 1)]
    if any(map(_INTERPRETER.fullmatch, words)):
        for word in words:
            quoted = [found[2] for found in _QUOTED.finditer(word)]
            quoted += [word[2:]] if word.startswith("-r") else []
            names += [f"{one}{end}" for one in quoted for end in ("", *JAVASCRIPT, *_ENDS)]
            names += [f"{found[1].replace('::', '/')}.pm" for found in _PERL_MODULE.finditer(word)]
            unknown += [word] if _UNKNOWN_LOAD.search(word) else []
    return names, unknown


def _modules(code: str) -> set[str] | None:
    """Return the modules that code imports; None where only a run knows them."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = set[str]()
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found |= {one.name for one in names}
            case ast.ImportFrom(module=str(module), names=names):
                if {one.name for one in names} & _DYNAMIC:
                    return None
                found |= {module, *(f"{module}.{one.name}" for one in names)}
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _DYNAMIC:
                return None
            case _:
                pass
    return found


def spreads(words: Sequence[str], wrappers: frozenset[str], runners: frozenset[str]) -> bool:
    """Whether a command runs files as they are found: `find -exec bash {}`, `xargs bash`, `run-parts`."""
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name == "run-parts":
            return True
        if name in ("xargs", "parallel") and _runs_found(words[at + 1 :], wrappers, runners):
            return True
        if word in _EXEC and _runs_found(words[at + 1 :], wrappers, runners):
            return True
    return False


_EXEC = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")
_VALUES = ("-I", "-n", "-P", "-L", "-s", "-d", "-E", "-a", "-j")


def _runs_found(words: Sequence[str], wrappers: frozenset[str], runners: frozenset[str]) -> bool:
    """Whether what a program starts is a file that it finds, or an interpreter of it."""
    rest, signs = list(words), ["{}"]
    while rest and (rest[0].startswith("-") or rest[0].rpartition("/")[2] in wrappers or "=" in rest[0]):
        option = rest.pop(0)
        if option.startswith("-I") and option != "-I":
            signs.append(option[2:])
        if option in _VALUES and rest:
            signs += [rest[0]] if option == "-I" else []
            rest.pop(0)
    if not rest:
        return False
    if any(sign in rest[0] for sign in signs):
        return True
    if re.sub(r"[\d.]+$", "", rest[0].rpartition("/")[2]) not in runners:
        return False
    operand = next((word for word in rest[1:] if not word.startswith("-")), "")
    return operand in ("", ";", "+") or any(sign in operand for sign in signs)
