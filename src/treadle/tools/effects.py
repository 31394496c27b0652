"""Effects: what a call does to the world, what kind of harm it may do, and what happened to it."""

from enum import StrEnum

from treadle.errors import ConfigurationError, shown

__all__ = ["CallStatus", "Effect", "Risk"]


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
