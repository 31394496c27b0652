"""Answers: what happens to a response that calls nothing: the end of the run, or a word on what it lacks.

Counts in the transcript, so that a resumed run continues with the same counts. Asks no model and records nothing.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from treadle.engine.rules.endings import answer_stop
from treadle.engine.tool_calls.batch import Proposal
from treadle.engine.tool_calls.refusals import forbidden_by, was_refused
from treadle.events import ModelFinished
from treadle.messages import Finish, Message, Text
from treadle.ports import CallsInText
from treadle.stops import Stop, StopReason

if TYPE_CHECKING:
    from treadle.validation.typed import Typed

__all__ = ["CONTINUE", "MAX_CONTINUATIONS", "MAX_CORRECTIONS", "Answers", "has_ignored_choice", "ignored_choice_stop"]

MAX_CONTINUATIONS = 3
MAX_CORRECTIONS = 2

CONTINUE = (
    "Your answer was cut off by the output limit. Continue exactly where it stopped, and do not repeat any of it."
)
_MUST_CALL = "You answered without calling a tool. Call a tool first: "
_UNFIT = "Your answer does not have the required form. "


class Answers:
    """Judges the answers of one run.

    Args:
        output: The form of a structured answer; None for free text.
    """

    def __init__(self, *, output: "Typed | None" = None) -> None:
        self._output = output

    def judge(self, proposal: Proposal, messages: Sequence[Message]) -> Stop | str:
        """Return the end of the run, or what to tell the model before it is asked again.

        Args:
            proposal: The response, which calls nothing.
            messages: The transcript before it.
        """
        finished, tool_choice = proposal.finished, proposal.tool_choice
        if finished.finish is Finish.REFUSED:
            return answer_stop(finished)
        if proposal.calls_in_text is not None:
            return _unread(proposal.calls_in_text, messages)
        if finished.finish is Finish.LENGTH:
            is_last = len(_pieces(messages)) >= MAX_CONTINUATIONS
            return answer_stop(finished) if is_last else CONTINUE
        if tool_choice not in ("auto", "none"):
            return _without_call(messages, tool_choice)
        text = self.whole_text(finished, messages)
        if self._output is not None:
            return _checked(self._output, text, messages)
        message = msgspec.structs.replace(finished.message, parts=(Text(text),))
        return answer_stop(msgspec.structs.replace(finished, message=message))

    def whole_text(self, finished: ModelFinished, messages: Sequence[Message]) -> str:
        """Return the answer with the pieces before it that the output limit had cut off."""
        return "".join([*_pieces(messages), finished.message.text])


def has_ignored_choice(messages: Sequence[Message]) -> bool:
    """Whether the model was just told what the choice of tools asks of it: to call a tool, another one, or none."""
    is_reminded = bool(messages) and messages[-1].role == "user" and messages[-1].text.startswith(_MUST_CALL)
    return is_reminded or was_refused(messages)


def ignored_choice_stop(finished: ModelFinished, messages: Sequence[Message], tool_choice: str) -> Stop | None:
    """Return the end of a run whose model has called forbidden tools only, for the second time in a row; else None.

    Args:
        messages: The transcript before this response.
    """
    calls = finished.message.calls
    if not calls or not all(forbidden_by(tool_choice, one.name) for one in calls) or not has_ignored_choice(messages):
        return None
    message = f"tool_choice is {tool_choice!r}, and the model called another tool twice."
    return Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message="tool_choice is 'none', and the model called a tool twice." if tool_choice == "none" else message,
        details={"class": "tool_choice_ignored", "tool_choice": tool_choice},
    )


def _pieces(messages: Sequence[Message]) -> list[str]:
    """Return the cut pieces of the answer that is being continued: the last pairs of an answer and our word to continue."""
    pieces: list[str] = []
    at = len(messages)
    while at >= 2 and messages[at - 1].text == CONTINUE and messages[at - 1].role == "user":
        pieces.insert(0, messages[at - 2].text)
        at -= 2
    return pieces


def _without_call(messages: Sequence[Message], tool_choice: str) -> Stop | str:
    wanted = "any of them." if tool_choice == "required" else f"{tool_choice}."
    if not has_ignored_choice(messages):
        return _MUST_CALL + wanted
    return Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message=f"tool_choice is {tool_choice!r}, and the model answered twice without calling a tool.",
        details={"class": "tool_choice_ignored", "tool_choice": tool_choice},
    )


def _unread(found: CallsInText, messages: Sequence[Message]) -> Stop | str:
    """Return what the model reads about calls in its text; after two corrections, the end of the run."""
    told = _told(messages, found.told)
    if told < MAX_CORRECTIONS:
        return found.told
    names = ", ".join(dict.fromkeys(call.name for call in found.calls))
    message = f"The model's calls ({names}) arrived as text {told + 1} times, and none was executed. {found.advice}"
    details = {"class": "calls_in_text", "tools": [call.name for call in found.calls], "attempts": told + 1}
    return Stop(reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL, message=message, details=details)


def _checked(output: "Typed", text: str, messages: Sequence[Message]) -> Stop | str:
    found = output.read(text)
    if not found.violations:
        return Stop(reason=StopReason.COMPLETED, message="The model answered.", output=found.data)
    corrected = _told(messages, _UNFIT)
    if corrected < MAX_CORRECTIONS:
        return f"{_UNFIT}{found.message} Answer again with the whole JSON object and nothing else."
    return Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message=f"The answer does not have the required form, after {corrected} corrections. {found.message}",
        details={"class": "output_invalid", "attempts": corrected + 1, "violations": list(found.violations)},
    )


def _told(messages: Sequence[Message], words: str) -> int:
    """Count how often the model was told so since a person spoke last."""
    ours = (CONTINUE, _MUST_CALL, _UNFIT, words)
    said = (message.text for message in reversed(messages) if message.role == "user")
    return sum(text.startswith(words) for text in takewhile(lambda text: text.startswith(ours), said))
