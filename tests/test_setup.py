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


def python_that(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


def said(ran: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in ran.stderr.splitlines() if not line.startswith(("make", "WARNING"))]


def test_without_python_one_sentence_says_so(checkout):
    ran = make(checkout, "setup", "PYTHON=no-such-python")

    assert ran.returncode != 0
    assert len(said(ran)) == 1
    assert "needs Python 3.11 or newer, and no-such-python was not found" in said(ran)[0]


def test_with_an_old_python_one_sentence_says_which(checkout):
    ran = make(checkout, "setup", python_that(checkout, '[ "$1" = -V ] && echo Python 3.9.2; [ "$1" = -V ]'))

    assert ran.returncode != 0
    assert len(said(ran)) == 1
    assert "is Python 3.9.2" in said(ran)[0]


def test_without_the_venv_module_one_sentence_says_how_to_get_it(checkout):
    ran = make(checkout, "setup", python_that(checkout, 'case "$2" in *venv*) exit 1;; *) exit 0;; esac'))

    assert ran.returncode != 0
    assert len(said(ran)) == 1
    assert "python3-venv" in said(ran)[0]


def test_without_packages_to_install_a_sentence_says_so_and_the_next_time_tries_again(checkout):
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout), "PIP_CONFIG_FILE": os.devnull}

    for _ in range(2):
        ran = make(checkout, "setup", **nowhere)

        assert ran.returncode != 0
        assert "pip could not install what Treadle needs" in said(ran)[-1]


def test_make_alone_lists_its_words(checkout):
    ran = make(checkout)

    assert ran.returncode == 0
    assert [line.split()[1] for line in ran.stdout.splitlines()] == [
        *(
            "help",
            "setup",
            "demo",
            "lint",
            "format",
            "docs",
            "picture",
            "test",
            "conformance",
            "bench",
            "bench-record",
            "bench-rivals",
            "soak",
            "simulate",
            "mutate",
            "clean",
        )
    ]
