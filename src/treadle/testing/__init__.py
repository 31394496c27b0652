"""Doubles for tests of agents: a scripted model, a strict provider on loopback, clocks and faults. Mocks nothing."""

from treadle.providers.mock.script import Script, load_script, parse_script
from treadle.providers.mock.turns import ScriptedCall, Turn
from treadle.providers.scripted import ScriptedModel, call, text

__all__ = ["Script", "ScriptedCall", "ScriptedModel", "Turn", "call", "load_script", "parse_script", "text"]
