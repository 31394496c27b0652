"""Compactions: what a model is shown of a session's messages, where something shorter is used in place of some. Changes no message."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from treadle.events import ContextCompacted
from treadle.fields import explained
from treadle.messages import Message, Part, Result

__all__ = ["Compactions", "ShownMessage", "compacted"]


class ShownMessage(NamedTuple):
    """A message as the model is shown it, and where it comes from."""

    message: Message
    first: int
    """Number of the event that brought the first message that it stands for."""
    last: int
    """The same of the last one; equal to `first` for a message that stands for itself."""


class Compactions(msgspec.Struct, gc=False):
    """The compactions of a session, folded. What is shown follows from the events alone: the same in every process, for ever."""

    made: tuple[ContextCompacted, ...] = ()
    artifacts: dict[str, str] = {}
    """Digests of the stored wholes of which the model was shown a part, by the ids that it was told. A rewind takes none back."""
    asked: int = 0
    """Number of the event by which a person asked for one, until it is answered; 0 where nobody waits."""
    shown: Sequence[ShownMessage] = ()
    """The messages as they are shown, as far as they were asked for."""
    count: int = 0
    """How many of the session's messages `shown` holds."""
    messages: tuple[Message, ...] = ()

    def add(self, event: ContextCompacted) -> None:
        """Take in one compaction."""
        self.made = (*self.made, event)
        if event.reason != "step":  # that is about one step's results, and no answer to a person
            self.asked = 0
        if self.count:  # what is shown already is made shorter: a session of many compactions is not made anew for each
            self.shown = compacted(self.shown, event)
            self.messages = tuple([one.message for one in self.shown])

    def rewind(self, to: int) -> None:
        """Go back to what was shown at an event."""
        self.made = tuple([one for one in self.made if one.seq <= to])
        self.asked = self.asked if self.asked <= to else 0
        self._forget()

    def _forget(self) -> None:
        self.shown, self.count, self.messages = (), 0, ()

    def entries(self, messages: Sequence[Message], seqs: Sequence[int]) -> Sequence[ShownMessage]:
        """Return the messages as they are shown. Those that are known already are not made again.

        Args:
            seqs: The events that brought the messages.
        """
        if self.count == len(messages) and self.shown:
            return self.shown
        new = [ShownMessage(messages[at], seqs[at], seqs[at]) for at in range(self.count, len(messages))]
        if self.count:
            self.shown = [*self.shown, *new]
        else:
            self.shown = new
            for one in self.made:
                self.shown = compacted(self.shown, one)
        self.count = len(messages)
        self.messages = tuple([one.message for one in self.shown])
        return self.shown


@explained
def compacted(shown: Sequence[ShownMessage], event: ContextCompacted) -> list[ShownMessage]:
    """Return what is shown after one more compaction."""
    before = [one for one in shown if one.last < event.first]
    behind = [one for one in shown if one.first > event.last]
    within = shown[len(before) : len(shown) - len(behind)]
    if event.messages is not None:
        kept = [ShownMessage(message, event.first, event.last) for message in event.messages]
    else:
        kept = [one._replace(message=_cleared(one.message, event.results)) for one in within]
    return [*before, *kept, *behind]


def _cleared(message: Message, results: Mapping[str, str]) -> Message:
    if message.role != "tool":
        return message
    parts: list[Part] = [
        msgspec.structs.replace(part, content=results[part.call_id], media=())
        if isinstance(part, Result) and part.call_id in results
        else part
        for part in message.parts
    ]
    return msgspec.structs.replace(message, parts=tuple(parts))
