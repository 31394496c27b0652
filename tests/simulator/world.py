"""The world outside: services that do what tools ask of them, and the ledger of what was really done.

It knows nothing of journals but one question, asked at each request: is there a stored intent for it?
"""

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.errors import Rejected, Transient
from treadle.tools import JsonObject, NotDone, ToolContext, ToolOutput, Unknown

if TYPE_CHECKING:
    from simulator.life import Life
    from simulator.process import Process

__all__ = ["ACTING", "SideEffect", "World", "canonical"]

ACTING = frozenset({"pay", "wire", "order", "write", "start_transfer", "invoice", "admin", "buy", "form"})
"""Tools that change the world themselves."""


class SideEffect(NamedTuple):
    """One thing that was done in the world."""

    number: int
    at: float
    tool: str
    arguments: str
    key: str
    session_id: str
    call_id: str


def canonical(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)


class World:
    """The services of one life."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self.side_effects: list[SideEffect] = []
        self.by_call: dict[tuple[str, str], list[SideEffect]] = {}
        self.by_key: dict[str, SideEffect] = {}
        self.requests: dict[tuple[str, str], set[str]] = {}
        """The keys under which each call was sent."""
        self.excused: set[tuple[str, str]] = set()
        """Calls that a process sent after it had been taken over: no fence of ours can hold those back."""
        self.on_the_way: Counter[tuple[str, str]] = Counter()
        """Requests of each call that have not reached their service yet."""
        self.denied_checks: dict[tuple[str, str], int] = {}
        """How often a service said that a call was not done."""

    async def act(self, process: "Process", ctx: ToolContext, tool: str, arguments: JsonObject) -> Any:
        """Ask a service to change something, with everything that may go wrong on the way."""
        if process.is_dead:
            await process.gone()
        life = self._life
        life.judge.sending(process, ctx, tool, arguments)
        known = tool == "order" and ctx.idempotency_key in self.by_key
        fate = "ok" if known else life.fate(tool)
        life.trace(process, f"sends {tool} {arguments} of {ctx.call.id}: {fate}")
        going, coming = life.latency(), life.latency()
        if fate in _DONE:
            self.on_the_way[(ctx.session.id, ctx.call.id)] += 1
            life.timeline.call_later(going, self._do, tool, arguments, ctx.idempotency_key, ctx.session.id, ctx.call.id)
        ignores_cancel = fate == "late" or life.chance.random() < 0.1
        return await self._answer(process, ctx, tool, fate, going + coming, ignores_cancel=ignores_cancel)

    async def _answer(
        self, process: "Process", ctx: ToolContext, tool: str, fate: str, seconds: float, *, ignores_cancel: bool
    ) -> Any:
        waits = {"hangs": 1e6, "late": seconds + 40.0}.get(fate, seconds)
        try:
            await process.sleep(waits)
        except asyncio.CancelledError:
            if not ignores_cancel:
                raise
            await process.sleep(min(waits, 30.0))
        self._fail(fate, tool)
        if fate == "misshapen":
            return {"receipt": "not a number"}
        if fate == "large":
            return ToolOutput(data={"receipt": 1, "text": "x" * 3_000}, display="large")
        return {"receipt": self._receipt(ctx)}

    def _fail(self, fate: str, tool: str) -> None:
        """Raise what this fate raises in the tool, if anything."""
        match fate:
            case "raises" | "raises_done":
                raise self._life.chance.choice(_ERRORS)
            case "lost" | "breaks":
                raise ConnectionError("the connection broke")
            case "transient" | "transient_done":
                raise Transient("busy", retry_after_seconds=self._life.chance.choice((None, 0.5, 3.0)))
            case "rejected":
                raise Rejected({"error": "no", "tool": tool})
            case "exits":
                raise SystemExit(3)
            case _:
                pass

    def _receipt(self, ctx: ToolContext) -> int:
        side_effects = self.by_call.get((ctx.session.id, ctx.call.id))
        if side_effects:
            return side_effects[-1].number
        side_effect = self.by_key.get(ctx.idempotency_key)  # done under this key by an earlier request
        return 0 if side_effect is None else side_effect.number

    def _do(self, tool: str, arguments: JsonObject, key: str, session_id: str, call_id: str) -> None:
        self.on_the_way -= Counter({(session_id, call_id): 1})
        if tool == "order" and key in self.by_key:
            return  # the service knows the key: it does nothing twice
        side_effect = SideEffect(
            len(self.side_effects) + 1, self._life.timeline.now, tool, canonical(arguments), key, session_id, call_id
        )
        self.side_effects.append(side_effect)
        self.by_key.setdefault(key, side_effect)
        self.by_call.setdefault((session_id, call_id), []).append(side_effect)
        self._life.trace(None, f"DONE {tool} {arguments} for {call_id} of {session_id}")
        self._life.judge.done(side_effect)

    async def look(self, process: "Process", ctx: ToolContext, arguments: JsonObject) -> Any:
        """Read something; now and then it fails, breaks off, hangs or answers late."""
        if process.is_dead:
            await process.gone()
        self._life.judge.looking(process, ctx)
        fate = self._life.fate("look")
        self._life.trace(process, f"reads {arguments} for {ctx.call.id}: {fate}")
        if fate == "at_once":
            return {"value": self._value(process)}
        ctx.progress("half", done=1, total=2)
        return await self._answer(process, ctx, "look", fate, self._life.latency(), ignores_cancel=fate == "late")

    def _value(self, process: "Process") -> int:
        plan = self._life.plan
        if plan.stuck == "progress" and not self._life.is_healed:
            return self._life.next_ref() + 1000  # something happens each time
        return 7 if plan.has_done and process.coin(0.4) else 1

    async def admin(self, process: "Process", ctx: ToolContext, arguments: JsonObject) -> Any:
        """Do something of which the tool asks by itself whether it may."""
        if process.is_dead:
            await process.gone()
        decision = await ctx.decide("pay", arguments)
        self._life.trace(process, f"admin {ctx.call.id} may pay: {decision.kind} ({decision.rule})")
        if decision.kind != "allow":
            raise Rejected({"error": "may not", "tool": "admin"})
        self._life.judge.own_action(process, ctx, arguments)
        return await self.act(process, ctx, "admin", arguments)

    async def check(self, process: "Process", ctx: ToolContext, key: str) -> Any:
        """Say whether something was done; the service may not know."""
        if process.is_dead:
            await process.gone()
        await process.sleep(self._life.latency())
        draw = self._life.chance.random()
        if draw < 0.15:
            return Unknown
        if draw < 0.25:
            raise ConnectionError("the service does not answer")
        side_effect = self.by_key.get(key)
        self._life.trace(process, f"check of {ctx.call.id}: {'done' if side_effect else 'not done'}")
        if side_effect is not None:
            return {"receipt": side_effect.number}
        place = (ctx.session.id, ctx.call.id)
        self.denied_checks[place] = self.denied_checks.get(place, 0) + 1
        return NotDone


_DONE = frozenset({"ok", "lost", "late", "hangs", "transient_done", "raises_done", "misshapen", "large"})
"""Fates in which the service does what it is asked."""
_ERRORS = (ValueError, RuntimeError, TimeoutError, OSError, KeyError)
