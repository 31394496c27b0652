"""Permissions: whether a call may run."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.permissions.consent import is_answered as is_answered
    from treadle.permissions.modes import RuleSet as RuleSet
    from treadle.permissions.modes import can_use_tool as can_use_tool
    from treadle.permissions.modes import scoped as scoped
    from treadle.permissions.policies import allow as allow
    from treadle.permissions.policies import ask as ask
    from treadle.permissions.policies import default_decision as default_decision
    from treadle.permissions.policies import deny as deny
    from treadle.permissions.policies import draft as draft
    from treadle.permissions.policies import first_of as first_of

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "consent": "is_answered",
        "modes": "RuleSet can_use_tool scoped",
        "policies": "allow ask default_decision deny draft first_of",
    },
)
