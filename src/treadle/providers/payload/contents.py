"""Contents: what the OpenAI dialects say alike of a user's message and its media. Knows no dialect's names of the kinds."""

from collections.abc import Callable
from typing import Any, TypeAlias

from treadle.messages import Media, Message, Text

__all__ = ["data_url", "in_words", "user_content"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out


def user_content(
    message: Message, *, text: Callable[[str], _Wire], media: Callable[[Media], _Wire]
) -> str | list[_Wire]:
    """Return the content of a user's message: its text alone, or a list of parts where media are among them.

    Args:
        text: Makes the dialect's part of a text.
        media: Makes the dialect's part of an image or a file.
    """
    if not any(isinstance(part, Media) for part in message.parts):
        return message.text
    return [
        text(part.text) if isinstance(part, Text) else media(part)
        for part in message.parts
        if isinstance(part, Text | Media)
    ]


def data_url(media: Media) -> str | None:
    """Return the content as a `data:` URL; None where only an address of it is known."""
    return f"data:{media.media_type};base64,{media.base64}" if media.base64 is not None else None


def in_words(media: Media) -> str:
    """Return the text that stands for media which a dialect cannot carry, so that the model knows of them at least."""
    return f"[{media.media_type}: {media.url or media.name or 'no content'}]"
