"""A person at a terminal, in a folder with a few files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from person import Person


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {"a.txt": "one error\n", "b.txt": "fine\n", "main.py": "retries = 3\nname = 'x'\n"}.items():
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.fixture
def person(folder: Path) -> Iterator[Person]:
    made = Person(folder)
    yield made
    if made.process is not None:
        made.process.close(0)
