"""What waits for a person: `treadle approvals`, `approve` and `answer`, and the calls in doubt: `doubts` and `resolve`. Runs nothing."""

import csv
import io
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from treadle import Approval, Done, NotDone, Session, Tool, TreadleError, Unknown
from treadle.cli.bulk import Chosen, chosen_requests, done_to_all, of_interest
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import (
    AnswerOptions,
    ApprovalsOptions,
    ApproveOptions,
    DoubtsOptions,
    ResolveOptions,
    has_conditions,
)
from treadle.cli.input.places import names_file, rules_file, same_journal
from treadle.cli.input.rules import save_rule
from treadle.cli.input.settings import settings_of
from treadle.cli.input.values import json_value
from treadle.cli.origins import continuing, folder_of, origin_in
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line, shown_json, shown_name, shown_time
from treadle.cli.running import covered_by, ruling_of
from treadle.cli.sessions import find_approval, find_session, named, opened, opened_session, person
from treadle.cli.tool_sources import known_tools
from treadle.errors import JournalError, UnknownDoubt, UnknownInput
from treadle.events import AnyEvent, ApprovalAnswered, ApprovalRequested, RunStarted
from treadle.ports import Journal, SessionFilter, SessionInfo
from treadle.resolve.archives import list_doubts
from treadle.state import Doubt, InboxMessage, LeftAnswer

__all__ = ["answer", "approvals", "approve", "doubts", "resolve"]


# --- Approvals.


async def approvals(options: ApprovalsOptions, terminal: Terminal) -> int:
    """List what waits. Requests that were answered, and wait only for `resume`, are left out."""
    if options.is_answered:
        return await _answered(options, terminal)
    async with opened(settings_of(options).journal, is_read=True) as journal:
        doubts: Sequence[Doubt] = await list_doubts(journal)
        found = await journal.approvals()
        asking = {one for approval in found for one in (approval.session_id, approval.root_id)}
        paused = await journal.sessions(SessionFilter(statuses=("paused",)))
        waits_otherwise = any(info.id not in asking for info in paused)
        found = await of_interest(journal, found, options, tool=options.tool)
    if options.as_json:
        terminal.data([_described(approval) for approval in found])
        return 0
    for approval in found:
        terminal.call(f"{approval.id}  {approval.effect:<10}  ", approval.tool, approval.arguments, is_answer=True)
        until = shown_time(approval.expires_at)
        to_resume = approval.root_id or approval.session_id
        by = " > ".join(map(shown_name, approval.path)) or approval.session_id
        below = "" if to_resume == approval.session_id else f" (asked by {by})"
        why = f"; {one_line(approval.reason or approval.rule)}" if approval.reason or approval.rule else ""
        terminal.line(
            f"    session {to_resume}{below}, until {until}{'  EXPIRED' if time.time() > approval.expires_at else ''}{why}"
        )
        if approval.rules:
            terminal.line(f"    --scope session or rule would also allow: {', '.join(map(one_line, approval.rules))}")
    if not found:
        terminal.say("No call is waiting for approval.")
    if waits_otherwise:
        terminal.say("Sessions wait for something else, such as an answer or resume: treadle sessions --status paused")
    if doubts:
        calls = "1 call has" if len(doubts) == 1 else f"{len(doubts)} calls have"
        terminal.say(f"{calls} an unknown outcome. To list them: treadle doubts")
    return 0


def _described(approval: Approval) -> dict[str, Any]:
    """Return a request as plain JSON values, with the session that is resumed once it is answered."""
    return {**msgspec.to_builtins(approval), "resume": approval.root_id or approval.session_id}


async def _answered(options: ApprovalsOptions, terminal: Terminal) -> int:
    """List who answered what and when, over all sessions, the latest first."""
    rows: list[dict[str, Any]] = []
    async with opened(settings_of(options).journal, is_read=True) as journal:
        for info in await journal.sessions(SessionFilter(tenant=options.tenant)):
            is_open = info.run_status in ("running", "paused")  # an answer that was left changes no session
            if options.since is not None and info.updated_at < options.since and not is_open:
                continue
            with suppress(JournalError):  # `treadle sessions` says of it that it cannot be read
                left = await journal.inbox(info.id) if is_open else ()
                rows += _answers_in(info, await journal.read(info.id), left)
    wanted = [row for row in rows if options.tool in (None, row["tool"]) and options.agent in (None, row["agent"])]
    wanted = [row for row in wanted if options.since is None or row["at"] >= options.since]
    wanted.sort(key=lambda row: -row["at"])
    if options.as_json:
        terminal.data(wanted)
    elif options.as_csv:
        for line in _as_table(wanted):
            terminal.line(line)
    else:
        for row in wanted:
            why = f": {one_line(row['reason'], 200)}" if row["reason"] else ""
            said = f"{row['answer']:<5} by {shown_name(row['by'])}{why}"
            terminal.line(f"{shown_time(row['at'])}  {shown_name(row['tool'])}  {said}  session {row['session_id']}")
        if not wanted:
            terminal.say("Nothing was answered.")
    return 0


