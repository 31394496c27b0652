"""Hooks as commands: a program gets a moment as JSON on its standard input, and answers on its standard output.

The form is Claude Code's, so that hooks which people have written for it work: `foreign_words.py` has the names. Such a hook may tighten,
change and add. What it allows is not heard: rules and people decide.
"""

import asyncio
import difflib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, TreadleError, shown
from treadle.fields import checked
from treadle.ports import Hook, HookAnswer, HookContext, Moment
from treadle.redaction import redacted_logger
from treadle.sandboxes.processes import clean_environment, run_process
from treadle.shell.judging import analyse, runs_input
from treadle.tools import Decision, JsonObject, Mode, ProcessResult, ToolResult
from treadle.tools.foreign import CLAUDE_CODE

__all__ = [
    "EVENTS",
    "FIELDS",
    "MODES",
    "OTHER_NAMES",
    "PATHS",
    "TOOLS",
    "UNUSED_EVENTS",
    "Entry",
    "HookFailed",
    "Matcher",
    "command_hooks",
    "foreign_input",
    "hook_entries",
    "hook_table",
    "matcher_of",
    "near_name",
    "once",
    "own_input",
    "reads_code",
]


# --- Foreign words: what Claude Code calls our moments, tools, fields and modes, so that hooks which people have
# written for it work.

EVENTS: Mapping[str, Moment] = {
    "PreToolUse": Moment.BEFORE_TOOL,
    "PostToolUse": Moment.AFTER_TOOL,
    "UserPromptSubmit": Moment.PROMPT,
    "SessionStart": Moment.SESSION_START,
    "SessionEnd": Moment.SESSION_END,
    "Stop": Moment.STOP,
}
"""Its events, and our moments."""
UNUSED_EVENTS = frozenset({"Notification", "PreCompact", "SubagentStart", "SubagentStop", "PermissionRequest", "Setup"})
"""Its events for which there is no moment: their hooks are not called, and a warning names them."""

TOOLS: Mapping[str, str] = {own: names[0] for own, names in CLAUDE_CODE.items()}
"""Our tools, and its names for them."""
OTHER_NAMES: Mapping[str, str] = {"spawn_agent": "Agent"}
"""A second name that one has there."""

FIELDS: Mapping[str, Mapping[str, str]] = {
    "read": {"path": "file_path"},
    "write": {"path": "file_path"},
    "edit": {"path": "file_path", "old_text": "old_string", "new_text": "new_string", "all": "replace_all"},
    "shell": {"background": "run_in_background"},
    "grep": {"include": "glob"},
    "read_process": {"process": "bash_id"},
    "kill_process": {"process": "shell_id"},
    "spawn_agent": {"agent": "subagent_type", "task": "prompt"},
    "skill": {"name": "skill"},
    "todo": {"items": "todos", "text": "content", "state": "status"},
}
"""Fields of arguments that have other names there; all others keep theirs. `timeout` of `shell` is in milliseconds there."""

PATHS: Mapping[str, str] = dict.fromkeys(("read", "write", "edit", "grep", "glob", "list"), "path")
"""Fields that are paths from `/` there, whatever the model wrote."""

MODES: Mapping[Mode, str] = {
    "plan": "plan",
    "ask": "default",
    "accept-edits": "acceptEdits",
    "auto": "acceptEdits",
    "deny-unlisted": "dontAsk",
    "bypass": "bypassPermissions",
}
"""Our modes, and its names for them."""


def foreign_input(tool: str, arguments: JsonObject, folder: str | None = None) -> tuple[str, JsonObject]:
    """Return a call as a foreign hook expects it: the tool's name there, and the arguments with the names there.

    Args:
        folder: Where relative paths begin; None to leave paths as they are.
    """
    name = TOOLS.get(tool, tool)
    if tool == "edit" and arguments.get("edits"):
        name = "MultiEdit"
    path = arguments.get(PATHS.get(tool, ""))
    if folder is not None and isinstance(path, str):
        arguments = {**arguments, PATHS[tool]: _from_root(path, folder)}
    given = _renamed(arguments, FIELDS.get(tool, {}))
    if tool == "shell" and isinstance(given.get("timeout"), int | float):
        given["timeout"] = round(given["timeout"] * 1000)
    return name, given


