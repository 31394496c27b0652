"""What stands around the agent of a life: a policy that changes and interrupts, hooks, a toolset that comes and goes, a compactor, a form.

Made once for all lives: each finds its own life by the loop it runs in.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from simulator.world import ACTING
from treadle import Suspended, Tool, first_of
from treadle.context.compaction import ClearResults, Summarize, Tiers
from treadle.messages import user_message
from treadle.ports import Compactable, Compaction, Decision, Hook, HookContext, RequestNeed, SessionView, ToolsetContext
from treadle.tools import CheckedCall, JsonObject, ToolContext

if TYPE_CHECKING:
    from simulator.process import Process

__all__ = [
    "AROUND",
    "DENIES_CALL",
    "DENIES_RESPONSE",
    "HOOKS",
    "INTERRUPTS",
    "Compactor",
    "Shop",
    "form_of",
    "policy_around",
    "process_here",
    "rewritten",
]

AROUND = ("mode", "toolset", "changed_arguments", "interrupt_decision", "compaction", "input", "hook")
"""Features that stand around an agent. A life has the one that it is about, and now and then others."""
INTERRUPTS = 3
"""An action whose `ref` this divides is denied by the policy, and the run stops for a person."""
DENIES_CALL = 17
"""A call whose `ref` this divides has a hook that fails before it, and is denied."""
DENIES_RESPONSE = 13
"""A response with a call whose `ref` this divides is denied by a hook: none of its calls starts."""
COMPACTS_AT = 120
"""Tokens of the messages from which a request is made shorter."""


def process_here() -> "Process":
    """Return the process of the life in whose loop this runs."""
    return asyncio.get_running_loop().process  # type: ignore[attr-defined, no-any-return]


def rewritten(arguments: JsonObject) -> JsonObject:
    """Return the arguments as an interceptor or a policy leaves them. Done twice it is as done once."""
    return {**arguments, "to": "bob & co"} if arguments.get("to") == "bob" else arguments


# --- a policy that changes arguments, and one that interrupts


class _Changing:
    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        """Allow what is not asked for in this form: the policies behind this one are asked about the changed call."""
        changed = rewritten(call.arguments)
        return None if changed is call.arguments else Decision(kind="allow", rule="changes", arguments=changed)


class _Interrupting:
    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        if call.name not in ACTING or call.arguments.get("ref", 1) % INTERRUPTS:
            return None
        return Decision(kind="deny", rule="interrupts", reason="A person must look at this.", interrupt=True)


def policy_around(policy: Any, around: frozenset[str]) -> Any:
    """Return a policy behind those that change and interrupt, where a life has them."""
    before = [_Changing()] if "changed_arguments" in around else []
    before += [_Interrupting()] if "interrupt_decision" in around else []  # type: ignore[list-item]  # both are policies
    if not before:
        return policy
    return first_of(*before, *([] if policy is None else [policy]))


# --- hooks


def _ref(arguments: str) -> int:
    try:
        return int(json.loads(arguments)["ref"])
    except (ValueError, TypeError, KeyError):
        return 1


async def _at_start(context: HookContext) -> str | None:
    process = process_here()
    process.life.judge.hook_began(process, context.session_id)
    await _hesitate(process, seconds=0.5)
    return "Remember the rules." if _has_luck(process, 0.3) else None


async def _at_end(context: HookContext) -> None:
    process = process_here()
    process.life.judge.hook_ended(process, context.session_id)
    if _has_luck(process, 0.2):
        raise RuntimeError("the hook broke")


async def _at_prompt(context: HookContext) -> str | None:
    return "Mind the costs." if _has_luck(process_here(), 0.2) else None


async def _before_request(context: HookContext) -> Any:
    process = process_here()
    if _has_luck(process, 0.03):
        return Decision(kind="deny", reason="Not today.")
    return "It is late." if _has_luck(process, 0.1) else None


async def _after_response(context: HookContext) -> Decision | None:
    await _hesitate(process_here(), seconds=0.5)
    refs = [_ref(call.arguments) for call in context.message.calls] if context.message else []
    is_denied = any(ref % DENIES_RESPONSE == 0 for ref in refs)
    return Decision(kind="deny", reason="Not this response.") if is_denied else None


async def _before_tool(context: HookContext) -> None:
    if _ref(context.call.arguments if context.call else "") % DENIES_CALL == 0:
        raise RuntimeError("the hook broke")
    await _hesitate(process_here(), seconds=20.0)  # at times longer than its time: then the call is denied


async def _after_tool(context: HookContext) -> None:
    if _has_luck(process_here(), 0.1):
        raise RuntimeError("the hook broke")


async def _at_stop(context: HookContext) -> str | None:
    return "Continue." if _has_luck(process_here(), 0.3) else None


def _has_luck(process: "Process", probability: float) -> bool:
    return not process.life.is_healed and process.coin(probability)


async def _hesitate(process: "Process", *, seconds: float) -> None:
    if process.is_dead:
        await process.gone()
    if _has_luck(process, 0.3):
        await process.sleep(process.life.chance.random() * seconds)


HOOKS = (
    Hook(at="session_start", run=_at_start),
    Hook(at="session_end", run=_at_end),
    Hook(at="prompt", run=_at_prompt),
    Hook(at="before_request", run=_before_request),
    Hook(at="after_response", run=_after_response),
    Hook(at="before_tool", run=_before_tool, timeout=10.0),
    Hook(at="after_tool", run=_after_tool),
    Hook(at="stop", run=_at_stop, timeout=None),
)
"""One at each moment."""


# --- a toolset


class Shop:
    """A toolset that opens late or not at all, lists other tools from step to step, breaks while it is open, and fails to close."""

    name = "shop"

    def __init__(self, browse: Tool, buy: Tool) -> None:
        self._browse, self._buy = browse, buy

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator["Shop"]:
        process = process_here()
        if process.is_dead:
            await process.gone()
        life = process.life
        await process.sleep(life.latency() * 0.3)
        fate = "ok" if life.is_healed else life.chance.choice(_FATES_OF_SHOPS)
        life.trace(process, f"the shop opens: {fate}")
        if fate == "closed":
            raise ConnectionError("the shop is closed")
        async with asyncio.TaskGroup() as tasks:
            if fate == "breaks":
                tasks.create_task(_break(process))
            process.open_shops += 1
            try:
                yield self
            finally:
                process.open_shops -= 1
                life.trace(process, "the shop closes")
                if fate == "stays":
                    await process.sleep(life.latency())
        if fate == "fails":
            raise ConnectionError("the shop does not close")

    async def tools(self, session: SessionView) -> Sequence[Tool]:
        process = process_here()
        if process.is_dead:
            await process.gone()
        draw = 1.0 if process.life.is_healed else process.life.chance.random()
        if draw < 0.06:
            raise ConnectionError("the shop does not answer")
        if draw < 0.12:
            await process.sleep(process.life.latency())
        return [self._browse] if draw < 0.3 else [self._browse, self._buy]


_FATES_OF_SHOPS = ("ok", "ok", "ok", "ok", "closed", "breaks", "stays", "fails")


async def _break(process: "Process") -> None:
    await process.sleep(process.life.latency())
    raise ConnectionError("the shop burns down")


# --- a compactor


class Compactor:
    """Makes requests shorter early and often; now and then it fails, gives up, or answers with nonsense."""

    def __init__(self) -> None:
        self._tiers = Tiers(ClearResults(keep=1), Summarize(keep=1))

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return tokens - need.fixed_tokens > COMPACTS_AT

    async def compact(self, context: Compactable) -> Compaction | None:
        process = process_here()
        draw = 1.0 if process.life.is_healed else process.life.chance.random()
        process.life.trace(process, f"compacts {len(context.messages)} messages, {context.need.reason}")
        if draw < 0.08:
            raise RuntimeError("the compactor broke")
        if draw < 0.14:
            return None
        if draw < 0.2:  # may part calls from their results: then it must not be used
            end = process.life.chance.randrange(1, len(context.messages) + 1)
            return Compaction(tier="cut", begin=0, end=end, messages=(user_message("Shorter."),), summary="Shorter.")
        return await self._tiers.compact(context)


# --- a tool that waits for a person's input


async def _fill_in(arguments: JsonObject, ctx: ToolContext) -> Any:
    process = process_here()
    if process.is_dead:
        await process.gone()
    if not ctx.inputs:
        if process.coin(0.3):
            await process.sleep(process.life.latency())
        raise Suspended("a number")
    process.life.judge.filled_in(process, ctx)
    return await process.life.world.act(process, ctx, "form", arguments)


@cache
def form_of(parameters: str) -> Tool:
    """Return the tool that acts once a person has given it a number.

    Args:
        parameters: Its schema as JSON.
    """
    return Tool(
        name="form", description="Act with a person's number.", parameters=json.loads(parameters), effect="unsafe",
        run=_fill_in, timeout=20.0,
    )  # fmt: skip
