"""The tools and agents of simulated lives. They are made once: each call finds its own process by the loop it runs in."""

import json
from functools import cache
from typing import Any

import msgspec

from simulator.around import HOOKS, Compactor, Shop, form_of, policy_around, process_here, rewritten
from simulator.mind import SimModel
from simulator.world import ACTING
from treadle import Agent, Tool, allow, ask, deny, first_of
from treadle.budgets import Guards
from treadle.messages import Message, ToolCall
from treadle.ports import Decision, DecisionKind, SessionView
from treadle.tools import Done, JsonObject, ToolContext, ToolResult
from treadle.tools.tool import Run
from treadle.toolsets.operations import operation

__all__ = ["AFTER_RAISES", "BEFORE_DENIES", "PROGRESS", "agent_of", "guards_of", "is_done"]

PROGRESS = 4
"""Equal responses in a row that end a run of a life whose model makes progress with equal calls."""
BEFORE_DENIES = 7
"""An action whose `ref` this divides is denied by the interceptor."""
AFTER_RAISES = 11
"""A call whose `ref` this divides has an interceptor that fails after it."""

_ARGUMENTS: JsonObject = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "ref": {"type": "integer"}},
    "required": ["to", "ref"],
    "additionalProperties": False,
}
_RECEIPT: JsonObject = {"type": "object", "properties": {"receipt": {"type": "integer"}}, "required": ["receipt"]}


async def _look(arguments: JsonObject, ctx: ToolContext) -> Any:
    process = process_here()
    return await process.life.world.look(process, ctx, arguments)


async def _finish(arguments: JsonObject, ctx: ToolContext) -> Any:
    return {"finished": arguments["ref"]}


async def _admin(arguments: JsonObject, ctx: ToolContext) -> Any:
    process = process_here()
    return await process.life.world.admin(process, ctx, arguments)


def _looking(name: str, **options: Any) -> Tool:
    return Tool(
        name=name, description="Look.", parameters=_ARGUMENTS, effect="read", run=_look, result_limit=2_000, **options
    )


def _acts(name: str) -> Run:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        process = process_here()
        return await process.life.world.act(process, ctx, name, arguments)

    return run


def _acting(name: str, effect: Any, **options: Any) -> Tool:
    run = _acts(name)
    return Tool(
        name=name, description=name, parameters=_ARGUMENTS, effect=effect, run=run, output_schema=_RECEIPT, **options
    )


async def _check_wire(arguments: JsonObject, ctx: ToolContext) -> Any:
    return await _check_transfer(ctx.idempotency_key, ctx)


async def _check_transfer(key: str, ctx: ToolContext) -> Any:
    process = process_here()
    return await process.life.world.check(process, ctx, key)


@cache
def _own_tools() -> tuple[Tool, ...]:
    return (
        _looking("look", timeout=20.0),
        _looking("watch", timeout=5.0, retries=1),
        _acting("pay", "unsafe", timeout=20.0),
        _acting("wire", "unsafe", timeout=20.0, check=_check_wire, interrupt="block"),
        _acting("order", "keyed", timeout=20.0),
        _acting("write", "idempotent", timeout=20.0, resources=lambda arguments: {f"file:{arguments['to']}": "write"}),
        _acting("invoice", "unsafe", timeout=20.0, key=lambda arguments: arguments["to"]),
        Tool(name="admin", description="Act.", parameters=_ARGUMENTS, effect="unsafe", run=_admin, timeout=20.0),
        _looking("poll", polling=True),
        Tool(name="finish", description="End.", parameters=_ARGUMENTS, effect="read", run=_finish, ends_run=True),
    )


@cache
def _operation() -> tuple[Tool, Tool]:
    return operation(
        "transfer",
        start=_acts("start_transfer"),
        check=_check_transfer,
        description="Transfer money.",
        parameters=_ARGUMENTS,
        timeout=15.0,
    )


@cache
def _policy(word: str) -> Any:
    match word:
        case "allow":
            return allow("*")
        case "mixed":
            return first_of(deny("order", reason="never"), allow("pay", "wire", "delegate", "sub"))
        case "ask":
            return ask("*")
        case _:
            return None


