"""`treadle sessions`: list all, or show one: what was said, and everything that was received and executed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from treadle import Message, Session, ToolCall
from treadle.cli.commands import session_acts
from treadle.cli.commands.session_check import check
from treadle.cli.commands.session_explain import explain
from treadle.cli.commands.session_list import list_sessions
from treadle.cli.commands.session_watch import watch
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_name, shown_resolution, shown_time
from treadle.cli.sessions import named, opened, opened_session
from treadle.events import (
    ApprovalAnswered,
    CallDecided,
    ChildStarted,
    ModelFinished,
    ToolFinished,
    ToolInput,
    ToolResolved,
    ToolStarted,
)
from treadle.ports import Journal

__all__ = ["command"]


def command(options: Options, terminal: Terminal) -> int:
    """List sessions, or do one thing to one of them."""
    return asyncio.run(_ACTS[options.action or "list"](options, terminal))


async def _show(options: Options, terminal: Terminal) -> int:
    path = settings_of(options).journal
    async with opened(path, must_exist=True) as journal, opened_session(journal, named(options)) as session:
        shown = await _described(session, journal)
    if options.as_json:
        terminal.data(shown)
    else:
        _print(shown, session.messages, terminal)
    return 0


async def _described(session: Session, journal: Journal) -> dict[str, Any]:
    return {
        "id": session.id,
        "phase": session.state.phase,
        "state": session.state.phase,  # its name before; programs may read it
        "status": session.state.status,
        "metadata": session.state.metadata,
        "parent_id": session.state.parent_id,
        "parent_seq": session.state.parent_seq,
        "caller": None if session.state.caller is None else msgspec.to_builtins(session.state.caller),
        "marks": session.state.marks,
        "agent": "" if session.state.run is None else session.state.run.agent,
        "facts": session.state.facts.values,
        "messages": [
            {"role": message.role, "parts": [msgspec.to_builtins(part) for part in message.parts]}
            for message in session.messages
        ],
        "calls": await _calls(session, journal),
        "approvals": [msgspec.to_builtins(approval) for approval in await session.approvals()],
        "in_doubt": [msgspec.to_builtins(doubt) for doubt in await session.doubts()],
    }


async def _calls(session: Session, journal: Journal) -> list[dict[str, Any]]:
    """Return every call as received, with its decision and its whole result, in the order in which they appeared."""
    calls: dict[str, dict[str, Any]] = {}
    for event in await session.events():
        match event:
            case ModelFinished(act=None):
                for call in event.message.calls:
                    _entry(calls, call.id, call.name)["arguments"] = call.arguments
            case CallDecided(call_id=str(call_id)):
                decision = {"kind": event.decision, "rule": event.rule, "reason": event.reason}
                _entry(calls, call_id, event.tool).update(
                    decision=decision, effect=event.effect, decided_arguments=event.arguments
                )
            case ToolStarted(
                call=ToolCall() as call
            ):  # it began before its response was whole, which may never have been
                _entry(calls, call.id, call.name)["arguments"] = call.arguments
            case (
                ApprovalAnswered(call_id=str(call_id))
                | ToolResolved(call_id=str(call_id))
                | ToolInput(call_id=str(call_id))
            ):
                _take_word(calls, call_id, event)
            case ToolFinished(call_id=str(call_id)):
                _entry(calls, call_id, event.result.name)["result"] = await _whole_result(event, journal)
            case ChildStarted(call_id=str(call_id)):
                children = _entry(calls, call_id, event.tool)["children"]
                children += [event.child_id] if event.child_id not in children else []
            case _:
                pass
    return list(calls.values())


def _take_word(
    calls: dict[str, dict[str, Any]], call_id: str, event: ApprovalAnswered | ToolResolved | ToolInput
) -> None:
    """Add what a person said on a call, or gave it."""
    match event:
        case ApprovalAnswered() if call_id in calls:  # that of a child is shown with the child
            calls[call_id]["answers"].append(_answer(event))
        case ToolResolved():
            _entry(calls, call_id, event.tool)["resolutions"].append(_resolution(event))
        case ToolInput():
            given = {"value": event.value, "by": event.by, "at": event.at, "given_at": event.given_at}
            _entry(calls, call_id, event.tool)["inputs"].append(given)
        case _:
            pass


def _entry(calls: dict[str, dict[str, Any]], call_id: str, name: str) -> dict[str, Any]:
    return calls.setdefault(call_id, _empty(call_id, name))


def _empty(call_id: str, name: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"id": call_id, "name": name, "arguments": "", "decision": None, "effect": None}
    # `children` are the sessions that carried it out, where the tool is an agent.
    empty["decided_arguments"] = None
    return empty | {"answers": [], "inputs": [], "resolutions": [], "result": None, "children": []}


def _answer(event: ApprovalAnswered) -> dict[str, Any]:
    """Return what a person said on a request for consent. `given_at` is None for an answer of an older version."""
    return {
        "answer": event.answer,
        "by": event.approved_by,
        "given_at": event.given_at,
        "reason": event.reason,
        "arguments": event.arguments,
    }


def _resolution(event: ToolResolved) -> dict[str, Any]:
    """Return what a person said on a call in doubt."""
    return {"outcome": event.outcome, "by": event.by, "at": event.at, "reason": event.reason, "value": event.value}


async def _whole_result(event: ToolFinished, journal: Journal) -> dict[str, Any]:
    """Return a result; `full` is its whole text where the model was shown a part."""
    result = event.result
    kept = None if result.artifact is None else await journal.blob(result.artifact)
    return {
        "status": result.status,
        "content": result.content,
        "full": None if kept is None else kept.decode("utf-8", "replace"),
        "code": result.code,
        "attempts": result.attempts,
        "duration_seconds": result.duration_seconds,
        "may_have_acted": result.may_have_acted,
    }


# --- as text ---------------------------------------------------------------------------------------------------------


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
        terminal.line(f"fact {shown_name(name)}: {one_line(msgspec.json.encode(value).decode(), 300)}")


def _print(shown: dict[str, Any], messages: tuple[Message, ...], terminal: Terminal) -> None:
    _print_head(shown, len(messages), terminal)
    calls = {call["id"]: call for call in shown["calls"]}
    for message in messages:
        if message.text.strip():
            terminal.line()
            terminal.titled(f"[{message.role}]", message.text.strip())
        for proposed in message.calls:
            _print_call(calls.get(proposed.id) or _empty(proposed.id, proposed.name), proposed.arguments, terminal)
        for result in message.results:
            _print_result(
                result.call_id, result.content, (calls.get(result.call_id) or {}).get("result") or {}, terminal
            )
    # No message holds these yet, or ever: what ran beside a call that waits, and calls of a response that broke off.
    proposed_ids = {call.id for message in messages for call in message.calls}
    told_ids = {result.call_id for message in messages for result in message.results}
    for call in shown["calls"]:
        if call["id"] not in proposed_ids:
            _print_call(call, call["arguments"], terminal)
        if call["result"] is not None and call["id"] not in told_ids:
            _print_result(call["id"], call["result"]["content"], call["result"], terminal)
    for approval in shown["approvals"]:
        terminal.line()
        then = f": treadle approve {approval['id']}"
        terminal.call("[waits] ", approval["tool"], approval["arguments"], then=then, is_answer=True)


def _print_call(call: dict[str, Any], arguments: str, terminal: Terminal) -> None:
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
        terminal.line(f"[carried out in session {child_id}: treadle sessions show {child_id}]")


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
