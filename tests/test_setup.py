"""`make setup` on machines that lack something: one sentence says what, and nothing half-made is taken for whole."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from house import PROJECT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make setup` looks at, in a folder of its own."""
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, tmp_path / name)
    shutil.copytree(PROJECT / "scripts", tmp_path / "scripts")
    (tmp_path / "src" / "treadle").mkdir(parents=True)
    (tmp_path / "src" / "treadle" / "__init__.py").touch()
    return tmp_path


def make(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # A make above this one hands its words down by these two.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", *words], cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, timeout=100
    )


def said(ran: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in ran.stderr.splitlines() if not line.startswith(("make", "WARNING"))]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "needs Python 3.11 or newer, and no-such-python was not found"),
        ('[ "$1" = -V ] && echo Python 3.9.2; [ "$1" = -V ]', "is Python 3.9.2"),
        ('case "$2" in *venv*) exit 1;; *) exit 0;; esac', "python3-venv"),
    ],
    ids=["none", "an old one", "without the venv module"],
)
def test_without_a_python_that_serves_one_sentence_says_so(checkout, script, words):
    python = "no-such-python" if script is None else str(checkout / "python")
    if script is not None:
        (checkout / "python").write_text(f"#!/bin/sh\n{script}\n")
        (checkout / "python").chmod(0o755)

    ran = make(checkout, "setup", f"PYTHON={python}")

    assert ran.returncode != 0
    (sentence,) = said(ran)
    assert words in sentence


def test_without_packages_to_install_a_sentence_says_so_and_the_next_time_tries_again(checkout):
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout), "PIP_CONFIG_FILE": os.devnull}

    for _ in range(2):
        ran = make(checkout, "setup", **nowhere)

        assert ran.returncode != 0
        assert "pip could not install what Treadle needs" in said(ran)[-1]


def test_make_alone_lists_its_words(checkout):
    ran = make(checkout)

    assert ran.returncode == 0
    words = [line.split()[1] for line in ran.stdout.splitlines()]
    assert words == [
        "help",
        "setup",
        "demo",
        "lint",
        "format",
        "docs",
        "picture",
        "test",
        "conformance",
        "conformance-rivals",
        "bench",
        "bench-record",
        "bench-rivals",
        "bench-models",
        "soak",
        "simulate",
        "mutate",
        "clean",
    ]
