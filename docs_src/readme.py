"""The README's program: one tool, one question. With a name such as "ollama:qwen3" instead of the script, it asks a real model."""

from treadle import Agent, tool
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
def stock(product: str) -> int:
    """Return how many pieces of a product are in stock."""
    return {"teapot": 12, "cup": 0}[product]


model = ScriptedModel([call("stock", product="teapot"), text("12 teapots.")])
print(Agent(model, tools=[stock]).run_sync("How many teapots do we have?").text)
