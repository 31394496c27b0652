"""Agent sources: from `--agents` to functions that make agents, by name: Python files, module:attribute. Runs none of them."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from treadle import Agent, AgentMaker, Agents
from treadle.cli.exits import UsageError
from treadle.cli.tool_sources import attribute_of, module_of_file

__all__ = ["load_agents"]


def load_agents(sources: Iterable[str], folder: Any) -> dict[str, AgentMaker]:
    """Return what makes each agent, by its name.

    Raises:
        UsageError: A file or module cannot be loaded, holds no agent, or two have one name.
    """
    found: dict[str, AgentMaker] = {}
    for source in sources:
        for name, make in _load(source, folder).items():
            if name in found:
                raise UsageError(f"--agents names two agents {name!r}. Give each a name of its own.")
            found[name] = make
    return found


def _load(source: str, folder: Any) -> Mapping[str, AgentMaker]:
    text = source.strip()
    if text.endswith(".py"):
        module = module_of_file(folder / text, "--agents")
        agents = _agents_in(getattr(module, "AGENTS", None)) or _agents_in(list(vars(module).values()))
        hint = "Make an Agent(..., name='support') there, or a dict AGENTS of functions by name."
    else:
        if ":" not in text:
            raise UsageError(f"--agents {text}: name FILE.py or module:attr, such as --agents agents.py.")
        value = attribute_of(text, "--agents")
        agents = _agents_in(value) or ({text.rpartition(":")[2].rpartition(".")[2]: value} if callable(value) else {})
        hint = "Name an Agent with a name, a list of them, a dict of functions by name, or a function."
    if not agents:
        raise UsageError(f"--agents {text} holds no agent. {hint}")
    return agents


def _agents_in(value: Any) -> dict[str, AgentMaker]:
    """Return the agents of a value; empty where there are none."""
    match value:
        case Agent():
            return {value.name: partial(_same, value)} if value.name else {}
        case Agents():
            return _agents_in(list(value))
        case Mapping():
            return {str(name): make if callable(make) else partial(_same, make) for name, make in value.items()}
        case list() | tuple():
            return {name: make for one in value if isinstance(one, Agent) for name, make in _agents_in(one).items()}
        case _:
            return {}


def _same(agent: Any) -> Any:
    return agent