def own_input(tool: str, given: JsonObject, before: JsonObject, folder: str) -> JsonObject:
    """Return arguments that a foreign hook has changed, with our names.

    Args:
        before: The arguments as the model gave them: a path that is still the same file keeps its spelling.
        folder: Where relative paths begin. A path within it becomes relative.
    """
    found = _renamed(given, {theirs: ours for ours, theirs in FIELDS.get(tool, {}).items()})
    if tool == "shell" and isinstance(found.get("timeout"), int | float):
        found["timeout"] = found["timeout"] / 1000
    path, old = found.get(PATHS.get(tool, "")), before.get(PATHS.get(tool, ""))
    if isinstance(path, str) and path.startswith("/"):
        place = _from_root(path, folder)
        if isinstance(old, str) and place == _from_root(old, folder):
            found[PATHS[tool]] = old
        elif Path(place).is_relative_to(folder):
            found[PATHS[tool]] = os.path.relpath(place, folder)
    return found


def _from_root(path: str, folder: str) -> str:
    """Return a path from `/`. Links keep their names, but for those that `..` goes back from: what is meant is the file."""
    place = os.path.join(folder, path)  # noqa: PTH118 - as text: it may hold what no path does
    if ".." in path.split("/") and "\0" not in path:
        try:
            real, root = os.path.realpath(place), os.path.realpath(folder)
        except OSError:
            return os.path.normpath(place)
        return os.path.join(folder, os.path.relpath(real, root)) if Path(real).is_relative_to(root) else real  # noqa: PTH118 - as above
    return os.path.normpath(place)


def _renamed(given: JsonObject, names: Mapping[str, str]) -> JsonObject:
    found: JsonObject = {}
    for name, value in given.items():
        inner = value
        if isinstance(value, list):
            inner = [_renamed(one, names) if isinstance(one, dict) else one for one in value]
        found[names.get(name, name)] = inner
    return found


# --- Matchers: which tools the matcher of a hook means, as Claude Code reads it. Knows no program and no call.

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


# --- Standard input of hooks: whether a line of shell would carry it out as code. It holds what the model wrote. Starts
# nothing.

_REGULAR = re.compile(r"=~\s+[^\s$`;]\S*(?=\s)")
"""A regular expression in `[[ ]]`: its parentheses start nothing."""
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")


