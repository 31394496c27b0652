"""`treadle sessions`: list all, or show one: what was said, and everything that was received and executed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from treadle import Message
from treadle.cli.commands import session_acts
from treadle.cli.commands.session_check import check
from treadle.cli.commands.session_explain import explain
from treadle.cli.commands.session_list import list_sessions
from treadle.cli.commands.session_watch import watch
from treadle.cli.input.options import Options
from treadle.cli.input.places import same_journal
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_name, shown_resolution, shown_time
from treadle.cli.sessions import described, empty_call, named, opened, opened_session

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """List sessions, or do one thing to one of them."""
    return asyncio.run(_ACTS[options.action or "list"](options, terminal))


async def _show(options: Options, terminal: Terminal) -> int:
    path = settings_of(options).journal
    async with opened(path, must_exist=True) as journal, opened_session(journal, named(options)) as session:
        shown = await described(session, journal)
    if options.as_json:
        terminal.data(shown)
    else:
        with terminal.paged(is_off=options.is_unpaged):
            _print(shown, session.messages, terminal, same_journal(options))
    return 0


# --- as text ---------------------------------------------------------------------------------------------------------

_OF_TOOLS = ("files", "tools_found")
"""Facts that tools keep for themselves, such as digests of the files that the model has seen. `--json` has them."""


def _print_head(shown: dict[str, Any], messages: int, terminal: Terminal) -> None:
    terminal.line(
        f"session {shown['id']} ({shown['state']}), {counted(messages, 'message')}, {counted(len(shown['calls']), 'call')}"
    )
    if shown["caller"] is not None:
        terminal.line(
            f"carries out call {shown_name(shown['caller']['parent_call'])} of session {shown['caller']['parent_id']}"
        )
    if shown["agent"]:
        terminal.line(f"agent {shown_name(shown['agent'])}")
    for name, value in shown["facts"].items():
        if name in _OF_TOOLS:
            continue
        if name == "todos" and isinstance(value, list):
            terminal.line("todos:")
            for item in value:
                terminal.line(f"  {_todo(item)}")
            continue
        terminal.line(f"fact {shown_name(name)}: {one_line(msgspec.json.encode(value).decode(), 300)}")


def _todo(item: Any) -> str:  # Any: JSON
    if not isinstance(item, dict):
        return f"[ ] {one_line(msgspec.json.encode(item).decode(), 300)}"
    mark = {"done": "[x]", "in_progress": "[>]"}.get(str(item.get("state")), "[ ]")
    return f"{mark} {one_line(str(item.get('text', '')), 300)}"


def _print(shown: dict[str, Any], messages: tuple[Message, ...], terminal: Terminal, tail: str) -> None:
    _print_head(shown, len(messages), terminal)
    calls = {call["id"]: call for call in shown["calls"]}
    for message in messages:
        if message.text.strip():
            terminal.line()
            terminal.titled(f"[{message.role}]", message.text.strip())
        for proposed in message.calls:
            one = calls.get(proposed.id) or empty_call(proposed.id, proposed.name)
            _print_call(one, proposed.arguments, terminal, tail)
        for result in message.results:
            _print_result(
                result.call_id, result.content, (calls.get(result.call_id) or {}).get("result") or {}, terminal
            )
    # No message holds these yet, or ever: what ran beside a call that waits, and calls of a response that broke off.
    proposed_ids = {call.id for message in messages for call in message.calls}
    told_ids = {result.call_id for message in messages for result in message.results}
    for call in shown["calls"]:
        if call["id"] not in proposed_ids:
            _print_call(call, call["arguments"], terminal, tail)
        if call["result"] is not None and call["id"] not in told_ids:
            _print_result(call["id"], call["result"]["content"], call["result"], terminal)
    for approval in shown["approvals"]:
        terminal.line()
        then = f": treadle approve {approval['id']}{tail}"
        terminal.call("[waits] ", approval["tool"], approval["arguments"], then=then, is_answer=True)


def _print_call(call: dict[str, Any], arguments: str, terminal: Terminal, tail: str) -> None:
    terminal.line()
    terminal.call(f"[call {shown_name(call['id'])}] ", call["name"], arguments, is_answer=True)
    decision = call["decision"]
    if decision is not None:
        reason = f": {one_line(decision['reason'])}" if decision["reason"] else ""
        effect = f"{call['effect']}, " if call["effect"] else ""
        terminal.line(f"  {effect}{decision['kind']} ({one_line(decision['rule'])}){reason}")
    if call["decided_arguments"] is not None:
        terminal.call("  edited to: ", call["name"], call["decided_arguments"], is_answer=True)
    for one in call["answers"]:
        word = "allowed" if one["answer"] == "allow" else "denied"
        _print_word(f"{word} by {shown_name(one['by'])}", one["given_at"], one["reason"], terminal)
    for one in call["resolutions"]:
        said = shown_resolution(one["outcome"], one["value"])
        _print_word(f"{said} by {shown_name(one['by'])}", one["at"], one["reason"], terminal)
    for one in call["inputs"]:
        _print_word(
            f"given by {shown_name(one['by'])}", one["at"], msgspec.json.encode(one["value"]).decode(), terminal
        )
    for child_id in call["children"]:
        terminal.line(f"[carried out in session {child_id}: treadle sessions show {child_id}{tail}]")


def _print_word(said: str, at: float | None, reason: str, terminal: Terminal) -> None:
    when = "" if at is None else f" at {shown_time(at)}"
    terminal.line(f"  {said}{when}{f': {one_line(reason)}' if reason else ''}")


def _print_result(call_id: str, content: str, result: dict[str, Any], terminal: Terminal) -> None:
    terminal.line()
    terminal.line(f"[result {shown_name(call_id)}] {result.get('status', 'ok')}")
    terminal.quote(content)
    if (full := result.get("full")) is not None:
        terminal.line(f"[the whole text, {len(full)} characters]")
        terminal.quote(full)


_ACTS: dict[str, Callable[[Options, Terminal], Coroutine[Any, Any, int]]] = {
    "list": list_sessions,
    "show": _show,
    "explain": explain,
    "watch": watch,
    "fork": session_acts.fork,
    "mark": session_acts.mark,
    "rewind": session_acts.rewind,
    "export": session_acts.export,
    "move": session_acts.move,
    "import": session_acts.take_in,
    "suspend": session_acts.suspend,
    "activate": session_acts.activate,
    "rm": session_acts.remove,
    "check": check,
}
