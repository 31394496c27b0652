"""The mock provider: a strict vendor on loopback, played from a script. No real model is near."""

from treadle.providers.mock.answers import Refusal
from treadle.providers.mock.anthropic_pairing import check_anthropic_history
from treadle.providers.mock.gates import Gate
from treadle.providers.mock.gemini_pairing import check_gemini_history
from treadle.providers.mock.pairing import check_chat_history
from treadle.providers.mock.responses_pairing import check_responses_history
from treadle.providers.mock.script import Script, load_script, parse_script
from treadle.providers.mock.server import MockProvider
from treadle.providers.mock.turns import ScriptedCall, Turn, call, text
from treadle.providers.mock.vendor import RecordedRequest

__all__ = [
    "Gate",
    "MockProvider",
    "RecordedRequest",
    "Refusal",
    "Script",
    "ScriptedCall",
    "Turn",
    "call",
    "check_anthropic_history",
    "check_chat_history",
    "check_gemini_history",
    "check_responses_history",
    "load_script",
    "parse_script",
    "text",
]
