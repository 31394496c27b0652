"""Hooks as commands: a program gets a moment as JSON on its standard input, and answers on its standard output.

The form is Claude Code's, so that hooks which people have written for it work: `foreign_words.py` has the names. Such a hook may tighten,
change and add. What it allows is not heard: rules and people decide.
"""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.errors import ConfigurationError, TreadleError, shown
from treadle.fields import checked
from treadle.ports import Hook, HookAnswer, HookContext, Moment
from treadle.redaction import redacted_logger
from treadle.resolve.foreign_words import MODES, OTHER_NAMES, TOOLS, foreign_input, own_input
from treadle.resolve.hook_entries import Entry, hook_entries, hook_table, once
from treadle.sandboxes.processes import clean_environment, run_process
from treadle.tools import Decision, JsonObject, ProcessResult, ToolResult

__all__ = ["HookFailed", "command_hooks"]

logger = redacted_logger(__name__)

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
    """Whether a decision that can be read denies or asks, whatever else stands beside it."""
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
