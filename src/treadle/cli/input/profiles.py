"""Profiles: the layers of a profile that is asked for, and what a project's file may tighten. Reads no file."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.input.config import Layer, Profile

__all__ = ["check_profile", "is_tighter", "merged_profile", "refusal", "with_profile"]

_STRICTNESS = {
    "mode": {"plan": 0, "deny-unlisted": 0, "ask": 1, "accept-edits": 2, "bypass": 3},
    "sandbox": {"on": 0, "network": 1, "off": 2},
}
"""Smaller is stricter. What is equal replaces nothing."""


def check_profile(name: str | None, layers: Sequence[Layer]) -> None:
    """Refuse a profile that no file has.

    Raises:
        UsageError: There is none by this name.
    """
    if name is not None and not any(name in layer.profiles for layer in layers):
        known = ", ".join(sorted({known for layer in layers for known in layer.profiles})) or "none"
        raise UsageError(f"No configuration has a profile {name!r}. Known: {known}.")


def with_profile(name: str | None, layers: Sequence[Layer], *, is_remembered: bool) -> list[Layer]:
    """Return the layers with those of a profile: the person's in front of all, a project's in front of its own file.

    Args:
        is_remembered: Whether a session names the profile, and not the person: then it permits nothing.
    """
    own = [_layer(name, layer) for layer in layers if layer.owner == "person" and name in layer.profiles]
    if is_remembered:
        own = [msgspec.structs.replace(layer, allow=(), mode=None, sandbox=None) for layer in own]
    found = list(own)
    for layer in layers:
        found += [_layer(name, layer)] if layer.owner == "project" and name in layer.profiles else []
        found.append(layer)
    return found


def _layer(name: str | None, layer: Layer) -> Layer:
    """Return a profile as a layer of its own. Its limits are left out: they are put together with those of the files."""
    assert name is not None
    profile = layer.profiles[name]
    values = {field: getattr(profile, field) for field in profile.__struct_fields__ if field != "budget"}
    is_own = layer.owner == "person"
    return Layer(
        **values,
        origin=f"profile {name}" if is_own else layer.origin,
        folder=layer.folder,
        owner=layer.owner,
        is_profile=is_own,
    )


def merged_profile(name: str | None, layers: Sequence[Layer]) -> Profile | None:
    """Return the limits of a profile of the person's own files, put together; None where they have none by that name."""
    found = [layer.profiles[name] for layer in layers if layer.owner == "person" and name in layer.profiles]
    if name is None or not found:
        return None
    limits: dict[str, Any] = {}
    for profile in reversed(found):
        limits.update(profile.budget)
    return Profile(budget=limits)


def is_tighter(name: str, asked: str, holds: str) -> bool:
    """Whether a mode or a sandbox permits less than what holds."""
    return _STRICTNESS[name][asked] < _STRICTNESS[name][holds]


def refusal(origin: str, name: str, value: Any, holds: Any) -> str:
    """Say what a project's file asks for and does not get."""
    asked = "none" if value is None else value
    return (
        f"{origin} asks for {name} = {asked}, which is more than {holds}: a project can only lower a limit. "
        f"Set it by a flag or in your own file if you want it."
    )
