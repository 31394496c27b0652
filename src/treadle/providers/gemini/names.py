"""Gemini's rules for names and models: what a tool may be called, and what a model takes. Knows no request."""

import re

from treadle.providers.payload.names import wire_name

__all__ = ["gemini_name", "is_third_generation"]

_GENERATION = re.compile(r"gemini-(\d+)")


def gemini_name(name: str) -> str:
    """Return a tool's name as Gemini takes it: as other providers do, but no digit and no dash may come first."""
    # No name holds a line break, so the digest that it brings is nobody else's.
    return wire_name(f"_\n{name}" if name[:1] in set("-0123456789") else name)


def is_third_generation(model: str) -> bool:
    """Return whether the model signs its calls and takes files inside results. A name without a number is a new model."""
    found = _GENERATION.search(model)
    return found is None or int(found[1]) >= 3
