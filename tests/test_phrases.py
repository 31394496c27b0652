"""Plain English: no text or comment of ours has a phrase of tests/phrases.toml, which names what stands in its place."""

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from house import PACKAGE, PROJECT

PHRASES = tomllib.loads((PROJECT / "tests/phrases.toml").read_text(encoding="utf-8"))["phrase"]
TEXTS = [
    *(PROJECT / "docs").rglob("*.md"),
    *(PROJECT / name for name in ("README.md", "CHANGELOG.md", "AGENTS.md", "Makefile", ".importlinter")),
]
CODE = [*PACKAGE.rglob("*.py"), *(PROJECT / "docs_src").rglob("*.py"), *(PROJECT / "scripts").glob("*.py")]
SPOKEN = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that a person reads: all of a text, and of code its texts, docstrings and comments."""
    whole = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(whole.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(whole).readline):
        if token.type in SPOKEN:
            yield from enumerate(token.string.splitlines(), token.start[0])


@cache
def everything() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(PROJECT)}:{number}", line)
        for path in sorted({*TEXTS, *CODE})
        for number, line in spoken(path)
    ]


@pytest.mark.row("M-PLAIN")
@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase["but"])
def test_no_text_reads_as_if_it_were_translated(phrase):
    pattern = re.compile(phrase["not"], re.IGNORECASE)

    read = [(place, line) for place, line in everything() if ".py:" not in place or not phrase.get("pages")]
    found = [f"{place}: {line.strip()}" for place, line in read if pattern.search(line)]

    assert found == [], f"write instead: {phrase['but']}"
