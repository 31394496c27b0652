"""A chat as a task of Celery: each message is answered once, though Celery may deliver it again. Start a worker with:
MODEL=openai:gpt-5-mini celery -A celery_chat worker"""

import os

from celery import Celery, Task

from treadle import Agent, SessionHeld, open_session, sync
from treadle.errors import RunCompleted

app = Celery("celery_chat", broker=os.environ.get("BROKER", "redis://"), backend=os.environ.get("RESULTS", "redis://"))
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)  # a task whose worker died is delivered again
agent = Agent(os.environ["MODEL"], instructions="You answer in a chat.")


@app.task(bind=True, autoretry_for=(SessionHeld,), retry_backoff=1, max_retries=None)
def answer(self: Task, chat: str, text: str) -> str:
    """Answer a message. A second one in the same chat waits until the first is answered."""
    with sync.opened(open_session("chats.db", id=chat)) as session:
        if session.state.metadata.get("task") != self.request.id:
            return agent.run_sync(text, session=session, metadata={"task": self.request.id}).text
        try:  # it was delivered before: only what is left is done
            return agent.resume_sync(session).text
        except RunCompleted:
            return session.messages[-1].text
