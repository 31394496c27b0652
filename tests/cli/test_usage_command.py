"""`treadle usage`: what all sessions have used, as a table, as values separated by commas, and as JSON."""

import asyncio
from pathlib import Path
from typing import Any

from treadle import Agent, open_session
from treadle.messages import Usage
from treadle.testing import ScriptedModel, Turn


async def test_usage_is_shown_as_a_table_as_csv_and_as_json(treadle: Any, tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text="Done.", usage=Usage(input_tokens=10, output_tokens=2))], name="clerk")
    model._price = None
    async with open_session(tmp_path / "agent.db") as session:
        await Agent(model).run("Go", session=session, tenant="K7")
    place = ("--journal", str(tmp_path / "agent.db"), "--by", "tenant,model")

    shown = await asyncio.to_thread(treadle, "usage", *place)
    assert shown.stdout.splitlines() == [
        "tenant  model  requests  input  output  USD",
        "K7      clerk         1     10       2    0",
    ]
    assert (
        "Without the cost of 1 requests to models without a known price (clerk): their tokens are counted."
        in shown.stderr
    )
    csv = await asyncio.to_thread(treadle, "usage", *place, "--csv")
    assert csv.stdout == ("tenant,model,requests,input_tokens,output_tokens,cost,unpriced\nK7,clerk,1,10,2,0,1\n")
    row = {"requests": 1, "input_tokens": 10, "output_tokens": 2, "cost": "0", "unpriced": 1}
    rows = await asyncio.to_thread(treadle.json, "usage", *place, "--json")
    assert rows == [{"tenant": "K7", "model": "clerk", **row}]
    nothing = await asyncio.to_thread(treadle, "usage", "--journal", str(tmp_path / "none.db"))
    assert "Nothing was used." in nothing.stderr
