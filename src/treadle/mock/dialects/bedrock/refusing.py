"""Refusing in Bedrock Converse: the two forms in which the vendor says no to a request."""

from typing import NoReturn

from treadle.mock.dialects.answers import Refusal

__all__ = ["malformed", "refuse"]


def malformed(message: str) -> NoReturn:
    """Refuse a body of another form."""
    raise Refusal(f"Malformed input request: {message}, please reformat your input and try again.")


def refuse(message: str) -> NoReturn:
    """Refuse a value."""
    raise Refusal(message)
