"""People: who give tasks, answer late or twice, cancel, steer, pull plugs, move sessions; and who put things right at the end."""

from functools import partial
from typing import TYPE_CHECKING, Any

from simulator.office import ACTS, Office
from simulator.process import Process
from treadle import Agent, open_session
from treadle.agents.registry import check_agent
from treadle.budgets import Budget
from treadle.errors import (
    JournalError,
    NoSuchPoint,
    NothingToResume,
    SessionConflict,
    SessionHeld,
    SessionNotActive,
    UnknownApproval,
    UnknownInput,
    UnknownSession,
)
from treadle.resolve.archives import import_session
from treadle.sessions.session import Session
from treadle.stops import Status

if TYPE_CHECKING:
    from simulator.life import Life

__all__ = ["People"]

DAY = 86_400.0
PATIENCE_SECONDS = 4 * 3600.0
"""After so long a run is taken for one that never ends."""
_STRETCHES_TO_REST = 24
"""So often a session continues in the end: an agent called by an agent may ask a person at each of its steps."""


class People:
    """Everybody who has to do with one life."""

    def __init__(self, life: "Life") -> None:
        self.life = self._life = life
        self._chance = life.chance
        self._plan = life.plan
        self._sessions = ["s"]
        self._forks = 0
        self._is_moving = False
        self._closed: set[str] = set()
        """Sessions that the last move has closed at their source."""
        self._office_acts = Office(self)

    # --- the course of a life

    async def direct(self) -> None:
        """Live the whole life: rounds with faults, then a calm end."""
        life, chance = self._life, self._chance
        for number in range(self._plan.rounds):
            if not self._plan.is_calm:
                self._lay_incidents(is_first=number == 0)
            session_id = chance.choice(self._sessions)
            process = self._sit_down()
            task = process.spawn(self._work(process, session_id))
            if chance.random() < 0.15:
                self._rival(session_id, chance.random() * 5)
            if self._plan.steers:
                life.timeline.call_later(chance.random() * 3, self._office, session_id, "steer")
            if "mode" in self._plan.around:
                life.timeline.call_later(chance.random() * 4, self._office, session_id, "mode")
            for word, rate in (("suspend", 0.04), ("move", 0.04)):
                if chance.random() < (0.5 if self._plan.fault == word else rate):
                    life.timeline.call_later(chance.random() * 5, self._office, session_id, word)
            life.timeline.call_later(PATIENCE_SECONDS, self._lose_patience, process)
            await life.wait_until_recorded(process, task)
            await self._between()
        await self._end()

    def _sit_down(self) -> Process:
        offset = self._chance.choice(self._plan.offsets)
        if offset:
            self._life.happened("other_clock")
        return self._life.new_process(offset=offset)

    async def _between(self) -> None:
        """What happens while nobody runs the session, as far as its people know."""
        life, chance = self._life, self._chance
        await life.pause(chance.choice((0.01, 0.5, 5.0, 30.0, 300.0, DAY, 8 * DAY)))
        if life.plan.fault == "move" or chance.random() < 0.04:
            await self._move()
        if life.plan.fault == "fork" and chance.random() < 0.5:
            await self._outside(self._fork, chance.choice(self._sessions))
        for word in self._office_acts.draw():
            await self._outside(self._office_acts.act(word), chance.choice(self._sessions))
        for word, rate in {"answer": 0.5, "cancel": 0.06, "steer": 0.1, "mode": 0.5}.items():
            if (word != "mode" or "mode" in self._plan.around) and chance.random() < rate:
                await self._outside(partial(self._leave, word=word), chance.choice(self._sessions))
        if chance.random() < 0.03:
            self._cut_power()

    async def _end(self) -> None:
        """Put everything right; then each session continues until it is at rest, and is looked at."""
        life = self._life
        for process in life.processes:
            if not process.is_dead and process.is_busy:
                process.kill()
        life.calm()
        await life.pause(120.0)
        for session_id in self._sessions:
            for _ in range(_STRETCHES_TO_REST):
                process = life.new_process()
                task = process.spawn(self._settle(process, session_id))
                life.timeline.call_later(PATIENCE_SECONDS, self._lose_patience, process)
                await life.wait_until_recorded(process, task)
                if not process.is_dead and not task.cancelled() and task.exception() is None and task.result():
                    break
            else:
                life.judge.blame(f"session {session_id} does not come to rest although nothing fails any more")
        await life.pause(60.0)

    def _lose_patience(self, process: Process) -> None:
        if process.is_busy and not process.is_dead:
            self._life.judge.blame(f"a run had not ended after {PATIENCE_SECONDS:.0f} s")
            process.kill()

    # --- at a session

    async def _work(self, process: Process, session_id: str) -> None:
        """Give a task or continue with one, as a program would that is started by a person."""
        try:
            async with self.opened(process, session_id) as session:
                for _ in range(self._chance.choice((1, 2, 3))):
                    result = await self._run(process, session)
                    if result.status is not Status.PAUSED or self._chance.random() < 0.4:
                        break
                    await self._answer(process, session)
        except (JournalError, NothingToResume, SessionConflict, SessionHeld, SessionNotActive, UnknownSession) as error:
            self._life.judge.ended(process, error)

    async def _run(self, process: Process, session: Session) -> Any:
        life, chance = self._life, self._chance
        agent, state = life.agent(process), session.state
        goes_on = state.run is not None and state.run.status != "completed" and chance.random() < 0.8
        budgets = (
            (Budget(),)
            if self._plan.stuck is not None
            else (None, self._plan.budget, Budget(), Budget(max_tool_calls=1))
        )
        budget = chance.choice(budgets) if goes_on else self._plan.budget
        run = (
            agent.stream_resume(session, budget=budget)
            if goes_on
            else agent.stream("Do it.", session=session, budget=budget)
        )
        run.subscribe(partial(life.heard, process))
        process.run = run
        life.trace(process, f"{'resumes' if goes_on else 'starts a task'} in {session.id} at {state.head}")
        return await self._finished(process, run)

    async def resumed(self, process: Process, session: Session, agent: Agent | None = None) -> Any:
        """Resume a session's run as a service does that has found it; with an agent that has changed, that change is accepted."""
        run = (agent or self._life.agent(process)).stream_resume(session)
        if agent is not None:
            run._life.admit = partial(check_agent, agent, accepts=True)
        run.subscribe(partial(self._life.heard, process))
        process.run = run
        return await self._finished(process, run)

    async def _finished(self, process: Process, run: Any) -> Any:
        life = self._life
        result = await run.finish()
        life.trace(process, f"the run returns {result.reason.value}: {result.message}")
        life.judge.concluded(process, result)
        life.is_degraded = life.is_degraded or result.degraded
        return result

    def opened(self, process: Process, session_id: str) -> Any:
        return open_session(
            process.journal,
            id=session_id,
            clock=process.clock,
            randomness=process.randomness,
            on_store_failure="degrade" if self._plan.degrades and not self._life.is_healed else "stop",
        )

    async def _answer(self, process: Process, session: Session) -> None:
        """Answer what waits: allow, deny, edit; now and then twice. Give calls that wait for it their input."""
        life, chance = self._life, self._chance
        await self._give_inputs(process, session)
        for approval in await session.approvals():
            draw = 0.0 if life.is_healed else chance.random()
            if draw > 0.9:
                continue
            answer: Any = "allow" if draw < 0.65 else "deny"
            arguments = None
            if answer == "allow" and not life.is_healed and chance.random() < 0.12 and "to" in approval.arguments:
                arguments = chance.choice(({"to": "eve", "ref": life.next_ref()}, {"to": 1}))
            if life.is_healed:
                answer = chance.choice(("allow", "deny"))
            life.judge.answered(approval, answer, arguments)
            life.trace(process, f"answers {approval.id} of {approval.call_id}: {answer} {arguments or ''}")
            try:
                await session.answer(approval.id, answer, arguments=arguments)
            except UnknownApproval:
                life.trace(process, "somebody was faster")
            if chance.random() < 0.1:
                is_unfit = (
                    arguments is not None and "ref" not in arguments
                )  # the request waits again, under its first id too
                if is_unfit:
                    life.judge.answered(approval, "allow", None)
                try:
                    await session.answer(approval.id, "allow")
                    if not is_unfit:
                        life.judge.blame("an approval was answered twice")
                except (UnknownApproval, JournalError):
                    pass

    async def _give_inputs(self, process: Process, session: Session) -> None:
        life = self._life
        for waiting in session.state.suspended:
            waits = len(waiting.inputs) + 1
            if waiting.call.name != "form" or (not life.is_healed and self._chance.random() < 0.2):
                continue
            for _ in range(2 if self._chance.random() < 0.2 else 1):
                value = life.next_ref()
                try:
                    await session.input(waiting.call.id, value)
                except UnknownInput:
                    life.trace(process, f"{waiting.call.id} needs no input any more")
                else:
                    life.trace(process, f"gives {waiting.call.id} {value}")
                    life.judge.given(process, (session.id, waiting.call.id), value, waits=waits)

    async def _settle(self, process: Process, session_id: str) -> bool:
        """Continue until the session is at rest; return whether it is."""
        from invariants import check_session

        try:
            async with self.opened(process, session_id) as session:
                if session.state.status == "deleted":
                    await self.refused(process, session, "deleted")
                    return True
                if session.state.own_status != "active":
                    await session.change(status="active", reason="It is put right.", take_back=True)
                await self._answer(process, session)
                result = await self._run_to_rest(process, session)
                await session.refresh()
                if result.status is Status.PAUSED or session.state.has_open_calls:
                    return False
                try:
                    await check_session(session)
                except AssertionError as error:
                    self._life.judge.blame(f"the checker says of {session.id}: {str(error).splitlines()[0]}")
                return True
        except SessionHeld:
            return False

    async def _run_to_rest(self, process: Process, session: Session) -> Any:
        agent = self._life.agent(process)
        state = session.state
        if state.run is not None and state.run.status != "completed":
            run = agent.stream_resume(session)
        else:
            run = agent.stream("The last one.", session=session)
        run.subscribe(partial(self._life.heard, process))
        result = await run.finish()
        self._life.trace(process, f"the last run returns {result.reason.value}: {result.message}")
        self._life.judge.concluded(process, result)
        return result

    async def refused(self, process: Process, session: Session, why: str) -> None:
        """Try to run a session in which no run may begin."""
        agent = self._life.agent(process)
        run = agent.stream_resume(session) if self._chance.random() < 0.5 else agent.stream("Do it.", session=session)
        run.subscribe(partial(self._life.heard, process))
        try:
            await run.finish()
        except (SessionNotActive, SessionHeld, JournalError, NothingToResume):
            return
        self._life.judge.blame(f"a run began in {session.id} although it is {why}")

    # --- others

    def _rival(self, session_id: str, seconds: float) -> None:
        """Somebody else runs the same session from another process, at the same time."""

        def start() -> None:
            if self._life.is_healed or self._is_moving:
                return
            process = self._sit_down()
            process.is_busy = True
            task = process.spawn(self._work(process, session_id))
            task.add_done_callback(lambda _: setattr(process, "is_busy", False))
            self._life.timeline.call_later(PATIENCE_SECONDS, self._lose_patience, process)

        self._life.timeline.call_later(seconds, start)

    async def _outside(self, act: Any, session_id: str) -> None:
        """Do something to a session from a process of its own, and wait for it."""
        process = self._sit_down()
        task = process.spawn(self.in_office(process, session_id, act))
        await self._life.wait_until_recorded(process, task)

    def _office(self, session_id: str, word: str) -> None:
        """Do something to a session from a process of its own, whatever else is under way."""
        if self._life.is_healed or self._is_moving:
            return
        process = self._life.new_process()
        process.spawn(self.in_office(process, session_id, partial(self._leave, word=word)))

    async def in_office(self, process: Process, session_id: str, act: Any) -> None:
        try:
            if session_id in process.store.shelves:
                async with self.opened(process, session_id) as session:
                    await act(process, session)
        except (JournalError, NothingToResume, SessionConflict, SessionHeld, SessionNotActive) as error:
            self._life.judge.ended(process, error)

    async def _leave(self, process: Process, session: Session, *, word: str) -> None:
        self._life.trace(process, f"from outside: {word}")
        match word:
            case "answer":
                await self._answer(process, session)
            case "steer":
                await session.steer("Look again.")
            case "cancel":
                self._life.happened("cancel")
                await session.cancel()
            case "mode":
                mode = self._chance.choice(("plan", "ask", "bypass", "bypass", "deny-unlisted"))
                self._life.trace(process, f"changes the mode to {mode}")
                await session.set_mode(mode)
            case "suspend" | "move":
                await self._office_acts.close_for_a_while(process, session, word)
            case _:
                raise AssertionError(word)

    async def _fork(self, process: Process, session: Session) -> None:
        self._forks += 1
        name = f"f{self._forks}"
        points = [None, *range(len(process.store.shelves[session.id].events), 0, -1)][:40]
        self._life.happened("fork")
        try:
            await session.fork(self._chance.choice(points), id=name)
        except NoSuchPoint:
            return
        self._life.trace(process, f"forked {session.id} as {name}")
        if process.store is self._life.stores[-1]:
            self._sessions.append(name)

    async def _move(self) -> None:
        """Take all sessions to another store; the old one is closed, or nobody uses it again."""
        if self._is_busy():
            return
        self._is_moving = True
        try:
            await self._move_all(closes=self._chance.random() < 0.6)
        finally:
            self._is_moving = False

    async def _move_all(self, *, closes: bool) -> None:
        life, old = self._life, self._life.stores[-1]
        if closes:
            life.excuses.add("SessionMoved")
        source = life.new_process()
        store = type(life.stores[0])(f"store-{len(life.stores) + 1}", encodes=False)
        target = life.new_process(store=store)
        lines: list[Any] = []
        self._closed.clear()
        task = source.spawn(self._export(source, lines, closes=closes))
        await life.wait_until_recorded(source, task)
        if source.is_dead or len(lines) != len(old.shelves) or self._is_busy():
            return
        task = target.spawn(self._import(target, lines))
        await life.wait_until_recorded(target, task)
        if target.is_dead or len(store.shelves) != len(lines):
            return  # the sessions that were closed are taken back
        life.happened("move")
        life.trace(target, f"moved to {store.name}, closing {'the source' if closes else 'nothing'}")
        life.stores.append(store)
        for session_id, shelf in [*old.shelves.items()]:
            if session_id not in store.shelves:  # a fork that was made meanwhile stays, and nobody looks for it
                self._sessions = [one for one in self._sessions if one != session_id]
                continue
            shelf.is_left = True
            store.shelves[session_id].is_purged = shelf.is_purged
            if session_id in self._closed:
                shelf.moved = shelf.head
                late = life.new_process(store=old)
                task = late.spawn(self.in_office(late, session_id, self._office_acts.at_the_source))
                await life.wait_until_recorded(late, task)

    def _is_busy(self) -> bool:
        return any(process.is_busy and not process.is_dead for process in self._life.processes)

    async def _export(self, process: Process, lines: list[Any], *, closes: bool) -> None:
        try:
            for session_id in [*process.store.shelves]:
                async with self.opened(process, session_id) as session:
                    if not closes or session.state.status == "deleted":
                        lines.append(await session.export())
                        continue
                    try:
                        lines.append(await session.move("the other store"))
                        self._closed.add(session_id)
                    except NoSuchPoint:  # a child carries out a call of it
                        closes = False
                        lines.append(await session.export())
        except (JournalError, NothingToResume, SessionConflict, SessionHeld, SessionNotActive) as error:
            self._life.judge.ended(process, error)

    async def _import(self, process: Process, lines: list[Any]) -> None:
        try:
            for one in lines:
                await import_session(process.journal, one, take_open=True, clock=process.clock)
        except JournalError as error:
            self._life.judge.ended(process, error)

    # --- faults

    def _lay_incidents(self, *, is_first: bool) -> None:
        from simulator.life import Incident

        life, plan, chance = self._life, self._plan, self._chance
        life.incidents.clear()
        kinds = [plan.fault] if plan.fault in _STRIKES and (is_first or chance.random() < 0.5) else []
        if plan.fault == "move" and is_first:
            kinds.append(chance.choice(("kill", "cancel")))
        if plan.fault in ACTS and chance.random() < 0.7:
            kinds.append(chance.choice(("kill", "cancel")))
        while chance.random() < 0.15:
            kinds.append(chance.choice(_STRIKES))
        for kind in kinds:
            where = chance.choice(("operation", "commit", "event"))
            feature = plan.feature if chance.random() < 0.8 else None
            after = chance.choice((0, 0, 1, 2, 3)) if feature else chance.randrange(30)
            life.incidents.append(Incident(kind, where=where, after=after, feature=feature))

    def strike(self, kind: str, process: Process) -> None:  # noqa: C901, PLR0912 - one case a fault
        """Let a fault come to a process, now."""
        life, chance = self._life, self._chance
        if process.is_dead or life.is_healed:
            return
        life.trace(process, f"INCIDENT {kind}")
        match kind:
            case "kill":
                life.happened("kill")
                if chance.random() < 0.2:
                    self._cut_power()
                else:
                    process.kill(keep=chance.randrange(4))
            case "cancel":
                self._cancel(process)
            case "hand_over":
                if process.run is not None:
                    life.happened("hand_over")
                    life.excuses.add("RunHandedOver")
                    process.spawn(process.run.hand_over())
            case "lease_lost":
                seconds = chance.choice((5.0, 12.0, 25.0, 60.0, 60.0))
                life.excuses |= {"SessionConflict", "JournalError"}
                self._rival(chance.choice(self._sessions), min(seconds - 1.0, 11.0))
                process.stall(seconds)
            case "store_gone":
                life.happened("store_gone")
                life.excuses |= {"JournalError", "IntentNotStored", "SessionConflict"}
                process.store.gone_until = life.timeline.now + chance.choice((1e-6, 0.01, 0.5, 5.0, 60.0))
            case "store_hanging":
                life.happened("store_hanging")
                process.store.hangs_until = life.timeline.now + chance.choice((0.1, 2.0, 15.0, 90.0))
            case "other_clock":
                life.happened("other_clock")
                process.clock.offset += chance.choice((-3600.0, 3600.0, 60.0, -60.0, 3.2e7))
            case "fork":
                self._fork_soon(process)
            case _:
                raise AssertionError(kind)

    def _cancel(self, process: Process) -> None:
        life, chance = self._life, self._chance
        life.happened("cancel")
        if chance.random() < 0.6 and process.run is not None:
            process.run.cancel()
        else:
            self._office(self._sessions[0], "cancel")

    def _fork_soon(self, process: Process) -> None:
        other = self._life.new_process(store=process.store)
        other.spawn(self.in_office(other, self._sessions[0], self._fork))

    def _cut_power(self) -> None:
        """The machine goes down: every process dies, and what was not synced may be lost."""
        life, chance = self._life, self._chance
        life.trace(None, "POWER CUT")
        life.has_power_cut = True
        for process in [*life.processes]:
            process.kill()
        life.stores[-1].lose_power(lambda: chance.randrange(4))


_STRIKES = ("kill", "cancel", "lease_lost", "store_gone", "store_hanging", "other_clock", "fork", "hand_over")
