"""Tools: what a tool is, and what belongs to one call of it, from its effect and the decision on it to its one result. Values only."""

from treadle.tools.commands import Command, Place, ProcessResult, Runner, ShellLine
from treadle.tools.contexts import JsonObject, SessionSnapshot, ToolContext
from treadle.tools.decisions import DEFAULT_MODE, MODES, ApprovalType, Decision, DecisionKind, Mode, Preview, Review
from treadle.tools.effects import CallStatus, Effect, Risk
from treadle.tools.tool import (
    CheckedCall,
    Done,
    NotDone,
    Permission,
    Subject,
    Tool,
    ToolOutput,
    ToolResult,
    Unfinished,
    Unknown,
    answer_of_check,
    business_key,
)

__all__ = [
    "DEFAULT_MODE",
    "MODES",
    "ApprovalType",
    "CallStatus",
    "CheckedCall",
    "Command",
    "Decision",
    "DecisionKind",
    "Done",
    "Effect",
    "JsonObject",
    "Mode",
    "NotDone",
    "Permission",
    "Place",
    "Preview",
    "ProcessResult",
    "Review",
    "Risk",
    "Runner",
    "SessionSnapshot",
    "ShellLine",
    "Subject",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolResult",
    "Unfinished",
    "Unknown",
    "answer_of_check",
    "business_key",
]
