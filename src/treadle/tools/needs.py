"""Needs: what of the sandbox's border a call needs lifted, and the texts in which models, rules and records write it. Values only."""

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from treadle.errors import InvalidArguments
from treadle.fields import Documented, explained
from treadle.tools.protected import canonical_host_glob

__all__ = ["GIT", "UNCONFINED", "Need", "parse_need", "parse_needs"]

_FORMS = "`git`, `network HOST` such as `network api.example.com`, `write FOLDER` such as `write ~/.cache/x`, or `unconfined`"


class Need(msgspec.Struct, Documented, frozen=True):
    """One thing outside of the sandbox's border that a call needs.

    Example:
        Need("network", "api.example.com")
    """

    kind: Literal["git", "network", "write", "unconfined"]
    """`git`: write the git history of the folder, without its hooks and without programs that git's configuration names. `network`: reach a
    host. `write`: write a folder outside. `unconfined`: run without the sandbox."""
    value: str = ""
    """The host of `network` in its canonical spelling, where `*` stands for any text and `*` alone for the whole network; the folder of `write`."""

    @property
    def text(self) -> str:
        """The form in which the model asks for it and records hold it, such as `network api.example.com`."""
        return f"{self.kind} {self.value}".strip()


GIT = Need("git")
UNCONFINED = Need("unconfined")


@explained
def parse_need(text: str) -> Need:
    """Return the need that a text names.

    Raises:
        InvalidArguments: It names none.
    """
    kind, _, value = text.strip().partition(" ")
    value = value.strip()
    has_value = kind in ("network", "write")
    if kind not in get_args(Need.__annotations__["kind"]) or has_value != bool(value):
        raise InvalidArguments(f"{text[:100]!r} is not a need. Write {_FORMS}.")
    if any(ord(char) < 32 or ord(char) == 127 for char in value) or (kind == "network" and " " in value):
        raise InvalidArguments(f"{text[:100]!r} names no {'host' if kind == 'network' else 'folder'}. Write {_FORMS}.")
    if kind == "write" and not value.startswith(("/", "~/")):
        raise InvalidArguments(f"`write` requires a folder from `/` or `~/`; got {value[:100]!r}.")
    return Need(kind, canonical_host_glob(value) if kind == "network" else value)  # type: ignore[arg-type]  # one of the kinds, checked above


@explained
def parse_needs(texts: Iterable[str]) -> tuple[Need, ...]:
    """Return the needs that some texts name, each once.

    Raises:
        InvalidArguments: One names none.
    """
    return tuple(dict.fromkeys(map(parse_need, texts)))
