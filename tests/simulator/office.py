"""The office: what people do to a session between its runs. They resolve doubts with the receipt in hand, suspend, mark, rewind and purge."""

from functools import partial
from typing import TYPE_CHECKING, Any

from simulator.process import Process
from treadle import Agent, Agents
from treadle.errors import (
    AgentChanged,
    ConfigurationError,
    JournalError,
    NoSuchPoint,
    SessionHeld,
    SessionMoved,
    UnknownApproval,
    UnknownDoubt,
)
from treadle.resolve.archives import expire_sessions
from treadle.sessions.maintenance import fold
from treadle.sessions.session import Session
from treadle.state import Doubt, SessionState
from treadle.tools import Done, NotDone, Unknown
from treadle.workers import stranded_sessions

if TYPE_CHECKING:
    from simulator.people import People

__all__ = ["ACTS", "Office"]

ACTS = ("resolve", "suspend", "rewind", "purge", "service")
"""What the office does between runs; each is a fault of its own in the product that lives walk."""

DAY = 86_400.0


class Office:
    """People who look after sessions that nobody runs."""

    def __init__(self, people: "People") -> None:
        self._people = people
        self._life = people.life
        self._chance = people.life.chance

    def draw(self) -> list[str]:
        """Draw what is done after a round."""
        chance, plan = self._chance, self._life.plan
        return [
            act
            for act in ACTS
            if chance.random() < (0.9 if plan.fault == act else 0.0 if plan.is_calm else _RATES[act])
        ]

    def act(self, word: str) -> Any:
        """Return what does this to a session, in a process."""
        return {
            "resolve": self._resolve,
            "suspend": self._suspend,
            "rewind": self._rewind,
            "purge": self._purge,
            "service": self._serve,
        }[word]

    # --- a service, or a worker, that looks for what can continue

    async def _serve(self, process: Process, session: Session) -> None:
        """Find the session by what has arrived for it or below it, and resume it; what only waits stays as it was.

        Whoever answers may answer in the session that asks: an agent as a tool, at any depth.
        """
        life = self._life
        answered = await self._answer_below(process, session)
        await session.refresh()
        # While this process stood still, another may have taken the answer in and ended the run.
        is_over = session.state.run is not None and session.state.run.status == "completed"
        is_live = session.state.own_status == "active" and not is_over and not self._is_held(process, session.id)
        found = await process.journal.resumable(now=process.clock.now())
        if answered and is_live and session.id not in found and not self._is_held(process, session.id):
            life.judge.blame(f"session {session.id} is not resumable although {answered} was answered")
        if session.id not in found:
            before = session.state.head
            await self._resume_in_vain(process, session, before)
            return
        changed = await self._stranded(process, session) if self._chance.random() < 0.3 else None
        life.happened("service")
        await self._people.resumed(process, session, changed)

    async def _stranded(self, process: Process, session: Session) -> Agent | None:
        """Come with an agent that has changed: the session waits with nothing added, and says why. Return the agent that may continue it."""
        life, run = self._life, session.state.run
        changed = life.changed_agent(process)
        if run is None or run.status == "completed" or run.fingerprint["answer"] == changed.fingerprint["answer"]:
            return None
        family = self._family(process, session.id)
        acts, heads = self._acts_on(process, session.id), [process.store.shelves[one].head for one in family]
        began = life.timeline.now
        attempt = Agents([changed])._life(session, None, None, None, accepts=False)
        try:
            await attempt.finish()
        except AgentChanged:
            life.trace(process, f"{session.id} is stranded: its agent has changed")
        else:
            life.judge.blame(f"session {session.id} continued with an agent that has changed")
        is_alone = process.woken_at <= began and self._acts_on(process, session.id) <= acts + len(family)
        if is_alone and heads != [process.store.shelves[one].head for one in family]:
            life.judge.blame(f"an agent that has changed added something to {session.id}")
        said = await stranded_sessions(process.journal, agents=[changed], session_ids=[session.id])
        if is_alone and session.state.own_status == "active" and [one.reason for one in said] != ["agent_changed"]:
            life.judge.blame(f"session {session.id} waits and does not say that its agent has changed")
        return changed

    async def _resume_in_vain(self, process: Process, session: Session, before: int) -> None:
        """Resume a run that waits for consent, and for which nothing has arrived: nothing may be added to its family."""
        run, waits = session.state.run, session.state.suspended
        is_input = any(one.suspended is not None and not one.suspended.asks for one in waits)
        if run is None or run.status != "paused" or run.reason != "approval_required" or is_input:
            return
        family = self._family(process, session.id)
        acts, heads = self._acts_on(process, session.id), [process.store.shelves[one].head for one in family]
        waiting = [one.id for one in session.state.pending_approvals()]
        self._life.happened("service")
        result = await self._people.resumed(process, session)
        if [one.id for one in result.approvals] != waiting or "hook" in self._life.plan.around:
            return  # what is asked was decided anew: a hook failed, say
        if self._acts_on(process, session.id) > acts + len(family):
            return  # somebody else was here too
        if heads != [process.store.shelves[one].head for one in family]:
            self._life.judge.blame(f"resuming {session.id} in vain has recorded something")

    async def _answer_below(self, process: Process, session: Session) -> str:
        """Answer the first request of a session's family in the session that asks. Return its id; empty for none."""
        waiting = await session.approvals()
        if not waiting or self._chance.random() < 0.4:
            return ""
        asked = waiting[0]
        self._life.judge.answered(asked, "allow", None)
        async with self._people.opened(process, asked.session_id) as asking:
            try:
                await asking.answer(asked.id, "allow")
            except UnknownApproval:
                return ""
        self._life.trace(process, f"answers {asked.id} in {asked.session_id}")
        return asked.id

    def _is_held(self, process: Process, session_id: str) -> bool:
        lease = process.store.shelves[session_id].lease
        return lease is not None and not lease.process.is_dead

    # --- doubts

    async def _resolve(self, process: Process, session: Session) -> None:
        """Say how each doubt ended, as the ledger of the world has it; now and then two persons say so at once."""
        if session.doubts() and self._chance.random() < 0.3:
            colleague = self._life.new_process()
            colleague.spawn(self._people.in_office(colleague, session.id, self._resolve_all))
        await self._resolve_all(process, session)

    async def _resolve_all(self, process: Process, session: Session) -> None:
        for doubt in session.doubts():
            outcome = self._truth(process, doubt)
            if outcome is None:
                continue
            word = "unknown" if outcome is Unknown else "not_done" if outcome is NotDone else "done"
            self._life.trace(process, f"resolves {doubt.tool} {doubt.call_id}: {word}, told {doubt.is_told}")
            try:
                await session.resolve(doubt.call_id, outcome, reason="I looked.")
            except UnknownDoubt:
                self._life.trace(process, "somebody was faster")
                continue
            self._life.happened("resolve")
            if outcome is NotDone and not doubt.is_told and self._chance.random() < 0.5 and await session.cancel():
                self._life.trace(process, f"cancels after {doubt.call_id} was not done")
                self._life.judge.called_off((session.id, doubt.call_id))

    def _truth(self, process: Process, doubt: Doubt) -> Any:
        """Return what a person finds out; None where a request may still be on its way."""
        life = self._life
        started = process.store.shelves[doubt.session_id].started.get(doubt.call_id)
        if started is None or self._chance.random() < 0.1:
            return Unknown
        place = (life.owner(process.store.name, doubt.session_id, started[0]), doubt.call_id)
        side_effects = life.world.by_call.get(place)
        if side_effects:
            return Done({"receipt": side_effects[-1].number})
        known = life.world.by_key.get(doubt.key)
        if known is not None:
            return Done({"receipt": known.number})
        may_come = place in life.world.on_the_way or any(
            other.loop.is_stalled or (other.is_busy and other is not process)
            for other in life.processes
            if not other.is_dead
        )
        return None if may_come else NotDone

    # --- the session's own status

    async def _suspend(self, process: Process, session: Session) -> None:
        """Suspend a session; try to run it; activate it, or leave that to those who put things right."""
        life = self._life
        if session.state.status == "deleted" or session.state.moved_to:
            return
        life.excuses.add("SessionNotActive")
        await session.change(status="suspended", reason="It is looked into.")
        life.happened("suspend")
        life.trace(process, f"suspends {session.id}")
        await self._people.refused(process, session, "suspended")
        if self._chance.random() < 0.7:
            await process.sleep(self._chance.choice((0.1, 60.0)))
            await session.change(status="active", reason="It is well.")
            life.trace(process, f"activates {session.id}")

    async def close_for_a_while(self, process: Process, session: Session, word: str) -> None:
        """Suspend or move a session, whoever runs it, and take that back; one that is being run refuses it."""
        life = self._life
        if session.state.own_status != "active":
            return
        life.excuses |= {"SessionNotActive", "SessionMoved"}
        place = "a place nobody goes to" if word == "move" else None
        try:
            if word == "move":
                await session.move(place)
            else:
                await session.change(status="suspended", reason="It is looked into.")
        except NoSuchPoint:  # a child carries out a call of it
            return
        life.happened(word)
        life.trace(process, f"{word}s {session.id} for a while")
        await process.sleep(self._chance.choice((0.1, 60.0)))
        await session.refresh()
        if (session.state.status, session.state.moved_to) == ("suspended", place):  # else others have done more to it
            await session.change(status="active", reason="It is taken back.", take_back=True)

    async def _rewind(self, process: Process, session: Session) -> None:
        """Mark the end of a session, or go back to a point of it."""
        chance, life = self._chance, self._life
        try:
            if chance.random() < 0.4:
                await session.mark(f"m{life.next_ref()}")
            points: list[Any] = [*session.state.marks, *range(1, session.state.head + 1)]
            if points:
                rewound = await session.rewind(chance.choice(points), tell_model=chance.random() < 0.8)
                life.trace(process, f"rewinds {session.id} to {rewound.to}")
                life.happened("rewind")
        except NoSuchPoint as error:
            life.trace(process, f"cannot rewind: {error}")

    async def _purge(self, process: Process, session: Session) -> None:
        """Let the sessions go that are old enough."""
        life, chance = self._life, self._chance
        is_open_too = chance.random() < 0.3
        before = process.clock.now() - chance.choice((-1.0, 60.0, DAY))
        open_ones = {} if is_open_too else self._open_ones(process)
        life.excuses |= {"SessionNotActive", "SessionConflict"}
        gone = await expire_sessions(
            process.journal, before=before, purge=True, even_open=is_open_too, clock=process.clock
        )
        for session_id in gone:
            life.happened("purge")
            life.trace(process, f"purged {session_id}")
            if session_id in open_ones and self._acts_on(process, session_id) == open_ones[session_id]:
                life.judge.blame(f"session {session_id} was purged although something in it waits for a person")

    def _open_ones(self, process: Process) -> dict[str, int]:
        """Return the sessions in which a call is open that acts or waits for consent, and nobody runs them.

        Each with how often somebody has left it a message or run it: what comes meanwhile may end the waiting.
        """
        return {
            name: self._acts_on(process, name)
            for name, shelf in process.store.shelves.items()
            if shelf.lease is None
            and not self._has_messages(process, name)
            and shelf.status != "deleted"
            and _waits_for_a_person(fold(name, shelf.events))
        }

    def _family(self, process: Process, name: str) -> list[str]:
        """Return a session with those above and below it in its tree of calls: what is left to them may end its waiting."""
        shelves, names = process.store.shelves, [name]
        while names[-1].startswith("c_") and (above := shelves[names[-1]].parent) is not None:
            names.append(above[0])
        below = [name]
        for one in below:
            below += [
                child
                for child, shelf in shelves.items()
                if child.startswith("c_") and (shelf.parent or ("",))[0] == one
            ]
        return [*names, *below[1:]]

    def _has_messages(self, process: Process, name: str) -> bool:
        return any(process.store.shelves[one].inbox for one in self._family(process, name))

    def _acts_on(self, process: Process, name: str) -> int:
        shelves = [process.store.shelves[one] for one in self._family(process, name)]
        return sum(one.put + one.stretches for one in shelves)

    # --- after a move

    async def at_the_source(self, process: Process, session: Session) -> None:
        """Do something to a session that continues elsewhere: everything must be refused."""
        chance = self._chance
        await self._people.refused(process, session, "moved")
        acts = {
            "steer": partial(session.steer, "Look again."),
            "cancel": session.cancel,
            "resolve": partial(session.resolve, "m1", NotDone),
            "move": partial(session.move, "a third place"),
        }
        name = chance.choice([*acts])
        try:
            await acts[name]()
        except (SessionMoved, SessionHeld, JournalError, ConfigurationError):
            return
        self._life.judge.blame(f"{name} was accepted in {session.id} although it continues elsewhere")


def _waits_for_a_person(state: SessionState) -> bool:
    """Whether a person can still end something here. A session that has moved waits elsewhere."""
    return not state.moved_to and bool(state.pending_approvals() or state.open_doubts())


_RATES = {"service": 0.1, "resolve": 0.25, "suspend": 0.03, "rewind": 0.05, "purge": 0.01}
