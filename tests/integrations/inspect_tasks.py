"""Tasks that `inspect eval` runs with Treadle agents and Inspect's mock model."""

import asyncio
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools

from treadle import Agent, Rejected, tool
from treadle.integrations import inspect
from treadle.testing import called, effects_done, never_called, no_doubt

PAID = Path("paid.txt")
SEEN = Path("seen.txt")


@tool(effect="unsafe", permission="allow")
def pay(invoice: int) -> str:
    """Pay an invoice.

    Args:
        invoice: Its number.
    """
    if invoice > 100:
        raise Rejected("There is no such invoice.")
    with PAID.open("a") as file:
        file.write(f"{invoice}\n")
    return f"Invoice {invoice} is paid."


@tool(effect="read")
async def wait() -> str:
    """Wait without an end."""
    await asyncio.Event().wait()
    return "over"


@tool(effect="read")
def add(first: int, second: int = 0) -> int:
    """Add two numbers."""
    return first + second


def mock(*outputs):
    """Inspect's mock model. It writes down what it reads."""
    left = iter(outputs)

    def answer(messages, tools, tool_choice, config):
        with SEEN.open("a") as file:
            file.writelines(f"{one.role}: {one.text}\n" for one in messages)
            file.writelines(f"tool: {one.name} {sorted(one.parameters.properties)}\n" for one in tools)
        return next(left)

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def counted(output, tokens=10):
    """Without counts the mock would fetch a tokenizer."""
    output.usage = ModelUsage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return output


def calls(name, **arguments):
    return counted(ModelOutput.for_tool_call("mockllm", name, arguments))


def says(text, tokens=10):
    return counted(ModelOutput.from_content("mockllm", text), tokens)


@task
def shop():
    before = [
        ChatMessageSystem(content="Today is Monday."),
        ChatMessageUser(content="Are you there?"),
        ChatMessageAssistant(content="I am."),
    ]
    checks = (called("pay", {"invoice": 7}), effects_done("pay"), never_called("refund"), no_doubt())
    return Task(
        dataset=[Sample(input=[*before, ChatMessageUser(content="Pay invoice 7")], target="paid")],
        model=mock(calls("pay", invoice=700), calls("pay", invoice=7), says("It is paid.")),
        solver=inspect.agent(Agent("demo", tools=[pay], instructions="You pay.", name="payer")),
        scorer=[includes(), inspect.exact(*checks)],
    )


@task
def limited():
    return Task(
        dataset=[Sample(input="Pay invoice 8", target="paid")],
        model=mock(says("Too much.", tokens=10_000)),
        solver=inspect.agent(Agent("demo", tools=[pay])),
        scorer=includes(),
        token_limit=100,
    )


@task
def late():
    """Pays, and then looks until the time is up."""
    return Task(
        dataset=[Sample(input="Pay invoice 6", target="paid")],
        model=mock(calls("pay", invoice=6), calls("wait")),
        solver=inspect.agent(Agent("demo", tools=[pay, wait])),
        scorer=[includes(), inspect.exact(effects_done("pay"))],
        time_limit=2,
    )


@task
def undescribed():
    return Task(
        dataset=[Sample(input="Add 2 and 3", target="5")],
        model=mock(calls("add", first=2, second=3), says("It is 5.")),
        solver=[use_tools(inspect.tools(add)), generate()],
        scorer=includes(),
    )


@task
def tools():
    return Task(
        dataset=[Sample(input="Pay invoice 9", target="paid")],
        model=mock(calls("pay", invoice=900), calls("pay", invoice=9), says("Invoice 9 is paid.")),
        solver=[use_tools(inspect.tools(pay)), generate()],
        scorer=includes(),
    )
