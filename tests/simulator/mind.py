"""The simulated model: what it says is drawn from the life's seed; how it is cut off, repeated and broken too."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from treadle.budgets import Price
from treadle.errors import (
    ContextOverflow,
    IncompleteStream,
    ModelError,
    ModelRejected,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.messages import Finish, Part, Text, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, TextDelta

if TYPE_CHECKING:
    from simulator.life import Life

__all__ = ["CHILDREN", "Mind", "SimModel"]


class SimModel:
    """The model port of every life: it finds the life that asks by the loop it runs in."""

    def __init__(self, role: str) -> None:
        self._role = role

    @property
    def name(self) -> str:
        return f"sim:{self._role}"

    @property
    def price(self) -> Price | None:
        return _PRICE

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        process = asyncio.get_running_loop().process  # type: ignore[attr-defined]
        mind = process.life.mind(self._role)
        async for part in mind.respond(process, request):
            yield part


CHILDREN = ("child", "grandchild")
"""Roles of models that carry out a call of another agent."""

_PRICE = Price(input=Decimal(1), output=Decimal(10))


class Mind:
    """What one model of a life has in mind."""

    def __init__(self, life: "Life", role: str, turns: int) -> None:
        self._life = life
        self._chance = life.chance
        self._role = role
        self.turns = turns
        """Responses with calls that it will still give."""
        self._stuck = life.plan.stuck if role not in CHILDREN else None
        self._told = 0
        self._last: list[ToolCall] = []
        self._broken: list[ToolCall] | None = None

    async def respond(self, process: Any, request: ModelRequest) -> AsyncIterator[ModelPart]:
        if process.is_dead:
            await process.gone()
        life, chance = self._life, self._chance
        life.judge.asked(process, request)
        life.reservations.asked(process, request)
        life.operation(process, "model")
        if process.is_dead:
            await process.gone()
        parts, finish, cut = self._compose(request)
        calls = [part for part in parts if isinstance(part, ToolCall)]
        broken_at = life.break_at(len(parts) + 1, is_backup=self._role == "backup")
        await process.sleep(life.latency() * 0.5)
        streams_calls = chance.random() < 0.8
        for index, part in enumerate(parts):
            if index == broken_at:
                await self._break(process, calls)
                return
            if isinstance(part, Text):
                yield TextDelta(part.text)
            elif isinstance(part, ToolCall) and streams_calls:
                yield CallReady(part)
            if chance.random() < 0.6:
                await process.sleep(life.latency())
        if broken_at == len(parts):
            await self._break(process, calls)
            return
        if process.is_dead:
            await process.gone()
        life.judge.proposed(request, calls, finish, cut)
        life.trace(process, f"model {self._role} says {[(c.id, c.name, c.arguments) for c in calls]} {finish}")
        self._broken = None
        self._last = calls
        usage = Usage(input_tokens=chance.randrange(2000), output_tokens=chance.randrange(200))
        told = None if chance.random() < 0.2 else usage
        life.reservations.responded(process, request, told)
        yield ModelEnd(parts=tuple(parts), finish=finish, cut_calls=cut, usage=told)

    async def _break(self, process: Any, calls: list[ToolCall]) -> None:
        """End a response before its end, in one of the ways in which connections break."""
        self._broken = calls
        how = self._chance.choice(("silence", "cut", "unavailable", "invalid", "stall", "rejected", "overflow"))
        self._life.trace(process, f"model {self._role} breaks off: {how}")
        errors: dict[str, ModelError] = {
            "cut": IncompleteStream("cut off"),
            "unavailable": ModelUnavailable("overloaded"),
            "invalid": ModelResponseInvalid("not the protocol"),
            "rejected": ModelRejected("refused"),
            "overflow": ContextOverflow("too long"),
            "stall": ModelUnavailable("stalled"),
        }
        if how in ("rejected", "overflow") and self._chance.random() < 0.7:
            how = "unavailable"
        if how == "stall":
            await process.sleep(60.0)
        if how in errors:
            raise errors[how]

    # --- what it says

    def _compose(self, request: ModelRequest) -> tuple[list[Part], Finish, frozenset[str]]:
        chance = self._chance
        if self._broken is not None and chance.random() < 0.6:
            calls = [*self._broken]
            if chance.random() < 0.2:
                chance.shuffle(calls)
            return [*calls], Finish.CALLS, frozenset()
        obeys = request.tool_choice != "none" or chance.random() < 0.15
        if self.turns <= 0 or not obeys or not request.tools or chance.random() < 0.12:
            return self._say(request)
        self.turns -= 1
        parts: list[Part] = [Text("I call.")] if chance.random() < 0.4 else []
        self._told += 1
        if self._stuck is not None and self._told > 1:
            calls = self._get_nowhere(self._stuck)
        else:
            calls = [self._call(request) for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4)))]
        if len(calls) > 1 and chance.random() < 0.08:
            calls.append(calls[chance.randrange(len(calls))])  # told twice
        finish = chance.choice((Finish.CALLS,) * 8 + (Finish.STOP, Finish.UNKNOWN))
        cut: frozenset[str] = frozenset()
        if chance.random() < 0.04:
            finish = chance.choice((Finish.LENGTH, Finish.REFUSED))
        elif chance.random() < 0.03:
            cut = frozenset({calls[-1].id})
        return [*parts, *calls], finish, cut

    def _get_nowhere(self, how: str) -> list[ToolCall]:
        """Return calls that lead nowhere, again and again."""
        match how:
            case "invalid_json":
                return [ToolCall(id=self._id(), name="look", arguments='{"to": "ann", "ref": 1')]
            case "invalid_arguments":
                return [ToolCall(id=self._id(), name="look", arguments='{"ref": "x"}')]
            case "unknown_tool":
                return [ToolCall(id=self._id(), name="payy", arguments="{}")]
            case "polls":
                return [ToolCall(id=self._id(), name="poll", arguments='{"to": "ann", "ref": 0}')]
            case _:
                count = 1 if self._told % 2 else 2
                return [ToolCall(id=self._id(), name="look", arguments='{"to": "ann", "ref": 0}') for _ in range(count)]

    def _say(self, request: ModelRequest) -> tuple[list[Part], Finish, frozenset[str]]:
        chance = self._chance
        if request.output_schema is not None:
            text = '{"n": 3}' if chance.random() < 0.7 else chance.choice(('{"n": "x"}', "three", '{"n": 3'))
        else:
            text = chance.choice(("Done.", "Done.", "Done.", ""))
        finish = chance.choice((Finish.STOP,) * 9 + (Finish.LENGTH, Finish.REFUSED, Finish.UNKNOWN))
        return ([Text(text)] if text else []), finish, frozenset()

    def _call(self, request: ModelRequest) -> ToolCall:
        chance, life = self._chance, self._life
        name = life.favourite(request)
        draw = chance.random()
        if draw < 0.03:
            return ToolCall(id=self._id(), name="payy", arguments="{}")
        if draw < 0.06:
            return ToolCall(id=self._id(), name=name, arguments='{"to": "ann", "ref": 1')
        if draw < 0.09:
            return ToolCall(id=self._id(), name=name, arguments='{"to": 7, "ref": "x", "more": true}')
        if draw < 0.12 and self._last:
            return chance.choice(self._last)  # an id that was used before
        if draw < 0.17 and self._last:
            again = chance.choice(self._last)
            return ToolCall(id=self._id(), name=again.name, arguments=again.arguments)
        return ToolCall(id=self._id(), name=name, arguments=self._arguments(name))

    def _arguments(self, name: str) -> str:
        life = self._life
        if name in ("delegate", "sub"):
            return json.dumps({"task": f"task {life.next_ref()}"})
        if name == "check_transfer":
            keys = [*life.world.by_key] or ["none"]
            return json.dumps({"operation_id": self._chance.choice(keys[-3:])})
        return json.dumps({"to": self._chance.choice(("ann", "bob")), "ref": life.next_ref()})

    def _id(self) -> str:
        return "" if self._chance.random() < 0.03 else f"m{self._life.next_ref()}"