def reads_code(line: str, environment: Mapping[str, str]) -> bool:
    """Whether a line starts an interpreter without a script or code: it would take the input of the hook for its script.

    A variable that the hook does not get is empty: `bash $SCRIPT` is `bash`. An input that the line itself gives (`bash < check.sh`) is known.

    Args:
        environment: All variables that the line gets.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        is_set_here = re.search(rf"(?<![\w${{]){name}\b", line) is not None
        return found[0] if is_set_here else environment.get(name, "")

    started = analyse(_REGULAR.sub("=~ x", _VARIABLE.sub(value, line))).invocations
    return any(runs_input(one) and "<" not in one.text for one in started)


# --- Entries: settings of hooks in the form of Claude Code's, as values. Starts no program; `command_hooks.py` does.

_SECONDS = 60.0
_MAX_SECONDS = 1_000_000
_GROUP_FIELDS = ("matcher", "hooks")
_ENTRY_FIELDS = ("type", "command", "args", "shell", "timeout", "fails", "onFailure", "if")
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
    """Seconds that one of its programs may take."""
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
                _refuse_unknown(one, _ENTRY_FIELDS, event)
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


# --- Hooks as commands: a program gets a moment as JSON on its standard input, and answers on its standard output.

_GRACE_SECONDS = 5.0
_MAX_OUTPUT_BYTES = 1_000_000
_MAX_WORDS = 10_000
_BLOCKS = 2
"""The exit code by which a program blocks what it was told of."""


class HookFailed(TreadleError):
    """A program of a hook ended with an error, took too long, or answered with what cannot be read."""


@checked
def command_hooks(
    settings: Mapping[str, Any] | str | Path,
    *,
    folder: str | Path = ".",
    fails: Literal["open", "closed"] = "open",
    is_approved: Callable[[], bool] | None = None,
) -> tuple[Hook, ...]:
    """Return the hooks of settings in the form of Claude Code's `settings.json`. Programs run with your permissions: read them before.

    Example:
        Agent(model, tools=tools, hooks=command_hooks(".claude/settings.json"))

    Args:
        settings: The settings, or their JSON file: `{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command",
            "command": "./check.py", "timeout": 10, "fails": "closed"}]}]}}`. Other keys beside `hooks` are left alone.
        folder: Where the programs start.
        fails: What it means that a program fails, where its entry does not say so: `closed` denies.
        is_approved: Asked, in a thread, before each program starts: whether what it reads from the disk is still what somebody has
            approved. Where it is not, nothing starts, and what the hook was to judge is denied.

    Raises:
        ConfigurationError: They cannot be read, name an unknown event, or hold an invalid entry.
    """
    if fails not in ("open", "closed"):
        raise ConfigurationError(f"Hooks fail 'open' or 'closed'; got {shown(fails)}.")
    root = str(Path(folder).absolute())
    stopped: dict[str, str] = {}
    entries = [
        msgspec.structs.replace(entry, stopped=stopped, is_approved=is_approved)
        for entry in hook_entries(hook_table(settings), root, fails)
    ]
    return (*map(_hook, entries), *_holding(entries))


def _hook(entry: Entry) -> Hook:
    return Hook(
        at=entry.moment,
        run=partial(_run, entry),
        name=f"hook {entry.command[:80]}",
        timeout=entry.timeout + _GRACE_SECONDS,
        fails=entry.fails,
    )


def _holding(entries: Iterable[Entry]) -> Iterator[Hook]:
    """Return the hooks that hold a run which one after a tool has stopped."""
    first = next((entry for entry in entries if entry.moment == Moment.AFTER_TOOL), None)
    if first is not None:
        for moment in (Moment.BEFORE_TOOL, Moment.BEFORE_REQUEST):
            yield Hook(at=moment, run=partial(_held, first.stopped), name="hook that stopped the run", timeout=None)


def _held(stopped: dict[str, str], context: HookContext) -> HookAnswer:
    """Deny what comes after a stop. The request that is denied ends the run; a resume of it starts anew."""
    reason = stopped.get(context.run_id)
    if context.at == Moment.BEFORE_REQUEST:
        stopped.pop(context.run_id, None)
    return None if reason is None else _denied(reason)


async def _run(entry: Entry, context: HookContext) -> HookAnswer:
    if not _is_meant(entry, context):
        return None
    if entry.is_approved is not None and not await asyncio.to_thread(entry.is_approved):
        return _unapproved(entry, context)
    given = json.dumps(_hook_input(entry, context)).encode()
    env = {**clean_environment(), "CLAUDE_PROJECT_DIR": entry.folder, "TREADLE_PROJECT_DIR": entry.folder}
    if _imports_elsewhere(entry):
        env["PYTHONSAFEPATH"] = "1"
    done = await run_process(
        entry.words,
        stdin=given,
        cwd=entry.folder,
        env=env,
        timeout=entry.timeout,
        max_bytes=_MAX_OUTPUT_BYTES,
    )
    if done.timed_out:
        raise HookFailed(f"{entry.command[:200]} did not end within {entry.timeout:g} seconds.")
    if done.exit_code == _BLOCKS:
        return _blocked(done.stderr.strip() or "A hook blocked this.", context)
    if done.exit_code != 0:
        raise HookFailed(f"{entry.command[:200]} ended with status {done.exit_code}: {done.stderr.strip()[:500]}")
    return _answered(_hook_output(done, entry), done.stdout, context, entry)


def _imports_elsewhere(entry: Entry) -> bool:
    """Whether a command runs Python with code of its own, or a module that is not the folder's: Python would look there first for all imports."""
    for found in _PYTHON.finditer(entry.command):
        module = (found["module"] or "").partition(".")[0]
        is_there = any(Path(entry.folder, f"{module}{end}").exists() for end in ("", ".py")) or "cd " in entry.command
        if not module or module in sys.stdlib_module_names or not is_there:
            return True
    return False


_PYTHON = re.compile(r"\bpython[\d.]*['\"]?(?:\s+-[A-Za-z]+)*?\s+-[A-Za-z]*?(?:c\b|m\s*(?P<module>[A-Za-z_][\w.]*))")
"""Python with `-c`, or with `-m` and a module."""


def _unapproved(entry: Entry, context: HookContext) -> HookAnswer:
    """Deny what the program was to judge, where a hook can."""
    reason = (
        f"The hook {entry.command[:80]} is not run: its files have changed since a person approved them. The person has to look at them "
        f"and approve them: treadle trust approve {shlex.quote(entry.folder)}"
    )
    if context.at in (Moment.BEFORE_TOOL, Moment.PROMPT, Moment.SESSION_START, Moment.BEFORE_REQUEST):
        return _denied(reason)
    raise HookFailed(reason)