def _answers_in(info: SessionInfo, events: Sequence[AnyEvent], left: Sequence[InboxMessage]) -> list[dict[str, Any]]:
    """Return the answers that are recorded, and those that no run has taken in yet."""
    asked: dict[str, ApprovalRequested] = {}
    rows, agent = dict[str, dict[str, Any]](), ""
    for event in events:
        match event:
            case RunStarted():
                agent = event.agent
            case ApprovalRequested():
                asked[event.approval_id] = event
            case ApprovalAnswered() if (about := asked.get(event.approval_id)) is not None:
                at = event.at if event.given_at is None else event.given_at
                rows[event.approval_id] = _answer(info, about, event, agent=agent, at=at)
    for one in left:
        if isinstance(one, LeftAnswer) and one.approval_id not in rows and one.approval_id in asked:
            about = asked[one.approval_id]
            at = about.at if one.at is None else one.at
            rows[one.approval_id] = _answer(info, about, one, agent=agent, at=at)
    return list(rows.values())


def _answer(
    info: SessionInfo, about: ApprovalRequested, given: ApprovalAnswered | LeftAnswer, *, agent: str, at: float
) -> dict[str, Any]:
    return {
        "at": at,
        "asked_at": about.at,
        "by": given.approved_by,
        "answer": given.answer,
        "scope": given.scope,
        "reason": given.reason,
        "tool": about.tool,
        "arguments": about.arguments if given.arguments is None else given.arguments,
        "agent": agent,
        "tenant": info.tenant,
        "session_id": info.id,
        "id": given.approval_id,
    }


