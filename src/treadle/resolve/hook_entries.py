"""Entries: settings of hooks in the form of Claude Code's, as values. Starts no program; `command_hooks.py` does.

A field that would change what is run, and that is not carried out here, is refused: a hook is never run as another hook.
"""

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.ports import Moment
from treadle.redaction import redacted_logger
from treadle.resolve.foreign_words import EVENTS, UNUSED_EVENTS
from treadle.resolve.hook_matchers import Matcher, matcher_of, near_name
from treadle.resolve.hook_stdin import reads_code
from treadle.sandboxes.processes import clean_environment

__all__ = ["Entry", "hook_entries", "hook_table", "once"]

logger = redacted_logger(__name__)

_SECONDS = 60.0
_MAX_SECONDS = 1_000_000
_GROUP_FIELDS = ("matcher", "hooks")
_FIELDS = ("type", "command", "args", "shell", "timeout", "fails", "onFailure", "if")
_HARMLESS = frozenset({"statusMessage", "once", "async", "asyncRewake", "description", "comment", "name"})
"""Fields that change nothing here: words for people; `once`, which counts in skills alone; and `async`: every hook is waited for."""
_NOT_CARRIED_OUT = {
    "if": "a hook is chosen by its matcher, and its command can look at `tool_input`",
}
_SHELLS: Mapping[str | None, str] = {None: "/bin/sh", "bash": "bash"}
_FAILURES = {"block": "closed", "continue": "open"}
"""Claude Code's `onFailure`, and our `fails`."""
_PLACEHOLDER = re.compile(r"\$\{(?:CLAUDE|TREADLE)_PROJECT_DIR\}")
_UNKNOWN_PLACE = re.compile(r"\$\{?CLAUDE_PLUGIN_(?:ROOT|DATA)\b\}?")
_BARE_PLACE = re.compile(r"\$(?:CLAUDE|TREADLE)_PROJECT_DIR\b")
_OWN_EVENTS = {moment.value: moment for moment in EVENTS.values()}

