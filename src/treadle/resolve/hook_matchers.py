"""Matchers: which tools the matcher of a hook means, as Claude Code reads it. Knows no program and no call."""

import difflib
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from treadle.errors import ConfigurationError, shown
from treadle.ports import Moment
from treadle.redaction import redacted_logger
from treadle.resolve.foreign_words import OTHER_NAMES, TOOLS

__all__ = ["Matcher", "matcher_of", "near_name"]

logger = redacted_logger(__name__)

Matcher: TypeAlias = Callable[[Collection[str], str], bool]
"""Whether a tool fits, by its names there and its name here; for the start of a session, its source."""

_NAMES = re.compile(r"[\w\-, |]+")
"""A list of exact names. A matcher with any other sign is a regular expression."""
_LOOKS_AROUND = re.compile(r"\(\?(?:[=!(]|<[=!]|P=)|\\[1-9]")
_REJECTS = re.compile(r"\(\?<?!")
_WITH_ARGUMENTS = re.compile(r"(\w+)\(.*\)", re.DOTALL)
_TOOL_NAMES = tuple(dict.fromkeys((*TOOLS, *TOOLS.values(), *OTHER_NAMES.values(), "MultiEdit")))


def matcher_of(value: Any, event: str, moment: Moment) -> Matcher | None:
    """Return what says whether a tool fits; None where each one does.

    Raises:
        ConfigurationError: It is not a list of names, and not a regular expression.
    """
    if value in (None, "", "*"):
        return None
    if not isinstance(value, str):
        raise _invalid(value, event, "it must be a string")
    fits = _exact(value) if _NAMES.fullmatch(value) else _searching(value, event)
    if moment in (Moment.BEFORE_TOOL, Moment.AFTER_TOOL):
        _warn_of_names(value, event, fits)
    return fits


def near_name(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that one was surely meant to be; None where there is none."""
    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.8)
    return folded[near[0]] if near else None


def _exact(value: str) -> Matcher:
    names = frozenset(filter(None, (one.strip() for one in re.split(r"[,|]", value))))
    return lambda theirs, ours: any(one in names or _server(one) in names for one in (*theirs, ours))


def _server(tool: str) -> str:
    """Return how rules name the server of a tool, `mcp__server`; the tool where it has none."""
    return "__".join(tool.split("__", 2)[:2]) if tool.startswith("mcp__") else tool


def _searching(value: str, event: str) -> Matcher:
    """Return a search in names. It may fit anywhere in one, as in JavaScript.

    A tool with two names fits by either. Where the expression rejects names, such as `^(?!Read$)`, ours counts only if it is written there.
    """
    search, is_rejecting = _search(value, event), _REJECTS.search(value) is not None

    def fits(theirs: Collection[str], ours: str) -> bool:
        return any(map(search, theirs)) or ((not is_rejecting or ours in value) and search(ours))

    return fits


def _search(value: str, event: str) -> Callable[[str], bool]:
    """Return a search. Rust's engine takes time in proportion to the name; it has no look-around, where Python's is used."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        if _LOOKS_AROUND.search(value):
            pattern = re.compile(value)
            return lambda name: pattern.search(name) is not None
        return SchemaValidator(core_schema.str_schema(pattern=value)).isinstance_python
    except (re.error, SchemaError) as error:
        raise _invalid(value, event, str(error)) from error


def _invalid(value: Any, event: str, why: str) -> ConfigurationError:
    hint = f" {_NO_ARGUMENTS}" if isinstance(value, str) and _WITH_ARGUMENTS.fullmatch(value) else ""
    return ConfigurationError(
        f"The matcher {shown(value)} of a hook for {event} is not a regular expression: {why}.{hint}"
    )


_NO_ARGUMENTS = "A matcher names tools alone: the command finds the arguments in `tool_input`."


def _warn_of_names(matcher: str, event: str, fits: Matcher) -> None:
    """Warn of a matcher with a name that no tool has and that resembles one: the hook would not be called."""
    what = f"The matcher {shown(matcher)} of a hook for {event}"
    ruled = _WITH_ARGUMENTS.fullmatch(matcher)
    if ruled and ruled[1] in _TOOL_NAMES and not any(fits((one,), one) for one in _TOOL_NAMES):
        logger.warning("%s fits no tool. %s", what, _NO_ARGUMENTS)
        return
    for name in (part.strip() for part in re.split(r"[,|]", matcher.strip("()^$"))):
        if name in _TOOL_NAMES or not _NAMES.fullmatch(name):
            continue
        near = near_name(name, _TOOL_NAMES)
        hint = f"Did you mean `{near}`?" if near else ""
        if len([part for part in name.split() if part in _TOOL_NAMES]) > 1:
            hint = "Write `|` between two names."
        if hint:
            logger.warning("%s names `%s`, and neither Treadle nor Claude Code has such a tool. %s", what, name, hint)
