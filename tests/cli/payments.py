"""An agent that pays once a task, for tests that kill a batch. Each payment is a line of the ledger."""

import os
from pathlib import Path

from treadle import Agent, Price, allow, tool
from treadle.ports import ModelRequest
from treadle.testing import ScriptedModel, call, text


@tool(effect="unsafe")
def pay(invoice: str) -> str:
    """Pay an invoice."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{invoice}\n")
    print(f"paid {invoice}", flush=True)
    if gate := os.environ.get("GATE"):
        Path(gate).read_text()  # a pipe: it waits until the test opens it
    return "paid"


def _reply(request: ModelRequest) -> object:
    invoice = next(message.text for message in reversed(request.messages) if message.role == "user")
    has_paid = any(message.role == "tool" for message in request.messages)
    return text(f"{invoice} is done") if has_paid else call("pay", invoice=invoice)


def accountant() -> Agent:
    model = ScriptedModel([_reply], price=Price(input=1, output=3))
    return Agent(model, tools=[pay], policy=allow("pay"), name="accountant")


AGENTS = {"accountant": accountant}
