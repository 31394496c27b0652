"""Drivers: how a step is obtained from a model."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.drivers.native import NativeDriver as NativeDriver
    from treadle.drivers.react import ReActDecision as ReActDecision
    from treadle.drivers.react import ReActDriver as ReActDriver
    from treadle.drivers.scripted import ScriptedDriver as ScriptedDriver

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "native": "NativeDriver",
        "react": "ReActDecision ReActDriver",
        "scripted": "ScriptedDriver",
    },
)
