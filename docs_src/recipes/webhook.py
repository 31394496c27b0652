"""A bot behind a webhook, as messengers have it: long conversations, one message at a time, each once. Start it with:
MODEL=openai:gpt-5-mini uvicorn webhook:app"""

import os

from fastapi import BackgroundTasks, FastAPI
from pydantic import BaseModel

from treadle import Agent, SessionHeld, open_session
from treadle.context import Summarize

agent = Agent(os.environ["MODEL"], instructions="You answer in a chat.", compactor=Summarize())
app = FastAPI()
OUTBOX: list[dict[str, str]] = []
"""What was sent. A real bot calls the messenger's API here."""


class Update(BaseModel):
    number: int
    chat: str
    text: str


@app.post("/webhook")
async def receive(update: Update, later: BackgroundTasks) -> None:
    """Answer the messenger at once, and the person later: it sends an update again that is not answered in time."""
    later.add_task(reply, update)


async def reply(update: Update) -> None:
    async with open_session("bot.db", id=f"chat-{update.chat}") as session:
        if update.number <= session.state.metadata.get("last_update", 0):
            return  # it was sent again
        try:
            result = await agent.run(update.text, session=session, metadata={"last_update": update.number})
        except SessionHeld:
            await session.steer(update.text)  # the run that is under way reads it after its step, and answers both
            return
    OUTBOX.append({"chat": update.chat, "text": result.text})


@app.get("/outbox")
async def outbox() -> list[dict[str, str]]:
    return OUTBOX
