"""Tools: what a tool is, and what belongs to one call of it, from its effect and the decision on it to its one result. Values only."""

from treadle.tools.commands import (
    Command,
    Detached,
    Detaching,
    Place,
    ProcessResult,
    Refusal,
    Runner,
    ShellLine,
)
from treadle.tools.contexts import TRACE, JsonObject, SessionSnapshot, ToolContext
from treadle.tools.decisions import (
    DEFAULT_MODE,
    MODES,
    Answer,
    ApprovalType,
    Decision,
    DecisionKind,
    Mode,
    Preview,
    Review,
)
from treadle.tools.effects import CallStatus, Effect, Risk
from treadle.tools.examples import ToolExample
from treadle.tools.outputs import Done, NotDone, ToolOutput, Unfinished, Unknown, answer_of_check
from treadle.tools.tool import (
    CheckedCall,
    Permission,
    Subject,
    Tool,
    ToolResult,
    business_key,
)
from treadle.tools.watches import FileNames, NameWatch

__all__ = [
    "DEFAULT_MODE",
    "MODES",
    "TRACE",
    "Answer",
    "ApprovalType",
    "CallStatus",
    "CheckedCall",
    "Command",
    "Decision",
    "DecisionKind",
    "Detached",
    "Detaching",
    "Done",
    "Effect",
    "FileNames",
    "JsonObject",
    "Mode",
    "NameWatch",
    "NotDone",
    "Permission",
    "Place",
    "Preview",
    "ProcessResult",
    "Refusal",
    "Review",
    "Risk",
    "Runner",
    "SessionSnapshot",
    "ShellLine",
    "Subject",
    "Tool",
    "ToolContext",
    "ToolExample",
    "ToolOutput",
    "ToolResult",
    "Unfinished",
    "Unknown",
    "answer_of_check",
    "business_key",
]
