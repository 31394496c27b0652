"""Hooks as commands: a program gets a moment as JSON on its standard input, and answers on its standard output.

The form is Claude Code's, so that hooks which people have written for it work: `foreign_words.py` has the names. Such a hook may tighten,
change and add. What it allows is not heard: rules and people decide.
"""

import asyncio
import difflib
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.errors import ConfigurationError, TreadleError, shown
from treadle.fields import checked
from treadle.ports import Hook, HookAnswer, HookContext, Moment
from treadle.redaction import redacted_logger
from treadle.resolve.foreign_words import EVENTS, MODES, OTHER_NAMES, TOOLS, UNUSED_EVENTS, foreign_input, own_input
from treadle.sandboxes.processes import clean_environment, run_process
from treadle.tools import Decision, JsonObject, ProcessResult, ToolResult

__all__ = ["HookFailed", "command_hooks"]

logger = redacted_logger(__name__)

_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_MAX_OUTPUT_BYTES = 1_000_000
_MAX_WORDS = 10_000
_BLOCKS = 2
"""The exit code by which a program blocks what it was told of."""
_LOOKS_AROUND = re.compile(r"\(\?(?:[=!(]|<[=!]|P=)|\\[1-9]")
_OWN_EVENTS = {moment.value: moment for moment in EVENTS.values()}
_TOOL_NAMES = tuple(dict.fromkeys((*TOOLS, *TOOLS.values(), *OTHER_NAMES.values(), "MultiEdit")))


