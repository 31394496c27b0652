"""How long the manual is, and how it reads: words of a book and of a page, length of sentences, and what the first screen has."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from house import PROJECT

DOCS = PROJECT / "docs"
WRITTEN = sorted(DOCS.rglob("*.md"))
USERS = [path for path in WRITTEN if path.relative_to(DOCS).parts[0] in ("use", "run")]
MOST_WORDS_OF_A_BOOK = {"use": 30_000, "run": 10_000}
MOST_WORDS_OF_A_PAGE = 1_500
MOST_WORDS_OF_A_SENTENCE = 40
MOST_WORDS_BEFORE_THE_CODE = 120

FENCE = re.compile(r"^[ ]*```.*?^[ ]*```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^[ ]*(```|\| |!\[|<picture)", re.MULTILINE)
ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def words(text: str) -> int:
    """Count the words that a person reads: not code, marks of tables, or tags."""
    plain = re.sub(r"<[^>]+>", "", FENCE.sub("", text))
    return len([one for one in plain.split() if re.search(r"\w", one)])


def blocks(text: str) -> Iterator[str]:
    """Yield each paragraph and each item of a list of a page."""
    found = list[str]()
    for line in [*FENCE.sub("\n", text).split("\n"), ""]:
        stripped = line.strip()
        begins = ITEM.match(stripped)
        if found and (begins or not stripped or stripped.startswith(("|", "#", "=== ", "!!!", "---", "<"))):
            yield " ".join(found)
            found = []
        if stripped and not stripped.startswith(("|", "#", "=== ", "!!!", "---", "<")):
            found.append(ITEM.sub("", stripped, count=1) if begins else stripped)


def sentences(text: str) -> Iterator[str]:
    """Yield each sentence; a piece of code is one word."""
    for block in blocks(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "CODE", block))
        yield from re.split(r"(?<=[.!?:])[)*\"]*\s+", plain)


@pytest.mark.parametrize("book", MOST_WORDS_OF_A_BOOK)
def test_a_book_stays_as_short_as_it_is_promised(book):
    assert sum(words(path.read_text()) for path in (DOCS / book).glob("*.md")) <= MOST_WORDS_OF_A_BOOK[book]


def test_no_page_takes_more_than_ten_minutes():
    assert {path.name: count for path in WRITTEN if (count := words(path.read_text())) > MOST_WORDS_OF_A_PAGE} == {}


def test_no_sentence_has_more_than_forty_words():
    found = [
        f"{path.name}: {one}"
        for path in [*WRITTEN, PROJECT / "README.md"]
        for one in sentences(path.read_text())
        if len(one.split()) > MOST_WORDS_OF_A_SENTENCE
    ]

    assert found == []


def test_the_readme_has_500_words():
    assert words((PROJECT / "README.md").read_text()) <= 500


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.name)
def test_a_page_for_users_says_what_it_is_for_and_shows_it_on_the_first_screen(path: Path):
    body = path.read_text().partition("\n")[2].strip()
    first = SHOWN.search(body)

    assert body.startswith("After this page ")
    assert first is not None
    assert words(body[: first.start()]) <= MOST_WORDS_BEFORE_THE_CODE


def test_no_two_pages_have_one_name():
    assert len({path.name for path in WRITTEN}) == len(WRITTEN)