def _is_meant(entry: Entry, context: HookContext) -> bool:
    """Whether the matcher fits: a tool by its name here or there, the start of a session by its source."""
    if entry.matcher is None:
        return True
    if not context.tool:
        source = _SOURCES.get(context.source, context.source)
        return entry.matcher((source,), source)
    there, _ = foreign_input(context.tool, context.arguments or {})
    return entry.matcher({there, *(table.get(context.tool, there) for table in (TOOLS, OTHER_NAMES))}, context.tool)


_SOURCES = {"start": "startup", "resume": "resume"}


def _hook_input(entry: Entry, context: HookContext) -> JsonObject:
    found: JsonObject = {
        "session_id": context.session_id,
        "transcript_path": "",
        "cwd": entry.folder,
        "permission_mode": MODES[context.mode],
        "hook_event_name": entry.event,
        "treadle": {"moment": context.at.value, "run_id": context.run_id, "step": context.step, "mode": context.mode},
    }
    if context.tool:
        name, given = foreign_input(context.tool, context.arguments or {}, entry.folder)
        found |= {"tool_name": name, "tool_input": given}
        found["treadle"] |= {"tool": context.tool, "arguments": context.arguments}
        if context.call is not None:
            found["tool_use_id"] = context.call.id
    if context.result is not None:
        found["tool_response"] = _response(context.result)
    match context.at:
        case Moment.PROMPT:
            found |= {"prompt": "" if context.message is None else context.message.text}
        case Moment.SESSION_START:
            found |= {"source": _SOURCES.get(context.source, context.source)}
        case Moment.SESSION_END:
            found |= {"reason": "other" if context.stop is None else str(context.stop.reason)}
        case Moment.STOP:
            found |= {"stop_hook_active": context.continued > 0}
        case _:
            pass
    return found


def _response(result: ToolResult) -> Any:
    value = result.data if result.data is not None else result.content
    return value if not result.is_error else {"error": result.content, "status": str(result.status)}


def _hook_output(done: ProcessResult, entry: Entry) -> JsonObject:
    """Return the decision that a program has written; an empty one where it has written words, or nothing.

    Raises:
        HookFailed: It seems to have decided something, in a form that is not understood.
    """
    text = done.stdout.strip().lstrip("\ufeff")
    if entry.moment in _TAKES_WORDS and not text.startswith("{"):
        return {}
    if done.is_shortened and len(done.stdout.encode()) >= _MAX_OUTPUT_BYTES:
        raise HookFailed(
            f"{entry.command[:200]} wrote more than {_MAX_OUTPUT_BYTES:,} bytes: its decision may be in the part that was dropped."
        )
    is_garbled = "\0" in text or "\ufffd" in text
    if not (is_garbled or text.startswith(("[", '"')) or _SEEMS_DECISION.search(text)):
        return {}
    try:
        value = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise HookFailed(f"{entry.command[:200]} answered with invalid JSON: {error}") from error
    _check(value, entry)
    if is_garbled and not _tightens(value):
        raise HookFailed(f"{entry.command[:200]} wrote output that is not UTF-8 text: its decision may be in it.")
    if message := value.get("systemMessage"):
        logger.info("%s: %s", entry.command[:80], str(message)[:500])
    return dict(value)


_TAKES_WORDS = (Moment.PROMPT, Moment.SESSION_START)
_SEEMS_DECISION = re.compile(r'^\s*\{|"(?:decision|permissionDecision|continue|hookSpecificOutput)"\s*:', re.MULTILINE)


def _tightens(value: JsonObject) -> bool:
    """Whether a decision that can be read denies or asks, whatever else is beside it."""
    more = value.get("hookSpecificOutput")
    word = more.get("permissionDecision") if isinstance(more, dict) else None
    return value.get("decision") == "block" or value.get("continue") is False or word in ("deny", "ask")


def _check(value: Any, entry: Entry) -> None:
    """Refuse what decides nothing here, but was surely meant to: fields of wrong types, decisions in wrong places or with unknown names."""
    if not isinstance(value, dict):
        raise HookFailed(f"{entry.command[:200]} answered with JSON that is not an object: {shown(value)}")
    more = value.get("hookSpecificOutput")
    wrong = [name for name, kind in _KINDS.items() if value.get(name) is not None and not isinstance(value[name], kind)]
    if isinstance(more, dict):
        changed = more.get("updatedInput")
        wrong += ["updatedInput"] if changed is not None and not isinstance(changed, dict) else []
        wrong += ["hookEventName"] if more.get("hookEventName") not in (None, entry.event) else []
    if value.get("decision") not in (None, "block", "approve"):
        wrong.append("decision")
    wrong += [name for name in ("permissionDecision", "updatedInput") if name in value]
    wrong += _unknown(value, more if isinstance(more, dict) else {})
    if wrong:
        fields = ", ".join(dict.fromkeys(wrong))
        raise HookFailed(f"{entry.command[:200]} answered in a form that is not understood: {fields}.")


