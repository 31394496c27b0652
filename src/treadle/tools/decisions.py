"""Decisions: the message about one call, with all that travels with it to the attempt, the events and the reports. Values only."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from treadle.fields import Documented

__all__ = ["DEFAULT_MODE", "MODES", "Answer", "ApprovalType", "Decision", "DecisionKind", "Mode", "Preview", "Review"]

Mode: TypeAlias = Literal["plan", "ask", "accept-edits", "deny-unlisted", "bypass"]
"""How much a session lets happen without a question. A person changes it, also while a run is under way."""

ApprovalType: TypeAlias = Literal["tool_call", "in_doubt", "possible_repetition", "unfit_edit", "plan"]
"""What a person is asked: see `events.ApprovalRequested`."""

MODES: tuple[Mode, ...] = get_args(Mode)
"""All modes."""
DEFAULT_MODE: Mode = "ask"
"""The mode of a session where nobody has named one."""


class DecisionKind(StrEnum):
    """What may happen to a call."""

    ALLOW = "allow"
    """The call runs."""
    DENY = "deny"
    """The call does not run; the model reads the reason."""
    ASK = "ask"
    """A person is asked; the run pauses."""
    DRAFT = "draft"
    """The tool that its tool names as its `draft` runs in its place, with the same arguments; denied where there is none."""
    SANDBOX = "sandbox"
    """The call runs in the agent's sandbox only, by the form that its tool declares for that; denied without one."""


class Decision(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The decision on one call, with the rule that spoke and its reason.

    Example:
        Decision(kind="allow", arguments={**call.arguments, "dry_run": True}, message="Dry runs only today.")
    """

    kind: DecisionKind | Literal["allow", "deny", "ask", "draft", "sandbox"]
    """`allow`, `deny`, `ask`, `draft` or `sandbox`."""
    rule: str = ""
    """Name of the rule that decided."""
    reason: str = ""
    """Why, for people. The model reads it too where the call is denied."""
    scope: str = ""
    """Where the rule comes from: `session`, `project`, `user`, `managed`, `agent` (its code), `tool` (its author), `default`,
    `runtime`, `hook`, or `call`: a person's consent to this one call."""
    by: str = ""
    """Who decided: `policy`, `tool`, `default`, `runtime`, a hook or a person by name."""
    mode: str = ""
    """The session's mode when it was decided. The runtime fills it in."""
    arguments: dict[str, Any] | None = None
    """Arguments in place of the model's, whole; None to leave them. They are validated and decided on like the model's own,
    and the model is told of them with the result."""
    message: str = ""
    """What the model is told: it replaces the reason of a denied call, and is added to the result of any other."""
    interrupt: bool = False
    """Whether the run stops for a person. The call is denied then, and the others of its response do not start."""
    consent: Literal["allow", "sandbox"] = "allow"
    """What a person's consent makes of an `ask`: the call runs as it is, or in the sandbox."""


class Preview(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a call would do, for the person who is asked. Escaped: no character of it is invisible or moves the cursor."""

    kind: Literal["arguments", "diff", "command", "text"] = "text"
    """`diff`: a unified diff; `command`: a line of shell, parsed; `arguments`: indented JSON; `text`: what the tool says."""
    text: str
    """Lines, joined by line feeds."""
    is_whole: bool = True
    """Whether nothing is left out. The request's `arguments` are whole in any case."""


class Review(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a tool says of one of its calls to the person who is asked about it. What is empty is filled in by the runtime.

    Example:
        Review(action="Pay an invoice", target="account 7", rollback="Ask for a refund within 14 days.")
    """

    action: str = ""
    """What would be done, in a few words: `Write a file`."""
    target: str = ""
    """What it would be done to: a path, an account, a host."""
    preview: Preview | None = None
    """What it would change, in detail."""
    expected_result: str = ""
    """What is true afterwards, in one sentence."""
    rollback: str = ""
    """How it can be undone, in one sentence."""


class Answer(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What an approver says to a request for consent.

    Example:
        Answer(answer="deny", reason="Not on a Friday.")
    """

    answer: Literal["allow", "deny"]
    """`allow` or `deny`."""
    reason: str = ""
    """Why; the model reads it where the call is denied."""
    arguments: dict[str, Any] | None = None
    """With `allow`: arguments in place of those that were asked about. They are validated, and the model is told of them."""
    interrupt: bool = False
    """With `deny`: whether the run stops."""
    scope: Literal["call", "session", "rule"] = "call"
    """What an `allow` covers: see `Session.answer`."""
    by: str = ""
    """Who answers, for the record; empty for the approver's own name."""
