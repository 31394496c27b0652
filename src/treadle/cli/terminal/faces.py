"""Faces: what a conversation needs of the place where a person sees it and types. Knows no library of terminals."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from treadle import Approval, Budget, CheckedCall, ConfigurationError, Decision, allow
from treadle.cli.output.text import counted, one_line, shown_call, shown_name
from treadle.cli.terminal.board import Board, CallView, Item
from treadle.ports import Policy, SessionView

__all__ = [
    "CHOICES",
    "Answer",
    "Choice",
    "Cleared",
    "Ended",
    "Entry",
    "Face",
    "Grants",
    "Interrupted",
    "ModeCycled",
    "Option",
    "Question",
    "Standing",
    "ThemeName",
    "Typed",
    "Unfolded",
    "asker_of",
    "branch_of",
    "choices_of",
    "is_plan",
    "kept_by",
    "shown_tokens",
]


# --- Standing: where a conversation stands: model, mode, context, cost and steps, each beside its limit. Draws nothing.


class Standing(msgspec.Struct, kw_only=True):
    """What the status line tells, most important first."""

    model: str = ""
    mode: str = "ask"
    context_tokens: int = 0
    """Of the last request and its answer."""
    window: int | None = None
    """Of the model; None where nobody knows."""
    cost: Decimal | None = Decimal(0)
    """None for a model without a price."""
    turns: int = 0
    budget: Budget = Budget()
    branch: str = ""
    """Of the folder's git repository; empty without one."""
    sandbox: str = ""
    """Whether commands are confined, in a word or two; empty until that is known."""
    todos: list[tuple[str, str]] = []
    """The to-do list of the session: of each item its state and its text."""

    def line(self, width: int, *, hint: str = "", has_mode: bool = True) -> str:
        """Return one line that fits: of what does not, the last parts are left out, but never model and mode.

        Args:
            has_mode: Whether the mode is part of it; else it is shown elsewhere.
        """
        if not self.model:  # none is chosen yet
            return ""
        mode = [self.mode] if has_mode else []
        others = [self._context(), self._cost(), self._steps(), one_line(self.branch, 30), self.sandbox]
        kept = [one_line(self.model, 40), *mode, *filter(None, others)]
        while len(kept) > 2 and len(" · ".join([*kept, *([hint] if hint else [])])) > width:
            kept.pop(-2 if len(kept) > 3 else -1)
        line = " · ".join([*kept, *([hint] if hint else [])])
        return line if len(line) <= width else " · ".join(kept)[:width]

    def _context(self) -> str:
        if self.window is None:
            return f"context {shown_tokens(self.context_tokens)}"
        left = max(100 - 100 * self.context_tokens / self.window, 0)
        return f"{left:.0f} % context left"

    def _cost(self) -> str:
        if self.cost is None:
            return "cost unknown"
        limit = self.budget.max_total_cost
        cost = f"${self.cost:.4f}" if 0 < self.cost < 1 else f"${self.cost:.2f}"
        return cost + ("" if limit is None else f" of ${Decimal(str(limit)):.2f}")

    def _steps(self) -> str:
        limit = self.budget.max_model_turns
        return f"step {self.turns}" + ("" if limit is None else f" of {limit}")