def _as_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give a table with a line a row. No cell begins like a formula of a spreadsheet."""
    out = io.StringIO()
    names = ("at", "by", "answer", "tool", "arguments", "reason", "agent", "tenant", "session_id", "id")
    table = csv.writer(out, lineterminator="\n")
    table.writerow(names)
    for row in rows:
        cells = {
            **row,
            "at": datetime.fromtimestamp(row["at"], UTC).isoformat(),
            "arguments": json.dumps(row["arguments"]),
        }
        texts = [str(cells[name]) for name in names]
        table.writerow([f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text for text in texts])
    yield from out.getvalue().splitlines()


Scope: TypeAlias = Literal["call", "session", "rule"]
_SCOPES: dict[str, Scope] = {"once": "call", "session": "session", "rule": "rule"}


async def approve(options: ApproveOptions, terminal: Terminal) -> int:
    """Allow one call, or deny it."""
    if has_conditions(options):
        return await _approve_all(options, terminal)
    given: Literal["allow", "deny"] = "deny" if options.is_denied else "allow"
    arguments = _edited(options)
    scope = _scope(options)
    by = person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id, approval_id = await find_approval(journal, named(options))
        async with opened_session(journal, session_id) as session:
            waiting = {one.id: one for one in await session.approvals()}
            if scope != "call" and approval_id in waiting:
                for rule in waiting[approval_id].rules:
                    terminal.say(f"rule {one_line(rule, 300)}: {covered_by(rule)}")
            folder = folder_of(session) if scope == "rule" else None
            if scope == "rule" and folder is None:
                raise UsageError("The session has no folder, so no rule can be saved for it: use --scope session.")
            if arguments is not None and approval_id in waiting:
                await _check(waiting[approval_id].tool, arguments, session, options, terminal)
            await session.answer(approval_id, given, reason=options.reason, arguments=arguments, by=by, scope=scope)
        approval = waiting[approval_id]
        then = await continuing(journal, approval.root_id or session_id, options)
    if folder is not None:
        for rule in approval.rules:
            save_rule(rules_file(os.environ), Path(folder), rule)
    if options.as_json:
        terminal.data(
            {**_described(approval), "answer": given, "approved_by": by, "edited": arguments, "answer_scope": scope}
        )
    title = f"{'Allowed' if given == 'allow' else 'Denied'} by {by}: "
    terminal.call(title, approval.tool, approval.arguments if arguments is None else arguments, then=f". {then}")
    return 0


async def _approve_all(options: ApproveOptions, terminal: Terminal) -> int:
    """Give one answer to all requests that fulfil the conditions."""
    if options.arguments is not None or options.scope != "once":
        raise UsageError("--arguments and --scope are for one request: give its id.")
    answer: Literal["allow", "deny"] = "deny" if options.is_denied else "allow"
    by = person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        found = await of_interest(journal, await journal.approvals(), options, tool=options.tool)
        chosen = chosen_requests(found, options)

        async def act(one: Chosen) -> None:
            async with opened_session(journal, one.session_id) as session:
                await session.answer(one.id, answer, reason=options.reason, by=by)

        verb, done = ("Deny", "denied") if options.is_denied else ("Allow", "allowed")
        return await done_to_all(chosen, act, verb, done, options, terminal, noun="request")


def _scope(options: ApproveOptions) -> Scope:
    if options.scope != "once" and (options.is_denied or options.arguments is not None):
        raise UsageError(f"--scope {options.scope} cannot be combined with --deny or --arguments: remove one of them.")
    return _SCOPES[options.scope]


async def _check(
    name: str, arguments: dict[str, Any], session: Session, options: ApproveOptions, terminal: Terminal
) -> None:
    """Refuse edited arguments that the tool does not take, if it is one of ours; no file of tools is run for that."""
    origin = origin_in(session)
    sources = tuple(str(one) for one in origin.get("tools") or ())
    tool = None
    if "tools" in origin and not any(names_file(one) or ":" in one for one in sources):
        with suppress(TreadleError):  # without its folder or its configuration, it is a tool that is not known here
            there = settings_of(msgspec.structs.replace(options, folder=origin.get("folder"), tools=sources))
            tool = next((one for one in known_tools(there) if isinstance(one, Tool) and one.name == name), None)
    if tool is None:
        terminal.say("note: the arguments are checked when the run resumes: the tool is not known here.")
        return
    ruling = await ruling_of(tool, arguments)
    if ruling.decision == "invalid":
        raise UsageError(f"--arguments is invalid for {shown_name(name)}: {ruling.reason}")


def _edited(options: ApproveOptions) -> dict[str, Any] | None:
    if options.arguments is None:
        return None
    if options.is_denied:
        raise UsageError("--arguments cannot be combined with --deny: remove one of them.")
    found = json_value("--arguments", options.arguments)
    if not isinstance(found, dict):
        raise UsageError(f"--arguments must be one JSON object; got {options.arguments!r:.80}.")
    return found


# --- Answers to questions, such as one of the tool `ask_user`.


async def answer(options: AnswerOptions, terminal: Terminal) -> int:
    """Give the call that waits its answer."""
    if options.is_last and options.answer is None:  # the one word that was given is the answer
        options = msgspec.structs.replace(options, id=None, answer=options.id)
    given, text, by = named(options), options.answer, person(options)
    if text is None:
        raise UsageError('Give the answer, too: treadle answer ID "ANSWER"')
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        info = await find_session(journal, given)
        async with opened_session(journal, info.id) as session:
            questions = session.state.questions
            if not questions:
                raise UsageError(
                    f"Session {session.id} waits for no answer: it is {session.state.status}. `treadle approvals` lists calls that wait for approval."
                )
            asked = await _given(session, questions, text, by)
            root_id = session.state.root_id
        then = await continuing(journal, root_id, options)
    if options.as_json:
        terminal.data({"session_id": info.id, "call_id": asked.call.id, "answer": text, "by": by})
    question = "" if asked.suspended is None else one_line(asked.suspended.waits_for, 120)
    terminal.say(f"Answered by {by}: {question} - {one_line(text, 300)}. {then}")
    return 0


async def _given(session: Session, questions: list[Any], text: str, by: str) -> Any:  # Any: a call that waits
    """Answer the first question that has no answer yet, and return it."""
    *others, last = questions
    for one in others:
        with suppress(UnknownInput):  # it has one already
            await session.input(one.call.id, text, by=by)
            return one
    await session.input(last.call.id, text, by=by)
    return last


# --- Calls in doubt.


async def doubts(options: DoubtsOptions, terminal: Terminal) -> int:
    """List the calls in doubt, with what one needs to look into them."""
    async with opened(settings_of(options).journal, is_read=True) as journal:
        found = await of_interest(journal, await list_doubts(journal), options, tool=options.tool)
    if options.as_json:
        terminal.data(found)
        return 0
    for doubt in found:
        terminal.call(f"{doubt.key}  {doubt.effect:<10}  ", doubt.tool, doubt.arguments, is_answer=True)
        standing = "reported to the model" if doubt.is_told else "no result yet: the run was interrupted"
        about = f", about {_about(doubt.business_key)}" if doubt.business_key else ""
        terminal.line(
            f"    call {shown_name(doubt.call_id)} of session {doubt.session_id}, started {shown_time(doubt.since)}{about}; {standing}"
        )
    if found:
        terminal.say(
            f"The id is the idempotency key that the tool received. Find out how the call ended, then run: treadle resolve ID{same_journal(options)} --done JSON, or --not-done, or --unknown"
        )
    else:
        terminal.say("No call is in doubt.")
    return 0


def _about(business_key: str) -> str:
    """Return a business key, which is JSON, as a person wrote it where it is one word."""
    try:
        key = msgspec.json.decode(business_key)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        key = business_key
    return shown_name(key, 200) if isinstance(key, str) else shown_json(key, 200)


async def resolve(options: ResolveOptions, terminal: Terminal) -> int:
    """Say that the call was done, that it was not, or that nobody will find out; or the same of all that fulfil the conditions."""
    if has_conditions(options):
        return await _resolve_all(options, terminal)
    outcome, by = _outcome(options), person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        session_id, call_id = await _find(journal, options)
        async with opened_session(journal, session_id) as session:
            about = next((one for one in session.doubts() if one.call_id == call_id), None)
            await session.resolve(call_id, outcome, reason=options.reason, by=by)
            is_over = session.state.run_status == "completed" and session.state.root_id == session_id
            then = "" if is_over else await continuing(journal, session.state.root_id, options)
    word = "done" if isinstance(outcome, Done) else "not_done" if outcome is NotDone else "unknown"
    if options.as_json:
        terminal.data({"session_id": session_id, "call_id": call_id, "outcome": word, "by": by})
    if is_over:
        then = f'To report it to the model: treadle run --session {session_id}{same_journal(options)} "..."'
    title, tail = f"Resolved by {by} as {word}: ", f". {then}"
    if about is None:
        terminal.say(f"{title}{call_id}{tail}")
    else:
        terminal.call(title, about.tool, about.arguments, then=tail)
    return 0


async def _resolve_all(options: ResolveOptions, terminal: Terminal) -> int:
    """Say the same of all calls in doubt that fulfil the conditions."""
    outcome, by = _outcome(options), person(options)
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        found = await of_interest(journal, await list_doubts(journal), options, tool=options.tool)
        chosen = chosen_requests(found, options)

        async def act(one: Chosen) -> None:
            async with opened_session(journal, one.session_id) as session:
                await session.resolve(one.id, outcome, reason=options.reason, by=by)

        return await done_to_all(chosen, act, "Resolve", "resolved", options, terminal, noun="call")


def _outcome(options: ResolveOptions) -> "Done | type[NotDone | Unknown]":
    given = [options.done is not None, options.is_not_done, options.is_unknown]
    if sum(given) != 1:
        raise UsageError("Say how the call ended: --done JSON with its result, --not-done, or --unknown.")
    if options.done is None:
        return NotDone if options.is_not_done else Unknown
    return Done(json_value("--done", options.done))


async def _find(journal: Journal, options: ResolveOptions) -> tuple[str, str]:
    """Return the session and call of a doubt: by its key or the beginning of it, or by its call; the newest for `--last`."""
    given = named(options)
    listed: Sequence[Doubt] = await list_doubts(journal)
    if options.session is not None:
        session_id = (await find_session(journal, options.session)).id
        listed = [one for one in listed if one.session_id == session_id]
    where = f"is in doubt in the journal {journal.location}. `treadle doubts` lists those that are"
    if given is None:
        if not listed:
            raise UnknownDoubt(f"No call {where}.")
        newest = max(listed, key=lambda one: one.since)
        return newest.session_id, newest.call_id
    fits = [one for one in listed if given in (one.call_id, one.key)]
    # Only a key may be shortened: `call_1` begins `call_10` too, and may be a call that has been resolved.
    fits = fits or [one for one in listed if given and one.key.startswith(given)]
    if len(fits) > 1:
        several = ", ".join(f"{one.key} of session {one.session_id}" for one in fits[:5])
        raise UsageError(f"{given!r:.80} fits several calls in doubt: {several}. Give the key, or --session ID.")
    if fits:
        return fits[0].session_id, fits[0].call_id
    if options.session is not None and not listed:
        return session_id, given  # the session knows why there is no such doubt
    raise UnknownDoubt(f"No call {given!r:.80} {where}.")
