"""The manual's own code is a folder of scripts: the tests of the manual import it from there. Its site is built once for all of them."""

import faulthandler
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from house import PROJECT

sys.path.insert(0, str(PROJECT / "scripts"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site. Processes of one test run share it."""
    faulthandler.cancel_dump_traceback_later()  # the build has a limit of its own; the guard is set again for the test
    is_shared = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if is_shared else base) / "site"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    mkdocs = Path(sys.executable).with_name("mkdocs")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    arguments = [mkdocs, "build", "--strict", "--site-dir", folder.with_suffix(".new")]

    built = subprocess.run(arguments, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=400)

    assert built.returncode == 0, built.stdout + built.stderr
    folder.with_suffix(".new").rename(folder)
