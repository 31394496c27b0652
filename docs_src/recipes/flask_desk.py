"""Tickets behind Flask, in plain functions. A worker runs them: treadle worker --journal desk.db --agents flask_desk.py"""

import os
from typing import Any

from flask import Flask, request

from treadle import Agent, open_journal, open_session, submit, sync, tool
from treadle.workers import result

JOURNAL = "desk.db"


@tool(effect="unsafe")
def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"{euros} euros for {order}"


AGENTS = {"desk": lambda: Agent(os.environ["MODEL"], name="desk", tools=[refund])}
app = Flask(__name__)


@app.post("/tickets")
def begin() -> dict[str, str]:
    return {"id": sync.wait(submit(JOURNAL, "desk", request.get_json()["text"]))}


@app.get("/approvals")
def waiting() -> list[dict[str, Any]]:
    with sync.opened(open_journal(JOURNAL)) as journal:
        return [{"id": one.id, "ticket": one.session_id, "tool": one.tool} for one in sync.wait(journal.approvals())]


@app.post("/tickets/<ticket>/approvals/<approval>")
def decide(ticket: str, approval: str) -> dict[str, str]:
    with sync.opened(open_session(JOURNAL, id=ticket, must_exist=True)) as session:
        sync.wait(session.answer(approval, request.get_json()["answer"], by="bo"))
    return {"ticket": ticket}


@app.get("/tickets/<ticket>")
def outcome(ticket: str) -> dict[str, str]:
    ended = sync.wait(result(JOURNAL, ticket, timeout=30))
    return {"status": ended.status, "text": ended.text}
