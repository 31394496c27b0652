"""Who decides on calls: rules by name, a custom policy, and an interceptor that sees every call and result."""

import asyncio

import msgspec

from treadle import Agent, CheckedCall, Decision, ToolCall, allow, ask, deny, first_of, tool
from treadle.ports import SessionView
from treadle.testing import ScriptedModel, call, text
from treadle.tools import ToolResult


@tool(effect="unsafe")
async def transfer(amount: int, account: str) -> str:
    """Transfer money."""
    return f"{amount} to {account}"


@tool(effect="read")
async def balance(account: str) -> int:
    """Return the balance of an account."""
    return 1200


class SmallAmounts:
    """Allows a transfer of up to 50, and has no opinion on anything else."""

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        if call.name == "transfer" and call.arguments["amount"] <= 50:
            return Decision(kind="allow", rule="small amounts", reason="A transfer of up to 50 needs nobody.")
        return None


class Masked:
    """Writes down every call, and hides the balance from the model."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before(self, call: ToolCall) -> ToolCall | Decision:
        self.seen.append(call.name)
        return call  # or another call, or Decision(kind="deny", reason="...")

    def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return msgspec.structs.replace(result, content="enough") if call.name == "balance" else result


async def main() -> None:
    calls = [
        call("balance", account="mine"),
        call("transfer", amount=40, account="A"),
        call("transfer", amount=900, account="B"),
        call("transfer", amount=1, account="secret"),
    ]
    policy = first_of(
        deny("transfer(account=secret*)", reason="This account is closed."),
        SmallAmounts(),
        ask("transfer"),
        allow("*"),
    )
    masked = Masked()
    agent = Agent(
        ScriptedModel([calls, text("Done.")]), tools=[transfer, balance], policy=policy, interceptors=[masked]
    )

    result = await agent.run("Move the money")

    print(result.reason, [one.arguments for one in result.approvals])
    assert [one.arguments["amount"] for one in result.approvals] == [900]  # this one waits for a person
    assert [one.reason for one in result.denials] == ["This account is closed."]
    assert masked.seen[0] == "balance"


asyncio.run(main())