def shown_tokens(tokens: int) -> str:
    """Return a number of tokens in short, such as `128k`."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.0f}k" if tokens < 999_500 else f"{tokens / 1_000_000:.0f}M"


def branch_of(folder: Path) -> str:
    """Return the git branch of a folder, or the beginning of its commit; empty outside of a repository."""
    for place in (folder, *folder.parents):
        try:
            git = place / ".git"
            if git.is_file():
                git = place / git.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
            head = (git / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


# --- Asking: the question whether a call may run, and the answers that a person can give to it. Draws nothing and
# records nothing.

Scope: TypeAlias = Literal["once", "session", "always", "everywhere"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has answered."""

    answer: Literal["allow", "deny"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """In place of the model's."""
    rules: tuple[str, ...] = ()
    """The rules that allow such calls from now on; empty for this one call."""
    scope: Scope = "once"
    mode: Literal["accept-edits"] | None = None
    """The mode of the session from now on, where it runs such calls unasked."""


class Question(msgspec.Struct, kw_only=True):
    """A call that waits for a person."""

    approval: Approval
    rules: tuple[str, ...]
    """The rules that are suggested; empty where none fits."""
    destroys: bool = True
    """Whether it may destroy something: then the answer to a bare Enter is no."""
    number: int = 1
    total: int = 1
    covers: Callable[[tuple[str, ...]], Awaitable[str]]
    """Say what rules would cover. Raises ConfigurationError for one that is invalid."""


class Choice(msgspec.Struct, frozen=True):
    """One key of the question."""

    key: str
    says: str
    is_aside: bool = False
    """Whether it is for those who want to know or say more: it is named in one line below the others."""


CHOICES = (
    Choice("y", "yes, once"),
    Choice("a", "yes, and do not ask again in this session for {rules}"),
    Choice("p", "yes, and save a rule for this folder"),
    Choice("m", "yes, and save a rule for all my folders"),
    Choice("x", "yes, and save these exact words for this folder"),
    Choice("n", "no"),
    Choice("e", "edit the arguments first", is_aside=True),
    Choice("r", "no, with a reason", is_aside=True),
    Choice("v", "show the whole call", is_aside=True),
)
"""The keys, in the order in which they are shown."""
_PLAN_CHOICES = (
    Choice("y", "yes, carry it out"),
    Choice("e", "edit the plan first"),
    Choice("r", "no: send it back, with what to change"),
    Choice("n", "no"),
    Choice("v", "show the whole plan"),
)
"""The same for a plan, whose acceptance ends plan mode."""


def kept_by(question: Question, key: str) -> tuple[tuple[str, ...], Scope]:
    """Return the rules that a key keeps, and where; no rules where there are none."""
    rules = _exact_rules(question) if key == "x" else question.rules
    return rules, "everywhere" if key == "m" else "always"


def _exact_rules(question: Question) -> tuple[str, ...]:
    """Return the rule that means this very line of shell; nothing for another call, or where it is offered anyway."""
    line = question.approval.arguments.get("command") if question.rules and question.approval.tool == "shell" else None
    if not isinstance(line, str) or len(line) > _MAX_EXACT or not line.isprintable() or "(= " in question.rules[0]:
        return ()
    return (f"shell(= {line.strip()})",)


_MAX_EXACT = 500


def choices_of(question: Question) -> list[Choice]:
    """Return the keys that answer a question."""
    if is_plan(question):
        return list(_PLAN_CHOICES)
    left_out = set() if question.rules else {"a", "p", "m"}
    left_out |= set() if _exact_rules(question) else {"x"}
    return [one for one in CHOICES if one.key not in left_out]


def is_plan(question: Question) -> bool:
    """Whether a plan is proposed."""
    return question.approval.approval_type == "plan"


def asker_of(approval: Approval) -> str:
    """Return which agent below the run has made the call, such as ` of clerk`; empty for the run's own."""
    return f" of {' > '.join(map(shown_name, approval.path))}" if approval.path else ""


# --- Faces: what a conversation needs of the place where a person sees it and types. Knows no library of terminals.


ThemeName: TypeAlias = Literal["dark", "light", "none"]
"""Colours for a dark background, for a light one, or none."""


class Option(msgspec.Struct, frozen=True):
    """One of several things to choose from."""

    label: str
    says: str = ""
    """What it is, in a few words."""


class Typed(msgspec.Struct, frozen=True):
    """A person has entered a text."""

    text: str


class Interrupted(msgspec.Struct, frozen=True):
    """A person wants what is under way to stop."""

    is_insistent: bool = False
    """Whether it was Ctrl+C, which ends the program when it is pressed twice."""


class Cleared(msgspec.Struct, frozen=True):
    """A person has cleared the line with Ctrl+C: another one soon after it ends the program."""


class ModeCycled(msgspec.Struct, frozen=True):
    """A person wants the next mode."""


class Unfolded(msgspec.Struct, frozen=True):
    """A person wants to see all of the last results."""


class Ended(msgspec.Struct, frozen=True):
    """A person wants to leave, or the terminal is gone."""

    code: int = 0


Entry: TypeAlias = Typed | Interrupted | Cleared | ModeCycled | Unfolded | Ended


class Face(Protocol):
    """Where a person sees a conversation."""

    standing: Standing
    """What the status line tells."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Take the terminal until the end of the conversation."""
        ...

    async def entry(self) -> Entry:
        """Wait for what the person does next."""
        ...

    def enter(self, entry: Entry) -> None:
        """Have something done as if the person had done it."""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """Ask about a call; None where the person interrupts instead of answering."""
        ...

    async def choose(self, title: str, options: Sequence[Option]) -> int | None:
        """Let the person choose one of several things; return its place, None where they leave without a choice."""
        ...

    async def secret(self, title: str) -> str | None:
        """Have the person enter a secret, which is neither shown nor kept; None where they leave without one."""
        ...

    def watch(self, board: Board | None) -> None:
        """Show what still changes on a board, until another one or None is given."""
        ...

    def show(self, item: Item) -> None:
        """Show what is whole."""
        ...

    def said(self, text: str) -> None:
        """Show what the person has said, once it counts."""
        ...

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        """Show lines of the program."""
        ...

    def quote(self, text: str) -> None:
        """Show a text of strangers: of a long one the beginning and the end."""
        ...

    def diff(self, text: str) -> None:
        """Show changes of files."""
        ...

    def use_theme(self, name: ThemeName) -> bool:
        """Draw in other colours from now on; return whether there are any."""
        ...

    def copy(self, text: str) -> bool:
        """Give the terminal a text for its clipboard; return whether it can take one."""
        ...

    def unfold(self, calls: tuple[CallView, ...]) -> None:
        """Show the whole results of calls."""
        ...

    def prefill(self, text: str) -> None:
        """Put a text where the person types, before what is there."""
        ...

    def rest(self) -> None:
        """Wait for what the person enters next: nothing is under way."""
        ...

    def refresh(self) -> None:
        """Show again what may have changed."""
        ...


# --- Grants: rules that a person has written at a question, and what a rule would cover. Records nothing.

_MAX_CALLS = 200
"""Calls that are kept, to say which of them a rule would have covered."""


class Grants:
    """A policy that grows while a conversation continues. Denials stand before it."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        """What was allowed in this conversation beside the rules that requests offer, in order."""
        self._policies: list[Policy] = []
        self._calls: dict[str, tuple[CheckedCall, SessionView]] = {}

    @property
    def policies(self) -> tuple[Policy, ...]:
        """What it is made of now."""
        return tuple(self._policies)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        self._calls.pop(call.id, None)
        self._calls[call.id] = (call, session)
        while len(self._calls) > _MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        for policy in self._policies:
            if (decision := await _opinion(policy, call, session)) is not None:
                return decision
        return None

    def add(self, *rules: str, scope: str) -> None:
        """Allow from now on what rules name.

        Raises:
            ConfigurationError: One is not a rule.
        """
        self._policies.append(allow(*rules, scope=scope))
        self.rules += rules

    def clear(self) -> None:
        """Forget what was allowed for the session."""
        self.rules.clear()
        self._policies.clear()
        self._calls.clear()

    async def covers(self, rules: Sequence[str], call_id: str) -> str:
        """Say in one sentence which calls of this conversation rules would cover, first of all the one that is asked about.

        Raises:
            ConfigurationError: One is not a rule, or they do not cover that call.
        """
        policy = allow(*rules)
        seen = [one for key, one in self._calls.items() if key != call_id]
        covered = [call for call, view in seen if await _opinion(policy, call, view) is not None]
        asked = self._calls.get(call_id)
        if asked is not None and await _opinion(policy, *asked) is None:
            shown = ", ".join(rules)
            raise ConfigurationError(f"{shown} does not cover this call, which would be asked about again.")
        examples = ", ".join(dict.fromkeys(shown_call(one.name, one.arguments) for one in covered[:3]))
        others = f" and {counted(len(covered), 'earlier call')}, such as {examples}" if covered else ""
        return f"Covers this call{others}."


async def _opinion(policy: Policy, call: CheckedCall, session: SessionView) -> Decision | None:
    answer = policy.decide(call, session)
    return await answer if inspect.isawaitable(answer) else answer
