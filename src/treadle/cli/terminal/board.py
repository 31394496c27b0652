"""Board: what of a run is shown, folded from its events: what still changes, and what is whole. Draws nothing."""

import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from treadle import ToolCall
from treadle.cli.output.text import Family, counted, for_terminal, one_line
from treadle.events import (
    AnyEvent,
    ApprovalRequested,
    BudgetReached,
    BudgetWarned,
    CallDecided,
    CompactionSkipped,
    ContextCompacted,
    JournalDegraded,
    MessageAdded,
    ModelDelta,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    ToolAttemptFailed,
    ToolFinished,
    ToolProgress,
    ToolsetFailed,
    ToolStarted,
)
from treadle.redaction import Redactor
from treadle.tools import ToolResult

__all__ = ["Board", "CallView", "Greeting", "Group", "Item", "Note", "Said", "Thought", "parts_of"]


# --- Blocks: which part of a text that still streams is whole, so that it can be rendered and never changes. Renders
# nothing.

_FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*\Z)|~{3,})(.*)")
_LONG_BLOCK = 40
"""Lines of a block of code that are shown together. A longer one comes in parts."""


def split_settled(text: str) -> tuple[str, str]:
    """Part a growing text of Markdown into its whole blocks and the block that still grows.

    A block of code is whole at its end; of a long one the lines so far are given off, as a block of their own.

    Example:
        >>> split_settled("One.\\n\\nTwo")
        ('One.\\n\\n', 'Two')
    """
    lines = text.split("\n")
    settled, fence, opened, opening = 0, None, 0, ""
    for number, line in enumerate(lines[:-1]):
        found = _FENCE.match(line)
        if fence is not None:
            if _closes(found, fence):
                fence, settled = None, number + 1
        elif found is not None:
            fence, opened, opening = found, number, line
        elif not line.strip():
            settled = number + 1
    if fence is not None and len(lines) - opened > _LONG_BLOCK:
        whole = "\n".join([*lines[:-1], fence[1] + fence[2], ""])
        return whole, f"{opening}\n{lines[-1]}"
    return "".join(f"{line}\n" for line in lines[:settled]), "\n".join(lines[settled:])


def parts_of(text: str) -> list[tuple[str | None, str]]:
    """Part a text into prose and blocks of code: each with what comes after the fence, the language first; None for prose.

    Code in a list has the indent of its fence, which is taken away.

    Example:
        >>> parts_of("So:\\n```sh\\nls\\n```\\nDone.")
        [(None, 'So:'), ('sh', 'ls'), (None, 'Done.')]
    """
    parts: list[tuple[str | None, list[str]]] = [(None, [])]
    fence = None
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence is not None and _closes(found, fence):
            fence = None
            parts.append((None, []))
        elif fence is None and found is not None:
            fence = found
            parts.append((found[3].strip(), []))
        else:
            parts[-1][1].append(line if fence is None else line.removeprefix(fence[1]))
    joined = [(info, "\n".join(lines)) for info, lines in parts]
    return [(info, part) for info, part in joined if info is not None or part.strip()]


def _closes(found: re.Match[str] | None, fence: re.Match[str]) -> bool:
    """Whether a fence ends a block: one far to the right belongs to the code."""
    if found is None or found[3].strip() or not found[2].startswith(fence[2]):
        return False
    return len(found[1].expandtabs()) < len(fence[1].expandtabs()) + 4


# --- Board: what of a run is shown, folded from its events: what still changes, and what is whole. Draws nothing.

_TOKEN_CHARS = 4
"""About so many characters are a token, until the model says how many there were."""
Phase: TypeAlias = Literal["waits", "asks", "runs", "done"]
_OF_CALL = (ToolStarted, ToolProgress, ApprovalRequested, CallDecided, ToolAttemptFailed, ToolFinished)


