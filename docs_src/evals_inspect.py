"""An agent as an Inspect agent. Run it with: inspect eval evals_inspect.py --model openai/gpt-5-mini"""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes

from treadle import Agent, tool
from treadle.integrations import inspect
from treadle.testing import effects_done, no_doubt


@tool(effect="unsafe", permission="allow")
def pay(invoice: int) -> str:
    """Pay an invoice."""
    return f"Invoice {invoice} is paid."


@task
def shop() -> Task:
    # The model of the eval takes the place of `demo`.
    agent = Agent("demo", tools=[pay], instructions="You pay invoices.")
    return Task(
        dataset=[Sample(input="Pay invoice 7", target="paid")],
        solver=inspect.agent(agent),
        scorer=[includes(), inspect.exact(effects_done(("pay", {"invoice": 7})), no_doubt())],
    )
