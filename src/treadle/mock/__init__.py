"""The mock provider: a strict vendor on loopback, played from a script. No real model is near."""

from treadle.mock.dialects.anthropic import check_anthropic_history
from treadle.mock.dialects.bedrock import check_converse_history
from treadle.mock.dialects.cohere import check_cohere_history
from treadle.mock.dialects.gemini import check_gemini_history
from treadle.mock.dialects.openai_chat import check_chat_history
from treadle.mock.dialects.openai_responses import check_responses_history
from treadle.mock.dialects.shared import Refusal
from treadle.mock.script import Gate, Script, ScriptedCall, Turn, call, load_script, parse_script, text
from treadle.mock.server import MockProvider, RecordedRequest

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
    "check_cohere_history",
    "check_converse_history",
    "check_gemini_history",
    "check_responses_history",
    "load_script",
    "parse_script",
    "text",
]
