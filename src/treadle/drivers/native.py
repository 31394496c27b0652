"""The native driver: the model calls tools in its own dialect. One request a step; it adds nothing of its own.

It takes one thing away: text that only repeats a call's arguments, which some models leak beside the call.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec

from treadle.canonical import encode
from treadle.errors import ConfigurationError
from treadle.fields import checked
from treadle.messages import Part, Text, Thinking, ToolCall
from treadle.ports import Executor, Model, ModelEnd, ModelPart, ModelRequest
from treadle.tools import Tool

__all__ = ["BoundNativeDriver", "NativeDriver"]


class NativeDriver:
    """The default: what the model streams is what it proposes.

    Example:
        Agent("openai-chat:gpt-5-mini", driver=NativeDriver())
    """

    @checked
    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> "BoundNativeDriver":
        """Return the driver of one run."""
        return BoundNativeDriver(model)


class BoundNativeDriver:
    """The native driver of one run."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def propose(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield the model's parts as they come; its last one without leaked arguments."""
        stream = self._model.stream(request)
        try:
            async for part in stream:
                yield _without_leak(part) if isinstance(part, ModelEnd) else part
        finally:
            await _close(stream)


async def _close(stream: AsyncIterator[ModelPart]) -> None:
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()


def _without_leak(end: ModelEnd) -> ModelEnd:
    """Drop a text that is, as JSON, the arguments of one of the calls beside it."""
    text = "".join(part.text for part in end.parts if isinstance(part, Text))
    canonical = _canonical(text) if text.lstrip().startswith("{") else None
    if canonical is None or canonical not in [_canonical(call.arguments or "{}") for call in _calls(end)]:
        return end
    # Beside reasoning, what a text carries may tie both together, and a provider refuses the one without the other. By itself it
    # is only a mark: Responses gives every message its id, and leaks anyway.
    is_marked = any(isinstance(part, Text) and part.signature is not None for part in end.parts)
    if is_marked and any(isinstance(part, Thinking) for part in end.parts):
        return end
    kept: tuple[Part, ...] = tuple(part for part in end.parts if not isinstance(part, Text))
    return msgspec.structs.replace(end, parts=kept, dropped_text=text)


def _calls(end: ModelEnd) -> list[ToolCall]:
    return [part for part in end.parts if isinstance(part, ToolCall)]


def _canonical(text: str) -> bytes | None:
    """Return the canonical JSON of an object, or None for anything else."""
    try:
        value: Any = msgspec.json.decode(text)  # Any: JSON of strangers, compared and thrown away
        return encode(value) if isinstance(value, dict) else None
    except (msgspec.DecodeError, ConfigurationError, RecursionError):
        return None
