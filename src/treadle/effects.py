"""Effects: what a tool does to the world, in one word. Holds the table of consequences; runs nothing."""

from enum import StrEnum

__all__ = ["Effect"]


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

    @property
    def is_read(self) -> bool:
        return self is Effect.READ

    @property
    def is_repeatable(self) -> bool:
        """Whether a call that started and whose outcome is unknown may simply be run again."""
        return self is not Effect.UNSAFE
