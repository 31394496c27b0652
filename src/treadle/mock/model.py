"""The scripted model: a Model that plays turns without a network. It decides nothing and runs nothing.

model = ScriptedModel([call("rm", path="/"), text("I may not.")])
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

from treadle.budgets import Price
from treadle.errors import (
    ConfigurationError,
    IncompleteStream,
    ModelError,
    ModelRejected,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.fields import checked, checked_but
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.mock.script import (
    Gate,
    Gates,
    Script,
    Turn,
    TurnLike,
    Waitable,
    call,
    finish_of,
    fragments,
    load_script,
    text,
    turn_of,
)
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, Pricing, TextDelta, ThinkingDelta
from treadle.providers.http.failures import ModelRefused, failure_of

__all__ = ["ScriptedModel", "call", "scripted_model", "text"]

Reply: TypeAlias = TurnLike | Mapping[str, Any] | BaseException
"""A turn to play or an exception to raise."""
_Scripted: TypeAlias = Reply | Callable[[ModelRequest], Reply | Awaitable[Reply]]
"""One entry of a script: a reply, or a function of the request that makes one."""


class ScriptedModel:
    """Plays turns, one a request, and records the requests. The last turn repeats when all are used up.

    Example:
        >>> model = ScriptedModel([[text("I look."), call("look"), call("smell")], text("Nothing.")])
        >>> model.name, model.requests
        ('scripted', [])

    Args:
        turns: text(...), call(...), Turn(...), lists of them, exceptions to raise, or functions of the request.
        name: What the model is called in reports.
        price: What it costs, for tests of budgets; None for nothing.
        window: How many tokens it says that it takes; None for a model of which nobody knows.
        follows_history: Whether the first request starts after the turns that its history shows as played by a model of
            this name: so that a session resumed by another process continues with its script instead of beginning it again.

    Raises:
        ConfigurationError: There is no turn, or one is nothing of the kind.
    """

    @checked_but("turns")
    def __init__(
        self,
        turns: Sequence[_Scripted] | Script,
        *,
        name: str = "scripted",
        price: Pricing | None = None,
        window: int | None = None,
        follows_history: bool = False,
    ) -> None:
        entries: Sequence[_Scripted] = turns.turns if isinstance(turns, Script) else turns
        if not isinstance(entries, Sequence) or isinstance(entries, str | bytes) or not entries:
            raise ConfigurationError("ScriptedModel needs a list of at least one turn.")
        self._entries = [_checked(entry) for entry in entries]
        self._repeats = not isinstance(turns, Script) or turns.exhausted == "repeat"
        self._name = name
        self._price = Price(input=0, output=0) if price is None else price
        self.window = window
        """Tokens of request and response together, as it says."""
        self._gates = Gates()
        self._follows_history = follows_history
        self._next = 0
        self._calls = 0
        self.requests: list[ModelRequest] = []
        """Every request, in order."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def price(self) -> Pricing:
        """What it says that it costs."""
        return self._price

    @checked
    def gate(self, name: str) -> Gate:
        """Return the gate of that name, at which turns with `gate=name` wait."""
        return self._gates.named(name)

    @checked
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Play the next turn. Faults of the turn become the ModelError that a real provider's adapter would raise."""
        if self._follows_history and not self.requests:
            self._skip_played(request)
        index, self._next = self._next, self._next + 1
        self.requests.append(request)
        turn = await self._turn(index, request)
        await asyncio.sleep(turn.delay_ms / 1000)
        gate = self._gate(turn)
        if gate is not None and turn.hold_after_call is None and turn.hold_after_pieces is None:
            await gate.wait()
        if (failure := _failure(turn)) is not None:
            yield _refusal(failure)
            return
        parts = self._parts(turn)
        sent = ready = 0
        for part in parts[: _length_of_cut(turn, parts)]:
            yield part
            sent, ready = sent + 1, ready + isinstance(part, CallReady)
            if gate is not None and (sent == turn.hold_after_pieces or _is_held_call(part, ready, turn)):
                await gate.wait()
            await asyncio.sleep(turn.gap_ms / 1000)
        await _break_off(turn)
        yield parts[-1]

    def _skip_played(self, request: ModelRequest) -> None:
        """Start after the turns that gave the history's messages; a turn that is a fault gives none."""
        played = [
            message for message in request.messages if message.role == "assistant" and message.origin == self._name
        ]
        self._calls = sum(len(message.calls) for message in played)
        places = [place for place, entry in enumerate(self._entries) if _gives_message(entry)]
        if played and places:
            self._next = places[min(len(played), len(places)) - 1] + 1

    async def _turn(self, index: int, request: ModelRequest) -> Turn:
        if index >= len(self._entries) and not self._repeats:
            raise ModelRejected(f"The script is used up: it has {len(self._entries)} turns.")
        entry = self._entries[min(index, len(self._entries) - 1)]
        if callable(entry):
            made = entry(request)
            entry = await made if inspect.isawaitable(made) else made
        if isinstance(entry, BaseException):
            raise entry
        return turn_of(entry)

    def _gate(self, turn: Turn) -> Waitable | None:
        return self.gate(turn.gate) if isinstance(turn.gate, str) else turn.gate

    def _parts(self, turn: Turn) -> list[ModelPart]:
        calls = tuple(self._tool_call(scripted.name, scripted.arguments, scripted.id) for scripted in turn.calls)
        message = (turn.text or "") + (turn.refusal or "")
        finish = finish_of(turn)
        cut_off = frozenset({calls[-1].id}) if calls and finish is Finish.LENGTH else frozenset[str]()
        said: list[Part] = [Thinking(text=turn.thinking)] if turn.thinking else []
        said += [Text(message)] if message else []
        return [
            *(ThinkingDelta(piece) for piece in fragments(turn.thinking or "", turn.pieces)),
            *(TextDelta(piece) for piece in fragments(message, turn.pieces)),
            *(
                CallReady(made)
                for made in takewhile(lambda made: made.id not in cut_off and _is_complete(made.arguments), calls)
            ),
            ModelEnd(
                parts=(*said, *calls),
                finish=finish,
                usage=turn.usage if isinstance(turn.usage, Usage) else None,
                cut_calls=cut_off,
                finish_reason=turn.finish if isinstance(turn.finish, str) else None,
            ),
        ]

    def _tool_call(self, name: str, arguments: str, given: object) -> ToolCall:
        self._calls += 1
        return ToolCall(id=given if isinstance(given, str) else f"call_{self._calls}", name=name, arguments=arguments)