Fails: TypeAlias = Literal["open", "closed"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One hook: which program is started, when, and where."""

    command: str
    """As a person reads it."""
    words: tuple[str, ...]
    """The program that is started, and its arguments."""
    event: str
    moment: Moment
    matcher: Matcher | None
    """Whether a tool or a source fits; None where all do."""
    timeout: float
    folder: str
    fails: Fails
    stopped: dict[str, str] = {}
    """Why hooks after a tool have stopped runs, by their ids: none of them starts another call or asks the model again."""
    is_approved: Callable[[], bool] | None = None
    """Whether the program may start still; None where nobody has to approve it."""


def hook_table(settings: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    """Return the events of settings, or of a file of them.

    Raises:
        ConfigurationError: They cannot be read.
    """
    given: Any = settings
    if isinstance(settings, str | Path):
        try:
            given = json.loads(Path(settings).read_bytes(), object_pairs_hook=once)
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"The hooks of {settings} cannot be read: {error}.") from error
    table = given.get("hooks", {}) if isinstance(given, Mapping) else None
    if isinstance(given, Mapping) and "hooks" not in given and (events := [one for one in EVENTS if one in given]):
        raise ConfigurationError(f'Hooks for {events[0]} are not found there: write them within "hooks".')
    if not isinstance(table, Mapping):
        raise ConfigurationError(
            f'The settings of hooks must be an object such as {{"hooks": {{"PreToolUse": [...]}}}}; got {shown(given)}.'
        )
    return table


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
        ValueError: It has a key twice.
    """
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("it has the same key twice")
    return dict(pairs)


def hook_entries(table: Mapping[str, Any], folder: str, fails: Fails) -> Iterator[Entry]:
    """Yield the hooks of a table of events.

    Raises:
        ConfigurationError: It names an unknown event, or holds an entry that is invalid or cannot be carried out.
    """
    for event, groups in table.items():
        moment = EVENTS.get(event) or _OWN_EVENTS.get(event)
        if moment is None and (event in UNUSED_EVENTS or not _resembled(event)):
            logger.warning("Hooks for %s are not called: Treadle has no such event.", event)
            continue
        if moment is None:
            known = ", ".join(EVENTS)
            raise ConfigurationError(
                f"There is no event {shown(event)} for hooks. Did you mean {_resembled(event)!r}? There are {known}."
            )
        for group in _list(groups, event):
            if not isinstance(group.get("hooks"), list):
                raise ConfigurationError(f'An entry for {event} must have a list of "hooks"; got {shown(group)}.')
            _refuse_unknown(group, _GROUP_FIELDS, event)
            matcher = matcher_of(group.get("matcher"), event, moment)
            for one in _list(group["hooks"], event):
                _refuse_unknown(one, _FIELDS, event)
                yield _entry(one, event, moment, matcher, folder, fails)


def _resembled(event: str) -> str:
    """Return the event that was surely meant; empty for none."""
    known = {name.casefold(): name for name in EVENTS} | {name.casefold(): name for name in _OWN_EVENTS}
    near = difflib.get_close_matches(event.casefold(), known, n=1, cutoff=0.8)
    return known[near[0]] if near else ""


def _entry(
    one: Mapping[str, Any], event: str, moment: Moment, matcher: Matcher | None, folder: str, fails: Fails
) -> Entry:
    command, seconds = one.get("command"), one.get("timeout", _SECONDS)
    if one.get("type", "command") != "command" or not isinstance(command, str) or not command.strip():
        raise ConfigurationError(
            f'A hook for {event} must have "type": "command" and a "command": Treadle runs no other hooks. Got {shown(one)}.'
        )
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_SECONDS:
        raise ConfigurationError(
            f"The timeout of a hook for {event} must be seconds above 0, and at most {_MAX_SECONDS:,}; got {shown(seconds)}."
        )
    words = _words(one, command, event, folder)
    return Entry(
        command=command if "args" not in one else shlex.join(words),
        words=words,
        event=next(name for name, known in EVENTS.items() if known == moment),
        moment=moment,
        matcher=matcher,
        timeout=seconds,
        folder=folder,
        fails=_fails(one, event, fails),
    )


def _words(one: Mapping[str, Any], command: str, event: str, folder: str) -> tuple[str, ...]:
    """Return the program that a hook starts, and its arguments: a shell, unless it has `args`."""
    arguments, shell = one.get("args"), one.get("shell")
    if not isinstance(shell, str | None) or shell not in _SHELLS:
        raise ConfigurationError(f'The shell of a hook for {event} can only be "bash"; got {shown(shell)}.')
    words: tuple[str, ...] = (_SHELLS[shell], "-c", command)
    given = [command]
    if "args" in one:
        if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
            raise ConfigurationError(
                f'The "args" of a hook for {event} must be a list of strings; got {shown(arguments)}.'
            )
        given = [command, *arguments]
        if bare := next((word for word in given if _BARE_PLACE.match(word) and not _is_shells(given)), None):
            raise ConfigurationError(
                f"A hook for {event} has `args`, so that no shell reads {shown(bare)}: write ${{CLAUDE_PROJECT_DIR}}, with braces."
            )
        words = tuple(_PLACEHOLDER.sub(lambda _: folder, word) for word in given)
    if found := next(filter(None, map(_UNKNOWN_PLACE.search, given)), None):
        raise ConfigurationError(
            f"A hook for {event} names {found[0]}, which only plugins of Claude Code have. Write the path of its program."
        )
    given_to_it = {**clean_environment(), "CLAUDE_PROJECT_DIR": folder, "TREADLE_PROJECT_DIR": folder}
    if reads_code(shlex.join(words) if "args" in one else command, given_to_it):
        raise ConfigurationError(
            f"The hook `{command[:80]}` for {event} would carry out its standard input, which holds what the model wrote, as code. "
            "Name the script that it runs."
        )
    return words


def _is_shells(words: Sequence[str]) -> bool:
    """Whether a shell of its own reads one of the words."""
    return any(re.fullmatch(r"-[A-Za-z]*c", word) for word in words)


def _fails(one: Mapping[str, Any], event: str, fails: Fails) -> Fails:
    """Return what a failure means. Of two words on it, the stricter one counts."""
    said, theirs = one.get("fails", fails), one.get("onFailure", "continue")
    if said not in ("open", "closed"):
        raise ConfigurationError(f"A hook for {event} fails 'open' or 'closed'; got {shown(said)}.")
    if not isinstance(theirs, str) or theirs not in _FAILURES:
        raise ConfigurationError(f'The onFailure of a hook for {event} is "block" or "continue"; got {shown(theirs)}.')
    return "closed" if "closed" in (said, _FAILURES[theirs]) else "open"


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str], event: str) -> None:
    """Refuse a field that is not carried out: it may change which program runs, or when."""
    for name, value in given.items():
        if name in _HARMLESS or name.startswith(("_", "$", "//")):
            continue
        if name in _NOT_CARRIED_OUT and name in known:
            if value not in (None, False):
                raise ConfigurationError(
                    f"A hook for {event} has the field {shown(name)}, which Treadle does not carry out: {_NOT_CARRIED_OUT[name]}. "
                    "Remove the field, or the hook."
                )
        elif name not in known:
            near = near_name(name, known)
            hint = f"Did you mean {near!r}?" if near else "It may change what the hook does: remove it."
            raise ConfigurationError(f"A hook for {event} has no field {shown(name)}. {hint}")


def _list(value: Any, event: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise ConfigurationError(f"Hooks for {event} must be a list of objects; got {shown(value)}.")
    return value
