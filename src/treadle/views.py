"""Views: what policies, compilers and `visible=` are shown of a session. Reads; whatever is done to it changes nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.messages import Message
from treadle.ports import SessionView
from treadle.state import CallState, RunState, SessionState

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
    def state(self) -> SessionState:
        live = self.__session.state
        if self.__state is None or self.__state.head != live.head:
            self.__state = _copy_of(live)
        return self.__state


def _copy_of(state: SessionState) -> SessionState:
    copy = SessionState(state.id)
    for name, value in vars(state).items():
        setattr(copy, name, _own(value))
    return copy


def _own(value: Any) -> Any:  # Any: whatever a state holds
    """Return a value of one's own. Events and messages are frozen, and shared."""
    match value:
        case RunState() | CallState():
            fields = {name: _own(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        case list() if value and isinstance(value[0], CallState):
            return [_own(one) for one in value]
        case dict():
            return {key: _own(one) if isinstance(one, CallState) else one for key, one in value.items()}
        case list() | set():
            return value.copy()
        case Mapping():
            return dict(value)
        case _:
            return value
