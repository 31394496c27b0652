"""What a survey of mutations showed that no test noticed: which calls wait for which, and what is recorded of them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pipeline_tools import (
    Recorder,
    act,
    checked_call,
    content,
    on_fake_clock,
    read,
    run_calls,
    statuses,
    tool_of,
    types,
)
from treadle import Agent, Budget, Command, Decision, ProcessResult, Tool
from treadle.engine.rules.bounds import claims_alone, conflicts
from treadle.events import AnyEvent
from treadle.testing import Gate, ScriptedModel, Turn, call, text
from treadle.tools import CheckedCall


def checked(effect: str, resources: dict[str, str] | None) -> CheckedCall:
    named: Callable[..., Any] | None = None if resources is None else lambda _: resources
    return checked_call(tool_of(Recorder(), "t", effect=effect, resources=named))


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (("read", None), ("read", None), True),
        (("read", None), ("unsafe", None), False),
        (("unsafe", None), ("unsafe", None), False),
        (("unsafe", {"a": "write"}), ("unsafe", {"b": "write"}), True),
        (("unsafe", {"a": "write"}), ("unsafe", {"a": "write"}), False),
        (("unsafe", {"a": "write"}), ("unsafe", {"a": "read"}), False),
        (("unsafe", {"a": "read"}), ("unsafe", {"a": "read"}), True),
        (("unsafe", {"a": "write"}), ("read", {"a": "read"}), False),
        (("unsafe", {"a": "write"}), ("read", {"b": "read"}), True),
        (("read", {"a": "write"}), ("read", {"a": "write"}), False),
    ],
)
def test_calls_conflict_where_one_writes_what_the_other_holds(one: Any, other: Any, together: bool) -> None:
    first, second = checked(*one), checked(*other)

    assert conflicts(first, second) is (not together)
    assert conflicts(second, first) is (not together)


@pytest.mark.parametrize(
    ("effect", "resources", "alone"),
    [
        ("read", None, False),
        ("read", {"folder": "write"}, True),
        ("read", {"folder": "read"}, False),
        ("read", {}, False),
        ("unsafe", {"folder": "write"}, False),
    ],
)
def test_a_read_claims_something_for_itself_where_it_says_so(effect: str, resources: Any, alone: bool) -> None:
    assert claims_alone(checked(effect, resources)) is alone


@pytest.mark.row("S07")
@pytest.mark.parametrize(
    ("resources", "early"),
    [(None, True), ({"folder": "read"}, True), ({}, True), ({"folder": "write"}, False)],
    ids=["none named", "reads one", "names none", "claims one"],
)
async def test_a_read_starts_early_unless_it_claims_something_for_itself(resources: Any, early: bool) -> None:
    begun, started = Gate(), {}
    named = None if resources is None else (lambda _: resources)

    def watch(event: AnyEvent) -> None:
        if event.type == "tool.started":
            started[event.tool] = event.early
        if len(started) == 1 + early:
            begun.open()

    turn = Turn(calls=(call("first", n=1), call("look", n=2)), gate=begun, hold_after_call=1)
    tools = [read(Recorder(), "first"), read(Recorder(), resources=named)]
    async with on_fake_clock() as session:
        agent = Agent(ScriptedModel([turn, text("Done.")]), tools=tools, subscribers=[watch])
        result = await agent.run("go", session=session)

    assert started == {"first": True, "look": early}
    assert statuses(result) == ["ok", "ok"]


@pytest.mark.row("TF11")
@pytest.mark.parametrize("resource", ["a", "b"], ids=["the same", "another"])
async def test_a_call_waits_for_one_that_was_given_up_only_where_both_hold_the_same(resource: str) -> None:
    release, order = threading.Event(), []

    def slow(arguments: Any, ctx: Any) -> str:
        release.wait(30)
        order.append("slow has ended")
        return "late"

    async def quick(arguments: Any, ctx: Any) -> str:
        order.append("quick")
        return "done"

    tools = [
        act(slow, "slow", timeout=0.01, resources=lambda _: {"a": "write"}),
        act(quick, "quick", resources=lambda _: {resource: "write"}),
    ]
    releasing = []

    async def let_go() -> None:
        for _ in range(200):
            await asyncio.sleep(0)  # others have their turns: whoever need not wait has begun by then
        release.set()

    def watch(event: AnyEvent) -> None:
        if event.type == "call.decided" and event.tool == "quick":
            releasing.append(asyncio.ensure_future(let_go()))

    model = ScriptedModel([call("slow"), call("quick"), text("Done.")])
    result = await Agent(model, tools=tools, subscribers=[watch]).run("go")
    await releasing[0]

    assert statuses(result)[1] == "ok"
    assert order[0] == ("slow has ended" if resource == "a" else "quick")


class Bare:
    """A sandbox that nothing runs in."""

    name = "bare"

    async def run(self, command: Command) -> ProcessResult:
        raise AssertionError("nothing was to run here")


class Boxing(Bare):
    async def run(self, command: Command) -> ProcessResult:
        return ProcessResult(exit_code=0, stdout="", stderr="")


async def test_a_call_that_runs_in_the_sandbox_names_it() -> None:
    class Says:
        def decide(self, call: Any, session: Any) -> Decision:
            return Decision(kind="sandbox")

    tools = [act(Recorder(), sandbox=lambda arguments: Command(arguments=("true",)))]
    result = await run_calls(call("act"), tools=tools, policy=Says(), sandbox=Boxing())

    (started,) = await types(result, "tool.started")
    assert (started.sandbox, statuses(result)) == ("bare", ["ok"])


@pytest.mark.parametrize("kind", ["allow", "ask"])
async def test_a_call_that_runs_outside_of_the_sandbox_names_none(kind: Any) -> None:
    class Says:
        def decide(self, call: Any, session: Any) -> Decision:
            return Decision(kind=kind)

    agent = Agent(ScriptedModel([call("act"), text("Done.")]), tools=[act(Recorder())], policy=Says(), sandbox=Bare())
    result = await agent.run("go")
    if kind == "ask":
        await result.session.answer(result.approvals[0].id, "allow")
        result = await agent.resume(result.session)

    (started,) = await types(result, "tool.started")
    assert started.sandbox == ""
    assert statuses(result) == ["ok"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("lok", "Did you mean look?"), ("zzzzzz", "Call one of the listed tools."), ("loo", "Did you mean loot or look?")],
)
async def test_an_unknown_tool_is_told_with_those_that_resemble_it(name: str, said: str) -> None:
    tools: list[Tool] = [read(Recorder(), "look")]
    if " or " in said:
        tools.append(read(Recorder(), "loot"))

    result = await run_calls(call(name), tools=tools)

    assert content(result)["message"] == f"There is no tool named {name!r}. {said}"
    assert sorted(content(result)["did_you_mean"]) == [one.name for one in tools if one.name in said]


@pytest.mark.parametrize("value", [list(range(5_000)), [{"a": "é\n" * 10}] * 500], ids=["numbers", "objects"])
async def test_what_the_model_is_shown_of_a_long_result_says_how_much_there_is_and_where(value: Any) -> None:
    result = await run_calls(call("look"), tools=[read(Recorder(value))], budget=Budget(max_tool_result_chars=1_000))

    shown = content(result)
    assert sorted(shown) == ["artifact", "preview", "shown_chars", "total_chars", "truncated"]
    whole = msgspec.json.encode(value).decode()
    assert shown["truncated"] is True
    assert (shown["total_chars"], shown["shown_chars"]) == (len(whole), len(shown["preview"]))
    assert whole.startswith(shown["preview"])
    assert shown["artifact"].startswith("a_")
