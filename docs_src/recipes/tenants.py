"""A service for many customers: a key says whose request it is, and each has a budget. Start it with:
MODEL=openai:gpt-5-mini uvicorn tenants:app"""

import os
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel

from treadle import Agent, Price, RunContext, TenantBudget, open_journal, open_session, resolve_model
from treadle.errors import SessionConflict

KEYS = {"key-of-ada": ("K7", "ada"), "key-of-bo": ("K8", "bo")}
"""Tenant and user by key. A real service looks into its database."""


def instructions(ctx: RunContext) -> str:
    return f"You answer for the customer {ctx.session.tenant}."


agent = Agent(
    resolve_model(os.environ["MODEL"], price=Price(input=0.25, output=2)),
    instructions=instructions,
    tenant_budgets=[TenantBudget(max_total_cost=50), TenantBudget(max_total_cost=1, per="day", each="user")],
)
app = FastAPI()


def signed_in(key: Annotated[str, Header()]) -> tuple[str, str]:
    if key not in KEYS:
        raise HTTPException(401)
    return KEYS[key]


Caller = Annotated[tuple[str, str], Depends(signed_in)]


class Question(BaseModel):
    text: str


@app.post("/chats/{chat}")
async def ask(chat: str, question: Question, caller: Caller) -> dict[str, str]:
    tenant, user = caller
    async with open_session("service.db", id=chat) as session:
        try:
            result = await agent.run(question.text, session=session, tenant=tenant, metadata={"user": user})
        except SessionConflict as error:  # the chat of another tenant
            raise HTTPException(404) from error
    if result.reason == "budget_exceeded":
        raise HTTPException(429, result.message)
    return {"text": result.text}


@app.get("/usage")
async def usage(caller: Caller) -> list[dict[str, Any]]:
    async with open_journal("service.db") as journal:
        rows = await journal.usage(("tenant", "user", "day"))
    return [{**row.group, "cost": str(row.cost)} for row in rows if row.group["tenant"] == caller[0]]
