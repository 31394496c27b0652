"""Capable: a model and what is special about it. Adds words to it, and changes nothing of what it sends or yields."""

from collections.abc import AsyncIterator

from treadle.ports import Capability, HasCapabilities, Model, ModelPart, ModelRequest, Pricing, asked_model, window_of

__all__ = ["CapableModel"]


class CapableModel:
    """A model with capabilities beside those that it tells itself.

    Example:
        CapableModel(model, frozenset({Capability.NO_TOOLS}))
    """

    def __init__(self, model: Model, capabilities: frozenset[Capability]) -> None:
        self._model = model
        own = model.capabilities if isinstance(model, HasCapabilities) else frozenset[Capability]()
        self._capabilities = own | capabilities

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
    def window(self) -> int | None:
        """How many tokens it takes; None where nobody knows."""
        return window_of(self._model)

    def next_model(self) -> Model:
        """Return the model that a request would go to now."""
        return asked_model(self._model)

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Let the model answer.

        Raises:
            ModelError: The model failed.
        """
        return self._model.stream(request)
