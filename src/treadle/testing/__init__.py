"""Doubles for tests of agents: a scripted model, a strict provider on loopback, contexts for tools, clocks and faults; and exact checks of
what a session has done. Patches nothing."""

from treadle.mock import (
    Gate,
    MockProvider,
    RecordedRequest,
    Refusal,
    Script,
    ScriptedCall,
    Turn,
    check_anthropic_history,
    check_chat_history,
    check_cohere_history,
    check_converse_history,
    check_gemini_history,
    check_responses_history,
    load_script,
    parse_script,
)
from treadle.mock.model import ScriptedModel, call, text
from treadle.mock.script import TurnLike
from treadle.testing.clocks import FakeClock, FixedRandomness
from treadle.testing.contexts import FakeToolContext, tool_context
from treadle.testing.faults import FaultyJournal, FaultyModel
from treadle.testing.outcomes import (
    Check,
    Finding,
    Observed,
    ObservedCall,
    called,
    effects_done,
    never_called,
    no_doubt,
    observe,
    within,
)

__all__ = [
    "Check",
    "FakeClock",
    "FakeToolContext",
    "FaultyJournal",
    "FaultyModel",
    "Finding",
    "FixedRandomness",
    "Gate",
    "MockProvider",
    "Observed",
    "ObservedCall",
    "RecordedRequest",
    "Refusal",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "Turn",
    "TurnLike",
    "call",
    "called",
    "check_anthropic_history",
    "check_chat_history",
    "check_cohere_history",
    "check_converse_history",
    "check_gemini_history",
    "check_responses_history",
    "effects_done",
    "load_script",
    "never_called",
    "no_doubt",
    "observe",
    "parse_script",
    "text",
    "tool_context",
    "within",
]
