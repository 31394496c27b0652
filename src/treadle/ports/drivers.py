"""The port to a driver: how a step is obtained from a model."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from treadle.ports.models import Model, ModelPart, ModelRequest
from treadle.tools import Tool

__all__ = ["BoundDriver", "Driver", "Executor"]


class BoundDriver(Protocol):
    """A driver that knows the tools and the executor of one run."""

    def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Obtain one step: yield the parts of the model's response, `ModelEnd` last. Executes nothing.

        Raises:
            ModelError: The model call failed.
        """
        ...


class Executor(Protocol):
    """What executes the calls of a response. It belongs to the loop; a driver may only ask it questions."""

    def offers(self, name: str) -> bool:
        """Whether a call of this name would find a tool now."""
        ...


class Driver(Protocol):
    """How a step is obtained from a model: native tool calling, ReAct, or a script."""

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        """Return the driver of one run. Called once for each run, before its first step; a stateless driver may return itself."""
        ...
