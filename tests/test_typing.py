"""What type checkers say of the public face: clean samples, and wrong ones that both mypy and pyright must refuse.

`mypy` itself checks the samples in `make lint`; here both checkers look at them, and at tests/typing/refused.py line by line.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from house import PROJECT

SAMPLES = sorted(path for path in (PROJECT / "tests/typing").glob("*.py") if path.name != "refused.py")
UNTYPED = {"sample", "django_desk", "celery_chat.py"}
"""What a checker is not asked about: neither Django nor Celery has types."""
MANUAL = sorted(path for path in (PROJECT / "docs_src").rglob("*.py") if not UNTYPED & {*path.parts})
REFUSED = PROJECT / "tests/typing/refused.py"


def run(*command: str) -> str:
    tool = Path(sys.executable).with_name(command[0])
    ran = subprocess.run([tool, *command[1:]], cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.stdout


def mypy_errors(*paths: Path) -> set[tuple[str, int, str]]:
    # With the cache that `make lint` has filled: a look at the samples then takes a second.
    options = ("--no-error-summary", "--show-error-codes")
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", run("mypy", *options, *map(str, paths)), re.MULTILINE)
    return {(Path(name).name, int(line), message) for name, line, message in found}


def pyright_errors(*paths: Path) -> set[tuple[str, int, str]]:
    told = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, paths)))
    found = [one for one in told["generalDiagnostics"] if one["severity"] in ("error", "warning")]
    assert told["summary"]["filesAnalyzed"] == len(paths)
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"]) for one in found}


@pytest.mark.row("M-TYPES")
@pytest.mark.parametrize(
    ("errors", "samples"),
    [
        pytest.param(mypy_errors, [*SAMPLES, *MANUAL], id="mypy"),
        pytest.param(pyright_errors, SAMPLES, id="pyright"),
        pytest.param(pyright_errors, [*SAMPLES, *MANUAL], id="pyright-manual", marks=pytest.mark.soak),
    ],
)
def test_both_checkers_accept_every_sample_and_refuse_each_wrong_line_and_no_other(errors, samples):
    assert sum(path.read_text(encoding="utf-8").count("assert_type(") for path in SAMPLES) >= 40
    assert len(MANUAL) > 35
    lines = REFUSED.read_text(encoding="utf-8").splitlines()
    marked = {(REFUSED.name, number) for number, line in enumerate(lines, 1) if "  # refused: " in line}

    assert len(marked) >= 40
    assert {(name, line) for name, line, _ in errors(*samples, REFUSED)} == marked
