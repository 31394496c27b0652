"""Own: where Treadle itself lies, and what it obeys: its Python, its code, its configuration and state. Looks only."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["config_folder", "obeyed_files", "own_places", "state_folder"]

_PACKAGES = ("site-packages", "dist-packages")
_OBEYED = ("config.toml", "rules.toml", "hooks.json", "mcp.json", "mcp-approved.json", "trust.json", "skills")
"""What the command line obeys in the folder of its configuration."""


def own_places() -> tuple[str, ...]:
    """Return the folders and files from `/`, links resolved, as far as they exist.

    Who writes there runs outside of every sandbox: with the next command, which this Python starts, or with the next start of Treadle.
    """
    package = Path(__file__).parents[1]
    code = package.parent if package.parent.name in _PACKAGES else package
    folders = (
        sys.prefix,
        sys.base_prefix,
        Path(sys.executable).parent,
        code,
        config_folder(os.environ),
        state_folder(os.environ),
    )
    found = (*map(str, folders), *obeyed_files())
    return tuple(dict.fromkeys(os.path.realpath(one) for one in found if os.path.lexists(one)))


def obeyed_files() -> tuple[str, ...]:
    """Return the files and folders that say what Treadle may do, from `/`, as they are named and with links resolved. They need not exist.

    They are the person's configuration, rules and records of trust, the file of `--config` and the rules of an organisation.
    """
    folder = os.path.abspath(config_folder(os.environ))  # noqa: PTH100 - Path.absolute keeps `..`
    named = filter(None, map(os.environ.get, ("TREADLE_CONFIG", "TREADLE_MANAGED")))
    found = [*(f"{folder}/{name}" for name in _OBEYED), "/etc/treadle/managed.toml", *map(os.path.abspath, named)]
    return tuple(dict.fromkeys([*found, *map(os.path.realpath, found)]))


def config_folder(environment: Mapping[str, str]) -> Path:
    """Return where the person's own configuration is, with the list of what the person trusts."""
    return _folder(environment, "XDG_CONFIG_HOME", ".config")


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return where the person's state is: journals, and processes in the background."""
    return _folder(environment, "XDG_STATE_HOME", ".local/state")


def _folder(environment: Mapping[str, str], variable: str, name: str) -> Path:
    if home := environment.get("TREADLE_HOME"):
        return Path(home)
    return Path(environment.get(variable) or Path(environment.get("HOME", "/"), name)) / "treadle"
