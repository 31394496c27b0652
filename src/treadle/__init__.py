"""Treadle: the tool loop of a language-model agent. Every call is decided, recorded, bounded and done once.

Names load on first use, so importing the package costs almost nothing and has no side effects.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.agents.agent import Agent as Agent
    from treadle.agents.contracts import ToolFinding as ToolFinding
    from treadle.agents.contracts import check_tools as check_tools
    from treadle.agents.contracts import load_tool_examples as load_tool_examples
    from treadle.agents.goals import Goal as Goal
    from treadle.agents.goals import GoalResult as GoalResult
    from treadle.agents.goals import GoalWork as GoalWork
    from treadle.agents.goals import StopRules as StopRules
    from treadle.agents.goals import load_goal as load_goal
    from treadle.agents.goals import run_goal as run_goal
    from treadle.agents.registry import Agents as Agents
    from treadle.agents.run import Run as Run
    from treadle.agents.subagents import Subagent as Subagent
    from treadle.agents.subagents import load_subagents as load_subagents
    from treadle.agents.subagents import subagent_tool as subagent_tool
    from treadle.budgets import Budget as Budget
    from treadle.budgets import Guards as Guards
    from treadle.budgets import Price as Price
    from treadle.budgets import TenantBudget as TenantBudget
    from treadle.context.compaction import ClearResults as ClearResults
    from treadle.context.compaction import Summarize as Summarize
    from treadle.context.compaction import Tiers as Tiers
    from treadle.context.compilers import CurrentTrace as CurrentTrace
    from treadle.context.compilers import Injected as Injected
    from treadle.context.compilers import Labelled as Labelled
    from treadle.context.compilers import Redacted as Redacted
    from treadle.context.compilers import Sections as Sections
    from treadle.context.compilers import WholeHistory as WholeHistory
    from treadle.context.compilers import Window as Window
    from treadle.context.handoff import Handoff as Handoff
    from treadle.drivers.native import NativeDriver as NativeDriver
    from treadle.drivers.react import ReActDecision as ReActDecision
    from treadle.drivers.react import ReActDriver as ReActDriver
    from treadle.drivers.scripted import ScriptedDriver as ScriptedDriver
    from treadle.engine.spec import RunResult as RunResult
    from treadle.errors import AgentChanged as AgentChanged
    from treadle.errors import ApprovalExpired as ApprovalExpired
    from treadle.errors import ConfigurationError as ConfigurationError
    from treadle.errors import InvalidArguments as InvalidArguments
    from treadle.errors import JournalError as JournalError
    from treadle.errors import ModelError as ModelError
    from treadle.errors import NoRunYet as NoRunYet
    from treadle.errors import NoSuchPoint as NoSuchPoint
    from treadle.errors import NothingToResume as NothingToResume
    from treadle.errors import Rejected as Rejected
    from treadle.errors import RunCompleted as RunCompleted
    from treadle.errors import RunHandedOver as RunHandedOver
    from treadle.errors import SandboxUnavailable as SandboxUnavailable
    from treadle.errors import SessionConflict as SessionConflict
    from treadle.errors import SessionError as SessionError
    from treadle.errors import SessionExists as SessionExists
    from treadle.errors import SessionHeld as SessionHeld
    from treadle.errors import SessionMoved as SessionMoved
    from treadle.errors import SessionNotActive as SessionNotActive
    from treadle.errors import ToolDefinitionError as ToolDefinitionError
    from treadle.errors import ToolError as ToolError
    from treadle.errors import Transient as Transient
    from treadle.errors import TreadleError as TreadleError
    from treadle.errors import UnknownAgent as UnknownAgent
    from treadle.errors import UnknownApproval as UnknownApproval
    from treadle.errors import UnknownDoubt as UnknownDoubt
    from treadle.errors import UnknownInput as UnknownInput
    from treadle.errors import UnknownSession as UnknownSession
    from treadle.hooks import envelope as envelope
    from treadle.messages import Message as Message
    from treadle.messages import ToolCall as ToolCall
    from treadle.permissions.consent import is_answered as is_answered
    from treadle.permissions.modes import RuleSet as RuleSet
    from treadle.permissions.modes import can_use_tool as can_use_tool
    from treadle.permissions.modes import scoped as scoped
    from treadle.permissions.policies import allow as allow
    from treadle.permissions.policies import ask as ask
    from treadle.permissions.policies import default_decision as default_decision
    from treadle.permissions.policies import deny as deny
    from treadle.permissions.policies import draft as draft
    from treadle.permissions.policies import first_of as first_of
    from treadle.ports import Hook as Hook
    from treadle.ports import HookContext as HookContext
    from treadle.ports import ModelFacts as ModelFacts
    from treadle.ports import OpenToolset as OpenToolset
    from treadle.ports import Toolset as Toolset
    from treadle.ports import ToolsetContext as ToolsetContext
    from treadle.providers.http.endpoint import Timeouts as Timeouts
    from treadle.providers.recorded import RecordingModel as RecordingModel
    from treadle.providers.recorded import ReplayModel as ReplayModel
    from treadle.redaction import Redactor as Redactor
    from treadle.resolve import known_facts as known_facts
    from treadle.resolve import known_models as known_models
    from treadle.resolve import local_servers as local_servers
    from treadle.resolve import offered_models as offered_models
    from treadle.resolve import open_journal as open_journal
    from treadle.resolve import open_session as open_session
    from treadle.resolve import resolve_model as resolve_model
    from treadle.resolve import with_fallback as with_fallback
    from treadle.resolve.archives import SessionFault as SessionFault
    from treadle.resolve.archives import check_sessions as check_sessions
    from treadle.resolve.archives import expire_sessions as expire_sessions
    from treadle.resolve.archives import import_session as import_session
    from treadle.resolve.archives import list_doubts as list_doubts
    from treadle.resolve.command_hooks import command_hooks as command_hooks
    from treadle.sandboxes.confinement import Confinement as Confinement
    from treadle.sandboxes.processes import run_process as run_process
    from treadle.sandboxes.runners import Bubblewrap as Bubblewrap
    from treadle.sandboxes.runners import Landlock as Landlock
    from treadle.sandboxes.runners import find_sandbox as find_sandbox
    from treadle.sessions.explain import Explanation as Explanation
    from treadle.sessions.importing import import_messages as import_messages
    from treadle.sessions.session import Session as Session
    from treadle.state import Approval as Approval
    from treadle.state import Doubt as Doubt
    from treadle.state import Suspended as Suspended
    from treadle.stops import EXIT_IN_DOUBT as EXIT_IN_DOUBT
    from treadle.stops import EXIT_NOT_STORED as EXIT_NOT_STORED
    from treadle.stops import EXIT_SESSION_HELD as EXIT_SESSION_HELD
    from treadle.stops import EXIT_USAGE as EXIT_USAGE
    from treadle.stops import StopReason as StopReason
    from treadle.stops import exit_code as exit_code
    from treadle.tooling.callables import FunctionTool as FunctionTool
    from treadle.tooling.decorators import tool as tool
    from treadle.tools import Answer as Answer
    from treadle.tools import CheckedCall as CheckedCall
    from treadle.tools import Command as Command
    from treadle.tools import Decision as Decision
    from treadle.tools import Done as Done
    from treadle.tools import Effect as Effect
    from treadle.tools import NotDone as NotDone
    from treadle.tools import Preview as Preview
    from treadle.tools import ProcessResult as ProcessResult
    from treadle.tools import Review as Review
    from treadle.tools import Risk as Risk
    from treadle.tools import RunContext as RunContext
    from treadle.tools import Subject as Subject
    from treadle.tools import Tool as Tool
    from treadle.tools import ToolContext as ToolContext
    from treadle.tools import ToolExample as ToolExample
    from treadle.tools import ToolOutput as ToolOutput
    from treadle.tools import ToolResult as ToolResult
    from treadle.tools import Unknown as Unknown
    from treadle.toolsets.artifacts import artifact_tool as artifact_tool
    from treadle.toolsets.fetch import fetch_tool as fetch_tool
    from treadle.toolsets.fetch import http_rejection as http_rejection
    from treadle.toolsets.files import file_tools as file_tools
    from treadle.toolsets.files import writing_tools as writing_tools
    from treadle.toolsets.folders import folder_files as folder_files
    from treadle.toolsets.folders import folder_surroundings as folder_surroundings
    from treadle.toolsets.guidance import FolderInstructions as FolderInstructions
    from treadle.toolsets.guidance import GuidanceFile as GuidanceFile
    from treadle.toolsets.guidance import Skill as Skill
    from treadle.toolsets.guidance import SkillsFound as SkillsFound
    from treadle.toolsets.guidance import find_skills as find_skills
    from treadle.toolsets.guidance import folder_instructions as folder_instructions
    from treadle.toolsets.guidance import skill_tool as skill_tool
    from treadle.toolsets.mcp.files import McpEntry as McpEntry
    from treadle.toolsets.mcp.files import mcp_entries as mcp_entries
    from treadle.toolsets.mcp.files import mcp_servers as mcp_servers
    from treadle.toolsets.mcp.toolset import McpTools as McpTools
    from treadle.toolsets.mcp.toolset import mcp_server as mcp_server
    from treadle.toolsets.notes import notes_tools as notes_tools
    from treadle.toolsets.on_demand import OnDemand as OnDemand
    from treadle.toolsets.operations import operation as operation
    from treadle.toolsets.shell.background import ShellTools as ShellTools
    from treadle.toolsets.shell.tool import shell_tool as shell_tool
    from treadle.toolsets.todos import ask_user_tool as ask_user_tool
    from treadle.toolsets.todos import exit_plan_tool as exit_plan_tool
    from treadle.toolsets.todos import todo_tool as todo_tool
    from treadle.toolsets.wrappers import Filtered as Filtered
    from treadle.toolsets.wrappers import Prefixed as Prefixed
    from treadle.toolsets.wrappers import ProgramApprover as ProgramApprover
    from treadle.toolsets.wrappers import Renamed as Renamed
    from treadle.toolsets.wrappers import RequireApproval as RequireApproval
    from treadle.toolsets.wrappers import Shared as Shared
    from treadle.toolsets.wrappers import ToolList as ToolList
    from treadle.toolsets.wrappers import VisibleWhen as VisibleWhen
    from treadle.workers.health import SessionLogFilter as SessionLogFilter
    from treadle.workers.limits import Limit as Limit
    from treadle.workers.presence import WorkerInfo as WorkerInfo
    from treadle.workers.presence import list_workers as list_workers
    from treadle.workers.queued import PgQueuerDispatcher as PgQueuerDispatcher
    from treadle.workers.submitting import TaskResult as TaskResult
    from treadle.workers.submitting import follow as follow
    from treadle.workers.submitting import result as result
    from treadle.workers.submitting import submit as submit
    from treadle.workers.worker import AgentMaker as AgentMaker
    from treadle.workers.worker import StrandedSession as StrandedSession
    from treadle.workers.worker import Worker as Worker
    from treadle.workers.worker import stranded_sessions as stranded_sessions

_NAMES = {
    "agents.agent": "Agent",
    "agents.contracts": "ToolFinding check_tools load_tool_examples",
    "agents.goals": "Goal GoalResult GoalWork StopRules load_goal run_goal",
    "agents.registry": "Agents",
    "agents.run": "Run",
    "agents.subagents": "Subagent load_subagents subagent_tool",
    "budgets": "Budget Guards Price TenantBudget",
    "context.compaction": "ClearResults Summarize Tiers",
    "context.compilers": "CurrentTrace Injected Labelled Redacted Sections WholeHistory Window",
    "context.handoff": "Handoff",
    "drivers.native": "NativeDriver",
    "drivers.react": "ReActDecision ReActDriver",
    "drivers.scripted": "ScriptedDriver",
    "engine.spec": "RunResult",
    "errors": (
        "AgentChanged ApprovalExpired ConfigurationError InvalidArguments JournalError ModelError NoRunYet "
        "NoSuchPoint NothingToResume Rejected RunCompleted RunHandedOver SandboxUnavailable SessionConflict "
        "SessionError SessionExists SessionHeld SessionMoved SessionNotActive ToolDefinitionError ToolError "
        "Transient TreadleError UnknownAgent UnknownApproval UnknownDoubt UnknownInput UnknownSession"
    ),
    "hooks": "envelope",
    "messages": "Message ToolCall",
    "permissions.consent": "is_answered",
    "permissions.modes": "RuleSet can_use_tool scoped",
    "permissions.policies": "allow ask default_decision deny draft first_of",
    "ports": "Hook HookContext ModelFacts OpenToolset Toolset ToolsetContext",
    "providers.http.endpoint": "Timeouts",
    "providers.recorded": "RecordingModel ReplayModel",
    "redaction": "Redactor",
    "resolve": (
        "known_facts known_models local_servers offered_models open_journal open_session resolve_model with_fallback"
    ),
    "resolve.archives": "SessionFault check_sessions expire_sessions import_session list_doubts",
    "resolve.command_hooks": "command_hooks",
    "sandboxes.confinement": "Confinement",
    "sandboxes.processes": "run_process",
    "sandboxes.runners": "Bubblewrap Landlock find_sandbox",
    "sessions.explain": "Explanation",
    "sessions.importing": "import_messages",
    "sessions.session": "Session",
    "state": "Approval Doubt Suspended",
    "stops": "EXIT_IN_DOUBT EXIT_NOT_STORED EXIT_SESSION_HELD EXIT_USAGE StopReason exit_code",
    "tooling.callables": "FunctionTool",
    "tooling.decorators": "tool",
    "tools": (
        "Answer CheckedCall Command Decision Done Effect NotDone Preview ProcessResult Review Risk RunContext Subject Tool "
        "ToolContext ToolExample ToolOutput ToolResult Unknown"
    ),
    "toolsets.artifacts": "artifact_tool",
    "toolsets.fetch": "fetch_tool http_rejection",
    "toolsets.files": "file_tools writing_tools",
    "toolsets.folders": "folder_files folder_surroundings",
    "toolsets.guidance": (
        "FolderInstructions GuidanceFile Skill SkillsFound find_skills folder_instructions skill_tool"
    ),
    "toolsets.mcp.files": "McpEntry mcp_entries mcp_servers",
    "toolsets.mcp.toolset": "McpTools mcp_server",
    "toolsets.notes": "notes_tools",
    "toolsets.on_demand": "OnDemand",
    "toolsets.operations": "operation",
    "toolsets.shell.background": "ShellTools",
    "toolsets.shell.tool": "shell_tool",
    "toolsets.todos": "ask_user_tool exit_plan_tool todo_tool",
    "toolsets.wrappers": "Filtered Prefixed ProgramApprover Renamed RequireApproval Shared ToolList VisibleWhen",
    "workers.health": "SessionLogFilter",
    "workers.limits": "Limit",
    "workers.presence": "WorkerInfo list_workers",
    "workers.queued": "PgQueuerDispatcher",
    "workers.submitting": "TaskResult follow result submit",
    "workers.worker": "AgentMaker StrandedSession Worker stranded_sessions",
}
"""The public names of each module."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, not two


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treadle' has no attribute {name!r}")
    value = getattr(import_module(f"treadle.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
