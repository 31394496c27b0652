"""Sessions that are killed until they end: at each crash point and at random times, with everything promised checked after.

Shared by the short soak of the tests and the long one of `make soak`.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from crash_child import Job
from crashing import Children, Ended, World, stored

import treadle
from invariants import check_events, check_pairs
from treadle.events import AnyEvent, ChildStarted
from treadle.state import IN_DOUBT

__all__ = ["RANDOM", "SCENES", "WHERES", "Life", "Tally"]

SCENES: dict[str, dict[str, Any]] = {
    "read": {"effect": "read"},
    "idempotent": {"effect": "idempotent"},
    "keyed": {"effect": "keyed"},
    "unsafe": {"effect": "unsafe"},
    "all side by side": {"effect": "mixed"},
    "with approvals": {"effect": "mixed", "consent": True},
    "agent as a tool": {"effect": "mixed", "depth": 1},
    "agent, approvals": {"effect": "mixed", "consent": True, "depth": 1},
}
"""What the sessions do: two calls of one effect, or one call of each effect in one step; asked for, or in an agent that is a tool."""

RANDOM = "random"
POINTS = ("CP1", "CP2", "CP3", "CP4", "CP5", "CP6", "CP7", "CP8", "CP9", "CP10", "CP11", "CP12", "CP13", "CP15", "CP16")
WHERES = (RANDOM, *POINTS)
_KILLS_A_LIFE = 4
_MOST_PAUSES = 4
_PAUSED = "approval_required"
_LEASE_FAULTS = ("SessionConflict: The lease on session", "SessionHeld")
"""What a busy machine may cause: a lease of a second is not renewed in time, or a beat is late. The session is resumed."""
_STATEMENTS = 12
"""Statements that make a journal's tables, and more than one of which can be the last."""


class Tally(msgspec.Struct):
    """What came of all lives of one scene that were killed in one place."""

    lives: int = 0
    kills: int = 0
    told_unknown: int = 0
    """Calls of which the model was told that their outcome is unknown."""
    duplicates: int = 0
    lost_events: int = 0
    broken: int = 0
    """Sessions that did not end whole."""
    faults: list[str] = msgspec.field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.duplicates or self.lost_events or self.broken)


class Life:
    """One session: killed, resumed, perhaps killed again, until it ends; then looked at."""

    def __init__(
        self,
        children: Children,
        world: World,
        folder: Path,
        name: str,
        scene: str,
        where: str,
        *,
        chance: random.Random,
        url: str = "",
    ) -> None:
        assert where in WHERES
        self._children = children
        self._world = world
        self._name = name
        self._where = where
        self._chance = chance
        self._job = Job(
            journal=url or str(folder / f"{name}.db"),
            lease_seconds=1.0 if url else 10.0,  # there a killed holder is waited for
            port=world.port,
            out=str(folder / f"{name}.out"),
            session=name,
            **{"consent": where == "CP7", **SCENES[scene]},
        )
        self._seen: dict[str, Sequence[AnyEvent]] = {}
        """The events of the session, and of those of the agents that are its tools."""

    async def run(self, tally: Tally, typical_seconds: float) -> None:
        """Live, and add to the tally what came of it."""
        tally.lives += 1
        kills = 0
        for _ in range(_KILLS_A_LIFE if self._where == RANDOM else _MOST_PAUSES):
            ended = await self._die(typical_seconds)
            kills += ended.was_killed
            if ended.was_killed:
                await self._look(tally)
            elif ended.report.get("reason") == _PAUSED:
                await self._answer()
            else:
                break
            if kills and self._where != RANDOM:
                break
        tally.kills += kills
        if not kills and self._where != RANDOM:
            self._fault(tally, f"never reached {self._where}: {ended}")
        await self._end(tally)

    async def _die(self, typical_seconds: float) -> Ended:
        if self._where != RANDOM:
            point = {"CP15": "CP15:before", "CP16": f"CP16:{self._chance.randint(1, _STATEMENTS)}"}.get(self._where)
            act = "build" if self._where == "CP16" else "start"
            return await self._children.run(self._but(point=point or self._where, act=act))
        pids: list[int] = []
        running = asyncio.create_task(self._children.run(self._job, on_start=pids.append))
        while not pids and not running.done():
            await asyncio.sleep(0)
        await asyncio.wait({running}, timeout=self._chance.uniform(0.0, typical_seconds))
        if not running.done():
            with contextlib.suppress(ProcessLookupError):  # it has ended in this very moment
                os.kill(pids[0], signal.SIGKILL)
        return await running

    async def _end(self, tally: Tally) -> None:
        ended = await self._children.run(self._but(act="again"))
        for _ in range(_MOST_PAUSES):
            if ended.report.get("reason") == _PAUSED:
                await self._answer()
            elif not ended.report.get("error", "").startswith(_LEASE_FAULTS):
                break
            ended = await self._children.run(self._but(act="again"))
        is_over = ended.report.get("completed") or "NothingToResume" in ended.report.get("error", "")
        if not is_over:
            self._fault(tally, f"did not end: {ended}")
        await self._look(tally)
        twice = self._world.duplicates(self._name)
        tally.duplicates += len(twice)
        tally.faults.extend(f"{self._name}: {fault}" for fault in twice)
        for session in self._seen:
            await self._check_whole(session, tally)

    async def _check_whole(self, session: str, tally: Tally) -> None:
        try:
            events, state = await stored(self._job.journal, session)
            check_events(events)
            check_pairs(state.messages, open_ids=set(state.open))
        except AssertionError as fault:
            self._fault(tally, f"is not whole: {fault}")
        tally.told_unknown += sum(
            event.type == "tool.finished" and event.result.status == "outcome_unknown"  # type: ignore[union-attr]
            for event in events
        )

    async def _answer(self) -> None:
        """Allow what was asked for, and deny what may have been done."""
        async with treadle.open_session(self._job.journal, id=self._name) as session:
            for approval in await session.approvals():
                await session.answer(approval.id, "deny" if approval.rule == IN_DOUBT else "allow")

    async def _look(self, tally: Tally) -> None:
        """Assert that what was stored before is still there, to the letter."""
        if not (self._job.journal.startswith("postgresql:") or Path(self._job.journal).exists()):
            return
        sessions = [self._name, *(name for name in self._seen if name != self._name)]
        for session in sessions:  # it grows by the children that are found
            events, _ = await stored(self._job.journal, session)
            seen = self._seen.get(session, ())
            if list(events[: len(seen)]) != list(seen):
                tally.lost_events += 1
                tally.faults.append(f"{session}: events that had been stored are others now")
            self._seen[session] = events
            children = {event.child_id for event in events if isinstance(event, ChildStarted)}
            sessions.extend(sorted(children.difference(sessions)))

    def _but(self, **words: str) -> Job:
        return msgspec.structs.replace(self._job, **words)

    def _fault(self, tally: Tally, words: str) -> None:
        tally.broken += 1
        tally.faults.append(f"{self._name}: {words}")
