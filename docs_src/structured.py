"""A structured answer. One that does not fit is reported to the model, and never returned."""

import asyncio

import msgspec

from treadle import Agent
from treadle.testing import ScriptedModel, text


class Town(msgspec.Struct):
    name: str
    people: int


async def main() -> None:
    model = ScriptedModel([text('{"name": "Bergen"}'), text('{"name": "Bergen", "people": 290000}')])

    result = await Agent(model, output=Town).run("Which town has most rain?")

    print(result.output)
    print(model.requests[1].messages[-1].text)
    assert result.output == Town(name="Bergen", people=290000)


asyncio.run(main())
