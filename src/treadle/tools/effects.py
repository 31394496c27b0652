"""Effects: what a call does to the world, what kind of harm it may do, and what happened to it."""

from enum import StrEnum

from treadle.errors import ConfigurationError, shown

__all__ = ["CallStatus", "Effect", "Risk"]


class Effect(StrEnum):
    """What one call does to the world. Undeclared means `unsafe`.

    The word decides five things: what may run beside it, the default decision, what the runtime may retry, what happens
    after a crash in mid-call, and what a failure is called.
    """

    READ = "read"
    """Observes only. Runs in parallel with other reads, is allowed by default, and may be run again."""
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
    """The risk class of a call: what kind of harm it may do. It decides the default where no policy speaks, and people read it."""

    READ_ONLY = "read_only"
    """Looks at data that the person may see anyway."""
    SEARCH_ONLY = "search_only"
    """Finds things in a known place."""
    COMPUTE_ONLY = "compute_only"
    """Calculates, and keeps nothing."""
    DRAFT_ONLY = "draft_only"
    """Prepares something that nobody gets before another call commits it."""
    WRITE_LOCAL = "write_local"
    """Changes files of the working folder."""
    WRITE_INTERNAL = "write_internal"
    """Changes records of one's own organisation."""
    WRITE_EXTERNAL = "write_external"
    """Changes something that belongs to others."""
    FINANCIAL = "financial"
    """Moves money, or commits to."""
    COMMUNICATION = "communication"
    """Sends something to people."""
    IDENTITY_ACCESS = "identity_access"
    """Changes who may do what."""
    SECURITY_SENSITIVE = "security_sensitive"
    """Touches keys, secrets or settings of security."""
    PROCESS_EXECUTION = "process_execution"
    """Runs programs."""
    NETWORK_OPEN_WORLD = "network_open_world"
    """Reaches any address: what it asks for may carry data away."""
    DESTRUCTIVE = "destructive"
    """Deletes, or overwrites what cannot be restored."""
    PRIVILEGED_ADMIN = "privileged_admin"
    """Acts with the permissions of an administrator."""


def effect_from(effect: object) -> Effect:
    """Return the effect that a word names.

    Raises:
        ConfigurationError: There is no such effect.
    """
    if not isinstance(effect, str) or effect not in tuple(Effect):
        raise ConfigurationError(f"effect must be one of {', '.join(Effect)}; got {shown(effect)}.")
    return Effect(effect)


class CallStatus(StrEnum):
    """What happened to one call. All but `ok` are errors to the model."""

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
    """The service refused; the result holds its own words."""
    UNEXPECTED_RESULT_SHAPE = "unexpected_result_shape"
    """The value breaks the tool's output contract and is kept from the model."""
    TIMEOUT = "timeout"
    """A tool that only reads ran out of time."""
    CANCELLED = "cancelled"
    """The run was cancelled, or a parallel call failed, and the call surely changed nothing."""
    SKIPPED = "skipped"
    """A limit or another call prevented it. The tool was not started."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The call may have changed the world: it ran out of time, was cancelled, or lost its connection or its process."""
