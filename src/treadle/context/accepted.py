"""Accepted: media that a model is known not to accept are left out of its requests, with a sentence in their place.

What a person sends with the task at hand stays, so that the request is refused, with the way out: half a task helps nobody. All else
may come from a tool, or from a time when another model was asked, and must not end every later run of the session.
"""

from collections.abc import Collection

import msgspec

from treadle.messages import Media, Message, Part, Result, Text
from treadle.ports import HasFacts, Model, input_of

__all__ = ["Accepted"]


class Accepted:
    """Leaves media out of the requests that go to one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._inputs = model.facts.inputs if isinstance(model, HasFacts) else None
        self._whole: tuple[
            Message, ...
        ] = ()  # what was looked at and needs no change: a transcript that grows is looked at once
        self._made: dict[
            int, tuple[Message, Message]
        ] = {}  # by the identity of the first, which lives as long as it is here

    def of(self, messages: tuple[Message, ...], *, task: Message | None) -> tuple[Message, ...]:
        """Return the messages without what the model does not accept: themselves where there is nothing of that kind.

        Args:
            task: The message with which the task at hand begins.
        """
        inputs = self._inputs
        if inputs is None:
            return messages
        known = len(self._whole)
        is_longer = 0 < known <= len(messages) and messages[known - 1] is self._whole[-1]
        if not any(_is_refused(message, inputs) for message in messages[known if is_longer else 0 :]):
            self._whole = messages
            return messages
        at_hand = _begin_of_task(messages, task)
        return tuple(
            message if message.role == "user" and at >= at_hand else self._without(message, inputs)
            for at, message in enumerate(messages)
        )

    def _without(self, message: Message, inputs: Collection[str]) -> Message:
        if not _is_refused(message, inputs):
            return message
        if id(message) not in self._made:
            parts = tuple(self._told(part, inputs) for part in message.parts)
            self._made[id(message)] = message, msgspec.structs.replace(message, parts=parts)
        return self._made[id(message)][1]

    def _told(self, part: Part, inputs: Collection[str]) -> Part:
        match part:
            case Media() if not _accepts(part, inputs):
                return Text(self._words(part, inputs))
            case Result(media=media) if media:
                kept = tuple(one for one in media if _accepts(one, inputs))
                notes = [self._words(one, inputs) for one in media if not _accepts(one, inputs)]
                return msgspec.structs.replace(part, content="\n".join([part.content, *notes]), media=kept)
            case _:
                return part

    def _words(self, media: Media, inputs: Collection[str]) -> str:
        name = f" {media.name!r}" if media.name else ""
        accepted = " and ".join(sorted(inputs, key=lambda one: (one != "text", one))) or "nothing"
        return f"[{media.media_type}{name} was left out: {self.model.name} accepts {accepted}.]"


def _begin_of_task(messages: tuple[Message, ...], task: Message | None) -> int:
    """Return where the task at hand begins: at its message, or where a compiler has made that anew, at the last of a person."""
    persons = [at for at, message in enumerate(messages) if message.role == "user"]
    return next((at for at in persons if messages[at] is task), persons[-1] if persons else 0)


def _is_refused(message: Message, inputs: Collection[str]) -> bool:
    """Whether a message holds something that is not accepted."""
    for part in message.parts:
        if isinstance(part, Media):
            if not _accepts(part, inputs):
                return True
        elif isinstance(part, Result) and part.media and not all(_accepts(one, inputs) for one in part.media):
            return True
    return False


def _accepts(media: Media, inputs: Collection[str]) -> bool:
    """Whether a medium is accepted. One that nobody has a word for is: its server decides."""
    kind = input_of(media)
    return kind is None or kind in inputs
