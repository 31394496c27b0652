"""Effects: what a call does to the world, what kind of harm it may do, and what happened to it."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented

__all__ = [
    "DEFAULT_MODE",
    "MODES",
    "Answer",
    "ApprovalType",
    "CallStatus",
    "Decision",
    "DecisionKind",
    "Effect",
    "FileNames",
    "Mode",
    "NameWatch",
    "Preview",
    "Review",
    "Risk",
]


class Effect(StrEnum):
    """What one call does to the world. The default is `unsafe`.

    The effect determines five things: what may run in parallel, the default decision, what the runtime may retry, what happens
    after a crash during the call, and the status of a failure.
    """

    READ = "read"
    """Only observes. Runs in parallel with other reads, is allowed by default, and may be run again."""
    IDEMPOTENT = "idempotent"
    """The same arguments again change nothing more."""
    KEYED = "keyed"
    """Changes the world and honours an idempotency key."""
    UNSAFE = "unsafe"
    """Changes the world and cannot be repeated."""

    is_read: bool
    is_repeatable: bool
    """Whether a call that started and whose outcome is unknown may simply be run again."""

    def __init__(self, word: str) -> None:
        self.is_read = word == "read"
        self.is_repeatable = word != "unsafe"


class Risk(StrEnum):
    """The risk class of a call: what kind of harm it may do. It determines the default if no policy decides, and people see it."""

    READ_ONLY = "read_only"
    """Reads data that the person may see anyway."""
    SEARCH_ONLY = "search_only"
    """Searches a known place."""
    COMPUTE_ONLY = "compute_only"
    """Computes, without storing anything."""
    DRAFT_ONLY = "draft_only"
    """Prepares something that has no effect until another call commits it."""
    WRITE_LOCAL = "write_local"
    """Changes files of the working folder."""
    WRITE_INTERNAL = "write_internal"
    """Changes records of your own organisation."""
    WRITE_EXTERNAL = "write_external"
    """Changes something that belongs to others."""
    FINANCIAL = "financial"
    """Moves money, or commits to it."""
    COMMUNICATION = "communication"
    """Sends something to people."""
    IDENTITY_ACCESS = "identity_access"
    """Changes identities or permissions."""
    SECURITY_SENSITIVE = "security_sensitive"
    """Touches keys, secrets or security settings."""
    PROCESS_EXECUTION = "process_execution"
    """Runs programs."""
    NETWORK_OPEN_WORLD = "network_open_world"
    """Reaches any address, so a request can carry data away."""
    DESTRUCTIVE = "destructive"
    """Deletes, or overwrites what cannot be restored."""
    PRIVILEGED_ADMIN = "privileged_admin"
    """Acts with the permissions of an administrator."""


def effect_from(effect: object) -> Effect:
    """Return the effect with a name.

    Raises:
        ConfigurationError: There is no such effect.
    """
    if not isinstance(effect, str) or effect not in tuple(Effect):
        raise ConfigurationError(f"effect must be one of {', '.join(Effect)}; got {shown(effect)}.")
    return Effect(effect)


class CallStatus(StrEnum):
    """What happened to one call. Every status but `ok` is an error to the model."""

    OK = "ok"
    """The tool's value, checked against its output contract."""
    INVALID_JSON = "invalid_json"
    """The arguments are not valid JSON. The tool was not started."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments do not fit the schema; the result names every violation. The tool was not started."""
    UNKNOWN_TOOL = "unknown_tool"
    """No tool has this name; the result names similar ones."""
    DENIED = "denied"
    """A policy or a person refused, with the reason. The tool was not started."""
    FAILED = "failed"
    """The tool raised an exception. The world may have changed unless the tool only reads."""
    REJECTED = "rejected"
    """The service refused; the result has its own response."""
    UNEXPECTED_RESULT_SHAPE = "unexpected_result_shape"
    """The value violates the tool's output contract, so the model does not see it."""
    TIMEOUT = "timeout"
    """A tool that only reads timed out."""
    CANCELLED = "cancelled"
    """The run was cancelled, or a parallel call failed, and the call certainly changed nothing."""
    SKIPPED = "skipped"
    """A limit or another call prevented it. The tool was not started."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The call may have changed the world: it timed out, was cancelled, or lost its connection or its process."""


# --- Decisions: what was decided about one call, with everything that the attempt, the events and the reports need.
# Values only.

Mode: TypeAlias = Literal["plan", "ask", "accept-edits", "auto", "deny-unlisted", "bypass"]
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
    lifted: tuple[str, ...] = ()
    """What of the sandbox's border is lifted for the call, such as `git` or `network api.example.com`; of an `ask`, with consent."""


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


# --- Watches: what a folder of files says of the names in rules, kept true cheaply. Ports only: `toolsets/files`
# implements them.


class NameWatch(Protocol):
    """What is known of the names that a set of rules has. It is asked before every decision, and must be true each time."""

    def linked(self, moment: dict[str, Any] | None = None) -> Collection[str]:  # Any: the watch's own
        """Return the names that lead through a link, or may. All others are what they are spelled as.

        Args:
            moment: What was looked at in this decision already, by its path, and is looked at once; None for nothing.
        """
        ...

    def linked_names(self, path: str) -> Collection[str]:
        """Return the other names of a file (hard links), as far as the rules name them or a folder that they are in.

        Args:
            path: From `/`, links resolved.

        Raises:
            OSError: These folders have too many files to search.
        """
        ...


class FileNames(Protocol):
    """A folder of files to which names in rules are relative."""

    def watch(self, names: Sequence[str], folders: Sequence[str]) -> NameWatch:
        """Return what is known of the names that rules have.

        Args:
            names: Paths that rules name, relative to the folder or from `/`.
            folders: The files and folders of these that are named without a wildcard: a file in them may have other names (hard links).
        """
        ...

    def has_other_names(self, path: str) -> bool:
        """Whether a file has several names (hard links).

        Args:
            path: From `/`, links resolved.
        """
        ...

    def home_name(self, path: str) -> str:
        """Return the protected file of the person's home, outside of this folder, that a file is by another name (hard link); empty for
        any other.

        Args:
            path: From `/`, links resolved.
        """
        ...

    def obeyed_files(self, paths: Sequence[str] = ()) -> Sequence[str]:
        """Return the files that say what Treadle itself may do, and those that git is configured to run or read when it is asked for the state
        of a repository here: from `/`, as they are named and with links resolved. They need not exist.

        Args:
            paths: From `/`: what a call writes. The repositories in which it lies count, beside that of the folder itself.
        """
        ...
