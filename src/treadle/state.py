"""State: what a session's events add up to. One fold, used while events happen and when they are read back."""

from treadle.messages import Message

__all__ = ["SessionState"]


class SessionState:
    """The sum of a session's events."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