class _Interceptor:
    """Rewrites some calls, denies some, marks every result, and fails now and then."""

    def before(self, call: ToolCall) -> ToolCall | Decision:
        arguments = json.loads(call.arguments)
        if call.name in ACTING and arguments["ref"] % BEFORE_DENIES == 0:
            return Decision(kind=DecisionKind.DENY, rule="interceptor", reason="Not this one.")
        return msgspec.structs.replace(call, arguments=json.dumps(rewritten(arguments)))

    def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        if json.loads(call.arguments).get("ref", 1) % AFTER_RAISES == 0:
            raise RuntimeError("the interceptor broke")
        return msgspec.structs.replace(result, display="marked")


def is_done(messages: "tuple[Message, ...]") -> bool:
    """Whether the last results say that the work is done."""
    results = messages[-1].results if messages else ()
    return any('"value":7' in result.content for result in results)


def _done_when(session: SessionView) -> Done | None:
    return Done({"n": 7}) if is_done(session.messages) else None


_OUTPUT: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@cache
def _structured() -> Any:
    return Agent(SimModel("lead"), output=_OUTPUT)._spec.output


@cache
def _shop() -> Shop:
    return Shop(_looking("browse", timeout=20.0), _acting("buy", "unsafe", timeout=20.0))


_compactor = Compactor()


@cache
def _of_tools(
    *, policy: str, has_child: bool, has_grandchild: bool, polls: bool, intercepts: bool, around: frozenset[str]
) -> Agent:
    """Return the agent with these tools. Making one compiles its tools, so there are few."""
    interceptors = [_Interceptor()] if intercepts else []
    ruling = policy_around(_policy(policy), around)
    tools: list[Any] = [*_own_tools()]
    if "input" in around:
        tools.append(form_of(json.dumps(_ARGUMENTS)))
    if "toolset" in around:
        tools.append(_shop())
    if polls:
        tools += _operation()
    if has_child:
        below = [*_own_tools()[:-1]]
        if has_grandchild:
            last = Agent(SimModel("grandchild"), tools=_own_tools()[:-1], policy=ruling, interceptors=interceptors)
            below.append(last.as_tool("sub", "Let yet another do it."))
        child = Agent(SimModel("child"), tools=below, policy=ruling, interceptors=interceptors)
        tools.append(child.as_tool("delegate", "Let another do it."))
    return Agent(SimModel("lead"), name="lead", tools=tools, policy=ruling, interceptors=interceptors)


def guards_of(*, has_tight_guards: bool, stuck: str | None) -> Guards:
    """Return the guards of the agent of such a life."""
    guards = Guards(repeats=2, failures=1, invalid_json=1, invalid_arguments=1) if has_tight_guards else Guards()
    if stuck == "progress":
        guards = msgspec.structs.replace(guards, repeats=2, repeats_with_progress=PROGRESS)
    return guards


def agent_of(
    *,
    policy: str,
    has_child: bool,
    has_grandchild: bool,
    polls: bool,
    intercepts: bool,
    is_structured: bool,
    has_tight_guards: bool,
    has_done: bool,
    stuck: str | None,
    batch_seconds: float | None,
    on_limit: Any,
    in_doubt: Any,
    tool_choice: str,
    around: frozenset[str],
) -> Agent:
    """Return the agent of such a life."""
    made = _of_tools(
        policy=policy,
        has_child=has_child,
        has_grandchild=has_child and has_grandchild,
        polls=polls,
        intercepts=intercepts,
        around=around - {"mode", "compaction", "hook"},
    )
    agent = object.__new__(Agent)
    agent.__dict__.update(made.__dict__)
    agent._spec = msgspec.structs.replace(
        made._spec,
        output=_structured() if is_structured else None,
        on_limit=on_limit,
        in_doubt=in_doubt,
        tool_choice=tool_choice,
        guards=guards_of(has_tight_guards=has_tight_guards, stuck=stuck),
        batch_seconds=batch_seconds,
        done_when=_done_when if has_done else None,
        compactor=_compactor if "compaction" in around else None,
        hooks=(*made._spec.hooks, *HOOKS) if "hook" in around else made._spec.hooks,
    )
    return agent
