"""A custom policy: it changes a call, stops the run for a person, or has a program run in a sandbox."""

import asyncio

from treadle import Agent, CheckedCall, Decision, Tool, ToolContext
from treadle.ports import SessionView
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Command, JsonObject, ProcessResult

ANY: JsonObject = {"type": "object"}


class Careful:
    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        match call.name:
            case "pay" if call.arguments["amount"] > 100:
                changed = {**call.arguments, "amount": 100}
                return Decision(kind="allow", rule="limit", arguments=changed, message="100 is the most.")
            case "pay":
                return Decision(kind="allow", rule="limit")
            case "shell":
                return Decision(kind="sandbox", rule="programs")
            case _:
                return Decision(kind="deny", rule="unknown", message="Ask me first.", interrupt=True)


class Pretend:
    """Stands for a real sandbox, such as one over bubblewrap."""

    name = "pretend"

    async def run(self, command: Command) -> ProcessResult:
        return ProcessResult(exit_code=0, stdout=" ".join(command.arguments), stderr="")


async def pay(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
    return {"paid": arguments["amount"], "rule": ctx.decision.rule}


async def never(arguments: JsonObject, ctx: ToolContext) -> None:
    raise AssertionError("never runs bare")


TOOLS = [
    Tool(name="pay", description="Pay.", parameters=ANY, run=pay),
    Tool(
        name="shell",
        description="Run a program.",
        parameters=ANY,
        run=never,
        sandbox=lambda arguments: Command(arguments=tuple(arguments["program"])),
    ),
    Tool(name="delete", description="Delete all.", parameters=ANY, run=never),
]


async def main() -> None:
    model = ScriptedModel([[call("pay", amount=900), call("shell", program=["ls"])], call("delete"), text("Never.")])
    result = await Agent(model, tools=TOOLS, policy=Careful(), sandbox=Pretend()).run("Go")

    told = [one.content for message in result.messages for one in message.results]
    assert '"paid":100' in told[0]
    assert '"arguments_changed":true' in told[0]
    assert '"stdout":"ls"' in told[1]
    print(result.reason, "-", result.message)
    assert result.reason == "cancelled"


asyncio.run(main())
