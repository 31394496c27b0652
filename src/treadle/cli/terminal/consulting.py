"""Consulting: a person is asked about the calls with which a run waits. The session is held meanwhile, so that no other process
continues it, and an answer that comes from elsewhere closes the question. Draws nothing and runs nothing.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from treadle import Approval, ApprovalExpired, JournalError, Session, SessionHeld, UnknownApproval
from treadle.cli.input.options import Options
from treadle.cli.input.places import rules_file
from treadle.cli.input.saved_rules import save_rule
from treadle.cli.input.settings import Settings
from treadle.cli.output.notifying import Notifier
from treadle.cli.output.text import one_line, one_record
from treadle.cli.sessions import person
from treadle.cli.terminal.asking import Answer, Question
from treadle.cli.terminal.faces import Face
from treadle.cli.terminal.grants import Grants
from treadle.ports import Journal

__all__ = ["Consulting"]

_LOOK_SECONDS = 0.5
"""How often the journal is asked whether a request still waits."""
_DESTROYS = ("destructive", "privileged_admin", "financial")
"""Risk classes of which a bare Enter allows none."""
_ANSWERED = {"allow": "Allowed", "deny": "Denied"}


class Consulting:
    """The questions of one conversation."""

    def __init__(
        self, face: Face, journal: Journal, grants: Grants, notifier: Notifier, *, settings: Settings, options: Options
    ) -> None:
        self._face = face
        self._journal = journal
        self._grants = grants
        self._notifier = notifier
        self._settings = settings
        self._options = options

    async def ask_about(self, session: Session, approvals: Sequence[Approval]) -> None:
        """Ask about each call that still waits, until all are answered or the person cancels the run.

        Raises:
            SessionHeld: Another process has the session.
        """
        lost = asyncio.Event()
        await session.hold(on_lost=lost.set, on_message=lambda: None)
        try:
            for number, approval in enumerate(approvals, 1):
                question = Question(
                    approval=approval,
                    rules=approval.rules,
                    destroys=approval.effect == "unsafe" or approval.risk in _DESTROYS,
                    number=number,
                    total=len(approvals),
                    covers=partial(self._grants.covers, call_id=approval.call_id),
                )
                if not await self._is_settled(session, question, lost):
                    await session.cancel(by=person(self._options))
                    return
        finally:
            await session.release()

    async def _is_settled(self, session: Session, question: Question, lost: asyncio.Event) -> bool:
        """Ask until the call is decided here or elsewhere; return False where the person wants the run to end."""
        one = question.approval
        if not await _waits(session, one):
            self._face.tell(await self._ended(session, one))
            return True
        self._notifier.notify(f"a call to {one.tool} is waiting for you")
        asking = asyncio.ensure_future(self._face.ask(question))
        elsewhere = asyncio.ensure_future(self._elsewhere(session, one, lost))
        try:
            await asyncio.wait((asking, elsewhere), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            elsewhere.cancel()
            await asyncio.wait((asking, elsewhere))
        if asking.cancelled():
            self._face.tell(elsewhere.result())
            return True
        self._notifier.attend()
        answer = asking.result()
        if answer is not None:
            await self._record(session, question, answer)
        return answer is not None

    # --- what happens elsewhere

    async def _elsewhere(self, session: Session, approval: Approval, lost: asyncio.Event) -> str:
        """Wait until the request has been answered or withdrawn, and say by whom.

        Raises:
            SessionHeld: Another process has taken the session over: this one was suspended for too long.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if lost.is_set():
                raise SessionHeld(
                    f"Session {session.id!r} was taken over by another process. To continue it here later: /resume {session.id}"
                )
            with suppress(JournalError):  # the store has failed: the person can still answer
                if not await _waits(session, approval):
                    return await self._ended(session, approval)

    async def _ended(self, session: Session, approval: Approval) -> str:
        """Say what has happened to a request, and who did it."""
        for left in await self._journal.inbox(approval.session_id or session.id):
            said = left.body
            if left.kind == "answer" and said["approval_id"] == approval.id:
                by = one_line(str(said["approved_by"]), 60)
                edited = ", with other arguments" if "arguments" in said else ""
                reason = f": {one_line(str(said['reason']), 200)}" if said["reason"] else ""
                return f"{_ANSWERED[str(said['answer'])]} by {by} from elsewhere{edited}{reason}."
        is_cancelled = any(left.kind == "cancel" for left in await self._journal.inbox(session.id))
        return "The run was cancelled from elsewhere." if is_cancelled else "The request has been withdrawn."

    # --- answers

    async def _record(self, session: Session, question: Question, answer: Answer) -> None:
        try:
            await self._store(session, question, answer)
        except ApprovalExpired:
            self._face.tell("The request expired before you answered it. Here it is again.", is_bad=True)
        except UnknownApproval:
            ended = await self._ended(session, question.approval)
            self._face.tell(f"Your answer came too late. {ended} Press Ctrl+C to stop the run.", is_bad=True)

    async def _store(self, session: Session, question: Question, answer: Answer) -> None:
        one, by = question.approval, person(self._options)
        scope: Literal["call", "session", "rule"] = "call"
        if answer.rules and answer.rules == one.rules:
            scope = "session" if answer.scope == "session" else "rule"
        await session.answer(
            one.id, answer.answer, reason=answer.reason, arguments=answer.arguments, by=by, scope=scope
        )
        if answer.rules and scope == "call":  # the person has written them otherwise than they were offered
            self._grants.add(*answer.rules, scope="user")
        if answer.scope == "always":
            for rule in answer.rules:
                save_rule(rules_file(os.environ), self._settings.root, rule)
        where = "folder" if answer.scope == "always" else "session"
        rules = f" From now on in this {where}: {one_record(', '.join(answer.rules))}" if answer.rules else ""
        self._face.tell(f"{_ANSWERED[answer.answer]} by {by}.{rules}")


async def _waits(session: Session, approval: Approval) -> bool:
    return any(one.id == approval.id for one in await session.approvals())
