"""Fallback: several models behind one port. The first that is well answers; one that keeps failing is left alone a while.

It never retries: the runtime does, and each of its attempts may go to another model. Histories are translated by the
adapters, which send foreign signatures to nobody.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import msgspec

from treadle.concurrency import Breaker
from treadle.errors import ConfigurationError, ModelError, ModelUnavailable
from treadle.ports import (
    Capability,
    Clock,
    HasCapabilities,
    Model,
    ModelEnd,
    ModelPart,
    ModelRequest,
    Pricing,
    asked_model,
    window_of,
)

__all__ = ["FallbackModel"]


class FallbackModel:
    """A model made of several, in order of preference.

    Example:
        with_fallback(resolve_model("anthropic:claude-sonnet-4-5"), resolve_model("openai:gpt-5-mini"))

    Args:
        failures: Failed attempts in a row after which a model is left alone.
        open_seconds: For how long; then one attempt tries it again.
    """

    def __init__(self, models: Sequence[Model], *, clock: Clock, failures: int = 3, open_seconds: float = 30.0) -> None:
        if not models:
            raise ConfigurationError("A fallback needs at least one model.")
        self._clock = clock
        self._breakers = [(model, Breaker(failures=failures, open_seconds=open_seconds)) for model in models]

    @property
    def name(self) -> str:
        """The name of the preferred model; each answer carries the name of the one that gave it."""
        return self._breakers[0][0].name

    @property
    def price(self) -> Pricing | None:
        """The price of the preferred model, if all have one; each answer carries its own."""
        prices = [model.price for model, _ in self._breakers]
        return None if None in prices else prices[0]

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What any of them needs: one driver serves them all."""
        models = [model for model, _ in self._breakers]
        special = [model.capabilities for model in models if isinstance(model, HasCapabilities)]
        held = all(Capability.JSON_SCHEMA in one for one in special) and len(special) == len(models)
        return frozenset[Capability]().union(*special) - (frozenset() if held else {Capability.JSON_SCHEMA})

    @property
    def window(self) -> int | None:
        """How many tokens the model takes whose turn it is; None where nobody knows."""
        return window_of(self.next_model())

    def next_model(self) -> Model:
        """Return the model that would be asked now: the first that is not shut, or the one that is tried again first."""
        now = self._clock.monotonic()
        waits = [breaker.seconds_until_trial(now) for _, breaker in self._breakers]
        return asked_model(self._breakers[waits.index(min(waits))][0])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Let the first model that is not shut answer: of those that take what the request was made for.

        Raises:
            ModelUnavailable: All of them are shut; says when one will be tried again. Or all that take this request.
            ModelError: The model that was asked failed.
        """
        model, breaker = self._choose(request.model)
        stream: AsyncIterator[ModelPart] | None = None
        try:
            stream = model.stream(request)
            async for part in stream:
                yield _signed(part, model) if isinstance(part, ModelEnd) else part
        except ModelError as error:
            error.price = error.price or model.price
            if error.may_retry:
                breaker.failed(self._clock.monotonic())
            else:
                breaker.gave_up()  # the request was refused: that says nothing about the server's health
            raise
        except BaseException:
            breaker.gave_up()
            raise
        else:
            breaker.succeeded()
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _choose(self, made_for: str) -> tuple[Model, Breaker]:
        now = self._clock.monotonic()
        room = next((window_of(model) for model, _ in self._breakers if asked_model(model).name == made_for), None)
        is_open_elsewhere = False
        for model, breaker in self._breakers:
            if not _takes(model, room):
                is_open_elsewhere = is_open_elsewhere or breaker.seconds_until_trial(now) <= 0
            elif breaker.begin(now):
                return model, breaker
        if is_open_elsewhere:
            raise ModelUnavailable(
                f"{made_for} became unavailable while its request was built, and the request may not fit the models after it. It is built again.",
                retry_after_seconds=0,
            )
        soonest = min(breaker.seconds_until_trial(now) for _, breaker in self._breakers)
        names = ", ".join(model.name for model, _ in self._breakers)
        raise ModelUnavailable(
            f"All models keep failing and are not asked for another {soonest:.0f} s: {names}.",
            retry_after_seconds=soonest,
        )


def _signed(end: ModelEnd, model: Model) -> ModelEnd:
    return msgspec.structs.replace(end, origin=end.origin or model.name, price=end.price or model.price)


def _takes(model: Model, room: int | None) -> bool:
    """Whether a model takes what was made for one with so much room."""
    window = window_of(model)
    return room is None or window is None or window >= room
