"""Families: what the vendor takes for one family of models and refuses for another. Knows no request."""

import re

import msgspec

__all__ = ["Family", "family_of"]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What is special about the models of one maker."""

    caches: bool = False
    """Whether cache points are taken in instructions and messages."""
    caches_tools: bool = False
    """Whether they are taken among the tools."""
    takes_status: bool = False
    """Whether a result may say that it is an error."""
    plain_schemas: bool = False
    """Whether a tool's schema may hold nothing but type, properties and required at its root."""
    thinks_first: bool = False
    """Whether a turn that continues must hold the model's signed thinking, where thinking is on."""


_CLAUDE = Family(takes_status=True, thinks_first=True)
_NOVA = Family(takes_status=True, plain_schemas=True)
_FAMILIES = (
    # "Supported models" of docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html; the others answer 400 to a cache point.
    (
        re.compile(r"anthropic\.claude-(3-7|3-5-haiku|(opus|sonnet|haiku)-[4-9])"),
        msgspec.structs.replace(_CLAUDE, caches=True, caches_tools=True),
    ),
    (re.compile(r"anthropic\.claude"), _CLAUDE),
    (re.compile(r"amazon\.nova-(micro|lite|pro|premier)-"), msgspec.structs.replace(_NOVA, caches=True)),
    (re.compile(r"amazon\.nova"), _NOVA),
)


def family_of(model: str) -> Family:
    """Return what a model takes. The id of a profile of one's own does not tell the model: it takes what all of them take."""
    return next((family for pattern, family in _FAMILIES if pattern.search(model)), Family())
