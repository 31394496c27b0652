"""Exact checks of what a session has done, as plain asserts: pytest shows the reason of a check that is not met."""

import asyncio

from treadle import Agent, Budget, tool
from treadle.testing import ScriptedModel, call, called, effects_done, never_called, no_doubt, observe, text, within


@tool(effect="unsafe", permission="allow")
def pay(invoice: int, note: str = "") -> str:
    """Pay an invoice."""
    return f"Invoice {invoice} is paid."


async def test_the_invoice_is_paid_once_and_nothing_else_happens() -> None:
    agent = Agent(ScriptedModel([call("pay", invoice=7, note="tea"), text("Paid.")]), tools=[pay])

    result = await agent.run("Pay invoice 7")

    seen = await observe(result.session)
    assert called("pay", {"invoice": 7}, times=1)(seen)
    assert effects_done(("pay", {"invoice": 7}))(seen)
    assert never_called("refund")(seen)
    assert within(Budget(max_model_turns=3, max_tool_calls=1))(seen)
    assert no_doubt()(seen)


asyncio.run(test_the_invoice_is_paid_once_and_nothing_else_happens())  # pytest does so in asyncio_mode = "auto"
