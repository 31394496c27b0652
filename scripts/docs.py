"""Put the samples of docs_src, and the tree of errors, into the pages that show them. Runs no sample.

A page shows a file by naming it: ```python title="docs_src/first_loop.py". A block ```text title="src/treadle/errors.py"
shows the tree that the module's docstring draws. `make docs` writes the pages anew, and the tests refuse a page that
differs from its files.
"""

import ast
import re
import sys
import textwrap
from pathlib import Path

__all__ = ["PROJECT", "drawn", "fences", "pages", "shown", "written_anew"]

PROJECT = Path(__file__).resolve().parent.parent

_SHOWN = re.compile(
    r'^(?P<open>```python title="(?P<path>[^"\n]+)"\n)(?P<code>.*?)(?P<close>^```$)', re.MULTILINE | re.DOTALL
)
_TREE = re.compile(
    r'^(?P<open>```text title="(?P<path>[^"\n]+)"\n)(?P<tree>.*?)(?P<close>^```$)', re.MULTILINE | re.DOTALL
)
_FENCE = re.compile(r"^```python\b[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(project: Path = PROJECT) -> list[Path]:
    """Return every page that people read: the README and the folder of docs."""
    return [project / "README.md", *sorted((project / "docs").rglob("*.md"))]


def shown(text: str) -> list[str]:
    """Return the paths of the files that a page shows."""
    return [match["path"] for match in _SHOWN.finditer(text)]


def fences(text: str) -> list[str]:
    """Return the code of every Python block of a page."""
    return [match["code"] for match in _FENCE.finditer(text)]


def written_anew(text: str, project: Path = PROJECT) -> str:
    """Return a page with each shown file as it is now.

    Raises:
        FileNotFoundError: The page names a file that does not exist.
        ValueError: The page names a file outside docs_src.
    """
    samples = (project / "docs_src").resolve()

    def replace(match: re.Match[str]) -> str:
        path = (project / match["path"]).resolve()
        if samples not in path.parents:
            raise ValueError(f"A page shows {match['path']}, which is not in docs_src.")
        return match["open"] + path.read_text(encoding="utf-8") + match["close"]

    def draw(match: re.Match[str]) -> str:
        return match["open"] + drawn(project / match["path"]) + match["close"]

    return _TREE.sub(draw, _SHOWN.sub(replace, text))


def drawn(module: Path) -> str:
    """Return the tree that a module's docstring draws: its root, and every branch below it."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    lines = docstring.splitlines()
    branches = [number for number, line in enumerate(lines) if "── " in line]
    return textwrap.dedent("".join(f"{line}\n" for line in lines[branches[0] - 1 : branches[-1] + 1]))


if __name__ == "__main__":
    for page in pages():
        old = page.read_text(encoding="utf-8")
        if (new := written_anew(old)) != old:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"written anew: {page.relative_to(PROJECT)}\n")
