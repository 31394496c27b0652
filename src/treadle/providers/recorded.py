"""Recorded: a model whose responses are written to a file, and one that plays such a file with the network off.

Neutral of any wire: requests and parts as the ports have them. A response is found by its request, never by order alone.
"""

import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from treadle import errors
from treadle.canonical import digest
from treadle.errors import ConfigurationError, ModelError, ModelRejected, check_path, shown
from treadle.fields import checked
from treadle.messages import Finish, Message, Part, Result, Usage
from treadle.ports import (
    CallReady,
    Capability,
    HasCapabilities,
    Model,
    ModelEnd,
    ModelPart,
    ModelRequest,
    Pricing,
    TextCalls,
    TextDelta,
    ThinkingDelta,
    asked_model,
    window_of,
)
from treadle.providers.payload import to_json

__all__ = ["RecordingModel", "ReplayModel"]

_FORMAT = "treadle recording 1"


class _End(msgspec.Struct, frozen=True, kw_only=True, tag="end", omit_defaults=True):
    """`ModelEnd`, but for what only drivers write and for the price, which is not a value of a file."""

    parts: tuple[Part, ...]
    finish: Finish = Finish.UNKNOWN
    usage: Usage | None = None
    cut_calls: tuple[str, ...] = ()
    unnamed_calls: tuple[str, ...] = ()
    has_strays: bool = False
    has_damaged_text: bool = False
    origin: str | None = None
    finish_reason: str | None = None
    text_calls: TextCalls | None = None
    response_id: str = ""
    response_model: str = ""


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A `ModelError` that ended a response."""

    error: str
    message: str
    status: int | None = None
    retry_after_seconds: float | None = None


_Stored: TypeAlias = TextDelta | ThinkingDelta | CallReady | _End


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a recording."""

    format: str
    model: str
    capabilities: tuple[str, ...] = ()
    """They choose the driver, whose requests the recording holds."""


class _Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what came of it: one line."""

    request: str
    """Digest of the whole request."""
    fields: dict[str, str]
    """Digests of its fields, to tell where another request differs."""
    messages: tuple[str, ...]
    """Digests of its messages."""
    parts: tuple[_Stored, ...] = ()
    failure: _Failure | None = None


class RecordingModel:
    """Asks another model and writes down what comes, one line a response, readable by its owner only.

    Example:
        Agent(RecordingModel(resolve_model("openai:gpt-5-mini"), "trip.jsonl"), tools=[search])

    Args:
        model: The model to ask.
        path: The file. One that exists already continues, if it is a recording of the same model.

    Raises:
        ConfigurationError: The file is something else, or cannot be written.
    """

    @checked
    def __init__(self, model: Model, path: str | Path) -> None:
        if not callable(getattr(model, "stream", None)):
            raise ConfigurationError(
                f"model must be a model, such as resolve_model('openai:gpt-5-mini'); got {shown(model)}."
            )
        self._model = model
        check_path("path", path)
        self._path = Path(path)
        if self._path.exists() and self._path.stat().st_size:
            if _lines(self._path)[0].model != model.name:
                raise ConfigurationError(f"{self._path} is a recording of another model. Name a new file.")
            return
        self._append(_Head(format=_FORMAT, model=model.name, capabilities=tuple(sorted(self.capabilities))))

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def price(self) -> Pricing | None:
        return self._model.price

    @property
    def capabilities(self) -> frozenset[Capability]:
        model = self._model
        return model.capabilities if isinstance(model, HasCapabilities) else frozenset()

    @property
    def window(self) -> int | None:
        """How many tokens it takes; None where nobody knows."""
        return window_of(self._model)

    def next_model(self) -> Model:
        """Return the model that a request would go to now."""
        return asked_model(self._model)

    @checked
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield what the model yields. A response that nobody waits for to its end is not recorded."""
        parts: list[_Stored] = []
        stream = self._model.stream(request)
        try:
            async for part in stream:
                parts.append(_stored(part))
                yield part
        except ModelError as error:
            self._append(_exchange(request, parts, _failure(error)))
            raise
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        self._append(_exchange(request, parts, None))

    def _append(self, line: _Head | _Exchange) -> None:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(to_json(line) + b"\n")
        except OSError as error:
            raise ConfigurationError(f"The recording {self._path} cannot be written: {error.strerror}.") from error


