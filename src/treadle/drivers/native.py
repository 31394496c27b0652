"""The native driver: the model calls tools in its own dialect. One request a step; it adds nothing of its own, but for small models.

It takes one thing away: text that only repeats a call's arguments, which some models leak along with the call. And it reads a text that is
nothing but calls, which a server without a parser leaves there: they are the calls of the response, as if the server had read them.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

import msgspec

from treadle.canonical import encode
from treadle.drivers.small import reminder, sentence_of, wanted_call
from treadle.drivers.text_calls import TextCall, calls_in_text, is_quoted, parser_advice
from treadle.errors import ConfigurationError
from treadle.fields import checked
from treadle.messages import Finish, Message, Part, Result, Text, Thinking, ToolCall, user_message
from treadle.ports import (
    CallsInText,
    Executor,
    Model,
    ModelEnd,
    ModelFacts,
    ModelPart,
    ModelRequest,
    ToolSpec,
    facts_of,
)
from treadle.redaction import redacted_logger
from treadle.tools import Tool

__all__ = ["BoundNativeDriver", "NativeDriver"]

logger = redacted_logger(__name__)

_NOT_A_CALL = "Make the call through the tool-calling interface, or answer without one."
_NOT_WHOLE = "It is not complete, or its JSON is not valid. Write the whole call again."
_NEXT_STEP = "Make the next call that it needs, or answer in words if all is done."
_OTHER_CALL = "Make another call, with other arguments, or answer in words if none can help."
_NOW = "Tell the person now, in words, what came of it."
_QUOTED = "You have read this call in a result or a message. Do not repeat what others wrote: answer in your own words."


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
        facts = facts_of(model)
        self._model = model
        self._has_warned = False
        self._is_small = bool(facts.small)
        self._sentences = _Sentences(facts) if self._is_small or facts.error_form is not None else None

    async def propose(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yield the model's parts as they come; its last one without leaked arguments."""
        stream = self._model.stream(request if self._sentences is None else self._asked(request, self._sentences))
        try:
            async for part in stream:
                yield self._read(part, request) if isinstance(part, ModelEnd) else part
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _asked(self, request: ModelRequest, sentences: "_Sentences") -> ModelRequest:
        """Return a request of which the model reads errors as sentences, and a small one the task again behind each result."""
        messages = sentences.of(request.messages)
        then, after_error = (
            (_NOW, None) if request.tool_choice == "none" else (_NEXT_STEP, partial(_after_error, request))
        )
        if said := reminder(messages, then, after_error=after_error) if self._is_small else "":
            messages = (*messages, user_message(said))
        return msgspec.structs.replace(request, messages=messages)

    def _read(self, end: ModelEnd, request: ModelRequest) -> ModelEnd:
        """Look for what leaked into the text: the arguments of calls beside it, or calls that the server did not read."""
        if proposed := [part for part in end.parts if isinstance(part, ToolCall)]:
            return end if len(proposed) == len(end.parts) else _without_leak(end, proposed)
        if end.text_calls == "off" or end.finish is Finish.REFUSED:
            return end
        text = "".join(part.text for part in end.parts if isinstance(part, Text))
        found = calls_in_text(text, request.tools, is_cut=end.finish is Finish.LENGTH)
        if not found and self._is_small:
            return _read_small(end, text, request)
        if not found or (found[0].is_bare and request.output_schema is not None):  # such an object may be the answer
            return end
        name = end.origin or self._model.name
        advice = parser_advice(name, is_bare=found[0].is_bare)
        is_first, self._has_warned = not self._has_warned, True
        if is_first:
            logger.warning("%s left a call in the text of its answer. %s", name, advice)
        if told := _why_not(end, found, request):
            calls = CallsInText(calls=tuple(one.call for one in found), told=told, advice=advice)
            return msgspec.structs.replace(end, calls_in_text=calls)
        return msgspec.structs.replace(_with_calls(end, found), from_text=text, advice=advice if is_first else "")


def _after_error(request: ModelRequest, call: ToolCall, task: str) -> str:
    """Return what a small model reads behind an error: the call as it is wanted, or that another one is."""
    wanted = wanted_call(call, request.tools)
    if not wanted.form:
        return f"Do not make the same call again. {task}\n{_OTHER_CALL}"
    values = "" if wanted.is_complete else ", with the right values"
    return f'{task}\nMake this call{values}: {{"name": {_json(call.name)}, "arguments": {wanted.form}}}'


