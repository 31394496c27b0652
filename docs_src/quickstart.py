"""The first agent: one tool, one question. The scripted model replaces a real one, so that this runs without a key."""

from treadle import Agent, tool
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
def stock(product: str) -> int:
    """Return how many pieces of a product are in stock.

    Args:
        product: The product's name, such as `teapot`.
    """
    return {"teapot": 12, "cup": 0}[product]


model = ScriptedModel([call("stock", product="teapot"), text("12 teapots are in stock.")])  # or "ollama:qwen3"
agent = Agent(model, tools=[stock], instructions="You answer questions about our stock.")

result = agent.run_sync("How many teapots do we have?")

print(result.text)
assert result.completed
assert result.tool_calls[0].status == "ok"
