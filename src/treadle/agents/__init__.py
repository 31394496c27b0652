"""Agents: what users hold: an agent, its runs, and agents as tools of agents."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

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

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agent": "Agent",
        "contracts": "ToolFinding check_tools load_tool_examples",
        "goals": "Goal GoalResult GoalWork StopRules load_goal run_goal",
        "registry": "Agents",
        "run": "Run",
        "subagents": "Subagent load_subagents subagent_tool",
    },
)
