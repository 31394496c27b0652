"""What the model sees of a session: without earlier calls, with notes added, and with a secret number hidden."""

import asyncio
import re

import msgspec

from treadle import Agent, Message, Session, open_session, tool
from treadle.context import CurrentTrace, Injected, Redacted, Window
from treadle.messages import Part, Result, Text
from treadle.ports import SessionView
from treadle.testing import ScriptedModel, call, text

CARD = re.compile(r"\b\d{4}-\d{4}\b")


@tool(effect="read")
async def account(person: str) -> str:
    """Look up a person's account."""
    return f"{person}: card 1234-5678"


def hidden(part: Part) -> Part:
    match part:
        case Text():
            return msgspec.structs.replace(part, text=CARD.sub("[card]", part.text))
        case Result():
            return msgspec.structs.replace(part, content=CARD.sub("[card]", part.content))
        case _:
            return part


def without_cards(message: Message) -> Message:
    return msgspec.structs.replace(message, parts=tuple(map(hidden, message.parts)))


def notes(session: SessionView) -> str | None:
    return "Notes: the person prefers short answers."


async def main(session: Session) -> None:
    model = ScriptedModel(
        [call("account", person="Ada"), text("I see it."), call("account", person="Bo"), text("Too.")]
    )
    compiler = Redacted(Injected(Window(CurrentTrace(), tokens=4_000), notes), without_cards)
    agent = Agent(model, tools=[account], compiler=compiler)

    await agent.run("Look up Ada", session=session)
    await agent.run("And Bo", session=session)

    seen = model.requests[-1].messages
    for message in seen:
        print(f"{message.role}: {message.text or [*message.calls, *message.results]}")
    assert [message.role for message in seen] == ["user", "assistant", "user", "user", "assistant", "tool"]
    assert seen[-1].results[0].content == "Bo: card [card]"
    assert "1234-5678" in session.messages[-2].results[0].content  # the store is never changed


async def with_session() -> None:
    async with open_session("memory:") as session:
        await main(session)


asyncio.run(with_session())
