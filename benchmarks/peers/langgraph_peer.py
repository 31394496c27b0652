"""LangGraph by way of LangChain's `create_agent`, without a checkpointer."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"
sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from langchain.agents import create_agent
from langchain_core.tools import tool as as_tool
from langchain_openai import ChatOpenAI

TASK = {"messages": [("user", harness.TASK)]}
NO_LIMIT = {"recursion_limit": 100_000}


class LangGraph:
    """One graph, run many times."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Any:
        model = ChatOpenAI(model="mock", base_url=base_url, api_key="x", max_retries=0)
        return create_agent(model, tools=[as_tool(tool)], system_prompt=harness.INSTRUCTIONS)

    async def run(self, agent: Any) -> str:
        return (await agent.ainvoke(TASK, NO_LIMIT))["messages"][-1].content

    async def stream(self, agent: Any, on_text: Callable[[str], None]) -> str:
        text = []
        async for message, _ in agent.astream(TASK, NO_LIMIT, stream_mode="messages"):
            if message.type == "AIMessageChunk" and message.content:
                on_text(message.content)
                text.append(message.content)
        return "".join(text)

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(LangGraph())
