"""`treadle sessions show` and `explain`: what was said and done in one session, and seven answers about it."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from treadle import Message
from treadle.cli.input.commands import ExplainOptions, ShowOptions
from treadle.cli.input.places import same_journal
from treadle.cli.origins import activating, continuing
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted, one_line, shown_call, shown_name, shown_resolution, shown_time
from treadle.cli.sessions import described, empty_call, is_held, named_session, stranded_in
from treadle.sessions import Explanation

__all__ = ["explain", "show"]


async def show(options: ShowOptions, terminal: Terminal) -> int:
    async with named_session(options) as session:
        shown = await described(session)
    if options.as_json:
        terminal.data(shown)
    else:
        with terminal.paged(is_off=options.is_unpaged):
            _print(shown, session.messages, terminal, same_journal(options))
    return 0


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


# --- Seven answers.


async def explain(options: ExplainOptions, terminal: Terminal) -> int:
    """Answer what happened in a session."""
    async with named_session(options) as session:
        journal, explanation = session.journal, await session.explain()
        stranded = [one.message for one in await stranded_in(journal, options, session_ids=[session.state.root_id])]
        is_live = await is_held(journal, session.state.root_id)
        then = "A process is running it." if is_live else await continuing(journal, session.state.root_id, options)
    if options.as_json:
        more = {"state": explanation.run_status, "stranded": stranded[0] if stranded else None}
        terminal.data({**msgspec.to_builtins(explanation), **more})
    else:
        with terminal.paged(is_off=options.is_unpaged):
            _print_explanation(explanation, terminal, same_journal(options), then, stranded)
    return 0


def _print_explanation(
    about: Explanation, terminal: Terminal, tail: str, then: str = "", stranded: Sequence[str] = ()
) -> None:
    parent = "" if about.parent_id is None else f", forked from {about.parent_id} after event {about.parent_seq}"
    if about.caller_id is not None:
        parent = f", carries out call {shown_name(about.caller_call or '')} of session {about.caller_id}, step {about.caller_step}"
    terminal.line(f"session {about.session_id} ({about.status}){parent}")
    for message in stranded:
        terminal.line(f"stranded: {one_line(message, 2000)}")
    for run in about.runs:
        terminal.line(
            f"run {run.run_id}: {one_line(run.task, 60)} [{', '.join(map(shown_name, run.models)) or shown_name(run.model)}; {counted(run.steps, 'step')}; "
            f"{run.input_tokens} + {run.output_tokens} tokens; cost {run.cost or 'unknown'}]"
        )
    for line in _beside(about):
        terminal.line(line)
    for title, lines in _answers(about, tail, then).items():
        terminal.line()
        terminal.line(title)
        for line in lines or ["nothing"]:
            terminal.line(f"  {line}")
    for child in about.children:
        terminal.line()
        _print_explanation(child, terminal, tail)


def _beside(about: Explanation) -> Iterator[str]:
    """Yield what is not part of the seven answers: what was done apart from the steps, inputs, and facts."""
    if about.agent:
        yield f"agent: {shown_name(about.agent)}"
    for one in about.acts:
        what = f"{one.tokens_before} to {one.tokens_after} tokens by {one_line(one.tier)}, " if one.tier else ""
        used = f"{counted(one.requests, 'request')}; {one.input_tokens} + {one.output_tokens} tokens; cost {one.cost or 'unknown'}"
        yield f"beside step {one.step}, {shown_name(one.act)}: {what}{used}"
    for given in about.inputs:
        yield f"input for {shown_name(given.call_id)} by {shown_name(given.by)} at {shown_time(given.at)}: {_json(given.value)}"
    for name, value in about.facts.items():
        yield f"fact {shown_name(name)}: {_json(value)}"


def _json(value: Any) -> str:  # Any: a JSON value
    return one_line(msgspec.json.encode(value).decode(), 300)


def _answers(about: Explanation, tail: str, then: str) -> dict[str, list[str]]:
    """Return the seven answers, each as lines."""
    return {
        "1. What was tried": list(_tried(about)),
        "2. What data was used": [
            f"{shown_name(one.call_id)}: {shown_call(one.tool, one.arguments)}, {one.characters} characters"
            for one in about.data_used
        ],
        "3. What was changed": [
            f"{shown_name(one.call_id)}: {shown_call(one.tool, one.arguments)} ({one.effect}) -> {one.status}"
            f"{f', resolved as {one.resolution}' if one.resolution else ''}{'' if one.is_certain else ', not certain'}"
            for one in about.changed
        ],
        "4. Who approved": [
            *(
                f"{shown_name(one.call_id)}: {shown_name(one.tool)} {one.decision} by {_by(one.by)}"
                f"{f' at {shown_time(one.given_at)}' if one.given_at is not None else ''}{_why(one.reason)}"
                for one in about.approved
            ),
            *(
                f"{shown_name(one.call_id)}: {shown_name(one.tool)} {shown_resolution(one.outcome, one.value)} by "
                f"{shown_name(one.by)} at {shown_time(one.at)}{_why(one.reason)}"
                for one in about.resolved
            ),
        ],
        "5. What failed": [
            f"{shown_name(one.call_id or 'request')}: {shown_name(one.what)} {one.status}: {one_line(one.message)}"
            for one in about.failed
        ],
        "6. Why it stopped": _stopped(about),
        "7. Can it be run again": [_rerun(about, tail, then)],
    }


def _decided(one: Any) -> str:  # Any: one of the calls tried
    """Return the effect, the decision and its rule, where the call came so far."""
    text = [word for word in (one.effect, one.decision) if word]
    rule = f" by {one_line(one.rule)}" if one.rule else ""
    return f" [{', '.join(text)}{rule}]" if text else ""


def _why(reason: str) -> str:
    return f": {one_line(reason)}" if reason else ""


def _by(who: str) -> str:
    """Return who answered: a rule as it is written, a person's name so that it cannot pass for more."""
    return one_line(who) if who.startswith("rule ") else shown_name(who)


