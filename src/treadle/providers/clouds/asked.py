"""Asked: what a person says of a model behind a cloud's door, and what was found of it. Values only."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, MissingCredential, shown
from treadle.providers.http.door import Door

__all__ = ["ApiKey", "Asked", "Reached", "text_option"]

ApiKey: TypeAlias = str | Callable[[], str]
"""A key, or a function that returns a token."""


_PROOFS = frozenset({"authorization", "api-key", "x-goog-api-key", "ocp-apim-subscription-key"})


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of one model."""

    name: str
    """What stands before the colon of the model's name."""
    model: str
    base_url: str | None
    """The address that they gave, as an argument or in the vendor's variable; None for the cloud's own."""
    api_key: ApiKey | None
    """The key that they gave, as an argument or in the vendor's variable."""
    stream: bool
    options: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    """Headers of their own, which may prove who asks."""
    environment: Mapping[str, str]

    @property
    def proves_itself(self) -> bool:
        """Whether a header of theirs says who asks: then nobody else is looked for."""
        return any(name.lower() in _PROOFS for name in self.headers)


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is reached."""

    base_url: str
    api_key: str | None
    door: Door
    options: Mapping[str, Any]
    """Those that are fields of the body, or the dialect's own."""
    is_vendors: bool
    """Whether it is the cloud's own address, so that its list price holds."""


def text_option(options: Mapping[str, Any], name: str, example: str) -> str | None:
    """Return an option that must be a string; None where it is not set.

    Raises:
        ConfigurationError: It is something else.
    """
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"The option {name} must be a string such as {example!r}; got {shown(value)}.")
    return value.strip()


def need(module: str, *, extra: str, why: str) -> None:
    """Check that an extra is installed.

    Raises:
        MissingCredential: It is not; the message names the command.
    """
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise MissingCredential(f"{why} needs the extra {extra!r}: pip install '.[{extra}]' in the project's folder.")
