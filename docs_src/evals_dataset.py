"""An agent as the task of a dataset of pydantic-evals, with its evaluators and with exact checks."""

import asyncio

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains

from treadle import Agent, tool
from treadle.integrations.pydantic_evals import Exact, task
from treadle.testing import ScriptedModel, call, effects_done, no_doubt, text


@tool(effect="unsafe", permission="allow")
def pay(invoice: int) -> str:
    """Pay an invoice."""
    return f"Invoice {invoice} is paid."


agent = Agent(ScriptedModel([call("pay", invoice=7), text("Paid.")]), tools=[pay])
case = Case(
    name="one invoice",
    inputs="Pay invoice 7",
    evaluators=(Contains("Paid"), Exact(effects_done(("pay", {"invoice": 7})), no_doubt())),
)
report = asyncio.run(Dataset(name="shop", cases=[case]).evaluate(task(agent), progress=False))

assert report.cases[0].metrics["tool_calls"] == 1
assert all(one.value for one in report.cases[0].assertions.values())
report.print(include_reasons=True)
