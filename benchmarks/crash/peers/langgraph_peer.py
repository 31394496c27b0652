"""LangGraph with its SQLite checkpointer and `durability="sync"`, the strongest of its modes; resumed with `invoke(None)`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from life import Life, live


def run(life: Life) -> str:
    @tool
    def pay(amount: int, runtime: ToolRuntime) -> str:
        """Pay an amount."""
        return life.pay(f"{life.invoice}:{runtime.tool_call_id}", amount)

    model = ChatOpenAI(model="mock", base_url=life.base_url, api_key="x")
    task = {"messages": [{"role": "user", "content": life.task}]} if life.act == "start" else None
    with SqliteSaver.from_conn_string(life.store) as checkpointer:
        agent = create_agent(model, tools=[pay], checkpointer=checkpointer)
        state = agent.invoke(task, {"configurable": {"thread_id": life.invoice}}, durability="sync")
    return state["messages"][-1].text


if __name__ == "__main__":
    live(run, "langgraph", "langchain", "langgraph-checkpoint-sqlite")
