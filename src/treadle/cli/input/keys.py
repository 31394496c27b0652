"""Keys: the vendors that a newcomer may choose, and their keys: in the environment, the system's keyring, or a file of the person's own.

A key is never in a project, and never in the configuration.
"""

import os
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.input.places import user_config
from treadle.cli.input.trust import read_own_json, write_own
from treadle.redaction import Redactor

__all__ = ["VENDORS", "KeyVendor", "has_key", "save_key", "use_stored_keys"]

_SERVICE = "treadle"
"""Under this name the keyring has them."""


class KeyVendor(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor whose models need a key."""

    name: str
    """What stands before the colon of its models' names."""
    label: str
    variables: tuple[str, ...]
    """Variables of the environment that may hold the key."""
    model: str
    """The model of it that people usually take for code."""
    page: str
    """Where a person gets a key."""

    def is_set(self, environment: Mapping[str, str]) -> bool:
        """Whether the environment has its key."""
        return any(environment.get(one) for one in self.variables)


VENDORS = (
    KeyVendor(
        name="anthropic",
        label="Anthropic",
        variables=("ANTHROPIC_API_KEY",),
        model="anthropic:claude-sonnet-4-5",
        page="https://console.anthropic.com/settings/keys",
    ),
    KeyVendor(
        name="openai",
        label="OpenAI",
        variables=("OPENAI_API_KEY",),
        model="openai:gpt-5",
        page="https://platform.openai.com/api-keys",
    ),
    KeyVendor(
        name="gemini",
        label="Google Gemini",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini:gemini-2.5-pro",
        page="https://aistudio.google.com/apikey",
    ),
    KeyVendor(
        name="deepseek",
        label="DeepSeek",
        variables=("DEEPSEEK_API_KEY",),
        model="deepseek:deepseek-chat",
        page="https://platform.deepseek.com/api_keys",
    ),
)


def has_key(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment has the key of a vendor. Of one that is not offered to newcomers, its usual variable counts."""
    known = next((one for one in VENDORS if one.name == name), None)
    return bool(environment.get(f"{name.upper()}_API_KEY")) if known is None else known.is_set(environment)


def use_stored_keys(environment: MutableMapping[str, str] = os.environ) -> None:
    """Give this process the stored keys that its environment lacks, so that each model of it finds its own, those of subagents too.

    Raises:
        UsageError: The file of keys can be read by others.
    """
    for name, kept in _in_file(environment).items():
        vendor = next((one for one in VENDORS if one.name == name), None)
        if vendor is None or vendor.is_set(environment):
            continue
        if key := _in_keyring(name) if kept is None else kept:
            environment[vendor.variables[0]] = key
            Redactor.for_environment(environment)  # it is hidden from now on


def save_key(vendor: KeyVendor, key: str, environment: Mapping[str, str] = os.environ) -> str:
    """Store a key, and return where.

    Raises:
        UsageError: It cannot be stored.
    """
    path, is_in_keyring = _place(environment), _put_in_keyring(vendor.name, key)
    write_own(path, msgspec.json.encode({**_in_file(environment), vendor.name: None if is_in_keyring else key}))
    return "the system's keyring" if is_in_keyring else f"{path}, readable by you alone"


def _place(environment: Mapping[str, str]) -> Path:
    return user_config(environment).with_name("keys.json")


def _in_file(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the stored keys; None for one that the keyring has."""
    path = _place(environment)
    found: dict[str, str | None] = read_own_json(path, dict[str, str | None], "enter your keys again") or {}
    if path.exists() and path.stat().st_mode & 0o077:
        raise UsageError(f"{path} holds keys and can be read by others. Run: chmod 600 {path}")
    return found


def _in_keyring(name: str) -> str | None:
    if find_spec("keyring") is None:
        return None
    import keyring  # noqa: PLC0415 - an extra, which a start with a key in the environment does without
    from keyring.errors import KeyringError  # noqa: PLC0415 - as above

    try:
        found: str | None = keyring.get_password(_SERVICE, name)
    except KeyringError:  # such as a machine without a desktop: the file has the keys
        return None
    return found


def _put_in_keyring(name: str, key: str) -> bool:
    if find_spec("keyring") is None:
        return False
    import keyring  # noqa: PLC0415 - as above
    from keyring.errors import KeyringError  # noqa: PLC0415 - as above

    try:
        keyring.set_password(_SERVICE, name, key)
    except KeyringError:
        return False
    return True
