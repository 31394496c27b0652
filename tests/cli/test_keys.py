"""Where the keys that a person has entered are kept: the system's keyring where it works, else a file of their own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.testing import MockProvider, Turn, call, text

KEYRING = """
from pathlib import Path
from . import errors
PLACE = Path(__file__).parent
def set_password(service, name, value):
    if IS_LOCKED: raise errors.KeyringError("locked")
    (PLACE / f"{service}-{name}").write_text(value)
def get_password(service, name):
    if IS_LOCKED: raise errors.KeyringError("locked")
    kept = PLACE / f"{service}-{name}"
    return kept.read_text() if kept.exists() else None
"""
"""What the program uses of the library `keyring`, which is an extra that development does without."""

CLERK = """---
name: clerk
description: Counts.
model: openai:gpt-5-mini
---
You count.
"""

KEEPS = """
import sys
import os
from treadle.redaction import Redactor
from treadle.cli.input.keys import VENDORS, save_key, use_stored_keys
print(save_key(next(one for one in VENDORS if one.name == "openai"), "sk-entered-0123456789"))
use_stored_keys()
print(os.environ.get("OPENAI_API_KEY"), os.environ.get("ANTHROPIC_API_KEY"), Redactor().text("of it: sk-entered-0123456789"))
"""


def keep(folder: Path, **variables: str) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TREADLE_HOME": str(folder / "home"), **variables}
    done = subprocess.run([sys.executable, "-c", KEEPS], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_key_goes_to_the_keyring_and_to_a_file_where_that_does_not_work(tmp_path: Path, is_locked: bool) -> None:
    library = tmp_path / "library" / "keyring"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(f"IS_LOCKED = {is_locked}\n{KEYRING}")
    (library / "errors.py").write_text("class KeyringError(Exception): ...\n")

    where, found = keep(tmp_path, PYTHONPATH=str(library.parent))

    assert ("keys.json" in where) is is_locked
    assert found == "sk-entered-0123456789 None of it: [redacted]"
    assert ("sk-entered" in (tmp_path / "home" / "keys.json").read_text()) is is_locked
    assert (library / "treadle-openai").exists() is not is_locked


def test_a_key_in_the_environment_overrides_the_kept_one(tmp_path: Path) -> None:
    _, found = keep(tmp_path, OPENAI_API_KEY="sk-of-the-environment")

    assert found.startswith("sk-of-the-environment None")


def test_a_stored_key_reaches_the_model_of_a_subagent_too(treadle: Any) -> None:
    (treadle.folder / "clerk.md").write_text(CLERK)
    home = Path(treadle.environment["TREADLE_HOME"])
    home.mkdir(exist_ok=True)
    (home / "keys.json").write_text('{"openai": "sk-stored-0123456789abcdef"}')
    (home / "keys.json").chmod(0o600)
    asks = Turn(calls=(call("spawn_agent", agent="clerk", task="Count"),))
    with MockProvider([asks, text("Two."), text("The clerk says two.")]).in_thread() as provider:
        treadle.environment["OPENAI_BASE_URL"] = provider.base_url
        ran = treadle("run", "-m", "openai:gpt-5", "--tools", "clerk.md", "Ask", code=0)
    assert "The clerk says two." in ran.stdout
    assert [one.headers["authorization"] for one in provider.requests] == ["Bearer sk-stored-0123456789abcdef"] * 3