class CallView(msgspec.Struct, kw_only=True):
    """One call, as far as it has come."""

    id: str
    tool: str
    arguments: object
    """As decided on, or as the model wrote them."""
    phase: Phase = "waits"
    started: float = 0.0
    """When it started, by the clock of the board."""
    note: str = ""
    """What its tool last reported, or why a person is asked."""
    result: ToolResult | None = None
    failed: ToolAttemptFailed | None = None
    """Its last attempt, if that failed."""
    rule: str = ""
    """The rule that decided."""
    is_edited: bool = False
    """Whether a person or a policy changed its arguments."""
    agents: str = ""
    """Names of the agents between the run and the one whose call it is; empty for the run's own."""
    below: list["CallView"] = []
    """The calls of the agents that carry it out, in the order in which they began."""


class Said(msgspec.Struct, frozen=True):
    """A whole block of what the model says."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """What the model thought before it said or called something."""

    text: str


class Group(msgspec.Struct, frozen=True):
    """The calls of one response, all with their results."""

    calls: tuple[CallView, ...]


class Note(msgspec.Struct, frozen=True):
    """A line of the program."""

    text: str
    tone: Literal["plain", "warn", "bad"] = "plain"


class Greeting(msgspec.Struct, frozen=True):
    """What a conversation begins with."""

    version: str
    model: str
    folder: str


Item: TypeAlias = Greeting | Said | Thought | Group | Note


class Board:
    """What a person sees of one run. `on_event` returns what is whole, to be shown once; the rest is asked for as often as needed.

    Args:
        redactor: Takes secrets out of what the model says, as it streams.
        clock: Seconds, for how long calls have been running.
    """

    def __init__(self, redactor: Redactor, clock: Callable[[], float]) -> None:
        self.calls: dict[str, CallView] = {}
        """Calls that are not shown as done yet, in order."""
        self.text = ""
        """The block that still grows, without its secrets."""
        self.doing = ""
        """What happens while there is neither text nor a call."""
        self.opening: Callable[[], Sequence[str]] = tuple
        """Returns the names of the toolsets that are still being opened."""
        self.shows_thinking = False
        """Whether thoughts are items of their own, as far as they stream."""
        self.steps = 0
        self.started = clock()
        self.output_tokens = 0
        """Tokens that the model has written, as it says at the end of each response."""
        self._received = 0  # characters of the response that streams
        self.context_tokens = 0
        """Tokens of the last request and its response."""
        self._redactor = redactor
        self._clock = clock
        self._held = ""
        """The end of the text, which may be half a secret."""
        self._thought = ""
        self._has_shown_text = False
        self._expected = False
        """Whether all calls of the response are known."""
        self._family = Family()
        self._below: dict[tuple[str, str], CallView] = {}
        """The calls of agents below the run, by session and id."""

    @property
    def activity(self) -> str:
        """What happens now, what starts beside it, for how long, and about how much the model has written."""
        running = sum(call.phase == "runs" for call in self.calls.values())
        doing = self.doing or (f"running {counted(running, 'call')}" if running else "answering")
        names = ", ".join(one_line(name, 30) for name in self.opening())
        seconds = int(self._clock() - self.started)
        took = f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"
        tokens = self.output_tokens + self._received // _TOKEN_CHARS
        parts = (f"{doing}, starting {names}" if names else doing, took, counted(tokens, "token") if tokens else "")
        return " · ".join(filter(None, parts))

    def know(self, call: ToolCall, decided: CallDecided | None, asked: bool) -> None:
        """Take over a call that an earlier run left open."""
        view = self._view(call)
        view.phase = "asks" if asked else "waits"
        self._expected = True
        if decided is not None and decided.arguments is not None:
            view.arguments, view.is_edited = decided.arguments, True

    def on_event(self, event: AnyEvent) -> list[Item]:
        """Take in an event, and return what is whole by it."""
        match event:
            case ModelStarted():
                self.doing, self._expected = "thinking", False
            case ModelDelta():
                return self._delta(event)
            case ModelFinished(act=None):
                return self._finished(event)
            case ModelDiscarded() | ModelFailed():
                return self._broken(event)
            case _ if isinstance(event, _OF_CALL):
                return self._of_call(event)
            case _:
                return _notes(event)
        return []

    def on_any_event(self, event: AnyEvent) -> bool:
        """Note on a call what the agents do that carry it out. Return whether anything is to be drawn anew."""
        self._family.take(event)
        view = self.calls.get(self._family.call(event))
        if view is None:
            return False
        match event:
            case ModelStarted():
                view.note = f"{' > '.join(self._family.path(event))} is thinking"
            case ModelFinished(act=None):
                view.note = ""
                for call in event.message.calls:
                    self._know_below(event, call)
            case _ if isinstance(event, _OF_CALL):
                view.note = ""
                self._of_call_below(event, view)
            case _:
                return False
        return True

    def take_over(self, before: "Board") -> None:
        """Take over what agents below the run have done for calls that are still open, from the board before a pause."""
        self._family, self._below = before._family, before._below  # noqa: SLF001 - of its own class
        for name, view in before.calls.items():
            if name in self.calls:
                self.calls[name].below = view.below

    def _know_below(self, event: AnyEvent, call: ToolCall) -> None:
        names = " > ".join(self._family.path(event))
        known = CallView(id=call.id, tool=call.name, arguments=call.arguments, agents=names)
        view = self._below.setdefault((event.session_id, call.id), known)
        view.arguments = view.arguments or call.arguments  # of a call that starts early, its decision comes first

    def _of_call_below(self, event: AnyEvent, above: CallView) -> None:
        """Note what has happened to a call of an agent below; one of a process before is known by its name alone."""
        if isinstance(event, ToolStarted) and event.call is not None:
            self._know_below(event, event.call)
        name = event.result.name if isinstance(event, ToolFinished) else getattr(event, "tool", "")
        self._know_below(event, ToolCall(id=event.call_id or "", name=name, arguments=""))
        view = self._below[event.session_id, event.call_id or ""]
        is_new = not any(one is view for one in above.below)
        if is_new and not isinstance(event, CallDecided):
            above.below.append(view)
        self._note_on(view, event)

    def flush(self) -> list[Item]:
        """Return what is left when a run has ended or waits: nothing more comes of it."""
        self.doing = ""
        done = [call for call in self.calls.values() if call.phase == "done"]
        for call in done:
            del self.calls[call.id]
        return [*self._said(whole=True), *([Group(tuple(done))] if done else [])]

    def drop(self) -> None:
        """Forget the calls that are still open: another session is shown."""
        self.calls.clear()

    # --- text

    def _delta(self, event: ModelDelta) -> list[Item]:
        self._received += len(event.text) + len(event.thinking)
        if event.call is not None:
            self._view(event.call)
        self._thought += event.thinking
        if event.thinking and not event.text:
            self.doing = "thinking"
        if not event.text:
            return []
        self.doing = ""
        thought = self._thoughts()
        self._held += event.text
        settled = self._redactor.settled(self._held)
        self.text += self._redactor.text(self._held[:settled])
        self._held = self._held[settled:]
        return [*thought, *self._said()]

    def _thoughts(self) -> list[Item]:
        """Return what has been thought since the last time, where it is shown. It is redacted whole: half a secret is not recognized."""
        text, self._thought = self._redactor.text(self._thought).strip(), ""
        return [Thought(text)] if text and self.shows_thinking else []

    def _said(self, *, whole: bool = False) -> list[Item]:
        if whole:
            self.text += self._redactor.text(self._held)
            self._held = ""
            settled, self.text = self.text, ""
        else:
            settled, self.text = split_settled(self.text)
        if not settled.strip():
            return []
        self._has_shown_text = True
        return [Said(settled)]

    def _finished(self, event: ModelFinished) -> list[Item]:
        self.doing, self._expected = "", True
        self.steps += 1
        self.output_tokens, self._received = self.output_tokens + event.usage.output_tokens, 0
        self.context_tokens = event.usage.input_tokens + event.usage.output_tokens
        has_text = bool(self.text or self._held or self._has_shown_text)
        if not has_text and event.message.text.strip():  # a model that does not stream
            self.text = self._redactor.text(event.message.text)
        shown = [*self._thoughts(), *self._said(whole=True)]
        self._has_shown_text = False
        for call in event.message.calls:
            self._view(call)
        cut = [Note("The answer was interrupted here. The model keeps what came of it.", "warn")]
        return [*shown, *(cut if event.interrupted and has_text else []), *self._group()]

    def _broken(self, event: ModelDiscarded | ModelFailed) -> list[Item]:
        had_text = self._has_shown_text or bool(self.text)
        self.text = self._held = self._thought = ""
        self._has_shown_text = False
        notes: list[Item] = [Note("The response was cut off: its text above is discarded.", "warn")] if had_text else []
        if isinstance(event, ModelFailed):
            again = event.retry_in_seconds
            self.doing = "" if again is None else f"retrying in {again:.0f} s"
            if again is not None:
                notes.append(Note(f"The model failed: {one_line(for_terminal(event.message), 300)}", "warn"))
        return notes

    # --- calls

    def _view(self, call: ToolCall) -> CallView:
        known = self.calls.get(call.id)
        if known is None:
            self.calls[call.id] = known = CallView(id=call.id, tool=call.name, arguments=call.arguments)
        return known

    def _of_call(self, event: AnyEvent) -> list[Item]:
        if isinstance(event, ToolStarted) and event.call is not None:
            self._view(event.call)
        view = self.calls.get(event.call_id or "")
        if view is not None:
            self._note_on(view, event)
        return self._group() if view is not None and isinstance(event, ToolFinished) else []

    def _note_on(self, view: CallView, event: AnyEvent) -> None:
        match event:
            case CallDecided():
                view.rule = event.rule
                if event.arguments is not None:
                    view.arguments, view.is_edited = event.arguments, True
            case ApprovalRequested():
                view.phase, view.note, view.arguments = "asks", event.reason, event.arguments
            case ToolStarted():
                view.phase, view.started, view.note = "runs", self._clock(), ""
            case ToolProgress():
                total = "" if event.total is None else f" of {event.total:g}"
                done = "" if event.done is None else f" ({event.done:g}{total})"
                view.note = f"{event.message}{done}"
            case ToolFinished():
                view.phase, view.result = "done", event.result
                if view.failed is not None and event.result.message:
                    said = view.failed.revealed(event.result.message)
                    view.result = msgspec.structs.replace(event.result, message=said)
            case ToolAttemptFailed():
                view.failed = event
            case _:
                pass

    def _group(self) -> list[Item]:
        """Return the calls of the response once all have their results: what ran together is shown together."""
        if not self._expected or not self.calls or any(call.phase != "done" for call in self.calls.values()):
            return []
        shown = Group(tuple(self.calls.values()))
        self.calls = {}
        return [shown]


def _notes(event: AnyEvent) -> list[Item]:  # noqa: PLR0911 - one line for each event
    match event:
        case MessageAdded(source="steer"):
            return [Note(f"Message to the model: {one_line(event.message.text, 200)}")]
        case ContextCompacted():
            tokens = f"{event.tokens_after:,} tokens in place of {event.tokens_before:,}"
            return [Note(f"The conversation was compacted: the model is shown {tokens} ({one_line(event.tier)}).")]
        case CompactionSkipped():
            return [Note(f"The conversation could not be compacted: {one_line(event.message, 300)}")]
        case BudgetWarned():
            return [Note(f"{event.budget}: {event.used} of {event.limit} used.", "warn")]
        case BudgetReached(limit=float(limit)) if limit <= 0:
            return [Note("The deadline has passed.", "warn")]
        case BudgetReached():
            return [Note(f"{event.budget}: the limit of {event.limit} is reached.", "warn")]
        case ToolsetFailed():
            name, why = one_line(event.toolset, 60), one_line(event.message, 300)
            what = "has ended" if event.phase == "run" else "is unavailable"
            return [Note(f"The toolset {name} {what}: {why}", "warn")]
        case JournalDegraded():
            return [Note(event.message, "plain" if event.is_over else "bad")]
        case _:
            return []