class HookFailed(TreadleError):
    """A program of a hook ended with an error, took too long, or answered with what cannot be read."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    event: str
    moment: Moment
    matcher: Callable[[str], bool] | None
    """Whether a name fits; None where every name does."""
    timeout: float
    folder: str
    stopped: dict[str, str] = {}
    """Why hooks after a tool have stopped runs, by their ids: none of them starts another call or asks the model again."""
    is_approved: Callable[[], bool] | None = None
    """Whether the program may start still; None where nobody has to approve it."""


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
        (msgspec.structs.replace(entry, stopped=stopped, is_approved=is_approved), closes)
        for entry, closes in _entries(_table(settings), root, fails)
    ]
    return (*(_hook(*one) for one in entries), *_holding(entry for entry, _ in entries))


def _table(settings: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    given: Any = settings
    if isinstance(settings, str | Path):
        try:
            given = json.loads(Path(settings).read_bytes(), object_pairs_hook=_once)
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


def _entries(table: Mapping[str, Any], folder: str, fails: str) -> Iterator[tuple[_Entry, str]]:
    for event, groups in table.items():
        moment = EVENTS.get(event) or _OWN_EVENTS.get(event)
        if moment is None and event in UNUSED_EVENTS:
            logger.warning("Hooks for %s are not called: Treadle has no such event.", event)
            continue
        if moment is None:
            raise ConfigurationError(f"There is no event {shown(event)} for hooks. There are {', '.join(EVENTS)}.")
        for group in _list(groups, event):
            if not isinstance(group.get("hooks"), list):
                raise ConfigurationError(f'An entry for {event} must have a list of "hooks"; got {shown(group)}.')
            _refuse_misspelt(group, ("matcher", "hooks"), event)
            matcher = _matcher(group.get("matcher"), event)
            for one in _list(group["hooks"], event):
                _refuse_misspelt(one, ("type", "command", "timeout", "fails"), event)
                closes = one.get("fails", fails)
                command, seconds = one.get("command"), one.get("timeout", _SECONDS)
                if one.get("type", "command") != "command" or not isinstance(command, str) or not command.strip():
                    raise ConfigurationError(
                        f'A hook for {event} must have "type": "command" and a "command"; got {shown(one)}.'
                    )
                if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
                    raise ConfigurationError(
                        f"The timeout of a hook for {event} must be seconds above 0; got {shown(seconds)}."
                    )
                if closes not in ("open", "closed"):
                    raise ConfigurationError(f"A hook for {event} fails 'open' or 'closed'; got {shown(closes)}.")
                name = next(name for name, known in EVENTS.items() if known == moment)
                yield (
                    _Entry(command=command, event=name, moment=moment, matcher=matcher, timeout=seconds, folder=folder),
                    closes,
                )


def _refuse_misspelt(given: Mapping[str, Any], known: Sequence[str], event: str) -> None:
    """Refuse a field that was surely meant to be one of ours. Others are left alone: other programs read the same settings."""
    for name in given:
        near = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=0.8)
        if near and name not in known:
            raise ConfigurationError(f"A hook for {event} has no field {shown(name)}. Did you mean {near[0]!r}?")


def _list(value: Any, event: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise ConfigurationError(f"Hooks for {event} must be a list of objects; got {shown(value)}.")
    return value


def _matcher(value: Any, event: str) -> Callable[[str], bool] | None:
    """Return what says whether a name fits. Rust's engine takes time in proportion to the name; it has no look-around, where Python's is used."""
    if value in (None, "", "*"):
        return None
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        pattern = re.compile(value)
        if EVENTS.get(event, _OWN_EVENTS.get(event)) in (Moment.BEFORE_TOOL, Moment.AFTER_TOOL):
            _warn_of_names(value, event)
        if _LOOKS_AROUND.search(value):
            return lambda name: pattern.fullmatch(name) is not None
        return SchemaValidator(core_schema.str_schema(pattern=f"^(?:{value})$")).isinstance_python
    except (re.error, TypeError, SchemaError) as error:
        raise ConfigurationError(
            f"The matcher {shown(value)} of a hook for {event} is not a regular expression: {error}."
        ) from error


def _warn_of_names(matcher: str, event: str) -> None:
    """Warn of a matcher with a name that no tool has and that resembles one: the hook would not be called."""
    known = {name.casefold(): name for name in _TOOL_NAMES}
    for name in matcher.strip("()^$").split("|"):
        if name in _TOOL_NAMES:
            continue
        near = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=0.8)
        hint = f"Did you mean `{known[near[0]]}`?" if near else ""
        if len([part for part in re.split(r"[,\s]+", name) if part in _TOOL_NAMES]) > 1:
            hint = "Write `|` between two names."
        if hint:
            what = f"The matcher {shown(matcher)} of a hook for {event} names `{name}`"
            logger.warning("%s, and neither Treadle nor Claude Code has such a tool. %s", what, hint)


def _hook(entry: _Entry, fails: str) -> Hook:
    closes: Literal["open", "closed"] = "closed" if fails == "closed" else "open"
    return Hook(
        at=entry.moment,
        run=partial(_run, entry),
        name=f"hook {entry.command[:80]}",
        timeout=entry.timeout + _GRACE_SECONDS,
        fails=closes,
    )


def _holding(entries: Iterable[_Entry]) -> Iterator[Hook]:
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


async def _run(entry: _Entry, context: HookContext) -> HookAnswer:
    if not _is_meant(entry, context):
        return None
    if entry.is_approved is not None and not await asyncio.to_thread(entry.is_approved):
        return _unapproved(entry, context)
    given = json.dumps(_hook_input(entry, context)).encode()
    env = {**clean_environment(), "CLAUDE_PROJECT_DIR": entry.folder, "TREADLE_PROJECT_DIR": entry.folder}
    if _imports_elsewhere(entry):
        env["PYTHONSAFEPATH"] = "1"
    done = await run_process(
        ["/bin/sh", "-c", entry.command],
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
    return _answered(_hook_output(done, entry), done.stdout, context, entry.stopped)


def _imports_elsewhere(entry: _Entry) -> bool:
    """Whether a command runs Python with code of its own, or a module that is not the folder's: Python would look there first for all imports."""
    for found in _PYTHON.finditer(entry.command):
        module = (found["module"] or "").partition(".")[0]
        is_there = any(Path(entry.folder, f"{module}{end}").exists() for end in ("", ".py")) or "cd " in entry.command
        if not module or module in sys.stdlib_module_names or not is_there:
            return True
    return False


