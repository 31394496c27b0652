"""The tools and agents of simulated lives. They are made once: each call finds its own process by the loop it runs in."""

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from simulator.mind import SimModel
from treadle import Agent, Tool, allow, ask, deny, first_of
from treadle.guards import Guards
from treadle.tools import JsonObject, ToolContext
from treadle.toolsets.operations import operation

if TYPE_CHECKING:
    from simulator.process import Process

__all__ = ["ACTING", "agent_of"]

ACTING = frozenset({"pay", "wire", "order", "write", "start_transfer"})
"""Tools that change the world themselves."""

_ARGUMENTS: JsonObject = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "ref": {"type": "integer"}},
    "required": ["to", "ref"],
    "additionalProperties": False,
}
_RECEIPT: JsonObject = {"type": "object", "properties": {"receipt": {"type": "integer"}}, "required": ["receipt"]}


def _process() -> "Process":
    return asyncio.get_running_loop().process  # type: ignore[attr-defined, no-any-return]


async def _look(arguments: JsonObject, ctx: ToolContext) -> Any:
    process = _process()
    return await process.life.world.look(process, ctx, arguments)


async def _finish(arguments: JsonObject, ctx: ToolContext) -> Any:
    return {"finished": arguments["ref"]}


def _acting(name: str, effect: Any, **options: Any) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        process = _process()
        return await process.life.world.act(process, ctx, name, arguments)

    return Tool(
        name=name, description=name, parameters=_ARGUMENTS, effect=effect, run=run, output_schema=_RECEIPT, **options
    )


async def _check_wire(arguments: JsonObject, ctx: ToolContext) -> Any:
    process = _process()
    return await process.life.world.check(process, ctx, ctx.idempotency_key)


async def _start_transfer(arguments: JsonObject, ctx: ToolContext) -> Any:
    process = _process()
    return await process.life.world.act(process, ctx, "start_transfer", arguments)


async def _check_transfer(key: str, ctx: ToolContext) -> Any:
    process = _process()
    return await process.life.world.check(process, ctx, key)


@cache
def _own_tools() -> tuple[Tool, ...]:
    return (
        Tool(name="look", description="Look.", parameters=_ARGUMENTS, effect="read", run=_look, timeout=20),
        Tool(name="watch", description="Look.", parameters=_ARGUMENTS, effect="read", run=_look, timeout=5, retries=1),
        _acting("pay", "unsafe", timeout=20),
        _acting("wire", "unsafe", timeout=20, check=_check_wire, interrupt="block"),
        _acting("order", "keyed", timeout=20),
        _acting("write", "idempotent", timeout=20, resources=lambda arguments: {f"file:{arguments['to']}": "write"}),
        Tool(name="finish", description="End.", parameters=_ARGUMENTS, effect="read", run=_finish, ends_run=True),
    )


@cache
def _operation() -> tuple[Tool, Tool]:
    return operation(
        "transfer",
        start=_start_transfer,
        check=_check_transfer,
        description="Transfer money.",
        parameters=_ARGUMENTS,
        timeout=15,
    )


@cache
def _policy(word: str) -> Any:
    match word:
        case "allow":
            return allow("*")
        case "mixed":
            return first_of(deny("order", reason="never"), allow("pay", "wire", "delegate"))
        case "ask":
            return ask("*")
        case _:
            return None


@cache
def _child(policy: str) -> Agent:
    return Agent(SimModel("child"), tools=_own_tools()[:-1], policy=_policy(policy), guards=Guards())


_OUTPUT: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@cache
def agent_of(
    *,
    policy: str,
    has_child: bool,
    polls: bool,
    is_structured: bool,
    has_tight_guards: bool,
    on_limit: Any,
    in_doubt: Any,
    tool_choice: str,
) -> Agent:
    """Return the agent of such a life; equal ones are one."""
    tools = [*_own_tools()]
    if polls:
        tools += _operation()
    if has_child:
        tools.append(_child(policy).as_tool("delegate", "Let another do it."))
    return Agent(
        SimModel("lead"),
        tools=tools,
        policy=_policy(policy),
        output=_OUTPUT if is_structured else None,
        on_limit=on_limit,
        in_doubt=in_doubt,
        tool_choice=tool_choice,
        guards=Guards(repeats=2, failures=1, invalid_json=1, invalid_arguments=1) if has_tight_guards else Guards(),
    )
