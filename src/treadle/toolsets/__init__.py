"""Toolsets: tools that come with Treadle, each file loaded when it is named. Holds no agent and decides nothing."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.toolsets.artifacts import artifact_tool as artifact_tool
    from treadle.toolsets.fetch import fetch_tool as fetch_tool
    from treadle.toolsets.fetch import http_rejection as http_rejection
    from treadle.toolsets.files import file_tools as file_tools
    from treadle.toolsets.files import writing_tools as writing_tools
    from treadle.toolsets.folders import folder_changes as folder_changes
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

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "artifacts": "artifact_tool",
        "fetch": "fetch_tool http_rejection",
        "files": "file_tools writing_tools",
        "folders": "folder_changes folder_files folder_surroundings",
        "guidance": "FolderInstructions GuidanceFile Skill SkillsFound find_skills folder_instructions skill_tool",
        "mcp.files": "McpEntry mcp_entries mcp_servers",
        "mcp.toolset": "McpTools mcp_server",
        "notes": "notes_tools",
        "on_demand": "OnDemand",
        "operations": "operation",
        "shell.background": "ShellTools",
        "shell.tool": "shell_tool",
        "todos": "ask_user_tool exit_plan_tool todo_tool",
        "wrappers": "Filtered Prefixed ProgramApprover Renamed RequireApproval Shared ToolList VisibleWhen",
    },
)
