"""Treadle: the tool loop of a language-model agent. Every call is decided, recorded, bounded and done once.

What the tutorial needs is here; the rest is in the packages below, such as `treadle.toolsets` and `treadle.errors`. Names load on
first use, so importing the package costs almost nothing and has no side effects.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.agents.agent import Agent as Agent
    from treadle.agents.registry import Agents as Agents
    from treadle.agents.run import Run as Run
    from treadle.budgets import Budget as Budget
    from treadle.budgets import Price as Price
    from treadle.budgets import TenantBudget as TenantBudget
    from treadle.engine.spec import RunResult as RunResult
    from treadle.errors import ConfigurationError as ConfigurationError
    from treadle.errors import Rejected as Rejected
    from treadle.errors import SessionHeld as SessionHeld
    from treadle.errors import ToolError as ToolError
    from treadle.errors import TreadleError as TreadleError
    from treadle.messages import Message as Message
    from treadle.messages import ToolCall as ToolCall
    from treadle.permissions.policies import allow as allow
    from treadle.permissions.policies import ask as ask
    from treadle.permissions.policies import deny as deny
    from treadle.permissions.policies import first_of as first_of
    from treadle.resolve import open_journal as open_journal
    from treadle.resolve import open_session as open_session
    from treadle.resolve import resolve_model as resolve_model
    from treadle.sessions.session import Session as Session
    from treadle.state import Approval as Approval
    from treadle.state import Suspended as Suspended
    from treadle.stops import StopReason as StopReason
    from treadle.tooling.decorators import tool as tool
    from treadle.tools import CheckedCall as CheckedCall
    from treadle.tools import Decision as Decision
    from treadle.tools import Done as Done
    from treadle.tools import Effect as Effect
    from treadle.tools import NotDone as NotDone
    from treadle.tools import RunContext as RunContext
    from treadle.tools import Tool as Tool
    from treadle.tools import ToolContext as ToolContext
    from treadle.tools import ToolOutput as ToolOutput
    from treadle.tools import Unknown as Unknown
    from treadle.toolsets.files import file_tools as file_tools
    from treadle.toolsets.mcp.toolset import mcp_server as mcp_server
    from treadle.toolsets.shell.tool import shell_tool as shell_tool
    from treadle.workers.submitting import submit as submit
    from treadle.workers.worker import Worker as Worker

_NAMES = {
    "agents.agent": "Agent",
    "agents.registry": "Agents",
    "agents.run": "Run",
    "budgets": "Budget Price TenantBudget",
    "engine.spec": "RunResult",
    "errors": "ConfigurationError Rejected SessionHeld ToolError TreadleError",
    "messages": "Message ToolCall",
    "permissions.policies": "allow ask deny first_of",
    "resolve": "open_journal open_session resolve_model",
    "sessions.session": "Session",
    "state": "Approval Suspended",
    "stops": "StopReason",
    "tooling.decorators": "tool",
    "tools": "CheckedCall Decision Done Effect NotDone RunContext Tool ToolContext ToolOutput Unknown",
    "toolsets.files": "file_tools",
    "toolsets.mcp.toolset": "mcp_server",
    "toolsets.shell.tool": "shell_tool",
    "workers.submitting": "submit",
    "workers.worker": "Worker",
}
"""The public names of each module."""
_MOVED = {
    "agents": "Goal GoalResult GoalWork StopRules Subagent ToolFinding check_tools load_goal load_subagents load_tool_examples run_goal subagent_tool",
    "budgets": "Guards",
    "context": "ClearResults CurrentTrace Handoff Injected Labelled Redacted Sections Summarize Tiers WholeHistory Window",
    "drivers": "NativeDriver ReActDecision ReActDriver ScriptedDriver",
    "errors": "AgentChanged ApprovalExpired InvalidArguments JournalError ModelError NoRunYet NoSuchPoint NothingToResume RunCompleted RunHandedOver SandboxUnavailable SessionConflict SessionError SessionExists SessionMoved SessionNotActive ToolDefinitionError Transient UnknownAgent UnknownApproval UnknownDoubt UnknownInput UnknownSession",
    "hooks": "envelope",
    "permissions": "RuleSet can_use_tool default_decision draft is_answered scoped",
    "ports": "Hook HookContext ModelFacts OpenToolset Toolset ToolsetContext",
    "providers": "RecordingModel ReplayModel Timeouts",
    "redaction": "Redactor",
    "resolve": "known_facts known_models local_servers offered_models with_fallback",
    "resolve.archives": "SessionFault check_sessions expire_sessions import_session list_doubts",
    "resolve.command_hooks": "command_hooks",
    "sandboxes": "Bubblewrap Confinement Landlock find_sandbox run_process",
    "sessions": "Explanation",
    "state": "Doubt",
    "stops": "EXIT_IN_DOUBT EXIT_NOT_STORED EXIT_SESSION_HELD EXIT_USAGE exit_code",
    "tooling": "FunctionTool",
    "tools": "Answer Command Preview ProcessResult Review Risk Subject ToolExample ToolResult",
    "toolsets": "Filtered FolderInstructions GuidanceFile McpEntry McpTools OnDemand Prefixed ProgramApprover Renamed RequireApproval Shared ShellTools Skill SkillsFound ToolList VisibleWhen artifact_tool ask_user_tool exit_plan_tool fetch_tool find_skills folder_files folder_instructions folder_surroundings http_rejection mcp_entries mcp_servers notes_tools operation skill_tool todo_tool writing_tools",
    "workers": "AgentMaker Limit PgQueuerDispatcher SessionLogFilter StrandedSession TaskResult WorkerInfo follow list_workers result stranded_sessions",
}
"""Names that were here, by the module that has them now. They work here for one version."""

__all__, _load, __dir__ = lazy_names(__name__, _NAMES)


def __getattr__(name: str) -> Any:
    home = next((f"treadle.{home}" for home, names in _MOVED.items() if name in names.split()), None)
    if home is None:
        return _load(name)
    warnings.warn(f"Write `from {home} import {name}`: it is no longer in `treadle`.", DeprecationWarning, stacklevel=2)
    return getattr(import_module(home), name)
