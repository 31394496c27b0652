"""Decisions: what was decided about one call, with everything that the attempt, the events and the reports need. Values only."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from treadle.fields import Documented

__all__ = ["DEFAULT_MODE", "MODES", "Answer", "ApprovalType", "Decision", "DecisionKind", "Mode", "Preview", "Review"]

Mode: TypeAlias = Literal["plan", "ask", "accept-edits", "deny-unlisted", "bypass"]
"""How much may run in a session without a question. A person can change it, even during a run."""

ApprovalType: TypeAlias = Literal["tool_call", "in_doubt", "possible_repetition", "unfit_edit", "plan"]
"""What a person is asked: see `events.ApprovalRequested`."""

MODES: tuple[Mode, ...] = get_args(Mode)
"""All modes."""
DEFAULT_MODE: Mode = "ask"
"""The default mode of a session."""


class DecisionKind(StrEnum):
    """What may happen to a call."""

    ALLOW = "allow"
    """The call runs."""
    DENY = "deny"
    """The call does not run; the model reads the reason."""
    ASK = "ask"
    """A person is asked; the run pauses."""
    DRAFT = "draft"
    """The tool that its tool names as its `draft` runs instead, with the same arguments; denied if there is none."""
    SANDBOX = "sandbox"
    """The call runs only in the agent's sandbox, in the way that its tool declares; denied without a sandbox or declaration."""


class Decision(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The decision on one call, with the rule that decided and the reason.

    Example:
        Decision(kind="allow", arguments={**call.arguments, "dry_run": True}, message="Dry runs only today.")
    """

    kind: DecisionKind | Literal["allow", "deny", "ask", "draft", "sandbox"]
    """`allow`, `deny`, `ask`, `draft` or `sandbox`."""
    rule: str = ""
    """Name of the rule that decided."""
    reason: str = ""
    """Why, for people. If the call is denied, the model reads it too."""
    scope: str = ""
    """Where the rule comes from: `session`, `project`, `user`, `managed`, `agent` (its code), `tool` (its author), `default`,
    `runtime`, `hook`, or `call`: a person's consent to this one call."""
    by: str = ""
    """Who decided: `policy`, `tool`, `default`, `runtime`, a hook or a person by name."""
    mode: str = ""
    """The session's mode when it was decided. The runtime fills it in."""
    arguments: dict[str, Any] | None = None
    """All arguments, replacing the model's; None to keep those. They are validated and decided on like the model's own,
    and the result tells the model about them."""
    message: str = ""
    """A message for the model: it replaces the reason of a denied call, and is added to the result of any other."""
    interrupt: bool = False
    """Whether the run stops for a person. The call is then denied, and the others of its response do not start."""
    consent: Literal["allow", "sandbox"] = "allow"
    """What an `ask` becomes with a person's consent: the call runs unconfined, or in the sandbox."""


class Preview(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a call would do, for the person who is asked. Escaped: no character of it is invisible or moves the cursor."""

    kind: Literal["arguments", "diff", "command", "text"] = "text"
    """`diff`: a unified diff; `command`: a parsed line of shell; `arguments`: indented JSON; `text`: a text of the tool."""
    text: str
    """Lines, joined by line feeds."""
    is_whole: bool = True
    """Whether nothing is left out. The request's `arguments` are whole in any case."""


class Review(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a tool says about a call to the person who is asked about it. The runtime fills in empty fields.

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
    """What will be true afterwards, in one sentence."""
    rollback: str = ""
    """How it can be undone, in one sentence."""


class Answer(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """An approver's answer to a request for approval.

    Example:
        Answer(answer="deny", reason="Not on a Friday.")
    """

    answer: Literal["allow", "deny"]
    """`allow` or `deny`."""
    reason: str = ""
    """Why; if the call is denied, the model reads it."""
    arguments: dict[str, Any] | None = None
    """With `allow`: arguments that replace those in the request. They are validated, and the model is told about them."""
    interrupt: bool = False
    """With `deny`: whether the run stops."""
    scope: Literal["call", "session", "rule"] = "call"
    """What an `allow` covers: see `Session.answer`."""
    by: str = ""
    """Who answers, for the record; empty for the approver's own name."""
