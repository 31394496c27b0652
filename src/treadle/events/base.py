"""What every event has, and every event that is made for a browser."""

from typing import ClassVar

import msgspec

from treadle.fields import Documented

__all__ = ["Event", "PublicEvent"]


class Event(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """The fields that all events share. The ledger fills them in when the event is recorded."""

    session_id: str = ""
    """The session that it belongs to."""
    run_id: str = ""
    """The run that it belongs to; empty for an event between two runs."""
    step: int = 0
    """The step it belongs to; 0 before the first."""
    call_id: str | None = None
    """The call that it belongs to; None for an event of no single call."""
    seq: int = 0
    """Its number in the session, from 1, without gaps; 0 for live events, which are not journaled."""
    at: float = 0.0
    """Seconds since 1970, by the machine's clock."""
    version: int = 1
    """Of this event type's fields."""
    parent: str | None = None
    """The run whose call this session carries out; None for a session that people run."""
    parent_step: int = 0
    """The step of that run which made the call; 0 if there is none, and in events of older versions."""
    parent_call: str | None = None
    """The call that this run carries out; None if there is none, and in events of older versions."""
    act: str | None = None
    """What the run did apart from its own steps, such as `compaction:12` or `check:40`; None for its own steps."""

    is_live: ClassVar[bool] = False
    is_of_run: ClassVar[bool] = True
    """Whether it is about the run that is under way; what is done to a session between runs is no part of their time."""

    @property
    def type(self) -> str:
        """The event's name, such as `tool.started`."""
        return str(self.__struct_config__.tag)


class PublicEvent(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The fields that all public events share."""

    session_id: str = ""
    """The session that it belongs to."""
    run_id: str = ""
    """The run that it belongs to."""
    seq: int = 0
    """The number of the event that it was made of; 0 for what is live, and where more follows of the same event. A client that connects
    again names the last number that it has."""

    @property
    def type(self) -> str:
        """The event's name, such as `text`."""
        return str(self.__struct_config__.tag)
