"""Small models: what a driver does so that they get more done. Each was measured: docs/know/models-benchmark.md.

They read an error as one sentence, and behind each result the task again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from treadle.errors import InvalidArguments
from treadle.fields import explained
from treadle.messages import Message, Result, ToolCall
from treadle.ports import ToolSpec
from treadle.validation import NotJson, Wanted, parse_arguments, wanted_of

__all__ = ["reminder", "sentence_of", "wanted_call"]

_LONGEST_TASK = 1000
_LONGEST_RESULT = 200
"""Characters of what is shown again. A longer task is not."""
_MOST_DONE = 12
_NOTE = "A note from the runtime:"
"""What messages begin with that the runtime adds; they are not tasks."""


class _Error(msgspec.Struct):
    """The one form in which errors reach a model."""

    status: str
    type: str
    message: str
    details: list[Any] = []
    limit_message: str = ""


@explained
def sentence_of(result: Result) -> str:
    """Return what a model reads of a result: of an error its sentence, and everything of what a tool itself said."""
    if not result.is_error:
        return result.content
    try:
        error = msgspec.json.decode(result.content, type=_Error)
    except (msgspec.DecodeError, RecursionError):
        return result.content
    if error.status != "error":
        return result.content
    is_said = _SEE in error.message and error.details
    message = " ".join(map(_told, error.details)) if is_said else error.message
    return f"{message} {error.limit_message}".strip()


_SEE = ": see `details`."
"""What a message says where a service's own words are behind it: these alone are read, so that nothing leads away from them."""


def _told(detail: Any) -> str:  # Any: JSON of a service
    """Return what a service said: its sentence, where it has one."""
    said = (
        next((detail[key] for key in ("error", "message") if key in detail), detail)
        if isinstance(detail, dict)
        else detail
    )
    return said if isinstance(said, str) else msgspec.json.encode(said).decode()


@explained
def reminder(
    messages: Sequence[Message],
    then: str,
    written: Callable[[ToolCall], str] | None = None,
    *,
    after_error: Callable[[ToolCall, str], str] | None = None,
) -> str:
    """Return what a small model reads behind the last results: its task again, what it has done for it, and what is to follow.

    Empty where no results come last, or the task is long.

    Args:
        written: How a call is written in the list of what was done; None for no list.
        after_error: Says what a call with an error is followed by, given the line with the task. Without it the model writes the same call again.
    """
    said = [message for message in messages if not (message.role == "user" and message.text.startswith(_NOTE))]
    begin = max((at for at, message in enumerate(said) if message.role == "user"), default=0)
    task = said[begin].text if said else ""
    if not said or said[-1].role != "tool" or len(task) > _LONGEST_TASK:
        return ""
    failed = [call for call, result in _ended(said[-2:]) if result.is_error]
    lines = [f"The task was: {task}", then]
    if after_error is not None and failed:
        return after_error(failed[0], lines[0])
    if written is not None:
        done = [f"- {written(call)}: {_brief(result)}" for call, result in _ended(said[begin:])]
        lines[1:1] = ["Done so far:", *done[-_MOST_DONE:]]
    return "\n".join(lines)


@explained
def wanted_call(call: ToolCall, tools: Sequence[ToolSpec]) -> Wanted:
    """Return what is wrong with the arguments of a call, and how they are wanted; nothing where they cannot be read, or are not what is wrong."""
    spec = next((spec for spec in tools if spec.name == call.name), None)
    try:
        return Wanted("") if spec is None else wanted_of(parse_arguments(call.arguments), spec.parameters)
    except (NotJson, InvalidArguments):
        return Wanted("")


def _brief(result: Result) -> str:
    said = f"{'ERROR - ' if result.is_error else ''}{sentence_of(result)}"
    return said if len(said) <= _LONGEST_RESULT else said[: _LONGEST_RESULT - 3] + "..."


def _ended(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, Result]]:
    """Yield the calls that have results, in order."""
    calls = {call.id: call for message in messages for call in message.calls}
    for message in messages:
        for result in message.results:
            if result.call_id in calls:
                yield calls[result.call_id], result
