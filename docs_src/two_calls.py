"""A model that calls a tool twice in one response. The model is scripted, so that this runs without a key."""

from treadle import Agent, Budget, tool
from treadle.testing import ScriptedModel, call, text


@tool(effect="read", timeout=10)
async def temperature(town: str) -> float:
    """Return the temperature of a town now, in degrees Celsius."""
    return {"Vienna": 21.5, "Bergen": 9.0}[town]


model = ScriptedModel([[call("temperature", town="Vienna"), call("temperature", town="Bergen")], text("Vienna.")])
agent = Agent(model, tools=[temperature], budget=Budget(max_model_turns=20))
result = agent.run_sync("Which is warmer, Vienna or Bergen?")

print(result.text, result.reason)
assert [one.status for one in result.tool_calls] == ["ok", "ok"]
