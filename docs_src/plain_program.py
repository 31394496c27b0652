"""A program that is not async: a session, a question that a person answers, and the rest of the run. No `await`, no event loop of yours."""

import tempfile
from pathlib import Path

from treadle import Agent, open_session, sync, tool
from treadle.testing import ScriptedModel, call, text
from treadle.workers import follow

PLACE = Path(tempfile.mkdtemp()) / "desk.db"


@tool(effect="keyed")
def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."


model = ScriptedModel([call("refund", order=7), text("The refund is on its way.")])
agent = Agent(model, tools=[refund], name="desk")

# One request of a service, such as a view of Flask or Django, or a task of Celery.
with sync.opened(open_session(PLACE, id="7")) as session:
    paused = agent.run_sync("Refund order 7", session=session)
    print(paused.reason)

# Another request, perhaps in another process: a person has decided.
with sync.opened(open_session(PLACE, id="7")) as session:
    (approval,) = sync.wait(session.approvals())
    sync.wait(session.answer(approval.id, "allow", by="Ada"))
    result = agent.resume_sync(session)
    print(result.text)

for event in sync.each(follow(PLACE, "7")):
    print(event.type)

assert result.text == "The refund is on its way."
