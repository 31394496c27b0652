"""The plan of a life: which feature it is about, which faults come, and who takes part; drawn before it begins."""

from random import Random
from typing import Any

from simulator.around import AROUND
from simulator.coverage import FAULTS, FEATURES
from treadle.budgets import Budget

__all__ = ["PAIRS", "Plan", "plan_of"]

PAIRS = tuple((feature, fault) for fault in FAULTS for feature in FEATURES)
"""The product that lives walk: a seed's pair is the one at its remainder."""

_FAVOURITES: dict[str, tuple[str, ...]] = {
    "early_start": ("look", "look", "watch"),
    "parallel_batch": ("look", "write", "watch", "write"),
    "approval_pending": ("pay", "order", "wire", "write"),
    "agent_as_tool": ("delegate", "delegate", "look"),
    "retry": ("look", "pay"),
    "fallback": ("look", "order"),
    "closing_turn": ("look", "pay"),
    "structured_answer": ("look",),
    "steering": ("look", "watch", "wire"),
    "polling": ("start_transfer", "check_transfer"),
    "business_key": ("invoice", "invoice", "look"),
    "nested_agent": ("delegate", "delegate", "sub", "sub", "pay"),
    "interceptor": ("pay", "look", "write"),
    "progress": ("look",),
    "done_when": ("look", "look", "pay"),
    "own_action": ("admin", "admin", "look"),
    "batch_time": ("look", "write", "watch", "wire"),
    "mode": ("pay", "look", "write", "wire"),
    "toolset": ("buy", "buy", "browse", "look"),
    "changed_arguments": ("pay", "order", "look", "write"),
    "interrupt_decision": ("pay", "wire", "look", "write"),
    "compaction": ("look", "look", "pay"),
    "input": ("form", "form", "look", "pay"),
    "hook": ("pay", "look", "write"),
}
_STUCK = ("repeats", "progress", "polls", "invalid_json", "invalid_arguments", "unknown_tool")


class Plan:
    """What is settled about a life before it begins."""

    def __init__(self, seed: int, chance: Random) -> None:
        self.feature, self.fault = PAIRS[seed % len(PAIRS)]
        self.favourites = (
            *_FAVOURITES[self.feature],
            *(("pay", "wire", "start_transfer") if self.fault == "resolve" and self.feature != "nested_agent" else ()),
        )
        self.is_structured = self.feature == "structured_answer" or chance.random() < 0.1
        self.has_fallback = self.feature == "fallback" or chance.random() < 0.08
        self.turns = chance.choice((1, 2, 2, 3, 4))
        self.rounds = chance.choice((1, 1, 2, 2, 3))
        self.break_rate = 0.6 if self.feature in ("retry", "fallback") else chance.choice((0.0, 0.1, 0.3))
        self.encodes = chance.random() < 0.1
        self.degrades = chance.random() < 0.3
        self.offsets = self._offsets(chance)
        self.intercepts = self.feature == "interceptor" or chance.random() < 0.05
        self.around = frozenset(one for one in AROUND if self.feature == one or chance.random() < 0.025)
        """What stands around the agent of this life."""
        self.agent = self._agent(chance)
        self.budget = self._budget(chance)
        self.has_done = self.feature == "done_when" or chance.random() < 0.05
        self.stuck = chance.choice(_STUCK) if self.fault == "guard_tripped" or chance.random() < 0.03 else None
        """In which way the model gets nowhere; None for one that does."""
        if self.feature == "progress":
            self.stuck = "progress"
        if self.stuck is not None:
            self.turns, self.rounds = 7, max(self.rounds, 2)
        self.steers = self.feature == "steering" or chance.random() < 0.1
        if self.feature == "compaction":
            self.turns = max(self.turns, 3)
        self.is_calm = chance.random() < 0.04
        """Whether nothing goes wrong at all: such a life must end well too."""

    def _offsets(self, chance: Random) -> tuple[float, ...]:
        if self.fault != "other_clock" and chance.random() < 0.8:
            return (0.0,)
        return chance.choice(((0.0, 60.0), (0.0, -60.0), (0.0, 3600.0, -3600.0), (0.0, 3.2e7), (0.0, -3.2e7)))

    def _agent(self, chance: Random) -> dict[str, Any]:
        policy = chance.choice(("default", "default", "allow", "mixed", "ask"))
        if self.feature == "approval_pending":
            policy = chance.choice(("default", "ask"))
        elif self.feature == "progress":
            policy = chance.choice(("allow", "mixed", "default"))
        elif self.feature == "nested_agent":
            policy = "allow" if self.fault == "resolve" else chance.choice(("allow", "mixed", "default"))
        elif self.feature in ("business_key", "own_action", "input", "toolset"):
            policy = chance.choice(("allow", "allow", "mixed", "ask"))
        elif self.feature == "early_start" or (self.feature == "closing_turn" and policy == "ask"):
            policy = chance.choice(("allow", "mixed", "default"))
        return {
            "policy": policy,
            "has_child": self.feature in ("agent_as_tool", "nested_agent") or chance.random() < 0.05,
            "has_grandchild": self.feature == "nested_agent" or chance.random() < 0.3,
            "polls": self.feature == "polling" or chance.random() < 0.05,
            "is_structured": self.is_structured,
            "on_limit": "summarize" if self.feature == "closing_turn" else chance.choice(("summarize", "report")),
            "in_doubt": chance.choice((None, "ask", "tell")),
            "intercepts": self.intercepts,
            "batch_seconds": chance.choice((1.0, 3.0))
            if self.feature == "batch_time" or chance.random() < 0.05
            else None,
            "has_tight_guards": self.fault == "guard_tripped" and chance.random() < 0.6,
            "tool_choice": chance.choice(("auto",) * 6 + ("required", "none", "look")),
            "around": self.around,
        }

    def _budget(self, chance: Random) -> Budget | None:
        if self.feature == "closing_turn":
            words: dict[str, Any] = chance.choice(
                ({"max_model_turns": 1}, {"max_tool_calls": 2}, {"max_tool_calls": 1})
            )
            if self.fault == "budget_reached" and chance.random() < 0.5:
                words = {**words, "max_wall_time_seconds": chance.choice((2, 5))}
            return Budget(**words)
        if self.fault != "budget_reached" and chance.random() < 0.9:
            return None
        return Budget(
            **chance.choice(
                (
                    {"max_model_turns": 2},
                    {"max_tool_calls": 1},
                    {"max_wall_time_seconds": 3},
                    {"max_wall_time_seconds": 0.5},
                    {"max_output_tokens": 100},
                    {"max_total_cost": 0.001},
                    {"max_retries_per_model_call": 0},
                    {"max_parallel_tool_calls": 1, "max_tool_calls": 3},
                )
            )
        )


def plan_of(seed: int, chance: Random) -> Plan:
    """Return the plan of a seed: a hundred seeds in a row walk the whole product of features and faults."""
    return Plan(seed, chance)
