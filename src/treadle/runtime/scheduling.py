"""Scheduling: order one step's calls into groups that may run side by side. Knows effects; knows no tool, no model."""

from collections.abc import Mapping, Sequence

from treadle.tools import CheckedCall

__all__ = ["conflicts", "group"]


def group(calls: Sequence[CheckedCall]) -> list[list[CheckedCall]]:
    """Cut calls into consecutive groups: `[R,R,W,R,W,R]` becomes `[RR][W][R][W][R]`.

    Order between groups is kept. A call joins the group before it only when it conflicts with none of its members, so
    nothing ever overtakes a call that it might depend on.
    """
    groups: list[list[CheckedCall]] = []
    for call in calls:
        if groups and not any(conflicts(call, member) for member in groups[-1]):
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


def conflicts(one: CheckedCall, other: CheckedCall) -> bool:
    """Whether two calls must not run side by side. A non-read that names no resources conflicts with everything."""
    if one.effect.is_read and other.effect.is_read:
        return False
    ours, theirs = _resources(one), _resources(other)
    if ours is None or theirs is None:
        return True
    if "*" in ours or "*" in theirs:
        return True
    return any("write" in (mode, theirs.get(name)) for name, mode in ours.items() if name in theirs)


def _resources(call: CheckedCall) -> Mapping[str, str] | None:
    """Return what a call touches, or None when nobody can tell."""
    if call.tool.resources is None:
        return None
    try:
        named = call.tool.resources(dict(call.arguments))
    except Exception:  # noqa: BLE001 - a function that raises means: exclusive (fails closed)
        return None
    if not isinstance(named, Mapping) or not all(mode in ("read", "write") for mode in named.values()):
        return None
    return named