def _unknown(value: JsonObject, more: JsonObject) -> list[str]:
    """Return the unknown fields of an answer that decides nothing in known ones: another program would have taken them for a decision."""
    is_decided = value.get("continue") is False or value.get("decision") is not None
    if is_decided or any(more.get(name) is not None for name in _DECIDING):
        return []
    return [*(name for name in value if name not in _FIELDS), *(name for name in more if name not in _INNER_FIELDS)]


_DECIDING = ("permissionDecision", "updatedInput", "additionalContext")
_FIELDS = ("continue", "stopReason", "suppressOutput", "systemMessage", "decision", "reason", "hookSpecificOutput")
_INNER_FIELDS = ("hookEventName", "permissionDecisionReason", *_DECIDING)
_KINDS: Mapping[str, type] = {"hookSpecificOutput": dict, "continue": bool, "decision": str}


def _answered(said: JsonObject, stdout: str, context: HookContext, entry: Entry) -> HookAnswer:
    special = said.get("hookSpecificOutput")
    more: JsonObject = special if isinstance(special, dict) else {}
    reason = str(said.get("stopReason") or said.get("reason") or more.get("permissionDecisionReason") or "")[
        :_MAX_WORDS
    ]
    if said.get("continue") is False:
        return _stopped(reason or "A hook stopped the run.", context, entry.stopped)
    added = str(more.get("additionalContext") or "")[:_MAX_WORDS]
    if said.get("decision") == "block":
        return _blocked("\n".join(filter(None, (reason or "A hook blocked this.", added))), context)
    match context.at:
        case Moment.BEFORE_TOOL:
            return _on_call(more, reason, context, entry.folder)
        case Moment.AFTER_TOOL if added and context.result is not None:
            return _with_message(context.result, added)
        case Moment.PROMPT | Moment.SESSION_START:
            return added or (stdout.strip()[:_MAX_WORDS] if not said else "") or None
        case _:
            return None


def _on_call(more: JsonObject, reason: str, context: HookContext, folder: str) -> HookAnswer:
    """Return what is said of a call. An `allow` says nothing: it may change arguments, and rules decide on what happens to them."""
    changed = more.get("updatedInput")
    arguments = own_input(context.tool, changed, context.arguments or {}, folder) if isinstance(changed, dict) else None
    match more.get("permissionDecision"):
        case "deny":
            return _denied(reason or "A hook denied this call.")
        case "ask":
            return Decision(kind="ask", rule="hook", reason=reason, arguments=arguments)
        case "allow" | None:
            return (
                None if arguments is None else Decision(kind="allow", rule="hook", reason=reason, arguments=arguments)
            )
        case other:
            raise HookFailed(f"A hook decided {shown(other)}; it may say allow, deny or ask.")


def _blocked(reason: str, context: HookContext) -> HookAnswer:
    reason = reason[:_MAX_WORDS]
    match context.at:
        case Moment.AFTER_TOOL:
            return None if context.result is None else _with_message(context.result, reason)
        case Moment.STOP:
            return reason
        case Moment.SESSION_END:
            return None
        case _:
            return _denied(reason)


def _stopped(reason: str, context: HookContext, stopped: dict[str, str]) -> HookAnswer:
    """Stop the run: here, or once the calls beside the one that has ended are done."""
    if context.at == Moment.AFTER_TOOL:
        stopped[context.run_id] = reason
        return None
    if context.at in (Moment.STOP, Moment.SESSION_END):
        return None  # it ends anyway
    return _denied(reason, interrupt=context.at == Moment.BEFORE_TOOL)


def _denied(reason: str, *, interrupt: bool = False) -> Decision:
    return Decision(kind="deny", rule="hook", reason=reason, interrupt=interrupt)


def _with_message(result: ToolResult, text: str) -> ToolResult:
    """Return a result with a hook's words beside it."""
    try:
        value = json.loads(result.content)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return msgspec.structs.replace(result, content=json.dumps({**value, "hook": text}, ensure_ascii=False))
    return msgspec.structs.replace(result, content=f"{result.content}\n[hook] {text}")
