"""Actions of a tool's own: decided by the rules that hold for calls, recorded before the tool continues."""

import asyncio
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, content, read, results, run_calls, statuses, tool_of, types
from treadle import Agent, ConfigurationError, ToolContext, allow, ask, deny, first_of, open_session
from treadle.drivers.react import ReActDriver
from treadle.events import ActionDecided
from treadle.journals.memory import MemoryJournal
from treadle.ports import Decision
from treadle.testing import ScriptedModel, call, text


def asking(action: str = "delete", arguments: Any = None, **words: Any) -> Any:
    """A tool function that asks about one action and returns what it was told."""

    async def run(_: Any, ctx: ToolContext) -> Any:
        decision = await ctx.decide(action, {"path": "a"} if arguments is None else arguments, **words)
        return [decision.kind, decision.rule]

    return run


@pytest.mark.row("T04")
@pytest.mark.parametrize(
    ("policy", "words", "kind"),
    [
        (None, {}, "ask"),
        (None, {"effect": "read"}, "allow"),
        (allow("delete"), {}, "allow"),
        (first_of(deny("delete(path=a)", reason="kept"), allow("delete")), {}, "deny"),
        (first_of(deny("delete(path=b)"), allow("delete")), {}, "allow"),
        (ask("delete"), {"effect": "read"}, "ask"),
    ],
)
async def test_a_tool_asks_the_permission_engine_about_an_action_of_its_own(policy, words, kind):
    result = await run_calls(
        call("act"), tools=[act(asking(**words))], policy=first_of(allow("act"), policy) if policy else None
    )
    (decided,) = await types(result, "action.decided")
    started, ended = await types(result, "tool.started", "tool.finished")

    assert content(result)[0] == decided.decision == kind
    assert content(result)[1] == decided.rule
    assert started.seq < decided.seq < ended.seq
    assert (decided.call_id, decided.tool, decided.action, decided.arguments) == (
        "call_1",
        "act",
        "delete",
        {"path": "a"},
    )
    assert decided.digest
    await check_session(result.session)


@pytest.mark.row("T04")
async def test_a_denied_action_is_in_the_report_and_in_the_explanation():
    result = await run_calls(
        call("act"), tools=[act(asking())], policy=first_of(deny("delete", reason="kept"), allow("act"))
    )

    assert statuses(result) == ["ok"]
    assert [(one.call_id, one.tool, one.reason) for one in result.denials] == [("call_1", "delete", "kept")]
    explained = await result.session.explain()
    (decided,) = await types(result, "action.decided")
    assert (decided.rule, decided.scope, decided.by) == ("deny delete", "agent", "policy")
    assert ("delete (asked by act)", "deny") in [(one.tool, one.decision) for one in explained.approved]


@pytest.mark.row("T04", "H20")
async def test_an_action_that_is_a_tool_of_the_agent_has_that_tools_contract_and_effect():
    ran = Recorder()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    other = tool_of(ran, "pay", effect="keyed", parameters=schema)
    tools = [act(asking("pay", {"n": 1}, effect="read")), act(asking("pay", {"n": "x"}), "bad"), other]

    result = await run_calls(call("act"), call("bad"), tools=tools)
    fit, unfit = await types(result, "action.decided")

    assert (fit.decision, fit.rule, fit.effect) == ("ask", "default for keyed", "keyed")
    assert (unfit.decision, unfit.rule) == ("deny", "invalid_arguments")
    assert "`n` must be integer" in unfit.reason
    assert (unfit.scope, unfit.by) == ("runtime", "runtime")
    assert ran.runs == 0


@pytest.mark.row("T04")
@pytest.mark.parametrize("driver", [None, ReActDriver()])
async def test_a_policy_that_fails_allows_no_action_under_any_driver(driver):
    class Breaks:
        def decide(self, call: Any, session: Any) -> Any:
            if call.name == "delete":
                raise SystemExit(3)
            return Decision(kind="allow", rule="mine")

    turn = call("act") if driver is None else text('{"thought": null, "type": "call_tool", "tool": "act", "args": {}}')
    end = text("Done.") if driver is None else text('{"thought": null, "type": "final_answer", "answer": "Done."}')
    agent = Agent(ScriptedModel([turn, end]), tools=[act(asking())], policy=Breaks(), driver=driver)

    result = await agent.run("go")

    assert [one.decision for one in await types(result, "action.decided")] == ["deny"]
    assert result.completed


@pytest.mark.row("T04")
async def test_an_interceptor_may_forbid_an_action_and_what_it_rewrites_is_not_allowed():
    class Watch:
        def before(self, call: Any) -> Any:
            if call.name == "delete":
                return Decision(kind="deny", rule="watch")
            return type(call)(id=call.id, name=call.name, arguments='{"path": "b"}') if call.name == "move" else call

        def after(self, call: Any, result: Any) -> Any:
            return result

    tools = [act(asking("delete")), act(asking("move"), "act2"), act(asking("copy"), "act3")]
    calls = [call("act"), call("act2"), call("act3")]

    result = await run_calls(*calls, tools=tools, policy=allow("*"), interceptors=[Watch()])

    assert [one[0] for one in results(result)] == ["deny", "deny", "allow"]


@pytest.mark.row("T04")
async def test_a_blocking_tool_may_ask_from_its_thread():
    def run(_: Any, ctx: ToolContext) -> Any:
        return asyncio.run(ctx.decide("delete", {"path": "a"})).kind

    result = await run_calls(call("act"), tools=[act(run)], policy=allow("*"))

    assert content(result) == "allow"
    assert len(await types(result, "action.decided")) == 1


@pytest.mark.row("T04", "N01")
async def test_nothing_is_decided_for_a_call_that_has_ended():
    kept: list[ToolContext] = []

    async def run(_: Any, ctx: ToolContext) -> str:
        kept.append(ctx)
        return "done"

    async with open_session(MemoryJournal()) as session:
        result = await run_calls(call("act"), tools=[act(run)], policy=allow("*"), session=session)
        before = len(await session.events())

        decision = await kept[0].decide("delete", {})

        assert (decision.kind, decision.rule) == ("deny", "call has ended")
        assert len(await session.events()) == before
    assert result.completed


@pytest.mark.row("T04", "H21")
@pytest.mark.parametrize(("action", "arguments"), [("", {}), ("a\nb", {}), ("x", []), ("x", {"a": object()}), (5, {})])
async def test_an_action_that_cannot_be_recorded_is_the_tools_own_error(action, arguments):
    async def run(_: Any, ctx: ToolContext) -> str:
        with pytest.raises(ConfigurationError):
            await ctx.decide(action, arguments)
        return "told"

    result = await run_calls(call("act"), tools=[act(run)], policy=allow("*"))

    assert content(result) == "told"
    assert not [one for one in await result.session.events() if isinstance(one, ActionDecided)]


@pytest.mark.row("T04")
async def test_an_early_read_asks_in_the_step_of_its_response():
    result = await run_calls(call("look"), tools=[read(asking(effect="read"), "look")])
    (decided,) = await types(result, "action.decided")

    assert (decided.step, decided.decision) == (1, "allow")