def _tried(about: Explanation, indent: str = "") -> Iterator[str]:
    """Yield a line for each call, and below it one for each call that an agent made to carry it out."""
    for one in about.tried:
        call = f"{shown_name(one.call_id)}: {shown_call(one.tool, one.arguments)}"
        edited = f", edited to {shown_call(one.tool, one.decided)}" if one.decided else ""
        yield f"{indent}{call}{edited} -> {one.status or 'no result yet'}{_decided(one)}"
        if one.late:
            yield f"{indent}  it was given up, kept running, and then {one_line(one.late, 300)}"
        for child in about.children:
            if child.caller_call == one.call_id:
                yield f"{indent}  carried out in session {child.session_id}:"
                yield from _tried(child, indent + "    ")


def _stopped(about: Explanation) -> list[str]:
    one = about.stopped
    if one is None:
        return []
    limit = "" if one.budget is None else f" [{one.budget}: {one.used} of {one.limit}]"
    reason = one.reason or "no reason is recorded: the run is still active, or broke off"
    also = [f"and also ({signal.reason}) {one_line(signal.message, 300)}".rstrip() for signal in one.signals[1:]]
    return [f"{one.status} ({reason}){limit} {one_line(one.message, 300)}".rstrip(), *also]


def _rerun(about: Explanation, tail: str, then: str) -> str:
    resume = f"{then}{'' if then.endswith('.') else '.'} " if about.rerun.can_resume else "There is nothing to resume. "
    if about.caller_id is not None:
        resume = f"It continues with session {about.caller_id}. " if about.rerun.can_resume else ""
    if about.status == "suspended":
        why = f" Reason: {one_line(about.status_reason).rstrip('.')}." if about.status_reason else ""
        resume = f"{activating(about.session_id, tail)}.{why} "
    return resume + about.rerun.why
