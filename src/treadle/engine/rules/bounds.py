"""Bounds: keep what the model is shown of a result within its limit, whole and marked. Text in, text out."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from treadle.canonical import copied
from treadle.tools import CheckedCall

__all__ = ["bound", "claims_alone", "conflicts", "group", "named_resources", "with_fields"]

_encode = msgspec.json.encode
_LEAST_ROOM = 160
"""Characters that a text and its marker take at least."""
_TRUNCATED = '{"truncated":true}'
"""What is left of a result in a limit too small for any of it: still JSON, still marked."""


def bound(value: Any, text: str, limit: int | None, *, artifact: str | None = None) -> tuple[str, bool]:
    """Return the text for the model, and whether it had to be shortened.

    A text keeps its head and tail around a marker that says what is shown and how much there is. An object or list stays
    JSON: its longest texts are shortened first, and only when that is not enough it becomes a preview of itself.

    Args:
        value: The result as JSON value; a str when the result is plain text.
        text: The same as the model would read it.
        limit: Characters; None for no limit.
        artifact: Id of the artifact that holds the whole, for the marker; None where nothing does.
    """
    if limit is None or len(text) <= limit:
        return text, False
    if isinstance(value, str):
        return _shorten(text, limit, artifact), True
    if isinstance(value, dict) and (slim := _shorten_fields(value, text, limit, artifact)) is not None:
        return slim, True
    return _preview(text, limit, artifact), True


def _shorten(text: str, limit: int, artifact: str | None) -> str:
    kept = f"; the whole is artifact {artifact}" if artifact else ""
    marker = f"\n[... truncated: shown {{shown}} of {len(text)} characters{kept} ...]\n"
    room = limit - len(marker) - len(str(limit))
    if room <= 0:
        return text[: limit - 1] + "…"
    tail = room // 4
    head = room - tail
    return text[:head] + marker.format(shown=room) + (text[-tail:] if tail else "")


def _shorten_fields(value: dict[str, Any], text: str, limit: int, artifact: str | None) -> str | None:
    """Shorten the longest text of an object so that the whole fits; None when no one text is to blame."""
    texts = [key for key, item in value.items() if isinstance(item, str)]
    if not texts:
        return None
    longest = max(texts, key=lambda key: len(value[key]))
    return _shorten_field(value, longest, limit - (len(text) - len(_json(value[longest]))) - 2, limit, artifact)


def _shorten_field(value: dict[str, Any], longest: str, room: int, limit: int, artifact: str | None) -> str | None:
    """Shorten one text until the whole fits: JSON escapes make it longer than its characters."""
    original = value[longest]
    while room > _LEAST_ROOM:
        slim = _json({**value, longest: _shorten(original, room, artifact)})
        if len(slim) <= limit:
            return slim
        room = min(room * limit // len(slim), room) - 1 - room // 64
    return None


def _preview(text: str, limit: int, artifact: str | None) -> str:
    kept = {"artifact": artifact} if artifact else {}
    room = limit - 80
    while room > 0:
        slim = _json({"truncated": True, "shown_chars": room, "total_chars": len(text), **kept, "preview": text[:room]})
        if len(slim) <= limit:
            return slim
        room -= max(len(slim) - limit, 1)
    return _TRUNCATED if len(_TRUNCATED) <= limit else "…"


def _json(value: Any) -> str:
    return _encode(value).decode()


def with_fields(value: Any, fields: dict[str, Any]) -> Any:
    """Add the runtime's own fields beside a result's; a result that is not an object becomes `{"output": result, ...}`."""
    return {**value, **fields} if isinstance(value, dict) else {"output": value, **fields}


# --- Scheduling: order one step's calls into groups that may run side by side. Knows effects; knows no tool, no model.


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
    """Names and modes; None when that is unknown."""


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
    assert one.resources is not None  # a call whose resources are unknown collides with every other
    assert other.resources is not None
    writes = {name: mode for name, mode in other.resources.items() if one.resources.get(name) != "write"}
    return _Claim(is_read, {**one.resources, **writes})


def named_resources(call: CheckedCall) -> Mapping[str, str] | None:
    """Return what a call touches, or None when that is unknown."""
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
