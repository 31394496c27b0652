"""The native driver: the model calls tools in its own dialect. One request a step; it adds nothing of its own."""

from collections.abc import AsyncIterator, Sequence

from treadle.ports import Executor, Model, ModelPart, ModelRequest
from treadle.tools import Tool

__all__ = ["BoundNativeDriver", "NativeDriver"]


class NativeDriver:
    """The default: what the model streams is what it proposes."""

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> "BoundNativeDriver":
        """Return the driver of one run."""
        return BoundNativeDriver(model)


class BoundNativeDriver:
    """The native driver of one run."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        return self._model.stream(request)
