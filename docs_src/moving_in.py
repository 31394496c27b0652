"""A conversation that another library has kept continues in a session; and the test of it, moved too."""

import asyncio
import json
import tempfile
from pathlib import Path

from treadle import Agent, Session, open_session, tool
from treadle.ports import Model
from treadle.resolve import import_messages
from treadle.testing import ScriptedModel, call, text

# What the old service has in its database: here messages of Chat Completions. Those of pydantic-ai, of the OpenAI Agents SDK, of
# LangChain, and of Anthropic are read in the same way.
STORED = json.dumps(
    [
        {"role": "system", "content": "You handle refunds."},
        {"role": "user", "content": "Where is my order?"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"customer": "Ada"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "order-17, sent on Monday"},
        {"role": "assistant", "content": "Order 17 was sent on Monday."},
    ]
)


@tool(effect="read")
async def find_order(customer: str) -> str:
    """Find the last order of a customer."""
    return "order-17, sent on Monday"


@tool(effect="unsafe", permission="allow")
async def refund(order: str) -> str:
    """Refund an order."""
    return "refunded"


def make_agent(model: str | Model) -> Agent:
    return Agent(model, instructions="You handle refunds.", tools=[find_order, refund])


async def reply(agent: Agent, session: Session, question: str, stored: str = "") -> str:
    """Answer in a session, which begins with what the old service has stored."""
    if stored and not session.messages:
        await import_messages(session, stored)
    return (await agent.run(question, session=session)).text


async def test_a_moved_conversation_goes_on(journal: Path) -> None:
    model = ScriptedModel([call("refund", order="order-17"), text("It is refunded.")])
    async with open_session(journal, id="ada") as session:
        answer = await reply(make_agent(model), session, "It never came. Refund it!", STORED)

    assert answer == "It is refunded."
    assert "order-17, sent on Monday" in str(model.requests[0].messages)  # the model has read the old conversation
    assert [one.name for message in session.messages for one in message.calls] == ["find_order", "refund"]
    print(answer)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(test_a_moved_conversation_goes_on(Path(folder) / "shop.db"))