class ReplayModel:
    """Plays a recording. A request that was not recorded is refused, and the message says where it differs.

    Example:
        Agent(ReplayModel("trip.jsonl"), tools=[search])

    Args:
        path: A file that a RecordingModel has written.
        price: What the model costs, for reports; a recording knows no price.

    Raises:
        ConfigurationError: The file cannot be read, or is not a recording.
    """

    @checked
    def __init__(self, path: str | Path, *, price: Pricing | None = None) -> None:
        check_path("path", path)
        head, exchanges = _lines(Path(path))
        self._name = head.model
        self._capabilities = frozenset(Capability(word) for word in head.capabilities if word in set(Capability))
        self._price = price
        self._waiting = deque(exchanges)

    @property
    def name(self) -> str:
        return self._name

    @property
    def price(self) -> Pricing | None:
        return self._price

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._capabilities

    @checked
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield the parts that were recorded for this very request.

        Raises:
            ModelRejected: It was not recorded, or every response to it has been played.
            ModelError: The recorded response failed so.
        """
        asked = _exchange(request, [], None)
        found = next((one for one in self._waiting if one.request == asked.request), None)
        if found is None:
            raise ModelRejected(_difference(asked, self._waiting))
        self._waiting.remove(found)
        for part in found.parts:
            yield _played(part)
        if found.failure is not None:
            raise _raised(found.failure)


# --- requests --------------------------------------------------------------------------------------------------------


def _exchange(request: ModelRequest, parts: list[_Stored], failure: _Failure | None) -> _Exchange:
    fields = {name: digest(value) for name, value in _fields(request).items()}
    messages = tuple(digest(msgspec.to_builtins(_lasting(message))) for message in request.messages)
    return _Exchange(
        request=digest([fields, list(messages)]), fields=fields, messages=messages, parts=tuple(parts), failure=failure
    )


def _fields(request: ModelRequest) -> Mapping[str, Any]:
    """Return what a request says apart from its messages. Its session's id is another one each time, and says nothing."""
    described = msgspec.structs.replace(request, messages=(), session_id="")
    fields: dict[str, Any] = msgspec.to_builtins(described)
    # They follow from the responses before and from the recording model; older recordings do not know them.
    del fields["raise_output_limit"], fields["model"]
    return fields


def _lasting(message: Message) -> Message:
    """Return a message without the names of this one run."""
    if message.role != "tool":
        return message
    parts = tuple(
        msgspec.structs.replace(part, execution_id="") if isinstance(part, Result) else part for part in message.parts
    )
    return msgspec.structs.replace(message, parts=parts)


def _difference(asked: _Exchange, waiting: "deque[_Exchange]") -> str:
    if not waiting:
        return "The recording is used up: it holds no further response."
    near = max(waiting, key=lambda one: _common(one.messages, asked.messages))
    changed = [name for name in asked.fields if near.fields.get(name) != asked.fields[name]]
    place = _common(near.messages, asked.messages)
    if place < max(len(near.messages), len(asked.messages)):
        changed.append(f"messages[{place}]")
    return f"This request was not recorded. The nearest one that was differs in {', '.join(changed)}."


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return next((at for at, (a, b) in enumerate(zip_longest(one, other)) if a != b), len(one))


# --- parts -----------------------------------------------------------------------------------------------------------


def _stored(part: ModelPart) -> _Stored:
    match part:
        case ModelEnd():
            ids = {"cut_calls": tuple(sorted(part.cut_calls)), "unnamed_calls": tuple(sorted(part.unnamed_calls))}
            return _End(**{name: getattr(part, name) for name in _End.__struct_fields__} | ids)
        case TextDelta() | ThinkingDelta() | CallReady():
            return part
        case _:
            raise ConfigurationError("Only what a model yields can be recorded: record the model, not its driver.")


def _played(part: _Stored) -> ModelPart:
    if not isinstance(part, _End):
        return part
    ids = {"cut_calls": frozenset(part.cut_calls), "unnamed_calls": frozenset(part.unnamed_calls)}
    return ModelEnd(**msgspec.structs.asdict(part) | ids)


def _failure(error: ModelError) -> _Failure:
    return _Failure(
        error=type(error).__name__,
        message=str(error),
        status=error.status,
        retry_after_seconds=error.retry_after_seconds,
    )


_CLASSES: Mapping[str, type[ModelError]] = {
    kind.__name__: kind
    for name in errors.__all__
    if isinstance(kind := vars(errors)[name], type) and issubclass(kind, ModelError)
}


def _raised(failure: _Failure) -> ModelError:
    kind = _CLASSES.get(failure.error, ModelRejected)
    return kind(failure.message, status=failure.status, retry_after_seconds=failure.retry_after_seconds)


_heads = msgspec.json.Decoder(_Head)
_exchanges = msgspec.json.Decoder(_Exchange)


def _lines(path: Path) -> tuple[_Head, list[_Exchange]]:
    try:
        head, *rest = path.read_bytes().splitlines() or [b""]
        first = _heads.decode(head)
        if first.format != _FORMAT:
            raise ConfigurationError(f"{path} is a recording of another format: {shown(first.format)}.")
        return first, [_exchanges.decode(line) for line in rest]
    except OSError as error:
        raise ConfigurationError(f"The recording {path} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not a recording: {error}.") from error
