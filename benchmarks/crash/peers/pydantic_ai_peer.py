"""pydantic-ai with DBOS on SQLite, its documented way to outlive a process; the tool is a step, and DBOS recovers the workflow."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from dbos import DBOS, SetWorkflowID
from life import Life, live
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def run(life: Life) -> str:
    DBOS(
        config={
            "name": "crash-demo",
            "system_database_url": f"sqlite:///{life.store}",
            "log_level": "ERROR",
        }
    )
    model = OpenAIChatModel("mock", provider=OpenAIProvider(base_url=life.base_url, api_key="x"))
    agent = Agent(model, name="payer", capabilities=[DBOSDurability()])

    @agent.tool_plain
    @DBOS.step()
    def pay(amount: int) -> str:
        """Pay an amount."""
        return life.pay(f"{DBOS.workflow_id}:{DBOS.step_id}", amount)

    @DBOS.workflow()
    async def work(task: str) -> str:
        return (await agent.run(task)).output

    async def start_or_wait() -> str:
        DBOS.launch()  # recovers what a process before this one has left
        if life.act == "start":
            with SetWorkflowID(life.invoice):
                return await work(life.task)
        return await (await DBOS.retrieve_workflow_async(life.invoice)).get_result()

    try:
        return asyncio.run(start_or_wait())
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    live(run, "pydantic-ai-slim", "dbos")