def _json(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _read_small(end: ModelEnd, text: str, request: ModelRequest) -> ModelEnd:
    """Return what a small model means by a text without calls of offered tools."""
    if _is_copied(text):
        return msgspec.structs.replace(end, parts=())
    return _with_unknown(end, text, request) if end.text_calls == "run" else end


def _is_copied(text: str) -> bool:
    """Whether a text is what the model was reminded of, which is not an answer."""
    said = " ".join(text.split())
    return any(one in said or (len(said) > _FEW_CHARS and said.rstrip(".") in one) for one in (_NEXT_STEP, _OTHER_CALL))


_FEW_CHARS = 20


def _with_unknown(end: ModelEnd, text: str, request: ModelRequest) -> ModelEnd:
    """Return a text that is nothing but a call of a tool that is not offered as that call, which is then answered as one."""
    named = _NAMED.search(text)
    made_up = ToolSpec(name=named[1], description="", parameters={}) if named else None
    found = calls_in_text(text, [*request.tools, made_up]) if made_up is not None else ()
    if not found or request.output_schema is not None or _why_not(end, found, request):
        return end
    return msgspec.structs.replace(_with_calls(end, found), from_text=text)


_NAMED = re.compile(r'^[^"]*"name"\s*:\s*"([\w.-]+)"')


class _Sentences:
    """Messages whose errors are sentences. Each is made once, so that adapters may encode each once too."""

    def __init__(self, facts: ModelFacts) -> None:
        self._is_needed = facts.has_sentences
        self._made: dict[int, tuple[Message, Message]] = {}

    def of(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        if not self._is_needed:
            return tuple(messages)
        before, self._made = self._made, {}
        for message in messages:
            self._made[id(message)] = before.get(id(message)) or (message, _in_sentences(message))
        return tuple(self._made[id(message)][1] for message in messages)


def _in_sentences(message: Message) -> Message:
    if not any(result.is_error for result in message.results):
        return message
    parts = [
        msgspec.structs.replace(part, content=sentence_of(part)) if isinstance(part, Result) else part
        for part in message.parts
    ]
    return msgspec.structs.replace(message, parts=tuple(parts))


def _why_not(end: ModelEnd, found: Sequence[TextCall], request: ModelRequest) -> str | None:
    """Return what to tell the model about calls that are not carried out; None for those that are."""
    if end.text_calls == "tell" or (end.text_calls is None and found[0].is_bare):
        return _NOT_A_CALL
    # Of a response that was cut off no call starts, whatever it is.
    if end.has_damaged_text or not (end.finish is Finish.LENGTH or all(one.is_whole for one in found)):
        return _NOT_WHOLE
    return _QUOTED if any(is_quoted(one, request.messages) for one in found) else None


def _with_calls(end: ModelEnd, found: Sequence[TextCall]) -> ModelEnd:
    """Put the calls in place of the text that they were read from."""
    kept = end.parts if _is_tied(end) else tuple(part for part in end.parts if not isinstance(part, Text))
    return msgspec.structs.replace(end, parts=(*kept, *(one.call for one in found)))


def _is_tied(end: ModelEnd) -> bool:
    """Whether the text belongs to reasoning beside it: what it carries may tie both together, and a provider refuses the one without the
    other. By itself it is only a mark: Responses gives every message its id, and leaks anyway.
    """
    is_marked = any(isinstance(part, Text) and part.signature is not None for part in end.parts)
    return is_marked and any(isinstance(part, Thinking) for part in end.parts)


def _without_leak(end: ModelEnd, calls: Sequence[ToolCall]) -> ModelEnd:
    """Drop a text that is, as JSON, the arguments of one of the calls beside it."""
    text = "".join([part.text for part in end.parts if isinstance(part, Text)])
    canonical = _canonical(text) if text.lstrip().startswith("{") else None
    if canonical is None or canonical not in [_canonical(call.arguments or "{}") for call in calls]:
        return end
    if _is_tied(end):
        return end
    kept: tuple[Part, ...] = tuple(part for part in end.parts if not isinstance(part, Text))
    return msgspec.structs.replace(end, parts=kept, dropped_text=text)


def _canonical(text: str) -> bytes | None:
    """Return the canonical JSON of an object, or None for anything else."""
    try:
        value: Any = msgspec.json.decode(text)  # Any: JSON of strangers, compared and thrown away
        return encode(value) if isinstance(value, dict) else None
    except (msgspec.DecodeError, ConfigurationError, RecursionError):
        return None
