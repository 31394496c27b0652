"""Capable: a model and what is known of it. Refuses what the model is known not to take, and waits for a server that answers one request
at a time; else it changes nothing that is sent.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

from treadle.errors import ModelRejected
from treadle.messages import Media, Result
from treadle.ports import (
    Capability,
    HasCapabilities,
    Model,
    ModelFacts,
    ModelPart,
    ModelRequest,
    Pricing,
    asked_model,
    facts_of,
    input_of,
    place_of,
    window_of,
)

__all__ = ["CapableModel"]


class CapableModel:
    """A model with capabilities and facts in addition to those that it tells itself.

    Example:
        CapableModel(model, frozenset({Capability.NO_TOOLS}))
    """

    def __init__(self, model: Model, capabilities: frozenset[Capability], *, facts: ModelFacts | None = None) -> None:
        self._model = model
        own = model.capabilities if isinstance(model, HasCapabilities) else frozenset[Capability]()
        self._capabilities = own | capabilities
        self._facts = facts_of(model) if facts is None else facts.over(facts_of(model))

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Pricing | None:
        return self._model.price

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    @property
    def facts(self) -> ModelFacts:
        """What is known of it."""
        return self._facts

    @property
    def window(self) -> int | None:
        """How many tokens it takes; None where nobody knows."""
        return self._facts.window or window_of(self._model)

    @property
    def asks_with(self) -> Mapping[str, Any]:  # Any: options of a vendor
        """The options of each request, where it says."""
        return place_of(self._model)[0]

    @property
    def asks_at(self) -> tuple[str, int] | None:
        """The host and port of its server, where it has one."""
        return place_of(self._model)[1]

    def next_model(self) -> Model:
        """Return the model that a request would go to now."""
        inside = asked_model(self._model)
        return self if inside is self._model else inside

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Let the model answer.

        Raises:
            ModelRejected: The request holds an input that the model is known not to accept. Nothing was sent.
            ModelError: The model failed.
        """
        refused = self._refused(request)
        if refused is not None:
            return _refuse(refused)
        return self._model.stream(request) if self._facts.slots is None else self._in_turn(request, self._facts.slots)

    async def _in_turn(self, request: ModelRequest, slots: int) -> AsyncGenerator[ModelPart]:
        """Send the request when the server has a slot for it: a request that waits there is one whose time is running."""
        turns = _turns.setdefault(asyncio.get_running_loop(), {})
        async with turns.setdefault((self.asks_at, slots), asyncio.Semaphore(slots)):
            stream = self._model.stream(request)
            if not isinstance(stream, AsyncGenerator):
                async for part in stream:
                    yield part
                return
            async with aclosing(stream):
                async for part in stream:
                    yield part

    def _refused(self, request: ModelRequest) -> str | None:
        """Return why a request is not sent; None for one that is."""
        accepted = self._facts.inputs
        if accepted is None:
            return None
        for message in request.messages:
            for part in message.parts:
                for one in part.media if isinstance(part, Result) else (part,):
                    kind = input_of(one) if isinstance(one, Media) else None
                    if kind is not None and kind not in accepted:
                        return self._words(kind, one.media_type if isinstance(one, Media) else "")
        return None

    def _words(self, kind: str, media_type: str) -> str:
        accepted = " and ".join(sorted(self._facts.inputs or (), key=lambda one: (one != "text", one))) or "nothing"
        return (
            f"{self.name} accepts {accepted}, and no {kind}: the request holds {media_type}. Leave it out, or use a model that "
            "accepts it. If the model does accept it, say so with resolve_model(..., facts=ModelFacts(inputs=[...]))."
        )


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Any, int], asyncio.Semaphore]] = WeakKeyDictionary()
"""By event loop, the slots of each server."""


async def _refuse(why: str) -> AsyncGenerator[ModelPart, None]:
    nothing: tuple[ModelPart, ...] = ()
    for part in nothing:
        yield part
    raise ModelRejected(why)
