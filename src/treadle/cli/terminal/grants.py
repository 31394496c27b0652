"""Grants: rules that a person has written at a question, and what a rule would cover. Records nothing."""

import inspect
from collections.abc import Sequence

from treadle import CheckedCall, ConfigurationError, Decision, allow
from treadle.cli.output.text import counted, shown_call
from treadle.ports import Policy, SessionView

__all__ = ["Grants"]

_MAX_CALLS = 200
"""Calls that are kept, to say which of them a rule would have covered."""


class Grants:
    """A policy that grows while a conversation continues. Denials stand before it."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        """What was allowed in this conversation beside the rules that requests offer, in order."""
        self._policies: list[Policy] = []
        self._calls: dict[str, tuple[CheckedCall, SessionView]] = {}

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        self._calls.pop(call.id, None)
        self._calls[call.id] = (call, session)
        while len(self._calls) > _MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        for policy in self._policies:
            if (decision := await _opinion(policy, call, session)) is not None:
                return decision
        return None

    def add(self, *rules: str, scope: str) -> None:
        """Allow from now on what rules name.

        Raises:
            ConfigurationError: One is not a rule.
        """
        self._policies.append(allow(*rules, scope=scope))
        self.rules += rules

    def clear(self) -> None:
        """Forget what was allowed for the session."""
        self.rules.clear()
        self._policies.clear()
        self._calls.clear()

    async def covers(self, rules: Sequence[str], call_id: str) -> str:
        """Say in one sentence which calls of this conversation rules would cover, first of all the one that is asked about.

        Raises:
            ConfigurationError: One is not a rule, or they do not cover that call.
        """
        policy = allow(*rules)
        seen = [one for key, one in self._calls.items() if key != call_id]
        covered = [call for call, view in seen if await _opinion(policy, call, view) is not None]
        asked = self._calls.get(call_id)
        if asked is not None and await _opinion(policy, *asked) is None:
            shown = ", ".join(rules)
            raise ConfigurationError(f"{shown} does not cover this call, which would be asked about again.")
        examples = ", ".join(dict.fromkeys(shown_call(one.name, one.arguments) for one in covered[:3]))
        others = f" and {counted(len(covered), 'earlier call')}, such as {examples}" if covered else ""
        return f"Covers this call{others}."


async def _opinion(policy: Policy, call: CheckedCall, session: SessionView) -> Decision | None:
    answer = policy.decide(call, session)
    return await answer if inspect.isawaitable(answer) else answer