_PYTHON = re.compile(r"\bpython[\d.]*['\"]?(?:\s+-[A-Za-z]+)*?\s+-[A-Za-z]*?(?:c\b|m\s*(?P<module>[A-Za-z_][\w.]*))")
"""Python with `-c`, or with `-m` and a module."""


def _unapproved(entry: _Entry, context: HookContext) -> HookAnswer:
    """Deny what the program was to judge, where a hook can."""
    reason = (
        f"The hook {entry.command[:80]} is not run: its files have changed since a person approved them. The person has to look at them "
        f"and approve them: treadle trust approve {shlex.quote(entry.folder)}"
    )
    if context.at in (Moment.BEFORE_TOOL, Moment.PROMPT, Moment.SESSION_START, Moment.BEFORE_REQUEST):
        return _denied(reason)
    raise HookFailed(reason)


def _is_meant(entry: _Entry, context: HookContext) -> bool:
    """Whether the matcher fits: a tool by its name here or there, the start of a session by its source."""
    if entry.matcher is None:
        return True
    if context.tool:
        there, _ = foreign_input(context.tool, context.arguments or {})
        names = {there, *(table.get(context.tool, context.tool) for table in (TOOLS, OTHER_NAMES)), context.tool}
    else:
        names = {_SOURCES.get(context.source, context.source)}
    return any(entry.matcher(name) for name in names)


_SOURCES = {"start": "startup", "resume": "resume"}


def _hook_input(entry: _Entry, context: HookContext) -> JsonObject:
    found: JsonObject = {
        "session_id": context.session_id,
        "transcript_path": "",
        "cwd": entry.folder,
        "permission_mode": MODES[context.mode],
        "hook_event_name": entry.event,
        "treadle": {"moment": context.at.value, "run_id": context.run_id, "step": context.step, "mode": context.mode},
    }
    if context.tool:
        name, given = foreign_input(context.tool, context.arguments or {})
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


def _hook_output(done: ProcessResult, entry: _Entry) -> JsonObject:
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
        value = json.loads(text, object_pairs_hook=_once)
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
    """Whether a decision that can be read denies or asks, whatever else stands beside it."""
    more = value.get("hookSpecificOutput")
    word = more.get("permissionDecision") if isinstance(more, dict) else None
    return value.get("decision") == "block" or value.get("continue") is False or word in ("deny", "ask")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("it has the same key twice")
    return dict(pairs)


def _check(value: Any, entry: _Entry) -> None:
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


def _answered(said: JsonObject, stdout: str, context: HookContext, stopped: dict[str, str]) -> HookAnswer:
    special = said.get("hookSpecificOutput")
    more: JsonObject = special if isinstance(special, dict) else {}
    reason = str(said.get("stopReason") or said.get("reason") or more.get("permissionDecisionReason") or "")[
        :_MAX_WORDS
    ]
    if said.get("continue") is False:
        return _stopped(reason or "A hook stopped the run.", context, stopped)
    added = str(more.get("additionalContext") or "")[:_MAX_WORDS]
    if said.get("decision") == "block":
        return _blocked("\n".join(filter(None, (reason or "A hook blocked this.", added))), context)
    match context.at:
        case Moment.BEFORE_TOOL:
            return _on_call(more, reason, context)
        case Moment.AFTER_TOOL if added and context.result is not None:
            return _with_message(context.result, added)
        case Moment.PROMPT | Moment.SESSION_START:
            return added or (stdout.strip()[:_MAX_WORDS] if not said else "") or None
        case _:
            return None


def _on_call(more: JsonObject, reason: str, context: HookContext) -> HookAnswer:
    """Return what is said of a call. An `allow` says nothing: it may change arguments, and rules decide on what happens to them."""
    changed = more.get("updatedInput")
    arguments = own_input(context.tool, changed) if isinstance(changed, dict) else None
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
