"""Agents: what users hold: an agent, its runs, and agents as tools of agents."""
