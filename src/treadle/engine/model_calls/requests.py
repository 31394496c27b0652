"""Requests: what the model is asked in each attempt of one run: history, instructions, tools, choice. Asks nobody itself."""

import inspect
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.context.compilers import Accepted, instructions_with_guidance
from treadle.context.repair import HistoryRepair
from treadle.engine.model_calls.compacting import Compacting
from treadle.engine.model_calls.reservations import Bounding, estimate
from treadle.engine.rules.endings import answer_stop, lacking_stop
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls.calls import Proposal
from treadle.engine.tool_calls.refusals import forbidden_by, was_refused
from treadle.events import HistoryRepaired, ModelFinished
from treadle.messages import Finish, Message, Text
from treadle.ports import CallsInText, Model, ModelRequest, RequestNeed, asked_model, window_of
from treadle.sessions.views import CompiledView
from treadle.state import RunState
from treadle.stops import Stop, StopReason
from treadle.tooling.toolbox import Offer

if TYPE_CHECKING:
    from treadle.validation.typed import Reading, Typed

__all__ = [
    "CONTINUE",
    "MAX_CONTINUATIONS",
    "MAX_CORRECTIONS",
    "Answers",
    "Requests",
    "has_ignored_choice",
    "ignored_choice_stop",
]


# --- Answers: what happens to a response that calls nothing: the end of the run, or a word on what it lacks.

MAX_CONTINUATIONS = 3
MAX_CORRECTIONS = 2

CONTINUE = (
    "Your answer was cut off by the output limit. Continue exactly where it stopped, and do not repeat any of it."
)
_MUST_CALL = "You answered without calling a tool. Call a tool first: "
_AS_TEXT = "Your answer is a call that is written as text, and nothing was executed. "
_NO_ANSWER = "That was not an answer. "
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
        return self._answer(finished, self.whole_text(finished, messages), messages)

    def _answer(self, finished: ModelFinished, text: str, messages: Sequence[Message]) -> Stop | str:
        found = None if self._output is None else self._output.read(text)
        if self._output is not None and found is not None and not found.is_text:
            return _checked(self._output, found, messages)
        end = _in_words(finished, text, messages)
        if found is None or isinstance(end, str) or not end.reason.is_completed:
            return end
        return msgspec.structs.replace(end, output=found.data)

    def whole_text(self, finished: ModelFinished, messages: Sequence[Message]) -> str:
        """Return the answer with the pieces before it that the output limit had cut off."""
        return "".join([*_pieces(messages), finished.message.text])


def has_ignored_choice(messages: Sequence[Message]) -> bool:
    """Whether the model was told, since a person spoke last, what the choice of tools asks of it: to call a tool, another one, or none."""
    return any(was_refused((message,)) or message.text.startswith(_MUST_CALL) for message in _since_person(messages))


def ignored_choice_stop(finished: ModelFinished, messages: Sequence[Message], tool_choice: str) -> Stop | None:
    """Return the end of a run whose model has called forbidden tools only, for the second time in a row; else None.

    Args:
        messages: The transcript before this response.
    """
    if tool_choice == "auto":
        return None
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
    told = _told(messages, _AS_TEXT)
    if told < MAX_CORRECTIONS:
        return _AS_TEXT + found.told
    names = ", ".join(dict.fromkeys(call.name for call in found.calls))
    message = f"The model's calls ({names}) arrived as text {told + 1} times, and none was executed. {found.advice}"
    details = {"class": "calls_in_text", "tools": [call.name for call in found.calls], "attempts": told + 1}
    return Stop(reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL, message=message, details=details)


def _checked(output: "Typed", found: "Reading", messages: Sequence[Message]) -> Stop | str:
    if not found.violations:
        return Stop(reason=StopReason.COMPLETED, message="The model answered.", output=found.data)
    corrected = _told(messages, _UNFIT)
    if corrected < MAX_CORRECTIONS:
        return (
            f"{_UNFIT}{found.message} The form is: {output.shape}. Answer again with the whole JSON and nothing else."
        )
    return Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message=f"The answer does not have the required form, after {corrected} corrections. {found.message}",
        details={"class": "output_invalid", "attempts": corrected + 1, "violations": list(found.violations)},
    )


