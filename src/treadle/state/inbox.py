"""Inbox messages: what other processes leave for a session. Values only; stored by a journal."""

from typing import Literal

import msgspec

from treadle.tools import JsonObject

__all__ = ["InboxMessage"]


class InboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Something that another process left for a session."""

    id: str
    """Unique in the session: the first of two with one id wins."""
    kind: Literal["message", "answer", "cancel"]
    body: JsonObject
