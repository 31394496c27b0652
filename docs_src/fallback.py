"""Two models behind one name. The first keeps failing, so the second answers, and the message says who did."""

import asyncio

from treadle import Agent, Price
from treadle.resolve import with_fallback
from treadle.testing import ScriptedModel, Turn, text


async def main() -> None:
    busy = ScriptedModel([Turn(status=529)], name="first", price=Price(input=3, output=15))
    well = ScriptedModel([text("Here I am.")], name="second", price=Price(input=1, output=4))

    result = await Agent(with_fallback(busy, well, failures=1)).run("Is anybody there?")

    print(result.text, result.messages[-1].origin)
    assert result.completed
    assert len(busy.requests) == 1
    assert result.messages[-1].origin == "second"


asyncio.run(main())