def _in_words(finished: ModelFinished, text: str, messages: Sequence[Message]) -> Stop | str:
    if (found := _not_an_answer(text, messages)) is not None:
        return _again(*found, messages)
    message = msgspec.structs.replace(finished.message, parts=(Text(text),))
    return answer_stop(msgspec.structs.replace(finished, message=message))


_ERROR_FIELDS = {"status", "type", "message"}


def _not_an_answer(text: str, messages: Sequence[Message]) -> tuple[str, str] | None:
    """Return what a text is instead of an answer, as a class and in words; None for an answer."""
    said = _plain(text)
    is_behind_calls = any(message.role == "tool" for message in _since_person(messages))
    if not said and not isinstance(said, int | float):  # `0` and `false` may be the answer
        return ("answer_empty", "an empty answer") if is_behind_calls else None
    if isinstance(said, dict) and said.get("status") == "error" and said.keys() >= _ERROR_FIELDS and is_behind_calls:
        return "answer_is_error", "the error of a tool"
    for message in _since_person(messages):
        if message.role == "user" and said == _plain(message.text):
            return "answer_is_correction", "the words of a correction"
        if any(result.is_error and said == _plain(result.content) for result in message.results):
            return "answer_is_error", "the error of a tool"
    return None


def _again(kind: str, words: str, messages: Sequence[Message]) -> Stop | str:
    if not _told(messages, _NO_ANSWER):
        return f"{_NO_ANSWER}It was {words}. Answer the task in your own words, or call a tool."
    return Stop(
        reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
        message=f"The model was asked twice and gave no answer: the last was {words}.",
        details={"class": kind},
    )


def _plain(text: str) -> Any:  # Any: JSON of strangers, compared and thrown away
    """Return a text without blanks around it; one that is JSON, in a fence or not, as its value."""
    text = text.strip()
    inside = text.removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        return msgspec.json.decode(inside)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _told(messages: Sequence[Message], words: str) -> int:
    """Count how often the model was told so since a person spoke last."""
    return sum(message.role == "user" and message.text.startswith(words) for message in _since_person(messages))


