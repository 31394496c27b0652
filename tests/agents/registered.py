"""A process that has a registry of agents, and else only a journal's address and a session's id.

    python registered.py start|kill|resume JOURNAL SESSION FILE auto|required refuse|accept ask|allow

`start` gives the task, and so does `kill`, which dies in its payment by SIGKILL. `resume` continues by id. FILE gets the key of each
payment that the tool made. What is printed is JSON.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from treadle import Agent, Agents, ToolContext, TreadleError, allow, open_session, tool
from treadle.testing import ScriptedModel, call, text


def clerk(act: str, paid: Path, tool_choice: str, decision: str) -> Agent:
    @tool(effect="keyed")
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay an invoice."""
        with paid.open("a") as file:
            file.write(f"{ctx.idempotency_key}\n")
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    model = ScriptedModel([text("The invoice is paid.")] if act == "resume" else [call("pay", amount=40)])
    policy = allow("pay") if decision == "allow" else None
    return Agent(model, name="clerk", tool_choice=tool_choice, tools=[pay], policy=policy)


async def main(
    act: str, journal: str, session_id: str, paid: str, tool_choice: str, changed: str, decision: str
) -> dict[str, object]:
    agent = clerk(act, Path(paid), tool_choice, decision)
    if act == "resume":
        result = await Agents([agent]).resume(
            journal, session_id, changed="accept" if changed == "accept" else "refuse"
        )
    else:
        async with open_session(journal, id=session_id) as session:
            result = await agent.run("Pay the invoice", session=session)
    return {"reason": result.reason.value, "text": result.text, "calls": [one.status for one in result.tool_calls]}


if __name__ == "__main__":
    try:
        print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
    except TreadleError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
