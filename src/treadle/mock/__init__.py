"""The mock provider: a strict vendor on loopback, played from a script. No real model is near."""

from treadle.mock.dialects.answers import Refusal
from treadle.mock.dialects.anthropic.pairing import check_anthropic_history
from treadle.mock.dialects.bedrock.pairing import check_converse_history
from treadle.mock.dialects.cohere.pairing import check_cohere_history
from treadle.mock.dialects.gemini.pairing import check_gemini_history
from treadle.mock.dialects.openai_chat.pairing import check_chat_history
from treadle.mock.dialects.openai_responses.pairing import check_responses_history
from treadle.mock.gates import Gate
from treadle.mock.script import Script, load_script, parse_script
from treadle.mock.server.server import MockProvider
from treadle.mock.server.vendor import RecordedRequest
from treadle.mock.turns import ScriptedCall, Turn, call, text

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
