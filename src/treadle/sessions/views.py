"""Views: what policies, compilers, tools and `visible=` are shown of a session. Reads; whatever is done to it changes nothing."""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import msgspec

from treadle.canonical import copied, read_only
from treadle.events import RulesGranted
from treadle.messages import Message, Opaque, Part, Thinking
from treadle.ports import RequestNeed, SessionView
from treadle.state import CallRecord, Consent, Denial, SessionState, SideEffect
from treadle.state.session import sums
from treadle.tools import JsonObject, Mode

__all__ = ["CompiledView", "ReadOnlyMessages", "ReadOnlyView"]


class ReadOnlyView:
    """A `SessionView` whose state is a copy: it is made when it is first asked for, and anew when events have come since.

    Args:
        mode: Returns the mode that holds; None where that is the session's own.
    """

    def __init__(self, session: SessionView, *, mode: Callable[[], Mode] | None = None) -> None:
        self.__session = session
        self.__mode = mode
        self.__state: SessionState | None = None
        self.__messages = ReadOnlyMessages()

    @property
    def id(self) -> str:
        return self.__session.id

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.__messages.of(self.__session.messages)

    @property
    def mode(self) -> Mode:
        return self.__session.state.mode if self.__mode is None else self.__mode()

    @property
    def has_empty_messages(self) -> bool:
        """Whether a message without parts was ever added. Asked in every step, and so without a copy."""
        return self.__session.state.has_empty_messages

    @property
    def facts(self) -> JsonObject:
        """What tools have remembered in the session. Asked on every call that acts, and so without a copy of the state."""
        facts: JsonObject = copied(self.__session.state.facts.values)
        return facts

    @property
    def granted(self) -> tuple[RulesGranted, ...]:
        """What a person has allowed for more than one call. Asked on every call too."""
        return self.__session.state.granted

    @property
    def state(self) -> SessionState:
        live = self.__session.state
        if self.__state is None or self.__state.head != live.head:
            self.__state = _copy_of(live, self.messages)
        return self.__state


class CompiledView:
    """A session as the requests of one run are made of it: with the messages that compactions have left.

    Its state says the same: where a compaction is used in place of messages, they are not among its own.
    """

    def __init__(self, live: SessionState, whole: ReadOnlyView) -> None:
        self.__live = live
        self.__whole = whole
        self.__state: SessionState | None = None
        self.__messages = ReadOnlyMessages()
        self.need = RequestNeed()
        """What the request is made for."""
        self.given: tuple[Message, ...] = ()
        """The messages as they were last asked for."""

    @property
    def id(self) -> str:
        return self.__live.id

    @property
    def messages(self) -> tuple[Message, ...]:
        self.given = self.__messages.of(self.__live.shown)
        return self.given

    @property
    def mode(self) -> Mode:
        return self.__whole.mode

    @property
    def has_empty_messages(self) -> bool:
        """Whether a message without parts was ever added. Asked in every step, and so without a copy."""
        return self.__live.has_empty_messages

    @property
    def state(self) -> SessionState:
        live = self.__live
        if not live.compactions.made:
            return self.__whole.state
        if self.__state is None or self.__state.head != live.head:
            self.__state = _as_shown(live, self.messages)
        return self.__state


def _as_shown(live: SessionState, messages: Sequence[Message]) -> SessionState:
    """Return a copy of a state whose messages are those that compactions have left."""
    copy = _copy_of(live, messages)
    shown = live.compactions.entries(live.messages, live.message_seqs)
    copy.message_seqs = [one.last for one in shown]
    if copy.run is not None:
        at = copy.run.first_message
        begins = live.message_seqs[at] if at < len(live.message_seqs) else live.head + 1
        copy.run.first_message = sum(one.last < begins for one in shown)
    return copy


class ReadOnlyMessages:
    """The messages of one session as strangers see them: the values of providers inside them refuse every change."""

    def __init__(self) -> None:
        self._seen: tuple[Message, ...] = ()
        self._shown: tuple[Message, ...] = ()

    def of(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages, those with no such value as they are. A transcript that grows is looked at once."""
        if messages is self._seen:
            return self._shown
        known = len(self._seen)
        is_longer = 0 < known <= len(messages) and messages[known - 1] is self._seen[-1]
        kept, new = (self._shown, messages[known:]) if is_longer else ((), messages)
        fixed = tuple([_fixed(message) for message in new])
        is_as_it_is = (not kept or kept is self._seen) and all(map(is_, fixed, new))
        self._seen, self._shown = messages, messages if is_as_it_is else (*kept, *fixed)
        return self._shown


def _fixed(message: Message) -> Message:
    if _WITH_PAYLOAD.isdisjoint(map(type, message.parts)):  # nearly all
        return message
    fixed = tuple([_fixed_part(part) for part in message.parts])
    return message if all(map(is_, fixed, message.parts)) else msgspec.structs.replace(message, parts=fixed)


def _fixed_part(part: Part) -> Part:
    if isinstance(part, Opaque | Thinking) and isinstance(part.payload, dict | list):
        return msgspec.structs.replace(part, payload=read_only(part.payload))
    return part


_WITH_PAYLOAD = frozenset({Opaque, Thinking})


def _copy_of(state: SessionState, messages: Sequence[Message]) -> SessionState:
    copy = SessionState(state.id)
    for name, value in sums(state).items():
        setattr(copy, name, list(messages) if name == "messages" else _own(value))
    return copy


def _own(value: Any) -> Any:  # Any: whatever a state holds
    """Return a value of one's own. What holds nothing that could be changed is shared."""
    if isinstance(value, msgspec.Struct):
        return _own_struct(value)
    kind = type(value)
    if kind is dict:
        return {key: _own(one) for key, one in value.items()}
    if kind is list:
        return value.copy() if set(map(type, value)) <= _FROZEN else [_own(one) for one in value]
    if kind is tuple:
        own = tuple([_own(one) for one in value])
        return value if all(map(is_, own, value)) else own
    return value.copy() if kind is set else value


def _own_struct(value: msgspec.Struct) -> msgspec.Struct:
    """Return a struct of one's own, or the same one where it is frozen and all that it holds is."""
    own = {name: _own(getattr(value, name)) for name in value.__struct_fields__}
    is_shared = value.__struct_config__.frozen and all(own[name] is getattr(value, name) for name in own)
    return value if is_shared else msgspec.structs.replace(value, **own)


_FROZEN = frozenset({int, str, tuple, CallRecord, Denial, SideEffect, Consent})
"""What the long lists of a state hold: they are copied in one go."""