def scripted_model(path: str | Path, price: Pricing | None = None) -> ScriptedModel:
    """Return the model named `script:FILE`.

    Args:
        price: What it is to cost.

    Raises:
        ConfigurationError: The file is not a script.
    """
    return ScriptedModel(load_script(path), name=f"script:{path}", price=price, follows_history=True)


def _checked(entry: _Scripted) -> _Scripted:
    return entry if isinstance(entry, BaseException) or callable(entry) else turn_of(entry)


def _gives_message(entry: _Scripted) -> bool:
    if not isinstance(entry, Turn):
        return not isinstance(entry, BaseException)
    is_answer = entry.status < 400 and entry.error is None and entry.body is None
    return is_answer and entry.cut in (None, "before-done")


def _failure(turn: Turn) -> ModelError | None:
    """Return what the adapter of a real provider would raise in place of any answer, or None where there is one."""
    if turn.cut in ("before-answer", "before-body"):
        return ModelUnavailable("The connection was closed before an answer came.")
    if turn.status < 400 and turn.error is None:
        return (
            None
            if turn.body is None
            else ModelResponseInvalid("The answer does not follow the protocol.", status=turn.status)
        )
    error = turn.error if turn.error is not None else f"The model answered with status {turn.status}."
    return failure_of(
        {"message": error} if isinstance(error, str) else error,
        status=turn.status if turn.status >= 300 else None,
        headers=turn.header_fields,
        opening=error if isinstance(error, str) else json.dumps(error),
    )


def _refusal(failure: ModelError) -> ModelEnd:
    """Return the response that a policy's refusal is; raise any other failure."""
    if isinstance(failure, ModelRefused):
        return failure.as_response()
    raise failure


def _length_of_cut(turn: Turn, parts: Sequence[ModelPart]) -> int:
    """Return how many parts come before the answer breaks off, the last part never among them."""
    whole = len(parts) - 1
    pieces = sum(isinstance(part, TextDelta | ThinkingDelta) for part in parts)
    match turn.cut:
        case None | "before-terminal" | "before-done":
            return whole
        case "mid-text":
            return max(pieces - 1, 0)
        case "mid-arguments":
            return min(pieces + len(turn.calls) - 1, whole)
        case _:
            return whole // 2


async def _break_off(turn: Turn) -> None:
    if turn.cut is None or turn.cut == "before-done":  # what ends an answer is its finish: the rest is not missed
        return
    if turn.how_cut == "stall":
        await asyncio.Event().wait()
    if turn.how_cut == "reset":
        raise ModelUnavailable("The connection was reset.")
    raise IncompleteStream("The stream ended without its terminal event.")


def _is_held_call(part: ModelPart, ready: int, turn: Turn) -> bool:
    return isinstance(part, CallReady) and ready - 1 == turn.hold_after_call


def _is_complete(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