def _since_person(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages since a person spoke last, latest first; those with which the runtime corrects the model are not a person's."""
    ours = (CONTINUE, _MUST_CALL, _AS_TEXT, _UNFIT, _NO_ANSWER)
    return takewhile(lambda one: one.role != "user" or one.text.startswith(ours), reversed(messages))


# --- Requests: what the model is asked in each attempt of one run: history, instructions, tools, choice. Asks nobody
# itself.


class Requests:
    """Makes the requests of one run.

    Args:
        compacting: What makes requests shorter permanently.
    """

    def __init__(self, scope: RunScope, compacting: Compacting) -> None:
        self._about = about = scope.about
        self._ledger = ledger = scope.ledger
        self._offering = offering = scope.offering
        self._interrupt = scope.interrupt
        self._compacting = compacting
        self._compacts = about.compactor is not None
        self._output_schema = None if about.output is None else about.output.wire_schema
        self._told = "" if about.output is None else about.output.told
        self._is_parallel = scope.meter.budget.max_parallel_tool_calls != 1
        self._compiled_view = CompiledView(ledger.state, offering.session)
        self._healer = HistoryRepair()
        self._bounding = Bounding(ledger, about.step_result_chars)
        self._repairs: tuple[str, ...] = ()
        # What follows from the tools that are offered is made anew only when others are.
        self._offer: Offer | None = None
        self._instructions: str | None = None
        self._fixed_tokens = 0
        self._accepted: Accepted | None = None
        self._window: int | None = None

    async def make(self, model: Model, need: RequestNeed) -> ModelRequest | None:
        """Return the request of one attempt, over a history that every provider accepts. What had to be healed is recorded.

        Args:
            model: What will be asked; of several, the request is made for the one whose turn it is.

        Returns:
            The request; None where the run was interrupted meanwhile.
        """
        asked = asked_model(model)
        if self._accepted is None or self._accepted.model is not asked:
            self._accepted, self._window = Accepted(asked), window_of(asked)
        await self._look_at_tools()
        if self._offering.required and (lacking := self._offering.lacking()) is not None:
            self._interrupt.trip(lacking_stop(*lacking))
            return None
        need = msgspec.structs.replace(need, model=asked.name, window=self._window, fixed_tokens=self._fixed_tokens)
        await self._bounding.hold(need)
        made_for = "" if asked is model else asked.name
        request = await self._made(need, made_for)
        if request is None or not (self._compacts or self._compacting.is_asked):
            return request
        if self._compacting.is_due(need, _tokens(request)):
            return await self._shorter(request, need, made_for)
        return request

    async def _shorter(self, request: ModelRequest, need: RequestNeed, made_for: str) -> ModelRequest | None:
        """Return a shorter request, or the same. One that is longer than the window is made shorter again, as long as that helps."""
        made: ModelRequest | None = request
        while made is not None and await self._compacting.compact(need, made):
            made = await self._made(need, made_for)
            if made is None or need.window is None or _tokens(made) <= need.window:
                return made
        return None if self._interrupt.stop is not None else made

    async def _made(self, need: RequestNeed, made_for: str) -> ModelRequest | None:
        messages = await self._compiled(need)
        if messages is None:
            return None
        run = self._ledger.state.run
        return ModelRequest(
            messages=messages,
            instructions=self._instructions,
            tools=self._offering.current.specs,
            tool_choice="none" if need.closing else self._tool_choice(),
            output_schema=self._output_schema,
            parallel_tool_calls=self._is_parallel,
            raise_output_limit=run is not None and run.was_cut,
            session_id=self._ledger.state.id,
            model=made_for,
        )

    async def _compiled(self, need: RequestNeed) -> tuple[Message, ...] | None:
        """Return the repaired messages; None where the run was interrupted meanwhile."""
        view = self._compiled_view
        view.need = need
        found, compiled = self._about.compiler.compile(view), None
        if inspect.isawaitable(found):
            with self._interrupt.cancel_scope():
                compiled = await found
            if compiled is None:
                return None
        else:
            compiled = found
        is_stored = compiled is view.given and not self._ledger.state.compactions.made
        messages, repairs = self._healer.repair_history(compiled, is_stored=is_stored)
        if repairs and (repairs != self._repairs or need.attempt == 1):
            await self._ledger.record(HistoryRepaired(repairs=repairs))
        self._repairs = repairs
        accepted = self._accepted
        return messages if accepted is None or accepted.inputs is None else accepted.of(messages, task=self._task)

    @property
    def _task(self) -> Message | None:
        """The message with which the run begins, as it is stored."""
        state = self._ledger.state
        at = len(state.messages) if state.run is None else state.run.first_message
        return state.messages[at] if at < len(state.messages) else None

    async def _look_at_tools(self) -> None:
        offer = await self._offering.renew()
        if offer is not self._offer:
            self._offer = offer
            own = "\n\n".join(filter(None, (self._about.instructions_text, self._told))) or None
            self._instructions = instructions_with_guidance(own, offer.tools, unavailable=offer.unavailable)
            fixed = ModelRequest(messages=(), instructions=self._instructions, tools=offer.specs)
            self._fixed_tokens = _tokens(fixed)

    def _tool_choice(self) -> str:
        """A forced choice holds until the model has called what it asks for: for ever, it would never let the model answer."""
        choice, run = self._about.tool_choice, self._ledger.state.run
        if run is not None and run.single_turn and run.spent.model_turns > 0:
            return "none"
        if choice in ("auto", "none"):
            return choice
        if choice != "required" and self._offering.current.find(choice) is None:
            return "auto"  # providers refuse a choice that is not offered
        return choice if run is None or self._is_open(choice, run) else "auto"

    def _is_open(self, choice: str, run: RunState) -> bool:
        """Whether no response of the run has called what the choice asks for. Calls that were cut off did not start, and do not count."""
        own = self._ledger.state.messages[run.first_message :]
        called = sum(any(forbidden_by(choice, call.name) is None for call in message.calls) for message in own)
        return called <= run.cut_in_calls


def _tokens(request: ModelRequest) -> int:
    return estimate(request, ()).input_tokens
