"""Effects: what a call does to the world, and what became of it."""

from enum import StrEnum

__all__ = ["CallStatus", "Effect"]


class Effect(StrEnum):
    """What one call does to the world. Undeclared means `unsafe`.

    The word decides five things: what may run beside it, the default decision, what the runtime may retry, what happens
    after a crash in mid-call, and what a failure is called.
    """

    READ = "read"
    """Observes only. Runs beside other reads, is allowed by default, and may be run again."""
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


class CallStatus(StrEnum):
    """What became of one call. All but `ok` are errors to the model."""

    OK = "ok"
    INVALID_JSON = "invalid_json"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    DENIED = "denied"
    FAILED = "failed"
    REJECTED = "rejected"
    UNEXPECTED_RESULT_SHAPE = "unexpected_result_shape"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    OUTCOME_UNKNOWN = "outcome_unknown"
