"""Views: what policies, compilers and `visible=` are shown of a session. Reads; whatever is done to it changes nothing."""

from typing import Any

from treadle.messages import Message
from treadle.ports import SessionView
from treadle.state import CallRecord, CallState, ChildState, Denial, RunState, SessionState

__all__ = ["ReadOnlyView"]


class ReadOnlyView:
    """A `SessionView` whose state is a copy: it is made when it is first asked for, and anew when events have come since."""

    def __init__(self, session: SessionView) -> None:
        self.__session = session
        self.__state: SessionState | None = None

    @property
    def id(self) -> str:
        return self.__session.id

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.__session.messages

    @property
    def has_empty_messages(self) -> bool:
        """Whether a message without parts was ever added. Asked in every step, and so without a copy."""
        return self.__session.state.has_empty_messages

    @property
    def state(self) -> SessionState:
        live = self.__session.state
        if self.__state is None or self.__state.head != live.head:
            self.__state = _copy_of(live)
        return self.__state


def _copy_of(state: SessionState) -> SessionState:
    copy = SessionState(state.id)
    vars(copy).update({name: _own(value) for name, value in vars(state).items()})
    return copy


def _own(value: Any) -> Any:  # Any: whatever a state holds
    """Return a value of one's own. Events and messages are frozen, and shared."""
    kind = type(value)
    if kind in _CHANGING:
        fields = {name: _own(getattr(value, name)) for name in value.__struct_fields__}
        return kind(**fields)
    if kind is dict:
        return {key: _own(one) for key, one in value.items()}
    if kind is list:
        return value.copy() if value and type(value[0]) in _FROZEN else [_own(one) for one in value]
    return value.copy() if kind is set else value


_CHANGING = frozenset({RunState, CallState, ChildState})
_FROZEN = frozenset({int, str, tuple, Message, CallRecord, Denial})
"""What the long lists of a state hold: they are copied in one go."""
