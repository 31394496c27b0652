"""Scheduling: order one step's calls into groups that may run side by side. Knows effects; knows no tool, no model."""

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from treadle.canonical import copied
from treadle.tools import CheckedCall

__all__ = ["claims_alone", "conflicts", "group", "named_resources"]


def group(calls: Sequence[CheckedCall]) -> list[list[CheckedCall]]:
    """Cut calls into consecutive groups: `[R,R,W,R,W,R]` becomes `[RR][W][R][W][R]`.

    Order between groups is kept. A call joins the group before it only when it conflicts with none of its members, so
    nothing ever overtakes a call that it might depend on.
    """
    groups: list[list[CheckedCall]] = []
    held: _Claim | None = None
    for call in calls:
        claim = _claim(call)
        if held is None or _collide(claim, held):
            groups.append([call])
            held = claim
        else:
            groups[-1].append(call)
            held = _joined(held, claim)
    return groups


def conflicts(one: CheckedCall, other: CheckedCall) -> bool:
    """Whether two calls must not run side by side. A non-read that names no resources conflicts with everything."""
    return _collide(_claim(one), _claim(other))


def claims_alone(call: CheckedCall) -> bool:
    """Whether a call that only reads claims something for itself, such as the folder in which the next command starts."""
    return call.effect.is_read and "write" in (_claim(call).resources or {}).values()


class _Claim(msgspec.Struct, frozen=True):
    """What a call, or all calls of a group together, hold while they run."""

    is_read: bool
    resources: Mapping[str, str] | None
    """Names and modes; None when nobody can tell."""


_ANYTHING: Mapping[str, str] = {"*": "read"}


def _claim(call: CheckedCall) -> _Claim:
    named = named_resources(call)
    return _Claim(call.effect.is_read, _ANYTHING if named is None and call.effect.is_read else named)


def _collide(one: _Claim, other: _Claim) -> bool:
    ours, theirs = one.resources, other.resources
    if ours is None or theirs is None:
        return True
    if not (one.is_read and other.is_read) and ("*" in ours or "*" in theirs):
        return True
    return any("write" in (mode, theirs.get(name)) for name, mode in ours.items() if name in theirs)


def _joined(one: _Claim, other: _Claim) -> _Claim:
    """Add up two claims, so that a thousand calls are compared with one sum and not with each other."""
    is_read = one.is_read and other.is_read
    assert one.resources is not None  # a call of which nobody can tell collides with every other
    assert other.resources is not None
    writes = {name: mode for name, mode in other.resources.items() if one.resources.get(name) != "write"}
    return _Claim(is_read, {**one.resources, **writes})


def named_resources(call: CheckedCall) -> Mapping[str, str] | None:
    """Return what a call touches, or None when nobody can tell."""
    if call.tool.resources is None:
        return None
    try:
        named = call.tool.resources(copied(call.arguments))
        # A stranger's mapping may have no end: as many names as this are a mistake.
        held = dict(islice(named.items(), _MOST_RESOURCES + 1)) if isinstance(named, Mapping) else None
        if held is None or len(held) > _MOST_RESOURCES:
            return None
        return held if all(type(name) is str and mode in ("read", "write") for name, mode in held.items()) else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a function that raises, SystemExit too, means: exclusive (fails closed)
        return None


_MOST_RESOURCES = 10_000
"""Names that one call may claim; above it, it runs alone."""
