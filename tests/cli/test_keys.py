"""Where the keys that a person has entered are kept: the system's keyring where it works, else a file of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

KEEPS = """
import sys
from treadle.cli.input.keys import VENDORS, key_for, save_key
print(save_key(next(one for one in VENDORS if one.name == "openai"), "sk-entered-0123456789"))
print(key_for("openai:gpt-5"), key_for("openai-chat:gpt-5"), key_for("anthropic:claude-sonnet-4-5"), key_for("demo"))
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
    assert found == "sk-entered-0123456789 sk-entered-0123456789 None None"
    assert (tmp_path / "home" / "keys.json").exists() is is_locked
    assert (library / "treadle-openai").exists() is not is_locked


def test_a_key_in_the_environment_overrides_the_kept_one(tmp_path: Path) -> None:
    _, found = keep(tmp_path, OPENAI_API_KEY="sk-of-the-environment")

    assert found == "None None None None"  # the model reads its variable
